"""States of tasks: what each carries, when it changes, and that an end is an end."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import anyio

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.check_creation import demand_task_members
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, Failed, NotExercised, Subject, demand, demand_result
from mcp_tasks_trio.doctor.examination import PLAIN, Examination, Task, bare_state, status_is
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.tools import Role

STATE = Subject("States of tasks")
_PAYLOADS = {"result": "completed", "error": "failed", "inputRequests": "input_required"}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?")


def _needs_tasks(x: Examination) -> None:
    if not any(True for _ in x.journal.sightings()):
        raise NotExercised("needs a tool that becomes a task (--task-tool NAME)")


@STATE.check(
    "state-is-whole",
    "G1",
    MUST,
    "tasks, Task Polling",
    "an answer to tasks/get has taskId, status, createdAt, lastUpdatedAt and ttlMs, of the task that was asked for",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.results("tasks/get"):
        demand_task_members(exchange, state)
        asked = exchange.sent.params.get("taskId")
        demand(state["taskId"] == asked, f"the state is of {state['taskId']!r}, not of {asked!r}", exchange)


@STATE.check(
    "state-says-complete",
    "G1",
    MUST,
    "tasks, Task Polling",
    "every answer to tasks/get, whatever the status, has the resultType complete",
    suite=("result-type-complete-on-tasks-get",),
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.results("tasks/get"):
        kind = state.get("resultType")
        demand(kind == "complete", f"the state of a {state.get('status')} task has the resultType {kind!r}", exchange)


@STATE.check(
    "payload-fits-the-status",
    "G1",
    MUST,
    "tasks, Task Status",
    "result comes with completed, error with failed, inputRequests with input_required: there always, elsewhere never",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.sightings():
        is_handle = exchange.sent.method == "tools/call"
        for member, status in _PAYLOADS.items():
            there, due = member in state, state.get("status") == status
            if is_handle:
                continue
            demand(there or not due, f"a task that is {status} is without {member}", exchange)
            demand(due or not there, f"a task that is {state.get('status')} has {member}", exchange)
            if there:
                demand(isinstance(state[member], dict), f"{member} is no object", exchange)


@STATE.check(
    "input-required-asks-for-something",
    "G2",
    MUST,
    "tasks, Task Polling",
    "a task that is input_required lists requests, each of a known method",
)
async def _(x: Examination) -> None:
    looked = False
    for exchange, state in x.journal.sightings():
        requests = state.get("inputRequests")
        if state.get("status") != "input_required" or not isinstance(requests, dict):
            continue
        looked = True
        demand(requests, "a task that is input_required lists no request", exchange)
        for key, request in requests.items():
            method = request.get("method") if isinstance(request, dict) else None
            known = method in ("elicitation/create", "sampling/createMessage", "roots/list")
            demand(known, f"the request {key!r} has the method {method!r}", exchange)
    if not looked:
        x.need(Role.ASK)
        raise NotExercised("needs a task that lists input requests")


@STATE.check(
    "task-completes-with-its-result",
    "T2",
    MUST,
    "tasks, Task Execution Errors",
    "a completed task carries what the call would have answered: content, as a tool's result has it",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.need(Role.TASK))
    result = task.state.get("result")
    demand(task.status == "completed", f"a task that completed before is {task.status} this time", task.last)
    content = result.get("content") if isinstance(result, dict) else None
    demand(isinstance(content, list), f"the result of a completed tool call has the content {content!r}", task.last)


@STATE.check(
    "tool-errors-complete",
    "T2",
    MUST,
    "tasks, Task Execution Errors",
    "what a plain call answers as isError is a completed task, and what it answers as an error is a failed one",
    suite=("failed-status-jsonrpc-only",),
)
async def _(x: Examination) -> None:
    compared = False
    for role, status in ((Role.TOOL_ERROR, "completed"), (Role.FAILING, "failed")):
        tool = x.tools.with_role(role)
        if tool is None:
            continue
        task = await x.ended(tool)
        plain = await x.call(tool, declares=PLAIN)
        if plain.result is not None and plain.result.get("isError"):
            compared = True
            demand(
                task.status == "completed",
                f"a plain call gets isError, but the task is {task.status}",
                plain,
                task.last,
            )
            result = task.state.get("result")
            is_error = isinstance(result, dict) and result.get("isError")
            demand(is_error, "a plain call gets isError, but the task's result does not say so", plain, task.last)
        elif plain.error is not None and plain.code != -32021:
            compared = True
            demand(
                task.status == "failed", f"a plain call gets an error, but the task is {task.status}", plain, task.last
            )
        else:
            demand(task.status == status, f"a task of {tool.name} is {task.status}", task.last)
    if not compared:
        raise NotExercised(
            "needs a tool whose plain call and whose task both end in an error"
            " (--failing-tool NAME, --tool-error-tool NAME)"
        )


@STATE.check(
    "failed-task-has-its-error",
    "T2",
    MUST,
    "tasks, Task Execution Errors",
    "a failed task carries a JSON-RPC error: an integer code and a message",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.need(Role.FAILING))
    demand(task.status == "failed", f"a task that failed before is {task.status} this time", task.last)
    error = task.state.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    demand(isinstance(code, int) and not isinstance(code, bool), f"the error's code is {code!r}", task.last)
    demand(isinstance(message, str), f"the error's message is {message!r}", task.last)


@STATE.check(
    "failed-task-says-why",
    "T2",
    SHOULD,
    "tasks, Task Execution Errors",
    "a failed task has a statusMessage",
    suite=("failed-includes-statusmessage",),
)
async def _(x: Examination) -> None:
    task = await x.ended(x.need(Role.FAILING))
    message = task.state.get("statusMessage")
    demand(isinstance(message, str) and message, "a failed task is without statusMessage", task.last)


@STATE.check("times-are-iso-8601", "T3", MUST, "tasks, Tasks", "createdAt and lastUpdatedAt are ISO 8601 timestamps")
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.sightings():
        for name in ("createdAt", "lastUpdatedAt"):
            if name in state:
                demand(read_time(state[name]) is not None, f"{name} is {state[name]!r}", exchange)


def read_time(value: Any) -> datetime | None:
    """The time that a text gives as ISO 8601 does, in the extended form with date and time; else ``None``."""
    if not isinstance(value, str) or _TIMESTAMP.fullmatch(value) is None:
        return None
    try:
        return datetime.fromisoformat(value.replace(",", "."))
    except ValueError:
        return None


@STATE.check(
    "last-update-is-not-before-creation",
    "T3",
    MUST,
    "tasks, Tasks",
    "lastUpdatedAt is not before createdAt, and createdAt stays the same",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    created: dict[Any, tuple[Any, Exchange]] = {}
    for exchange, state in x.journal.sightings():
        first, last = read_time(state.get("createdAt")), read_time(state.get("lastUpdatedAt"))
        if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
            continue
        demand(last >= first, f"lastUpdatedAt {last} is before createdAt {first}", exchange)
        before, shown = created.setdefault(state.get("taskId"), (first, exchange))
        same = (before.tzinfo is None) != (first.tzinfo is None) or before == first
        demand(same, f"createdAt was {before} and then {first}", shown, exchange)


@STATE.check(
    "last-update-moves-with-changes-alone",
    "T3",
    MUST,
    "tasks, Tasks",
    "lastUpdatedAt does not move while the task stands as it is",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.any_task_tool(Role.TASK, Role.TOOL_ERROR, Role.FAILING))
    before = task.last
    for _round in range(2):
        await anyio.sleep(x.patience.quiet / 4)
        await x.look(task)
    first, last = (s.get("lastUpdatedAt") for s in (task.states[-3], task.states[-1]))
    same = _without_times(task.states[-3]) == _without_times(task.states[-1])
    demand(
        first == last or not same, f"a task that ended was last updated at {first} and then {last}", before, task.last
    )


def _without_times(state: JSONObject) -> JSONObject:
    return {name: value for name, value in bare_state(state).items() if name not in ("lastUpdatedAt", "createdAt")}


@STATE.check(
    "end-is-final",
    "T1",
    MUST,
    "tasks, Task Status",
    "nothing that comes later changes a task that ended: no cancel, no update, no time",
)
async def _(x: Examination) -> None:
    for role in (Role.TASK, Role.FAILING):
        tool = x.tools.with_role(role)
        if tool is None:
            continue
        task = await x.ended(tool)
        await x.cancel(task)
        await x.update(task, {"mcp-tasks-doctor": {"action": "accept", "content": {}}})
        await x.cancel(task)
        await anyio.sleep(x.patience.quiet / 4)
        _compare_ends(task, await x.look(task))
    if not (x.tools.with_role(Role.TASK) or x.tools.with_role(Role.FAILING)):
        x.need(Role.TASK)


def _compare_ends(task: Task, now: JSONObject) -> None:
    before, after = _without_times(task.states[-2]), _without_times(now)
    for name in ("status", "result", "error"):
        if before.get(name) != after.get(name):
            raise Failed(f"a task that was {before.get('status')} has another {name} after it was cancelled", task.last)


@STATE.check(
    "no-state-after-the-end",
    "T1",
    MUST,
    "tasks, Task Status",
    "no task was ever seen in another status after a terminal one",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    ends: dict[Any, tuple[Any, Exchange]] = {}
    # Two polls that cross on the way may be answered in either order, so only what was asked one by one is compared.
    for exchange, state in x.journal.sightings():
        if exchange.sent.method != "tasks/get":
            continue
        task_id, status = state.get("taskId"), state.get("status")
        if task_id in ends:
            end, shown = ends[task_id]
            demand(status == end, f"a task that was {end} is {status} later", shown, exchange)
        elif status in TERMINAL:
            ends[task_id] = (status, exchange)


@STATE.check(
    "ended-task-can-be-read",
    "T4",
    MUST,
    "tasks, Tasks",
    "a task that ended can be read as long as its ttlMs lasts",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.need(Role.TASK))
    ttl = task.state.get("ttlMs")
    if isinstance(ttl, int) and ttl < 5_000:
        raise NotExercised(f"needs a ttlMs of 5000 or more, and it is {ttl}")
    await anyio.sleep(x.patience.quiet)
    exchange = await x.ask("tasks/get", {"taskId": task.task_id})
    demand_result(exchange, f"tasks/get of a task that ended {x.patience.quiet:g} s before")


@STATE.check(
    "cancelled-shows-as-cancelled",
    "T1",
    MUST,
    "tasks, Task Status",
    "a task that was cancelled before it completed is shown as cancelled, which no failure is",
    suite=("tasks-get-status-cancelled",),
)
async def _(x: Examination) -> None:
    task = await x.create(x.need(Role.SLOW))
    demand_result(await x.cancel(task), "tasks/cancel of a task that works")
    if not await x.follow(task, status_is(*TERMINAL)):
        raise NotExercised(f"needs a task that stops when it is cancelled, within {x.patience.settle:g} s")
    if task.status == "completed":
        raise NotExercised("needs a task that stops when it is cancelled; this one completed, which it may")
    demand(task.status == "cancelled", f"a task that was cancelled is {task.status}", task.last)
