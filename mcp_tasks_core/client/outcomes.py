"""How an operation of a client can end: values, one of which every operation gets exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, TaskId
from mcp_tasks_core.tasks import CancelledTask, DetailedTask, FailedTask, Task


@attrs.frozen(slots=True)
class Answered:
    """A plain request has its result, raw."""

    result: JSONObject


@attrs.frozen(kw_only=True, slots=True)
class Discovered:
    """What a server says about itself.

    Args:
        supported_versions: protocol versions, in the server's order.
        capabilities: raw.
        server_info: self-reported; for people, nothing may depend on it.
        result: the whole result, raw.

    Source: discover, DiscoverResult.
    """

    supported_versions: tuple[str, ...]
    capabilities: JSONObject
    instructions: str | None
    server_info: JSONObject | None
    result: JSONObject


@attrs.frozen(slots=True)
class ToolsListed:
    """All pages of tools/list, each tool raw, in the server's order."""

    tools: tuple[JSONObject, ...]


@attrs.frozen(slots=True)
class ToolResult:
    """A tool call has its ``CallToolResult``, raw; one with ``isError: true`` is a result too.

    Args:
        from_task: the task that produced it, ``None`` where the call was answered at once.
    """

    result: JSONObject
    from_task: TaskId | None = None


@attrs.frozen(slots=True)
class TaskFailed:
    """The task ended in a JSON-RPC error."""

    task: FailedTask


@attrs.frozen(slots=True)
class TaskCancelled:
    """The task was cancelled, by whomever."""

    task: CancelledTask


@attrs.frozen(kw_only=True, slots=True)
class RemoteError:
    """The server answered with a JSON-RPC error.

    Args:
        data: raw, with every member that the server put there.
        method: the request that it answered.
        task_id: the task that the request was about, where there is one.
    """

    code: int
    message: str
    data: JSONValue
    method: str
    task_id: TaskId | None = None


@attrs.frozen(kw_only=True, slots=True)
class InvalidResponse:
    """The server's answer broke the protocol.

    Args:
        reason: what was wrong and what is allowed.
        task_id: the task that exists all the same, so that somebody can look after it.
    """

    reason: str
    method: str
    task_id: TaskId | None = None


@attrs.frozen(kw_only=True, slots=True)
class UnsupportedVersion:
    """Server and client have no protocol version in common, or the server refuses one that it lists."""

    supported: tuple[str, ...]
    requested: str


@attrs.frozen(kw_only=True, slots=True)
class LegacyServer:
    """The server does not speak this revision; no other one is tried.

    Args:
        evidence: what it did on server/discover.
        exit_status: of a server that ended, where the transport knows it.
        stderr_tail: what it wrote last on its standard error.
    """

    evidence: str
    exit_status: int | None = None
    stderr_tail: str = ""


@attrs.frozen(kw_only=True, slots=True)
class TimedOut:
    """The deadline passed.

    Args:
        method: the request that was waited for, or ``tasks/get`` while a task was watched.
        cancel_sent: the server was told to cancel the task.
    """

    method: str
    task_id: TaskId | None = None
    cancel_sent: bool = False


@attrs.frozen(kw_only=True, slots=True)
class Cancelled:
    """The caller cancelled.

    Args:
        acknowledged: the server acknowledged a tasks/cancel. It may end otherwise all the same.
    """

    task_id: TaskId | None = None
    acknowledged: bool = False


@attrs.frozen(slots=True)
class DetachedFromTask:
    """The caller stopped watching. The task runs on.

    Args:
        answered: questions that an observation elsewhere must not ask again.
    """

    task_id: TaskId
    answered: frozenset[InputKey]


@attrs.frozen(kw_only=True, slots=True)
class Disconnected:
    """The connection, or the stream of this request, ended first. A task runs on and can be observed again.

    Args:
        exit_status: of a server process that ended.
        stderr_tail: what it wrote last on its standard error.
        answered: questions that an observation elsewhere must not ask again.
        cause: what the runner said about the end of a stream.
    """

    reason: str
    exit_status: int | None = None
    stderr_tail: str = ""
    task_id: TaskId | None = None
    answered: frozenset[InputKey] = frozenset()
    cause: object = None


@attrs.frozen(kw_only=True, slots=True)
class InputUnhandled:
    """The server asks, and nobody is there to answer. Nothing was answered or cancelled in the person's name.

    Args:
        task_id: ``None`` where the question came before any task.
    """

    task_id: TaskId | None
    requests: Mapping[InputKey, JSONObject]


@attrs.frozen(kw_only=True, slots=True)
class UnknownOutcome:
    """A change was sent and nothing says whether it was accepted. It is not sent again.

    Args:
        method: ``tasks/update`` or ``tasks/cancel``.
        keys: the questions whose answers are in doubt.
    """

    task_id: TaskId
    method: str
    keys: tuple[InputKey, ...] = ()


@attrs.frozen(slots=True)
class TaskOverdue:
    """The task outlived its time to live and a grace without reaching an end."""

    task: Task


@attrs.frozen(kw_only=True, slots=True)
class TaskUnreachable:
    """Polls failed too often in a row, and for too long. The task may run on.

    Args:
        reason: how the last one failed.
    """

    task_id: TaskId
    reason: str


@attrs.frozen(kw_only=True, slots=True)
class ListenEnded:
    """Nothing is left to listen to: every watched task has ended, was not agreed to, or is gone.

    Args:
        tasks: the last states, in the order in which the tasks ended.
        not_agreed: tasks that the server does not know, or no longer, or not for this caller.
    """

    tasks: tuple[DetailedTask, ...]
    not_agreed: tuple[TaskId, ...] = ()


@attrs.frozen(kw_only=True, slots=True)
class NotAcknowledged:
    """The server did not acknowledge the subscription in time; its tasks can be polled.

    Args:
        waited_ms: for the acknowledgement.
    """

    waited_ms: int


@attrs.frozen(kw_only=True, slots=True)
class NoSubscriptions:
    """The server has no subscriptions; its tasks can be polled."""

    message: str


Outcome: TypeAlias = (
    Answered
    | Discovered
    | ToolsListed
    | ToolResult
    | TaskFailed
    | TaskCancelled
    | RemoteError
    | InvalidResponse
    | UnsupportedVersion
    | LegacyServer
    | TimedOut
    | Cancelled
    | DetachedFromTask
    | Disconnected
    | InputUnhandled
    | UnknownOutcome
    | TaskOverdue
    | TaskUnreachable
    | ListenEnded
    | NotAcknowledged
    | NoSubscriptions
)
