"""Calls that become tasks, and calls that may not."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from mcp_tasks_trio.doctor.checks import (
    MUST,
    SHOULD,
    Failed,
    NotExercised,
    Subject,
    demand,
    demand_error,
    demand_result,
)
from mcp_tasks_trio.doctor.examination import EXTENSION, PLAIN, Examination, status_is
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.tools import Role, Tool

CREATION = Subject("Creating tasks")
_ROUNDS = 4
# 16 positions in which ids differ are at least 53 bits of decimal digits, 64 of hexadecimal ones.
_VARYING_POSITIONS_MIN = 16
_IDS_MIN = 4
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@CREATION.check(
    "no-task-without-the-extension",
    "C3",
    MUST,
    "tasks, Capability Negotiation",
    "a call whose request did not declare the extension never becomes a task, whatever the tool",
)
async def _(x: Examination) -> None:
    tasks = x.tools.task_tools()
    if not tasks:
        raise NotExercised("needs a tool that becomes a task (--task-tool NAME)")
    for tool in tasks:
        exchange = tool.undeclared
        if exchange is None:
            raise NotExercised("needs more time for calls without the extension (--time-limit SECONDS)")
        kind = (exchange.result or {}).get("resultType")
        demand(kind != "task", f"{tool.name} became a task for a client that did not declare the extension", exchange)


@CREATION.check(
    "required-task-names-the-extension",
    "C3",
    MUST,
    "tasks, Capability Negotiation",
    "a tool that can run as a task only answers other clients with -32021 that names the extension",
)
async def _(x: Examination) -> None:
    exchange = await x.call(x.need(Role.REQUIRED), declares=PLAIN)
    demand_error(exchange, -32021, what="a call of a tool that can run as a task only, without the extension,")
    demand_extension_named(exchange)


def demand_extension_named(exchange: Exchange) -> None:
    """See that -32021 says what is missing, as the capabilities object has it."""
    data = (exchange.error or {}).get("data")
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    extensions = required.get("extensions") if isinstance(required, dict) else None
    named = isinstance(extensions, dict) and isinstance(extensions.get(EXTENSION), dict)
    demand(named, f"data.requiredCapabilities is {required!r}, which does not name the extension", exchange)


@CREATION.check(
    "legacy-task-param-is-ignored",
    "C2",
    MUST,
    "tasks, Capability Negotiation",
    "the task member that calls had in 2025-11-25 decides nothing: the server does",
)
async def _(x: Examination) -> None:
    plain = x.tools.with_role(Role.PLAIN)
    tasks = x.tools.task_tools()
    if plain is None and not tasks:
        raise NotExercised("needs a tool that can be called (--plain-tool NAME)")
    if plain is not None:
        exchange = await x.call(plain, {"task": {"ttl": 60_000}})
        result = demand_result(exchange, f"a call of {plain.name} with a task member")
        demand(result.get("resultType") != "task", "a task member made an ordinary tool a task", exchange)
    if tasks:
        exchange = await x.call(tasks[0], {"task": {"ttl": 60_000}}, declares=PLAIN, wait=x.patience.probe)
        kind = (exchange.result or {}).get("resultType")
        demand(kind != "task", "a task member made a task for a client that did not declare the extension", exchange)


@CREATION.check(
    "handle-resolves-at-once",
    "C5",
    MUST,
    "tasks, Task Creation",
    "tasks/get for a handle that was just given finds the task",
)
async def _(x: Examination) -> None:
    tool = x.any_task_tool(Role.TASK, Role.SLOW)
    for _round in range(_ROUNDS):
        task = await x.create(tool)
        exchange = await x.ask("tasks/get", {"taskId": task.task_id})
        if exchange.result is None:
            raise Failed("tasks/get right after the handle does not find the task", task.created, exchange)
        found = exchange.result.get("taskId")
        demand(found == task.task_id, f"tasks/get gave the task {found!r}, not the one asked for", exchange)


@CREATION.check(
    "input-before-the-task-has-no-handle",
    "C6",
    SHOULD,
    "tasks, Task Creation",
    "a call that asks for input before its task exists answers input_required and no handle",
)
async def _(x: Examination) -> None:
    x.need(Role.ROUND)
    for exchange, result in x.journal.results("tools/call"):
        if result.get("resultType") == "input_required":
            demand("taskId" not in result, "an input_required answer to the call has a taskId", exchange)


@CREATION.check(
    "ids-cannot-be-guessed",
    "C7",
    MUST,
    "tasks, Security Considerations",
    "task ids differ from one another in many places",
)
async def _(x: Examination) -> None:
    tool = x.any_task_tool(Role.TASK, Role.SLOW)
    while len(list(x.journal.handles())) < _IDS_MIN:
        await x.create(tool)
    seen = {str(handle.get("taskId")): exchange for exchange, handle in x.journal.handles()}
    ids, shown = sorted(seen), [seen[task_id] for task_id in sorted(seen)[:2]]
    demand(len(seen) == len(list(x.journal.handles())), "two tasks have the same id", *shown)
    prefix, suffix = _common_start(ids), _common_start([task_id[::-1] for task_id in ids])
    varying = _varying_positions([task_id[prefix : len(task_id) - suffix] for task_id in ids])
    demand(
        varying >= _VARYING_POSITIONS_MIN,
        f"{len(ids)} ids differ in {varying} places alone, such as {ids[0]!r} and {ids[-1]!r}",
        *shown,
    )


def _common_start(texts: list[str]) -> int:
    """How many characters all of them begin with."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False)))


def _varying_positions(texts: list[str]) -> int:
    shortest = min(map(len, texts))
    return sum(len({text[at] for text in texts}) > 1 for at in range(shortest))


@CREATION.check(
    "arguments-are-checked",
    "C11",
    MUST,
    "tools, Security Considerations",
    "a call without a required argument does not succeed",
)
async def _(x: Examination) -> None:
    tool = next((t for t in x.tools.tools if t.declared is not None and _required(t)), None)
    if tool is None:
        raise NotExercised("needs a tool that requires an argument")
    exchange = await x.call(tool, {"arguments": {}}, wait=x.patience.probe)
    result = exchange.result
    if result is not None and result.get("resultType") == "task":
        task = x.task_of(tool, exchange)
        if not await x.follow(task, status_is("input_required", *TERMINAL)):
            raise NotExercised(f"needs a call of {tool.name} without arguments to end")
        result, exchange = task.state.get("result"), task.last
    succeeded = isinstance(result, dict) and not result.get("isError")
    demand(not succeeded, f"{tool.name} without its required arguments succeeded", exchange)


def _required(tool: Tool) -> bool:
    schema = tool.definition.get("inputSchema")
    return isinstance(schema, dict) and bool(schema.get("required"))


@CREATION.check(
    "structured-results-conform",
    "C11",
    MUST,
    "tools, Output Schema",
    "a tool with an outputSchema gives a structured result, and it conforms",
)
async def _(x: Examination) -> None:
    from mcp_tasks_trio.doctor.conformity import fault_of

    looked = False
    for tool in x.tools.tools:
        schema = tool.definition.get("outputSchema")
        if not isinstance(schema, dict) or schema.get("$schema", _DIALECT) != _DIALECT:
            continue
        for exchange, result in _results_of(x, tool):
            looked = True
            demand("structuredContent" in result, f"{tool.name} gave no structuredContent", exchange)
            fault = fault_of(result["structuredContent"], schema)
            demand(fault is None, f"the structured result of {tool.name} does not conform: {fault}", exchange)
    if not looked:
        raise NotExercised("needs a tool with an outputSchema, and a result of it")


def _results_of(x: Examination, tool: Tool) -> list[tuple[Exchange, dict[str, Any]]]:
    """Its results that are no errors, from calls and from tasks."""
    found = []
    for exchange in (tool.declared, tool.undeclared):
        result = None if exchange is None else exchange.result
        if exchange is not None and result is not None and result.get("resultType") in ("complete", None):
            found.append((exchange, result))
    task_id = (tool.declared.result or {}).get("taskId") if tool.declared is not None else None
    for exchange, state in x.journal.results("tasks/get"):
        if task_id is not None and state.get("taskId") == task_id and isinstance(state.get("result"), dict):
            found.append((exchange, state["result"]))
    return [(exchange, result) for exchange, result in found if not result.get("isError")]
