"""The methods tasks/get, tasks/update and tasks/cancel: whom they serve, what they refuse, how they acknowledge."""

from __future__ import annotations

import anyio

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.check_creation import demand_extension_named
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error, demand_result
from mcp_tasks_trio.doctor.examination import EXTENSION, PLAIN, UNKNOWN_TASK, Examination
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.tools import Role

METHODS = Subject("The methods of tasks")
_UNKNOWN: dict[str, JSONObject] = {
    "tasks/get": {"taskId": UNKNOWN_TASK},
    "tasks/update": {"taskId": UNKNOWN_TASK, "inputResponses": {}},
    "tasks/cancel": {"taskId": UNKNOWN_TASK},
}
_PROTOCOL_ERRORS = "tasks, Protocol Errors"


def _needs_extension(x: Examination) -> None:
    extensions = x.capabilities.get("extensions")
    if not (isinstance(extensions, dict) and EXTENSION in extensions) and not x.tools.task_tools():
        raise NotExercised("needs a server that advertises the extension")


@METHODS.check(
    "undeclared-methods-are-refused",
    "G4",
    MUST,
    _PROTOCOL_ERRORS,
    "tasks/get, tasks/update and tasks/cancel without the extension get -32021 that names it, known task or not",
)
async def _(x: Examination) -> None:
    _needs_extension(x)
    ids = [UNKNOWN_TASK]
    if x.tools.task_tools():
        ids.append((await x.create(x.any_task_tool())).task_id)
    for method, params in _UNKNOWN.items():
        for task_id in ids:
            exchange = await x.ask(method, {**params, "taskId": task_id}, declares=PLAIN)
            demand_error(exchange, -32021, what=f"{method} without the extension")
            demand_extension_named(exchange)


@METHODS.check("get-of-unknown-task", "G3", MUST, _PROTOCOL_ERRORS, "tasks/get of an id that no task has gets -32602")
async def _(x: Examination) -> None:
    _needs_extension(x)
    demand_error(await x.ask("tasks/get", _UNKNOWN["tasks/get"]), -32602, what="tasks/get of an unknown id")


@METHODS.check(
    "update-of-unknown-task",
    "U4",
    SHOULD,
    _PROTOCOL_ERRORS,
    "tasks/update of an id that no task has gets -32602",
    suite=("update-error-unknown-task-id", "tasks-update-cancel-invalid-task-id-32602"),
)
async def _(x: Examination) -> None:
    _needs_extension(x)
    demand_error(await x.ask("tasks/update", _UNKNOWN["tasks/update"]), -32602, what="tasks/update of an unknown id")


@METHODS.check(
    "cancel-of-unknown-task",
    "X2",
    SHOULD,
    _PROTOCOL_ERRORS,
    "tasks/cancel of an id that no task has gets -32602",
    suite=("cancel-error-unknown-task-id", "tasks-update-cancel-invalid-task-id-32602"),
)
async def _(x: Examination) -> None:
    _needs_extension(x)
    demand_error(await x.ask("tasks/cancel", _UNKNOWN["tasks/cancel"]), -32602, what="tasks/cancel of an unknown id")


@METHODS.check(
    "task-id-is-required",
    "B7",
    MUST,
    _PROTOCOL_ERRORS,
    "tasks/get without a taskId, or with one that is no string, gets -32602",
)
async def _(x: Examination) -> None:
    _needs_extension(x)
    for what, params in (("without a taskId", {}), ("whose taskId is a number", {"taskId": 7})):
        demand_error(await x.ask("tasks/get", params), -32602, what=f"tasks/get {what}")


@METHODS.check(
    "removed-methods-are-gone",
    "G5",
    MUST,
    "tasks, Protocol Errors",
    "tasks/result and tasks/list, which 2025-11-25 had, get -32601",
)
async def _(x: Examination) -> None:
    for method, params in (("tasks/result", {"taskId": UNKNOWN_TASK}), ("tasks/list", {})):
        demand_error(await x.ask(method, params), -32601, what=method)


@METHODS.check(
    "update-is-acknowledged-empty",
    "U1",
    MUST,
    "tasks, Task Update Requests",
    "the answer to tasks/update is the empty result",
    suite=("update-ack-empty-result",),
)
async def _(x: Examination) -> None:
    exchange = await _some_update(x)
    _demand_empty(exchange)


@METHODS.check(
    "update-says-complete",
    "U1",
    MUST,
    "tasks, Task Update Requests",
    "the answer to tasks/update has the resultType complete",
    suite=("result-type-complete-on-tasks-update",),
)
async def _(x: Examination) -> None:
    _demand_complete(await _some_update(x))


async def _some_update(x: Examination) -> Exchange:
    """An update that a server acknowledges: answers where there are questions, none where there are none."""
    if x.tools.with_role(Role.ASK) is not None:
        return await x.answer(await x.asking())
    exchange = await x.update(await x.create(x.any_task_tool(Role.SLOW)), {})
    demand_result(exchange, "tasks/update of a task that exists")
    return exchange


@METHODS.check(
    "cancel-is-acknowledged-empty",
    "X1",
    MUST,
    "tasks, Task Cancellation",
    "the answer to tasks/cancel is the empty result, whether or not the work stops",
)
async def _(x: Examination) -> None:
    task = await x.create(x.any_task_tool(Role.SLOW, Role.ASK))
    exchange = await x.cancel(task)
    demand_result(exchange, "tasks/cancel of a task")
    _demand_empty(exchange)


@METHODS.check(
    "cancel-says-complete",
    "X1",
    MUST,
    "tasks, Task Cancellation",
    "the answer to tasks/cancel has the resultType complete",
    suite=("result-type-complete-on-tasks-cancel",),
)
async def _(x: Examination) -> None:
    task = await x.create(x.any_task_tool(Role.SLOW, Role.ASK))
    _demand_complete(await x.cancel(task))


@METHODS.check(
    "cancel-of-ended-task",
    "X2",
    MUST,
    "tasks, Task Cancellation",
    "tasks/cancel of a task that ended is acknowledged as any other",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.any_task_tool(Role.TASK, Role.FAILING, Role.TOOL_ERROR))
    exchange = await x.cancel(task)
    demand_result(exchange, f"tasks/cancel of a task that is {task.status}")
    _demand_empty(exchange)


@METHODS.check(
    "update-of-ended-task",
    "U4",
    SHOULD,
    "tasks, Task Update Requests",
    "tasks/update of a task that ended is acknowledged: none of its keys is outstanding",
)
async def _(x: Examination) -> None:
    task = await x.ended(x.any_task_tool(Role.TASK, Role.FAILING, Role.TOOL_ERROR))
    responses = {"mcp-tasks-doctor": {"action": "accept", "content": {}}}
    demand_result(await x.update(task, responses), f"tasks/update of a task that is {task.status}")


def _demand_empty(exchange: Exchange) -> None:
    more = sorted(set(exchange.result or {}) - {"resultType", "_meta"})
    demand(not more, f"the acknowledgement has {', '.join(more)}", exchange)


def _demand_complete(exchange: Exchange) -> None:
    kind = demand_result(exchange, exchange.sent.method).get("resultType")
    demand(kind == "complete", f"the acknowledgement has the resultType {kind!r}", exchange)


@METHODS.check(
    "cancelled-notification-leaves-tasks-alone",
    "X3",
    MUST,
    "tasks, Task Cancellation",
    "notifications/cancelled does not cancel a task, whether it names the call or the task",
    suite=("cancel-not-via-cancelled-notification",),
)
async def _(x: Examination) -> None:
    task = await x.create(x.need(Role.SLOW))
    for named in (task.created.sent.request_id, task.task_id):
        await x.notify("notifications/cancelled", {"requestId": named, "reason": "the doctor looks what happens"})
    await anyio.sleep(x.patience.quiet)
    state = await x.look(task)
    demand(
        state.get("status") in ("working", "input_required"),
        f"after notifications/cancelled for its call, the task is {state.get('status')}",
        task.created,
        task.last,
    )
