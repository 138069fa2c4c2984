"""How a client's call can fail: ordinary exceptions, one for each end that is no result.

All are ``ClientError``. None of them is ever inside an exception group, and none is a cancellation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from mcp_tasks_core.client import outcomes
from mcp_tasks_core.client.outcomes import Outcome
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, TaskId
from mcp_tasks_core.tasks import CancelledTask, FailedTask, Task

if TYPE_CHECKING:
    from mcp_tasks_http import Challenge

# Of the server's standard error in a message: a screen of it. The whole tail is in ``stderr_tail``.
_SHOWN_CHARS: Final = 2_000


class ClientError(Exception):
    """Something asked of a server came to no result.

    Args:
        task_id: the task that it was about, where there is one; it may run on.
    """

    def __init__(self, message: str, *, task_id: TaskId | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


class ServerNotStarted(ClientError):
    """The server's command could not be run at all."""


class RemoteError(ClientError):
    """The server answered with a JSON-RPC error; ``data`` is raw."""

    def __init__(self, code: int, text: str, data: JSONValue, method: str, task_id: TaskId | None = None) -> None:
        super().__init__(f"{method} was answered with error {code}: {text}", task_id=task_id)
        self.code = code
        self.text = text
        self.data = data
        self.method = method


class TaskFailed(ClientError):
    """The task ended in a JSON-RPC error: ``code``, ``text`` and ``data``. ``task`` is its last state."""

    def __init__(self, task: FailedTask) -> None:
        self.task = task
        self.code: int = task.error["code"]
        self.text: str = task.error["message"]
        self.data: JSONValue = task.error.get("data")
        super().__init__(f"task {task.task_id} failed with error {self.code}: {self.text}", task_id=task.task_id)


class TaskCancelled(ClientError):
    """The task ended cancelled. ``task`` is its last state."""

    def __init__(self, task: CancelledTask) -> None:
        reason = "" if task.status_message is None else f": {task.status_message}"
        super().__init__(f"task {task.task_id} was cancelled{reason}", task_id=task.task_id)
        self.task = task


class CallCancelledByClient(ClientError):
    """This side cancelled. ``acknowledged`` says whether the server acknowledged; a task may end otherwise."""

    def __init__(self, task_id: TaskId | None, acknowledged: bool) -> None:
        super().__init__("the call was cancelled by this client", task_id=task_id)
        self.acknowledged = acknowledged


class Detached(ClientError):
    """This side stopped watching; the task runs on. ``answered`` goes into the next observation of it."""

    def __init__(self, task_id: TaskId, answered: frozenset[InputKey]) -> None:
        super().__init__(f"task {task_id} is no longer watched", task_id=task_id)
        self.answered = answered


class CallTimedOut(ClientError, TimeoutError):
    """The deadline passed. ``cancel_sent`` says whether the server was told to cancel the task."""

    def __init__(self, method: str, task_id: TaskId | None, cancel_sent: bool = False) -> None:
        about = method if task_id is None else f"task {task_id}"
        super().__init__(f"{about} did not end before the deadline", task_id=task_id)
        self.method = method
        self.cancel_sent = cancel_sent


class SubscriptionNotAcknowledged(CallTimedOut):
    """The server did not acknowledge the subscription in time, or something in between holds its stream back.

    Its tasks can be followed with ``observe``, which polls.
    """

    def __init__(self, waited_ms: int) -> None:
        super().__init__("subscriptions/listen", None)
        self.args = (f"the server did not acknowledge the subscription within {waited_ms / 1000:g} s",)


class ConnectionLost(ClientError):
    """The connection ended first. A task runs on and can be observed again with ``answered``.

    Args:
        exit_status: of the server's process; ``None`` where it lives or is unknown, negative for a signal.
        stderr_tail: what the server wrote last on its standard error.
    """

    def __init__(
        self,
        reason: str,
        *,
        exit_status: int | None = None,
        stderr_tail: str = "",
        task_id: TaskId | None = None,
        answered: frozenset[InputKey] = frozenset(),
    ) -> None:
        super().__init__(_with_process(reason, exit_status, stderr_tail), task_id=task_id)
        self.reason = reason
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail
        self.answered = answered


class ServerUnreachable(ClientError):
    """No connection to the server came about: no such host, nobody listens there, or TLS failed. Nothing was sent."""


class HttpError(ClientError):
    """The server, or something in front of it, answered with HTTP alone: an error, a redirect, a page.

    Args:
        status: of the response.
        excerpt: how its body begins, safe to print.
        fields: its header, names in lower case.
    """

    def __init__(
        self, message: str, *, status: int, excerpt: str = "", fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"{message}: {excerpt}" if excerpt else message)
        self.status = status
        self.excerpt = excerpt
        self.fields = fields or {}


class Unauthorized(HttpError):
    """401: the server wants credentials, or did not accept those that came.

    Args:
        challenges: what WWW-Authenticate asks for; the parameters of a bearer challenge say where to get a token.
    """

    def __init__(self, message: str, challenges: tuple[Challenge, ...], **response: Any) -> None:
        super().__init__(message, **response)
        self.challenges = challenges

    @property
    def resource_metadata(self) -> str | None:
        """URL of the protected-resource metadata, where the server named it."""
        return self._parameter("resource_metadata")

    @property
    def scopes(self) -> tuple[str, ...]:
        """What a token needs, where the server said so."""
        return tuple((self._parameter("scope") or "").split())

    def _parameter(self, name: str) -> str | None:
        bearer = (challenge for challenge in self.challenges if challenge.scheme == "bearer")
        return next((challenge.parameters[name] for challenge in bearer if name in challenge.parameters), None)


class Forbidden(Unauthorized):
    """403: the credentials are good and do not allow this, or the server is not to be spoken to like this."""


class LegacyServer(ClientError):
    """The server does not speak revision 2026-07-28, and no other one is tried."""

    def __init__(self, evidence: str, exit_status: int | None, stderr_tail: str) -> None:
        text = f"this server speaks a legacy revision of MCP, or none: {evidence}"
        super().__init__(_with_process(text, exit_status, stderr_tail))
        self.evidence = evidence
        self.exit_status = exit_status
        self.stderr_tail = stderr_tail


class UnsupportedVersion(ClientError):
    """Client and server have no protocol version in common."""

    def __init__(self, requested: str, supported: tuple[str, ...]) -> None:
        listed = ", ".join(supported) or "none"
        super().__init__(f"the server refused protocol version {requested}; it names as supported: {listed}")
        self.requested = requested
        self.supported = supported


class InvalidResponse(ClientError):
    """The server's answer broke the protocol. ``task_id`` names a task that exists all the same."""

    def __init__(self, reason: str, method: str, task_id: TaskId | None) -> None:
        super().__init__(f"the answer to {method} is invalid: {reason}", task_id=task_id)
        self.reason = reason
        self.method = method


class InputUnhandled(ClientError):
    """The server asks and nobody is there to answer: ``requests`` are the open questions, raw, by key."""

    def __init__(self, requests: Mapping[InputKey, JSONObject], task_id: TaskId | None) -> None:
        keys = ", ".join(repr(str(key)) for key in requests)
        super().__init__(f"the server asks for input that nobody is there to give: {keys}", task_id=task_id)
        self.requests = requests


class UnknownOutcome(ClientError):
    """A change was sent, and nothing says whether the server accepted it. It was not sent again."""

    def __init__(self, method: str, keys: tuple[InputKey, ...], task_id: TaskId) -> None:
        about = "" if not keys else f" (answers to {', '.join(repr(str(key)) for key in keys)})"
        super().__init__(f"the server never acknowledged {method}{about}", task_id=task_id)
        self.method = method
        self.keys = keys


class TaskOverdue(ClientError):
    """The task outlived its time to live without an end. ``task`` is the last state that was seen."""

    def __init__(self, task: Task) -> None:
        super().__init__(f"task {task.task_id} outlived its time to live of {task.ttl_ms} ms", task_id=task.task_id)
        self.task = task


class TaskUnreachable(ClientError):
    """The task could not be read for a while, in spite of several polls. It may run on."""

    def __init__(self, task_id: TaskId, reason: str) -> None:
        super().__init__(f"task {task_id} cannot be read: {reason}", task_id=task_id)
        self.reason = reason


class SubscriptionsUnsupported(ClientError):
    """The server has no subscriptions. Its tasks can be followed with ``observe``, which polls."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the server has no subscriptions: {text}")
        self.text = text


def _with_process(text: str, exit_status: int | None, stderr_tail: str) -> str:
    if exit_status is not None:
        how = f"signal {-exit_status}" if exit_status < 0 else f"status {exit_status}"
        text += f"; the server's process ended with {how}"
    tail = stderr_tail.strip()[-_SHOWN_CHARS:]
    return f"{text}\n--- the server's standard error ends with\n{tail}" if tail else text


def error_for(outcome: Outcome) -> ClientError | None:
    """The exception for an outcome; ``None`` for one that is a result."""
    match outcome:
        case outcomes.Answered() | outcomes.Discovered() | outcomes.ToolsListed() | outcomes.ToolResult():
            return None
        case outcomes.ListenEnded():
            return None
        case outcomes.NotAcknowledged(waited_ms=waited_ms):
            return SubscriptionNotAcknowledged(waited_ms)
        case outcomes.NoSubscriptions(message=message):
            return SubscriptionsUnsupported(message)
        case outcomes.TaskFailed(task):
            return TaskFailed(task)
        case outcomes.TaskCancelled(task):
            return TaskCancelled(task)
        case outcomes.RemoteError() as o:
            return RemoteError(o.code, o.message, o.data, o.method, o.task_id)
        case outcomes.InvalidResponse() as o:
            return InvalidResponse(o.reason, o.method, o.task_id)
        case outcomes.UnsupportedVersion() as o:
            return UnsupportedVersion(o.requested, o.supported)
        case outcomes.LegacyServer() as o:
            return LegacyServer(o.evidence, o.exit_status, o.stderr_tail)
        case outcomes.TimedOut() as o:
            return CallTimedOut(o.method, o.task_id, o.cancel_sent)
        case outcomes.Cancelled() as o:
            return CallCancelledByClient(o.task_id, o.acknowledged)
        case outcomes.DetachedFromTask(task_id, answered):
            return Detached(task_id, answered)
        case outcomes.Disconnected(cause=ClientError() as cause):
            return cause
        case outcomes.Disconnected() as o:
            return ConnectionLost(
                o.reason,
                exit_status=o.exit_status,
                stderr_tail=o.stderr_tail,
                task_id=o.task_id,
                answered=o.answered,
            )
        case outcomes.InputUnhandled() as o:
            return InputUnhandled(o.requests, o.task_id)
        case outcomes.UnknownOutcome() as o:
            return UnknownOutcome(o.method, o.keys, o.task_id)
        case outcomes.TaskOverdue(last):
            return TaskOverdue(last)
        case outcomes.TaskUnreachable() as o:
            return TaskUnreachable(o.task_id, o.reason)
        case _:
            assert_never(outcome)
