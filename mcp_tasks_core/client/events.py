"""What a client's protocol core is told: everything that happened, as values."""

from __future__ import annotations

import enum
from typing import NewType, TypeAlias

import attrs

from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, TaskId

OperationId = NewType("OperationId", int)
"""What a caller waits for: a request, a tool call with all that follows, an observation.

Given by the runner, each above the last one."""

CallId = NewType("CallId", int)
"""One request on the wire. It is also that request's JSON-RPC id. Given by the core, never reused."""


# --- from the transport


@attrs.frozen(slots=True)
class MessageReceived:
    """A whole message came in.

    Args:
        payload: its bytes as they were, without a line end.
        call_id: whose stream it came on, with a stream per request; ``None`` on a shared channel.
    """

    payload: bytes
    call_id: CallId | None = None


@attrs.frozen(slots=True)
class MessageRefused:
    """The transport could not accept something, such as a line over the limit; the channel goes on.

    Args:
        beginning: the first characters of it, from which the request that it answered may be told.
    """

    reason: str
    call_id: CallId | None = None
    beginning: str = ""


@attrs.frozen(slots=True)
class StreamEnded:
    """The stream of one request ended, with its answer or without.

    Args:
        cause: what the runner knows more of it, passed on to the outcome as it is.
        refused: the other end turned the request itself away: sent again, it would get no further.
    """

    call_id: CallId
    reason: str
    cause: object = None
    refused: bool = False


@attrs.frozen(kw_only=True, slots=True)
class ConnectionLost:
    """Nothing comes in any more on the shared channel.

    Args:
        exit_status: of a server process that ended; negative is the signal that ended it.
        stderr_tail: what it wrote last on its standard error.
        closed_here: this side closed it; it says nothing about the server.
    """

    reason: str
    exit_status: int | None = None
    stderr_tail: str = ""
    closed_here: bool = False


# --- from the caller


@attrs.frozen(kw_only=True, slots=True)
class DiscoverStarted:
    """Ask the server what it is.

    Args:
        timeout_ms: silence after which it counts as legacy; ``None`` for the configured one.
    """

    operation_id: OperationId
    timeout_ms: int | None = None


@attrs.frozen(kw_only=True, slots=True)
class ToolsListStarted:
    """List all tools, page by page. ``timeout_ms`` bounds all pages together."""

    operation_id: OperationId
    timeout_ms: int | None = None


@attrs.frozen(kw_only=True, slots=True)
class RequestSubmitted:
    """Send any other request; it ends with ``Answered`` and the raw result.

    Args:
        params: without the protocol's own members of ``_meta``; others, such as a traceparent, are kept.
        timeout_ms: silence that is allowed, started anew by progress; ``None`` for the configured one.
        total_ms: at the most, in spite of progress; ``None`` for the configured one.
        tasks: declare the tasks extension; ``tasks/*`` always do.
        progress: ask for progress.
        log_level: ask for log messages at this level and above.
    """

    operation_id: OperationId
    method: str
    params: JSONObject = attrs.field(factory=dict)
    timeout_ms: int | None = None
    total_ms: int | None = None
    tasks: bool = False
    progress: bool = False
    log_level: str | None = None


class OnTimeout(enum.Enum):
    """What becomes of a call's own task when the caller's deadline passes."""

    CANCEL = "cancel"
    LEAVE = "leave"


@attrs.frozen(kw_only=True, slots=True)
class ToolCallStarted:
    """Call a tool and follow it to its end, through questions and through a task.

    Args:
        meta: more members of ``_meta``, such as a traceparent.
        tasks: the call may become a task.
        timeout_ms: for the whole: every round, and every poll; ``None`` for no such deadline.
        on_timeout: whether the task is cancelled at the deadline.
    """

    operation_id: OperationId
    name: str
    arguments: JSONObject = attrs.field(factory=dict)
    meta: JSONObject = attrs.field(factory=dict)
    tasks: bool = True
    timeout_ms: int | None = None
    progress: bool = False
    log_level: str | None = None
    on_timeout: OnTimeout = OnTimeout.CANCEL


@attrs.frozen(kw_only=True, slots=True)
class ObservationStarted:
    """Watch a task that exists. Whoever observes does not own: the end of the observation cancels nothing.

    Args:
        timeout_ms: how long to watch; ``None`` for as long as it takes.
        answered: questions that were answered before, here or elsewhere, and are not asked again.
    """

    operation_id: OperationId
    task_id: TaskId
    timeout_ms: int | None = None
    answered: frozenset[InputKey] = frozenset()


class ListKind(enum.Enum):
    """Which list of a server may change."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"


@attrs.frozen(kw_only=True, slots=True)
class ListenStarted:
    """Have the server tell what changes, and listen again whenever its stream ends before its time.

    It ends by itself when every watched task has ended and nothing else is listened to. Its end cancels no task.

    Args:
        task_ids: whose states, each once.
        tools, prompts, resources: when these lists change.
        resource_uris: when these resources change.
        timeout_ms: how long altogether; ``None`` for as long as it takes.
        jitter_permille: 0 to 1,000, at random: how much of half a wait is taken off before listening again, so that
            the clients of one server do not all come back at once.
    """

    operation_id: OperationId
    task_ids: tuple[TaskId, ...] = ()
    tools: bool = False
    prompts: bool = False
    resources: bool = False
    resource_uris: tuple[str, ...] = ()
    timeout_ms: int | None = None
    jitter_permille: int = 0


@attrs.frozen(slots=True)
class InputAnswered:
    """The answer to an ``AskInput``, as it is to stand on the wire."""

    operation_id: OperationId
    key: InputKey
    answer: JSONValue


@attrs.frozen(slots=True)
class InputUnanswerable:
    """Nobody is there to answer this ``AskInput``: the operation ends, the question stays open."""

    operation_id: OperationId
    key: InputKey


@attrs.frozen(kw_only=True, slots=True)
class CancelRequested:
    """The caller no longer wants it.

    Args:
        reason: for people at the server; sent while the request is in flight, tasks/cancel has no place for it.
        wait_for_end: with a task, go on watching after the acknowledgement, until the task has ended.
    """

    operation_id: OperationId
    reason: str | None = None
    wait_for_end: bool = False


@attrs.frozen(slots=True)
class DetachRequested:
    """The caller stops watching; the task, which must exist by now, runs on."""

    operation_id: OperationId


# --- from the clock


@attrs.frozen(slots=True)
class Ticked:
    """Time has passed: the moment that ``deadline`` named has come. Harmless at any other time."""


ClientEvent: TypeAlias = (
    MessageReceived
    | MessageRefused
    | StreamEnded
    | ConnectionLost
    | DiscoverStarted
    | ToolsListStarted
    | RequestSubmitted
    | ToolCallStarted
    | ObservationStarted
    | ListenStarted
    | InputAnswered
    | InputUnanswerable
    | CancelRequested
    | DetachRequested
    | Ticked
)
