"""Two callers: what one has created is not there for the other."""

from __future__ import annotations

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, NotExercised, Subject, demand, demand_error
from mcp_tasks_trio.doctor.examination import UNKNOWN_TASK, Examination, Task
from mcp_tasks_trio.doctor.tools import Role

OWNERS = Subject("Callers kept apart")
_METHODS: dict[str, JSONObject] = {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}
_BINDING = "tasks, Security Considerations"


async def _task_of_own(x: Examination) -> Task:
    if not x.other_headers:
        raise NotExercised("needs another caller's credentials (--other-header 'Authorization: ...')")
    return await x.create(x.any_task_tool(Role.SLOW, Role.ASK))


@OWNERS.check(
    "foreign-task-is-not-found",
    "A1",
    MUST,
    _BINDING,
    "tasks/get, tasks/update and tasks/cancel of another caller's task are refused, and the task stays as it is",
    only="http",
)
async def _(x: Examination) -> None:
    task = await _task_of_own(x)
    await x.look(task)
    for method, more in _METHODS.items():
        exchange = await x.ask(method, {"taskId": task.task_id, **more}, other_caller=True)
        demand_error(exchange, what=f"{method} of another caller's task")
    await x.look(task)
    status = task.status
    demand(status != "cancelled", "another caller has cancelled the task", task.last)


@OWNERS.check(
    "foreign-task-gets-minus-32602",
    "A1",
    MUST,
    "tasks, Protocol Errors",
    "tasks/get of another caller's task gets the code of one that does not exist",
    only="http",
)
async def _(x: Examination) -> None:
    task = await _task_of_own(x)
    foreign = await x.ask("tasks/get", {"taskId": task.task_id}, other_caller=True)
    unknown = await x.ask("tasks/get", {"taskId": UNKNOWN_TASK}, other_caller=True)
    demand_error(foreign, -32602, what="tasks/get of another caller's task")
    same = (foreign.code, foreign.status) == (unknown.code, unknown.status)
    demand(same, "a foreign task is told from an unknown one", foreign, unknown)


@OWNERS.check(
    "foreign-task-is-not-pushed",
    "A1",
    MUST,
    _BINDING,
    "a subscription to another caller's task gets nothing of it",
    only="http",
)
async def _(x: Examination) -> None:
    task = await _task_of_own(x)
    async with x.listen({"taskIds": [task.task_id]}, other_caller=True) as listening:
        for _message in range(3):
            if await listening.next(x.patience.quiet) is None:
                break
    x.keep(listening.exchange)
    if listening.exchange.code == -32601:
        raise NotExercised("needs a server that serves subscriptions/listen: it answers -32601")
    told = any(task.task_id in str(message) for message in listening.exchange.messages)
    demand(not told, "a listen to another caller's task speaks of it", listening.exchange)
