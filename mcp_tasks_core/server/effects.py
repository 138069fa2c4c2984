"""What a server's protocol core wants done: imperatives, to be carried out in order.

An effect with a ticket wants an event with the same ticket back. Frames of one stream are sent in order;
no other order matters.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

import attrs

from mcp_tasks_core.access import Access, Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, RequestId, Revision, StreamId, TaskId, Ticket
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import InputEntry


@attrs.frozen(slots=True)
class Frame:
    """Send one message on a stream.

    Args:
        payload: the message's bytes, in parts that are to be sent one after the other; no line end.
        final: this is the answer to the request, the last frame of its exchange.
        code: the error code it carries, ``None`` for a result or a notification; what an HTTP status is chosen by.
    """

    stream_id: StreamId
    payload: tuple[bytes, ...]
    final: bool
    code: int | None = None


@attrs.frozen(slots=True)
class Acknowledge:
    """A message that wants no answer was taken in, or could not be. HTTP says 202 or 400; pipes say nothing."""

    stream_id: StreamId
    accepted: bool


@attrs.frozen(slots=True)
class CutStream:
    """End a stream that is one request's alone without an answer: its client is to see that it broke off.

    Nothing more is told or asked about it; no ``StreamClosed`` is wanted. Source: DECISIONS D22, abnormal.
    """

    stream_id: StreamId
    reason: str


@attrs.frozen(slots=True)
class LoadTask:
    """Read a row. Answered by ``TaskLoaded`` or ``StoreFailed``."""

    ticket: Ticket
    task_id: TaskId


@attrs.frozen(slots=True)
class StoreTask:
    """Write a row: ``create`` where its revision is 1, else ``swap``.

    Answered by ``TaskStored``, ``StoreConflicted`` or ``StoreFailed``.

    Args:
        read_back: a read of the same row is wanted next. A runner that can do both in one go may put what it read into
            its answer, and is not asked again.
    """

    ticket: Ticket
    row: StoredTask
    read_back: bool = False


@attrs.frozen(slots=True)
class ListDue:
    """List up to ``limit`` rows that are due until then. Answered by ``DueListed`` or ``StoreFailed``."""

    ticket: Ticket
    until_ms: int
    limit: int


@attrs.frozen(slots=True)
class DeleteTask:
    """Delete a row if it still has this revision. Answered by ``TaskDeleted`` or ``StoreFailed``."""

    ticket: Ticket
    task_id: TaskId
    revision: Revision


@attrs.frozen(slots=True)
class HoldLease:
    """Say in a shared store that this process lives. Answered by ``LeaseHeld`` or ``StoreFailed``."""

    ticket: Ticket
    executor: str
    until_ms: int


@attrs.frozen(slots=True)
class ListOrphans:
    """List unfinished tasks of dead processes. Answered by ``OrphansListed`` or ``StoreFailed``."""

    ticket: Ticket
    now_ms: int
    limit: int


@attrs.frozen(slots=True)
class ListChanges:
    """List what any process changed after this position. Answered by ``ChangesListed`` or ``StoreFailed``."""

    ticket: Ticket
    after: int
    limit: int


@attrs.frozen(slots=True)
class Authorize:
    """May this caller do this with that owner's task? Answered by ``AccessDecided``."""

    ticket: Ticket
    caller: Owner
    access: Access
    task_id: TaskId
    owner: Owner


@attrs.frozen(kw_only=True, slots=True)
class CallContext:
    """What came with a request, for the application.

    Args:
        meta: the request's ``_meta`` as it was sent: trace context passes through untouched.
        capabilities: what the request declared.
        may_defer: the call may become a task: tasks are configured and declared.
        answers: answers that came with a retry, raw, by key. Those to questions that a requestState vouches
            for are checked; others are to be checked against the question when it is asked.
        state: what the application put into ``Asked.state`` before this retry.
    """

    stream_id: StreamId
    request_id: RequestId
    owner: Owner
    meta: JSONObject
    capabilities: ClientCapabilities
    may_defer: bool = False
    answers: Mapping[InputKey, JSONObject] = attrs.field(factory=dict)
    state: JSONValue = None


@attrs.frozen(kw_only=True, slots=True)
class InvokeTool:
    """Run a tool, or make its call a task. Answered by ``ToolAnswered`` or ``ToolDeferred``."""

    ticket: Ticket
    name: str
    arguments: JSONObject
    context: CallContext


@attrs.frozen(kw_only=True, slots=True)
class CallMethod:
    """Serve a method that the core does not serve itself. Answered by ``MethodAnswered``.

    Args:
        params: as they were sent, ``_meta``, ``inputResponses`` and ``requestState`` taken out.
    """

    ticket: Ticket
    method: str
    params: JSONObject
    context: CallContext


@attrs.frozen(slots=True)
class CancelCall:
    """Nobody waits for this call any longer: stop it. Answers to the ticket are ignored from now on."""

    ticket: Ticket
    reason: str


@attrs.frozen(slots=True)
class StartWork:
    """Start the work of a task whose handle is on its way. ``ticket`` is that of its ``InvokeTool``."""

    task_id: TaskId
    ticket: Ticket


@attrs.frozen(slots=True)
class AdoptWork:
    """The running work of a promoted or claimed call is the work of this task from now on."""

    task_id: TaskId
    ticket: Ticket


@attrs.frozen(kw_only=True, slots=True)
class ResumeWork:
    """Run the work of a task again: the process that ran it has died. Answers already given are stored.

    Args:
        arguments: those of the call, raw.
        meta: that call's ``_meta``.
        attempt: 2 for the second process that runs the work.
        answered: questions that were answered before the call became a task, and their answers.
        ttl_ms: the task's, as it is now.
    """

    task_id: TaskId
    name: str
    arguments: JSONObject
    owner: Owner
    meta: JSONObject
    capabilities: ClientCapabilities
    attempt: int
    answered: Mapping[InputKey, InputEntry] = attrs.field(factory=dict)
    ttl_ms: int | None = None


@attrs.frozen(kw_only=True, slots=True)
class OrphanLeft(ResumeWork):
    """As ``ResumeWork``, but that the application decides: ``WorkCompleted`` settles the task, and ``WorkReleased``
    leaves it as it is. Until then the task is this process's; when this one dies, too, the next one is told."""


@attrs.frozen(slots=True)
class AbandonWork:
    """A deferred call got no task: stop what runs for it, start nothing. ``ticket`` is that of its ``InvokeTool``."""

    ticket: Ticket
    reason: str


@attrs.frozen(slots=True)
class DeliverInput:
    """Hand an answer, raw, to the work that asked; it is stored."""

    task_id: TaskId
    key: InputKey
    answer: JSONObject


@attrs.frozen(slots=True)
class RefuseInput:
    """Tell the work that its question cannot be asked, and why.

    Args:
        error: -32021 where the task's creator did not declare the kind (DECISIONS D27), else -32603.
    """

    task_id: TaskId
    key: InputKey
    error: ErrorObject


@attrs.frozen(slots=True)
class StopWork:
    """Tell the work of a task to stop: a cancel was accepted, or the task has ended without it."""

    task_id: TaskId
    reason: str


@attrs.frozen(slots=True)
class PublishChange:
    """A new state of this task is stored: a hint for whoever watches, in this process or another."""

    task_id: TaskId


class SourceOperation(enum.Enum):
    READ = "read"
    ANSWER = "answer"
    CANCEL = "cancel"


@attrs.frozen(kw_only=True, slots=True)
class AskSource:
    """Ask the application's own engine about one of its tasks. Answered by ``SourceAnswered``.

    Args:
        source: the name under which its prefix was configured.
        answers: checked answers to outstanding questions, with ``ANSWER``.
    """

    ticket: Ticket
    source: str
    operation: SourceOperation
    task_id: TaskId
    caller: Owner
    answers: Mapping[InputKey, JSONObject] = attrs.field(factory=dict)


class Severity(enum.Enum):
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen(slots=True)
class Report:
    """For the operator's log: something that no peer is told, or not in these words."""

    severity: Severity
    message: str


ServerEffect: TypeAlias = (
    Frame
    | Acknowledge
    | CutStream
    | LoadTask
    | StoreTask
    | ListDue
    | DeleteTask
    | HoldLease
    | ListOrphans
    | ListChanges
    | Authorize
    | InvokeTool
    | CallMethod
    | CancelCall
    | StartWork
    | AdoptWork
    | ResumeWork
    | OrphanLeft
    | AbandonWork
    | DeliverInput
    | RefuseInput
    | StopWork
    | PublishChange
    | AskSource
    | Report
)
