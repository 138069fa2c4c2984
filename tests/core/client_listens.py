"""What tests of a client's subscriptions share: a caller, and a server that says what a test wants."""

from __future__ import annotations

from typing import Any

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import (
    StateObserved,
)
from mcp_tasks_core.client.events import (
    CallId,
    ListenStarted,
    OperationId,
    StreamEnded,
)
from mcp_tasks_core.client.outcomes import (
    InvalidResponse,
    Outcome,
)
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.testing.client import ClientBench, wire_task

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TASKS = "notifications/tasks"
CANCELLED = "notifications/cancelled"
TOOLS_CHANGED = "notifications/tools/list_changed"
RESOURCE_UPDATED = "notifications/resources/updated"
RESULT = {"content": [{"type": "text", "text": "done"}]}
HTTP = ClientConfig(transport=TransportKind.PER_REQUEST)
LIMITS = ClientLimits()

T1, T2 = TaskId("t-1"), TaskId("t-2")


def listen(bench: ClientBench, *task_ids: str, **members: Any) -> OperationId:
    operation = bench.next_operation()
    ids = tuple(TaskId(task_id) for task_id in task_ids)
    bench.feed(ListenStarted(operation_id=operation, task_ids=ids, **members))
    return operation


def state(bench: ClientBench, status: str = "working", *, subscription: Any = None, **members: Any) -> None:
    """A state on the newest subscription, or on another one."""
    if status == "completed":
        members.setdefault("result", RESULT)
    bench.tell(TASKS, subscription=subscription, **wire_task(status, **members))


def asked(bench: ClientBench) -> JSONObject:
    """What the newest listen asks for."""
    notifications: JSONObject = bench.requests(LISTEN)[-1]["params"]["notifications"]
    return notifications


def shown(bench: ClientBench, operation: OperationId) -> list[tuple[str, str]]:
    """Id and status of each state that was shown."""
    return [
        (str(seen.task.task_id), seen.task.status.value)
        for seen in bench.seen(StateObserved)
        if seen.operation_id == operation
    ]


def server_cancels(bench: ClientBench, request_id: Any = None) -> None:
    """The server ends the newest subscription, or another one, without a result."""
    listen_id = bench.requests(LISTEN)[-1]["id"] if request_id is None else request_id
    params = {"requestId": listen_id, "_meta": {META_SUBSCRIPTION_ID: listen_id}}
    stream = listen_id if bench.config.transport is TransportKind.PER_REQUEST else None
    bench.receive({"jsonrpc": "2.0", "method": CANCELLED, "params": params}, stream=stream)


def cut(bench: ClientBench, **members: Any) -> None:
    """The stream of the newest subscription ends."""
    listen_id = bench.requests(LISTEN)[-1]["id"]
    bench.feed(StreamEnded(CallId(listen_id), "the connection ended", **members))


def invalid(outcome: Outcome | None) -> str:
    """What was wrong, of an outcome that says so."""
    assert isinstance(outcome, InvalidResponse), outcome
    return outcome.reason


def assert_over_for_good(bench: ClientBench) -> None:
    """Nothing is sent any more, however long one waits."""
    listens, reads = len(bench.requests(LISTEN)), len(bench.requests("tasks/get"))
    bench.pass_time(3_600_000)
    assert (len(bench.requests(LISTEN)), len(bench.requests("tasks/get"))) == (listens, reads)
    assert bench.protocol.deadline is None
    assert bench.protocol.open_operations == {}
