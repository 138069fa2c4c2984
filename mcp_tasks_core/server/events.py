"""What a server's protocol core is told: everything that happened, as values.

Each event is a past participle. Those that answer an effect carry its ticket.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, StreamId, TaskId, Ticket
from mcp_tasks_core.server.config import ToolEntry
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.wire.headers import RoutingHeaders

# --- from the transport


@attrs.frozen(slots=True)
class MessageReceived:
    """A whole message came in on a stream, its bytes as they were.

    Args:
        owner: on whose behalf, as the transport knows it; nothing in the message can change it.
        headers: the routing headers that came with it; ``None`` on transports that have none.
        own_stream: the stream is this message's alone and ends with its answer, as one POST of HTTP; not so on a
            pipe, which everything shares.
    """

    stream_id: StreamId
    payload: bytes
    owner: Owner
    headers: RoutingHeaders | None = None
    own_stream: bool = False


@attrs.frozen(slots=True)
class MessageRefused:
    """The transport could not accept a message, such as a line over the limit; the stream goes on."""

    stream_id: StreamId
    error: ErrorObject


@attrs.frozen(slots=True)
class StreamClosed:
    """Nothing more can be sent on this stream, and nobody waits for it any longer."""

    stream_id: StreamId


@attrs.frozen(slots=True)
class StreamBlocked:
    """What was sent on this stream last has not gone out: its reader takes nothing for now.

    Until ``StreamUnblocked`` its subscriptions send nothing more, and keep the newest state of each task alone.
    Harmless when repeated; a runner tells it again when more was added all the same.

    Args:
        progressed: its reader has taken something since this was told last, so that it is slow and not gone.
    """

    stream_id: StreamId
    progressed: bool = False


@attrs.frozen(slots=True)
class StreamUnblocked:
    """Everything that was sent on this stream has gone out. Harmless when it was not blocked."""

    stream_id: StreamId


@attrs.frozen(slots=True)
class StreamEnding:
    """The transport is about to end this stream: its subscriptions get their graceful end.

    One that is being opened gets it right after its first states. Source: subscriptions, Graceful Closure.
    """

    stream_id: StreamId


@attrs.frozen(slots=True)
class ShutdownBegan:
    """The server is about to end: every subscription gets its graceful end now, and a later one right after its
    first states. Source: subscriptions, Graceful Closure."""


# --- from the store


@attrs.frozen(slots=True)
class TaskLoaded:
    """Answers ``LoadTask``. ``row`` is ``None`` when the store has no such task."""

    ticket: Ticket
    row: StoredTask | None


@attrs.frozen(slots=True)
class TaskStored:
    """Answers ``StoreTask``: the row is durable.

    Args:
        found: what a read found after that, where it was wanted and made; ``None`` where it is yet to be made.
    """

    ticket: Ticket
    found: StoredTask | None = None


@attrs.frozen(slots=True)
class StoreConflicted:
    """Answers ``StoreTask``: another writer was first (or, for a new task, the id is taken). Nothing was changed."""

    ticket: Ticket


@attrs.frozen(slots=True)
class StoreFailed:
    """Answers any effect that asks the store: it could not do it.

    Args:
        reason: for the log; a peer sees a general text.
        uncertain: the change may have been made all the same.
        full: the store or the owner's share of it is full.
    """

    ticket: Ticket
    reason: str
    uncertain: bool = False
    full: bool = False


@attrs.frozen(slots=True)
class DueListed:
    """Answers ``ListDue``: the overdue and soon due rows, the earliest first."""

    ticket: Ticket
    rows: Sequence[StoredTask]


@attrs.frozen(slots=True)
class TaskDeleted:
    """Answers ``DeleteTask``: the row is gone, or it had changed and stays."""

    ticket: Ticket


@attrs.frozen(slots=True)
class LeaseHeld:
    """Answers ``HoldLease``."""

    ticket: Ticket


@attrs.frozen(slots=True)
class OrphansListed:
    """Answers ``ListOrphans``."""

    ticket: Ticket
    rows: Sequence[StoredTask]


@attrs.frozen(slots=True)
class ChangesListed:
    """Answers ``ListChanges``: what changed, and from where to ask next."""

    ticket: Ticket
    position: int
    task_ids: Sequence[TaskId]


@attrs.frozen(slots=True)
class TaskChanged:
    """A hint: somebody may have changed this task. Harmless when lost, repeated or untrue."""

    task_id: TaskId


# --- from the application


@attrs.frozen(slots=True)
class AccessDecided:
    """Answers ``Authorize``."""

    ticket: Ticket
    allowed: bool


@attrs.frozen(slots=True)
class Returned:
    """An outcome: the result, raw. ``resultType``, serverInfo and caching members are added where missing."""

    result: JSONObject


@attrs.frozen(slots=True)
class Raised:
    """An outcome: a JSON-RPC error. A code that may not be sent becomes -32603 on the wire."""

    error: ErrorObject


@attrs.frozen(slots=True)
class Asked:
    """An outcome: input is needed before the request can be answered. Source: mrtr, InputRequiredResult.

    Args:
        requests: the input requests, raw, by key; may be empty when there is a ``state``.
        state: what the application wants back with the retry; travels sealed inside requestState.
        single_use: the retry may count once only (REQUIREMENTS R5); needs a ``nonce``.
        nonce: random bytes, 16 or more, that make the state unique; required with ``single_use``.
    """

    requests: Mapping[InputKey, JSONObject]
    state: JSONValue = None
    single_use: bool = False
    nonce: bytes = b""


Outcome: TypeAlias = Returned | Raised | Asked


@attrs.frozen(slots=True)
class ToolAnswered:
    """Answers ``InvokeTool``: the call ends here and makes no task."""

    ticket: Ticket
    outcome: Outcome


class Deferral(enum.Enum):
    """How a call becomes a task.

    ``START``: the work is started by ``StartWork``, once the record is stored and read back.
    ``PROMOTE``: the work runs already and goes on as the task; it is told to stop if the record cannot be stored.
    ``CLAIM``: as ``PROMOTE``, under an id that the application chose.
    """

    START = "start"
    PROMOTE = "promote"
    CLAIM = "claim"


@attrs.frozen(kw_only=True, slots=True)
class ToolDeferred:
    """Answers ``InvokeTool``: the call becomes a task.

    Args:
        deferral: who starts the work, and when.
        entropy: random bytes for the task's id, 24 or more; for ``START`` and ``PROMOTE``.
        task_id: the application's own id; for ``CLAIM``. With the prefix of a native source the state is the
            source's, and no record is stored here.
        ttl_ms: milliseconds from creation, 1 or more; ``None`` for unlimited.
        poll_interval_ms: milliseconds, 1 or more; ``None`` to suggest none.
        detach_on_disconnect: work starts although the caller went away before its handle (DECISIONS D39).
        answered: questions of the call that were answered before it became a task, with their answers. They are
            kept, so that work that another process runs again does not ask them again.
    """

    ticket: Ticket
    deferral: Deferral = Deferral.START
    entropy: bytes = b""
    task_id: TaskId | None = None
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None
    detach_on_disconnect: bool = False
    answered: Mapping[InputKey, tuple[JSONObject, JSONObject]] = attrs.field(factory=dict)


@attrs.frozen(slots=True)
class MethodAnswered:
    """Answers ``CallMethod``."""

    ticket: Ticket
    outcome: Outcome


@attrs.frozen(kw_only=True, slots=True)
class CallProgressed:
    """A call that is being answered says how far it is; sent on only if the request has a progress token."""

    ticket: Ticket
    progress: float
    total: float | None = None
    message: str | None = None


@attrs.frozen(kw_only=True, slots=True)
class CallLogged:
    """A call that is being answered has a log message; sent on only at or above the level the request asked for."""

    ticket: Ticket
    level: str
    data: JSONValue
    logger: str | None = None


@attrs.frozen(kw_only=True, slots=True)
class WorkProgressed:
    """The work behind a task says how far it is; it becomes the statusMessage, at most once per interval."""

    task_id: TaskId
    progress: float | None = None
    total: float | None = None
    message: str | None = None


@attrs.frozen(slots=True)
class InputNeeded:
    """The work behind a task asks a question. Answered by ``DeliverInput`` or ``RefuseInput``.

    Asking again under the same key with the same question delivers the answer that is already there.
    """

    task_id: TaskId
    key: InputKey
    request: JSONObject


@attrs.frozen(slots=True)
class InputWithdrawn:
    """The work behind a task no longer needs this answer."""

    task_id: TaskId
    key: InputKey


@attrs.frozen(slots=True)
class WorkStopped:
    """An outcome of work: it stopped because it was told to."""

    message: str | None = None


class Unchanged(enum.Enum):
    """In the place of a value: it stays as it is."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


@attrs.frozen(kw_only=True, slots=True)
class WorkRetimed:
    """The application changes how long a task is kept, or how often clients should poll it.

    Args:
        ttl_ms: from creation, 1 or more; ``None`` for unlimited.
        poll_interval_ms: 1 or more; ``None`` to suggest none.
    """

    task_id: TaskId
    ttl_ms: int | None | Unchanged = UNCHANGED
    poll_interval_ms: int | None | Unchanged = UNCHANGED


@attrs.frozen(slots=True)
class WorkReleased:
    """The application leaves a task that it was told of as it is: no process runs its work, and none will.

    It then ends with its time, or when its client cancels it.
    """

    task_id: TaskId


WorkOutcome: TypeAlias = Returned | Raised | WorkStopped


@attrs.frozen(slots=True)
class WorkCompleted:
    """The work behind a task has ended, and how."""

    task_id: TaskId
    outcome: WorkOutcome


# --- from a source of the application's own


class SourceAnswerKind(enum.Enum):
    STATE = "state"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"
    FAILED = "failed"


@attrs.frozen(slots=True, kw_only=True)
class SourceAnswered:
    """Answers ``AskSource``.

    Args:
        kind: ``STATE`` with owner and state for a read, ``ACCEPTED`` for an update or a cancel, ``UNKNOWN``
            when the source has no such task, ``FAILED`` when it cannot say.
        owner: whose task it is.
        state: the task as tasks/get shows it, a ``DetailedTask`` in wire form without resultType.
        reason: for the log, with ``FAILED``.
    """

    ticket: Ticket
    kind: SourceAnswerKind
    owner: Owner | None = None
    state: JSONObject | None = None
    reason: str | None = None


@attrs.frozen(slots=True)
class ToolsReplaced:
    """The catalogue of tools is another one from now on. Whoever subscribed to its changes is told."""

    tools: Sequence[ToolEntry]


class ListKind(enum.Enum):
    """A list that a server may have, by the capability that advertises it."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"


@attrs.frozen(slots=True)
class ListChanged:
    """What this list holds has changed. Source: subscriptions, Notification Filter.

    Args:
        owner: for whom it has; ``None`` for everybody.
    """

    kind: ListKind
    owner: Owner | None = None


@attrs.frozen(slots=True)
class ResourceUpdated:
    """A resource has changed. Source: subscriptions, Notification Filter.

    Args:
        uri: as clients subscribe to it, compared character by character.
        owner: who may be told; ``None`` for everybody who subscribed to it.
    """

    uri: str
    owner: Owner | None = None


# --- from the clock


@attrs.frozen(slots=True)
class Ticked:
    """Time has passed: the moment that ``deadline`` named has come. Harmless at any other time."""


ServerEvent: TypeAlias = (
    MessageReceived
    | MessageRefused
    | StreamClosed
    | StreamBlocked
    | StreamUnblocked
    | StreamEnding
    | ShutdownBegan
    | TaskLoaded
    | TaskStored
    | StoreConflicted
    | StoreFailed
    | DueListed
    | TaskDeleted
    | LeaseHeld
    | OrphansListed
    | ChangesListed
    | TaskChanged
    | AccessDecided
    | ToolAnswered
    | ToolDeferred
    | MethodAnswered
    | CallProgressed
    | CallLogged
    | WorkProgressed
    | InputNeeded
    | InputWithdrawn
    | WorkRetimed
    | WorkReleased
    | WorkCompleted
    | ToolsReplaced
    | ListChanged
    | ResourceUpdated
    | SourceAnswered
    | Ticked
)
