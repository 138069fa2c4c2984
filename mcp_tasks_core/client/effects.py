"""What a client's protocol core wants done: imperatives, to be carried out in order."""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs

from mcp_tasks_core.client.events import CallId, ListKind, OperationId
from mcp_tasks_core.client.outcomes import Outcome
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, TaskId
from mcp_tasks_core.tasks import DetailedTask, Task
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter


@attrs.frozen(kw_only=True, slots=True)
class Frame:
    """Send one message.

    Args:
        call_id: the request that it is, which opens a stream where each request has its own; ``None`` for a
            notification.
        payload: the message's bytes, in parts that are to be sent one after the other; no line end.
        method: of the request or notification.
        name: what a routing header names it by: a tool, a prompt, a resource's uri, a task id.
        version: the protocol version that the request declares.
    """

    call_id: CallId | None
    payload: tuple[bytes, ...]
    method: str
    name: str | None = None
    version: str | None = None


@attrs.frozen(slots=True)
class CloseStream:
    """Close the stream of one request: nobody waits for its answer. Only with a stream per request."""

    call_id: CallId


@attrs.frozen(slots=True)
class CloseConnection:
    """What is at the other end is no MCP server: close it. Every operation has ended already."""

    reason: str


@attrs.frozen(kw_only=True, slots=True)
class AskInput:
    """Put a question of the server to the person, the model or the file system that it is for.

    Answered by ``InputAnswered`` or ``InputUnanswerable``.

    Args:
        request: raw: ``method`` and ``params``.
        task_id: the task that asks; ``None`` where a request is not a task yet.
    """

    operation_id: OperationId
    key: InputKey
    request: JSONObject
    task_id: TaskId | None


@attrs.frozen(slots=True)
class WithdrawInput:
    """The server no longer asks this; an answer that comes all the same is dropped."""

    operation_id: OperationId
    key: InputKey


@attrs.frozen(slots=True)
class TaskCreated:
    """A call became a task: from now on its id names it, here and in other processes."""

    operation_id: OperationId
    task: Task


@attrs.frozen(slots=True)
class StateObserved:
    """A new state of a watched task; never an older one after a newer one."""

    operation_id: OperationId
    task: DetailedTask


@attrs.frozen(kw_only=True, slots=True)
class ProgressObserved:
    """The server says how far a request is."""

    operation_id: OperationId
    progress: float
    total: float | None
    message: str | None


@attrs.frozen(kw_only=True, slots=True)
class LogObserved:
    """The server logged something for a request that asked for it.

    Args:
        operation_id: ``None`` where several requests asked for logs on one channel and nothing tells whose it is.
    """

    operation_id: OperationId | None
    level: str
    logger: str | None
    data: JSONValue


@attrs.frozen(kw_only=True, slots=True)
class ListenAcknowledged:
    """The server tells of this from now on; said once more each time that the client had to listen again.

    Args:
        not_agreed: tasks that were asked for and are left out. The server does not know them, or not for this caller.
            Those that were agreed to before are told by ``TaskDropped``, too.
    """

    operation_id: OperationId
    agreed: SubscriptionFilter
    not_agreed: tuple[TaskId, ...] = ()


@attrs.frozen(slots=True)
class TaskDropped:
    """A task that the server agreed to tell of is unknown to it by now, or not for this caller. It is not watched."""

    operation_id: OperationId
    task_id: TaskId


@attrs.frozen(slots=True)
class ListChangeObserved:
    """A list has changed, or may have while nobody listened."""

    operation_id: OperationId
    kind: ListKind


@attrs.frozen(slots=True)
class ResourceUpdateObserved:
    """A resource has changed, or may have while nobody listened.

    Args:
        uri: one that was asked for, or a part of it.
    """

    operation_id: OperationId
    uri: str


@attrs.frozen(slots=True)
class OperationEnded:
    """The operation is over, and how. Nothing more is told about it."""

    operation_id: OperationId
    outcome: Outcome


class Severity(enum.Enum):
    INFO = "info"
    WARNING = "warning"


@attrs.frozen(slots=True)
class Report:
    """For the log: something the peer did that was ignored or forgiven."""

    severity: Severity
    message: str


ClientEffect: TypeAlias = (
    Frame
    | CloseStream
    | CloseConnection
    | AskInput
    | WithdrawInput
    | TaskCreated
    | StateObserved
    | ProgressObserved
    | LogObserved
    | ListenAcknowledged
    | TaskDropped
    | ListChangeObserved
    | ResourceUpdateObserved
    | OperationEnded
    | Report
)
