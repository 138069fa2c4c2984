"""subscriptions/listen with taskIds, where the server serves it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import attrs

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.check_creation import demand_extension_named
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error
from mcp_tasks_trio.doctor.examination import META_SUBSCRIPTION, PLAIN, UNKNOWN_TASK, Examination, Task, bare_state
from mcp_tasks_trio.doctor.exchanges import Exchange, same_id
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.task_members import demand_task_members
from mcp_tasks_trio.doctor.tools import Role, Tool

SUBSCRIPTIONS = Subject("Subscriptions to tasks")
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_NOTIFICATIONS = "tasks, Task Status Notifications"


@attrs.frozen
class _Heard:
    """What came on one subscription, the task's state when it was over, and whether the server ended it."""

    exchange: Exchange
    agreed: Sequence[Any]
    task: Task


def _agreed(message: Any) -> list[Any]:
    params = message.get("params") if isinstance(message, dict) else None
    notifications = params.get("notifications") if isinstance(params, dict) else None
    ids = notifications.get("taskIds") if isinstance(notifications, dict) else None
    return ids if isinstance(ids, list) else []


async def _hear(x: Examination, tool: Tool, *, until_end: bool, seconds: float | None = None) -> _Heard:
    """Listen to a new task of a tool: to its end, or to the end of the stream.

    Raises:
        NotExercised: the server serves no such subscription, or does not agree to this one.
    """
    task = await x.create(tool)
    end = time.monotonic() + (x.patience.settle if seconds is None else seconds)
    agreed: list[Any] = []
    async with x.listen({"taskIds": [task.task_id]}) as listening:
        while (left := end - time.monotonic()) > 0:
            message = await listening.next(left)
            if message is None or (isinstance(message, dict) and ("error" in message or "result" in message)):
                break
            agreed = agreed or _agreed(message)
            params = message.get("params") if isinstance(message, dict) else None
            if isinstance(params, dict) and params.get("status") in TERMINAL and not until_end:
                break
    x.keep(listening.exchange)
    if listening.exchange.error is not None and not agreed:
        raise NotExercised(f"needs a server that serves subscriptions/listen: it answers {listening.exchange.code}")
    return _Heard(listening.exchange, agreed, task)


async def _agreed_to(x: Examination, tool: Tool, **how: Any) -> _Heard:
    heard = await _hear(x, tool, **how)
    if heard.task.task_id not in heard.agreed:
        raise NotExercised("needs a server that agrees to send the states of tasks, which is its choice")
    return heard


def _states(exchange: Exchange) -> list[JSONObject]:
    params = [m.get("params") for m in exchange.notifications if m.get("method") == "notifications/tasks"]
    return [found for found in params if isinstance(found, dict)]


@SUBSCRIPTIONS.check(
    "undeclared-listen-is-refused",
    "S3",
    MUST,
    _NOTIFICATIONS,
    "a listen with taskIds without the extension gets -32021 that names it",
    suite=("subscribe-missing-capability-non-declaring",),
)
async def _(x: Examination) -> None:
    exchange = await x.ask(
        "subscriptions/listen", {"notifications": {"taskIds": [UNKNOWN_TASK]}}, declares=PLAIN, wait=2
    )
    if exchange.code == -32601:
        raise NotExercised("needs a server that serves subscriptions/listen: it answers -32601")
    demand_error(exchange, -32021, what="a listen with taskIds without the extension")
    demand_extension_named(exchange)


@SUBSCRIPTIONS.check(
    "acknowledgement-comes-first",
    "S1",
    MUST,
    "subscriptions, Acknowledgment",
    "the first message is the acknowledgement, and it agrees to nothing that was not asked for",
)
async def _(x: Examination) -> None:
    heard = await _hear(x, x.any_task_tool(Role.TASK), until_end=False)
    messages = heard.exchange.messages
    demand(messages, "a listen got no message", heard.exchange)
    first = messages[0].get("method") if isinstance(messages[0], dict) else None
    demand(first == _ACKNOWLEDGED, f"the first message is {first}", heard.exchange)
    more = [task_id for task_id in heard.agreed if task_id != heard.task.task_id]
    demand(not more, f"it agrees to {more}, which nobody asked for", heard.exchange)


@SUBSCRIPTIONS.check(
    "messages-name-their-subscription",
    "S2",
    MUST,
    "subscriptions, Receiving Notifications",
    "every message has the subscriptionId of the listen request, with its JSON type",
)
async def _(x: Examination) -> None:
    heard = await _hear(x, x.any_task_tool(Role.TASK), until_end=True, seconds=x.patience.probe * 2)
    own = heard.exchange.sent.request_id
    for message in heard.exchange.messages:
        carrier = message.get("params") or message.get("result") or {}
        meta = carrier.get("_meta") if isinstance(carrier, dict) else None
        given = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else None
        demand(same_id(own, given), f"a message has the subscriptionId {given!r}, not {own!r}", heard.exchange)


@SUBSCRIPTIONS.check(
    "only-agreed-notifications-come",
    "S4",
    MUST,
    _NOTIFICATIONS,
    "no progress, no log and no other task on a task's subscription",
    suite=("no-progress-or-message-on-task-stream",),
)
async def _(x: Examination) -> None:
    tool = x.tools.with_role(Role.ASK) or x.any_task_tool(Role.TASK)
    heard = await _hear(x, tool, until_end=False, seconds=x.patience.probe)
    for message in heard.exchange.notifications:
        method = message.get("method")
        allowed = (_ACKNOWLEDGED, "notifications/tasks", "notifications/cancelled")
        demand(method in allowed, f"{method} came on a task's subscription", heard.exchange)
    for state in _states(heard.exchange):
        demand(state.get("taskId") in heard.agreed, f"the state of {state.get('taskId')!r} came", heard.exchange)


@SUBSCRIPTIONS.check(
    "notification-is-what-a-poll-gives",
    "S4",
    MUST,
    _NOTIFICATIONS,
    "a notification carries the whole state, the one that tasks/get gives",
)
async def _(x: Examination) -> None:
    heard = await _agreed_to(x, x.need(Role.TASK), until_end=False)
    states = _states(heard.exchange)
    ends = [state for state in states if state.get("status") in TERMINAL]
    demand(ends, f"the task's end did not come within {x.patience.settle:g} s", heard.exchange)
    for state in states:
        demand_task_members(heard.exchange, state)
    polled = bare_state(await x.look(heard.task))
    different = sorted(n for n in {*polled, *bare_state(ends[-1])} if polled.get(n) != bare_state(ends[-1]).get(n))
    demand(not different, f"{', '.join(different)} differs from what tasks/get gives", heard.exchange, heard.task.last)


@SUBSCRIPTIONS.check(
    "questions-come-as-notifications",
    "S4",
    MUST,
    _NOTIFICATIONS,
    "a task that asks is pushed with its requests",
)
async def _(x: Examination) -> None:
    heard = await _agreed_to(x, x.need(Role.ASK), until_end=False, seconds=x.patience.probe)
    asking = [state for state in _states(heard.exchange) if state.get("status") == "input_required"]
    demand(asking, "the task asks, and no notification says so", heard.exchange)
    requests = asking[-1].get("inputRequests")
    demand(
        isinstance(requests, dict) and requests, "a notification of input_required lists no requests", heard.exchange
    )


@SUBSCRIPTIONS.check(
    "ending-a-subscription-leaves-the-task",
    "S6",
    MUST,
    "subscriptions, Cancellation",
    "the end of a subscription does not touch the task",
)
async def _(x: Examination) -> None:
    heard = await _agreed_to(x, x.need(Role.SLOW), until_end=False, seconds=x.patience.quiet)
    state = await x.look(heard.task)
    running = state.get("status") in ("working", "input_required")
    demand(running, f"after the end of its subscription the task is {state.get('status')}", heard.task.last)


@SUBSCRIPTIONS.check(
    "subscription-ends-with-a-result",
    "S5",
    SHOULD,
    "subscriptions, Graceful Closure",
    "a subscription that the server ends gets a result first",
)
async def _(x: Examination) -> None:
    heard = await _agreed_to(x, x.any_task_tool(Role.TASK), until_end=True)
    if heard.exchange.answer is None and not heard.exchange.ended:
        raise NotExercised("needs a server that ends a subscription when its tasks have ended, which is its choice")
    demand(heard.exchange.result is not None, "the subscription ended without a result", heard.exchange)
