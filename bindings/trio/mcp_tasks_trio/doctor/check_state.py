"""States of tasks: what each carries, when it changes, and that an end is an end."""

from __future__ import annotations

import anyio

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, Failed, NotExercised, Subject, demand, demand_result
from mcp_tasks_trio.doctor.examination import PLAIN, Examination, Task, bare_state, status_is
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.tools import Role

STATE = Subject("States of tasks")


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
