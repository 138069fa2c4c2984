"""The client's protocol core: events in, effects out, and one deadline.

Source: basic; versioning; cancellation; mrtr; tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_tasks_core.answers import check_answer as check_flat_answer
from mcp_tasks_core.client.calls import StreamLost
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.driving import Driver
from mcp_tasks_core.client.effects import ClientEffect, CloseConnection, OperationEnded, Severity
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ClientEvent,
    ConnectionLost,
    DetachRequested,
    InputAnswered,
    InputUnanswerable,
    ListenStarted,
    MessageReceived,
    MessageRefused,
    ObservationStarted,
    OperationId,
    StreamEnded,
    Ticked,
)
from mcp_tasks_core.client.listening import Listening
from mcp_tasks_core.client.operations import Operation
from mcp_tasks_core.client.outcomes import Cancelled, Disconnected, InputUnhandled, LegacyServer, Outcome
from mcp_tasks_core.client.receiving import Receiver
from mcp_tasks_core.client.starting import StartEvent, operation_for
from mcp_tasks_core.client.watching import TaskWatch
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, Instant, JSONObject, JSONValue, TaskId
from mcp_tasks_core.wire.json import JsonCodec, JsonError, StrictJson

AnswerCheck = Callable[[JSONObject, JSONValue], "str | None"]


class ClientProtocol:
    """One client on one connection, or, with a stream per request, at one endpoint.

    Args:
        codec: reads and writes JSON; the strict standard one by default.
        check_answer: what is wrong with an answer to an input request, ``None`` if nothing is.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        codec: JsonCodec | None = None,
        check_answer: AnswerCheck = check_flat_answer,
    ) -> None:
        self._config = config
        self._codec = StrictJson(config.limits) if codec is None else codec
        self._check_answer = check_answer
        self._driver = Driver(config, self._codec)
        self._receiver = Receiver(config, self._codec, self._driver, self._give_up)
        self._last_operation = 0
        self._lost: ConnectionLost | None = None

    def handle(self, event: ClientEvent, now: Instant) -> Sequence[ClientEffect]:
        """Take in what happened and say what to do about it. Whatever a peer does, this does not raise.

        Raises:
            LocalProtocolError: the caller broke a rule of this library; nothing has changed.
        """
        driver = self._driver
        driver.effects = []
        driver.now_ms = now.monotonic_ms
        match event:
            case MessageReceived():
                self._receiver.read(event)
            case MessageRefused(reason, _, beginning):
                self._receiver.refuse(reason, beginning)
            case StreamEnded(call_id, reason, cause, refused):
                call = driver.calls.find(call_id)
                if call is not None:
                    driver.settle(call, StreamLost(call.method, reason, cause, refused))
            case ConnectionLost():
                self._lose(event)
            case Ticked():
                driver.pass_time()
            case InputAnswered():
                self._take_answer(event)
            case InputUnanswerable():
                self._leave_unanswered(event)
            case CancelRequested():
                self._cancel(event)
            case DetachRequested(operation_id):
                self._detach(operation_id)
            case _:
                self._start(event)
        return driver.effects

    @property
    def deadline(self) -> int | None:
        """Milliseconds of the monotonic clock at which ``Ticked`` is wanted, ``None`` for never."""
        return self._driver.deadline_ms

    def awaits(self, call_id: CallId) -> bool:
        """Whether an answer to this request is still wanted."""
        return self._driver.calls.find(call_id) is not None

    @property
    def open_operations(self) -> dict[OperationId, str]:
        """What is waited for, for people who debug: a method or a task by operation."""
        return {
            operation_id: operation.method if operation.task_id is None else f"task {operation.task_id}"
            for operation_id, operation in self._driver.operations.items()
        }

    def _start(self, event: StartEvent) -> None:
        driver, most = self._driver, self._config.client_limits.operations_max
        if type(event.operation_id) is not int or event.operation_id <= self._last_operation:
            raise LocalProtocolError(f"an operation_id is an integer above the last one, {self._last_operation}")
        if len(driver.operations) >= most:
            raise LocalProtocolError(f"{most} operations are in progress, and no more are allowed")
        operation = operation_for(event, self._config, driver.now_ms)
        observed = event if isinstance(event, ObservationStarted) else None
        if self._lost is not None:
            task_id = None if observed is None else observed.task_id
            driver.effects.append(OperationEnded(event.operation_id, _disconnected(self._lost, task_id)))
        elif observed is not None:
            watch = TaskWatch(observed.task_id, self._config, owns=False, answered=observed.answered)
            driver.watch(operation, watch)
        elif isinstance(event, ListenStarted):
            driver.listen(operation, Listening(event, self._config))
        else:
            driver.start(operation)
        self._last_operation = event.operation_id

    def _find(self, operation_id: OperationId) -> Operation | None:
        """The operation, ``None`` when it has ended.

        Raises:
            LocalProtocolError: there never was one.
        """
        if type(operation_id) is not int or not 0 < operation_id <= self._last_operation:
            raise LocalProtocolError(f"there was never an operation {operation_id!r}")
        return self._driver.operations.get(operation_id)

    def _take_answer(self, event: InputAnswered) -> None:
        operation = self._find(event.operation_id)
        if operation is None or not self._awaits(operation, event.key):
            self._driver.report(Severity.INFO, f"an answer to {event.key!r} came too late and was dropped")
            return
        answer = self._checked(operation, event)
        if operation.watch is not None:
            self._driver.apply(operation, operation.watch.answer(event.key, answer))
            return
        operation.gathered[event.key] = answer
        answers = operation.take_answers()
        if answers is not None:
            self._driver.advance(operation, answers)

    def _leave_unanswered(self, event: InputUnanswerable) -> None:
        operation = self._find(event.operation_id)
        if operation is None or not self._awaits(operation, event.key):
            return
        if operation.watch is not None:
            self._driver.apply(operation, operation.watch.leave_unanswered())
        else:
            self._driver.end(operation, InputUnhandled(task_id=None, requests=operation.open_requests))

    def _awaits(self, operation: Operation, key: InputKey) -> bool:
        asking = operation.is_asking(key)
        if asking is None:
            raise LocalProtocolError(f"operation {operation.operation_id} never asked {key!r}")
        return asking

    def _checked(self, operation: Operation, event: InputAnswered) -> JSONObject:
        """The answer, fit to be sent.

        Raises:
            LocalProtocolError: it is not an answer to its question.
        """
        asked = operation.request(event.key)
        assert asked is not None
        if type(event.answer) is not dict:
            raise LocalProtocolError(f"the answer to {event.key!r} is a dict, not a {type(event.answer).__name__}")
        problem = self._check_answer(asked, event.answer)
        if problem is None:
            try:
                self._codec.encode(event.answer)
            except JsonError as error:
                problem = error.message
        if problem is not None:
            raise LocalProtocolError(f"the answer to {event.key!r} does not fit its question: {problem}")
        return event.answer

    def _cancel(self, event: CancelRequested) -> None:
        operation = self._find(event.operation_id)
        if operation is None:
            return
        if operation.watch is None:
            self._driver.end(operation, Cancelled(), _printable(event.reason))
        else:
            self._driver.apply(operation, operation.watch.cancel(event.wait_for_end))

    def _detach(self, operation_id: OperationId) -> None:
        operation = self._find(operation_id)
        if operation is None:
            return
        if operation.watch is None:
            raise LocalProtocolError(f"operation {operation_id} has no task yet; it can be cancelled")
        self._driver.apply(operation, operation.watch.detach())

    def _lose(self, event: ConnectionLost) -> None:
        """Everything in progress fails at once, and everything that is started later."""
        if self._lost is not None:
            return
        self._lost = event
        driver = self._driver
        for call in list(driver.calls):
            driver.close(call)
        for operation in list(driver.operations.values()):
            outcome: Outcome = _disconnected(event, operation.task_id, operation.answered)
            if operation.probes and not event.closed_here:
                evidence = f"it ended before it answered server/discover ({event.reason}), or it failed to start"
                outcome = LegacyServer(evidence=evidence, exit_status=event.exit_status, stderr_tail=event.stderr_tail)
            driver.end(operation, outcome)

    def _give_up(self, reason: str) -> None:
        if self._lost is None:
            self._lose(ConnectionLost(reason=reason))
            self._driver.effects.append(CloseConnection(reason))


def _printable(reason: str | None) -> str | None:
    """A reason that can be written as UTF-8, whatever an application put into it."""
    return None if reason is None else str(reason).encode("utf-8", "replace").decode()


def _disconnected(
    event: ConnectionLost, task_id: TaskId | None, answered: frozenset[InputKey] = frozenset()
) -> Disconnected:
    return Disconnected(
        reason=event.reason,
        exit_status=event.exit_status,
        stderr_tail=event.stderr_tail,
        task_id=task_id,
        answered=answered,
    )
