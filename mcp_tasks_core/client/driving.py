"""Carries operations on: sends their requests, hands replies to them, and ends them.

Source: cancellation; versioning; tasks.
"""

from __future__ import annotations

import attrs

from mcp_tasks_core.client.calls import (
    LISTEN,
    OpenCall,
    Purpose,
    Reply,
    Silent,
    StreamLost,
    Succeeded,
    common_version,
)
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.effects import (
    AskInput,
    ListChangeObserved,
    ListenAcknowledged,
    OperationEnded,
    ResourceUpdateObserved,
    Severity,
    StateObserved,
    TaskCreated,
    TaskDropped,
    WithdrawInput,
)
from mcp_tasks_core.client.events import CallId, OnTimeout, OperationId
from mcp_tasks_core.client.listening import Listening
from mcp_tasks_core.client.operations import Operation
from mcp_tasks_core.client.outcomes import (
    Cancelled,
    InvalidResponse,
    ListenEnded,
    Outcome,
    RemoteError,
    TimedOut,
    UnsupportedVersion,
)
from mcp_tasks_core.client.scripts import Answers, BecameTask, Gather, Send
from mcp_tasks_core.client.sending import Due, Sender
from mcp_tasks_core.client.states import StateProblem, read_handle
from mcp_tasks_core.client.steps import (
    Agree,
    Ask,
    Drop,
    End,
    Note,
    SendTask,
    Show,
    Step,
    TellListChange,
    TellResourceUpdate,
    Warn,
    Withdraw,
)
from mcp_tasks_core.client.subscriptions import Acknowledged, Notice
from mcp_tasks_core.client.watching import TaskWatch
from mcp_tasks_core.errors import UNSUPPORTED_PROTOCOL_VERSION, ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject
from mcp_tasks_core.wire.json import JsonCodec


class Driver(Sender):
    """The operations of one client, and whose each reply is."""

    def __init__(self, config: ClientConfig, codec: JsonCodec) -> None:
        super().__init__(config, codec)
        self.operations: dict[OperationId, Operation] = {}

    # --- operations

    def start(self, operation: Operation) -> None:
        """Begin with the script's first request.

        Raises:
            LocalProtocolError: the request cannot be written; nothing has changed.
        """
        assert operation.script is not None
        self.operations[operation.operation_id] = operation
        try:
            self._take(operation, next(operation.script))
        except LocalProtocolError:
            del self.operations[operation.operation_id]
            raise
        self.agenda.set((Due.OPERATION, operation.operation_id), operation.deadline_ms)

    def watch(self, operation: Operation, watch: TaskWatch) -> None:
        """Begin with a task that exists; its first poll goes out at once.

        Raises:
            LocalProtocolError: the task's id cannot be written; nothing has changed.
        """
        self.operations[operation.operation_id] = operation
        operation.watch = watch
        watch.begin(None, self.now_ms)
        try:
            self.apply(operation, watch.time_passed(self.now_ms))
        except LocalProtocolError:
            self._forget(operation)
            raise
        self.agenda.set((Due.OPERATION, operation.operation_id), operation.deadline_ms)

    def listen(self, operation: Operation, listening: Listening) -> None:
        """Begin with the first subscriptions/listen.

        Raises:
            LocalProtocolError: what is asked for cannot be written; nothing has changed.
        """
        self.operations[operation.operation_id] = operation
        operation.listening = listening
        try:
            self.apply(operation, listening.begin())
        except LocalProtocolError:
            self._forget(operation)
            raise
        self.agenda.set((Due.OPERATION, operation.operation_id), operation.deadline_ms)

    def advance(self, operation: Operation, value: Reply | Answers) -> None:
        """Give the script what it waits for and do what it wants next."""
        assert operation.script is not None
        try:
            self._take(operation, operation.script.send(value))
        except StopIteration as stop:
            self._script_ended(operation, stop.value)

    def _take(self, operation: Operation, step: Send | Gather) -> None:
        match step:
            case Send(method, params):
                self.send(operation.operation_id, Purpose.STEP, method, params, operation.settings)
            case Gather(requests):
                operation.ask(requests)
                for key, request in requests.items():
                    self._ask(operation, key, request)

    def _script_ended(self, operation: Operation, ending: Outcome | BecameTask) -> None:
        operation.script = None
        if not isinstance(ending, BecameTask):
            self.end(operation, ending)
            return
        handle = read_handle(ending.handle, self._config.lenient, self._config.limits.identifier_chars_max)
        if isinstance(handle, StateProblem):
            self.end(
                operation,
                InvalidResponse(reason=handle.reason, method=operation.method, task_id=handle.task_id),
            )
            return
        for warning in handle.warnings:
            self.report(Severity.WARNING, f"task {handle.task.task_id!r}: {warning}")
        operation.watch = TaskWatch(handle.task.task_id, self._config, owns=True)
        operation.watch.begin(handle.task, self.now_ms)
        self.agenda.set((Due.WATCH, operation.operation_id), operation.watch.deadline_ms)
        self.effects.append(TaskCreated(operation.operation_id, handle.task))

    def apply(self, operation: Operation, steps: list[Step]) -> None:
        """Do what a watch or a subscription says; nothing after its end."""
        for step in steps:
            match step:
                case SendTask(purpose, method, params):
                    settings = operation.settings if purpose is Purpose.LISTEN else self.task_settings
                    self.send(operation.operation_id, purpose, method, params, settings)
                case Ask(key, request):
                    self._ask(operation, key, request)
                case Withdraw(key):
                    self.effects.append(WithdrawInput(operation.operation_id, key))
                case Show(task):
                    self.effects.append(StateObserved(operation.operation_id, task))
                case Agree(agreed, not_agreed):
                    acknowledged = ListenAcknowledged(
                        operation_id=operation.operation_id, agreed=agreed, not_agreed=not_agreed
                    )
                    self.effects.append(acknowledged)
                case Drop(task_id):
                    self.effects.append(TaskDropped(operation.operation_id, task_id))
                case TellListChange(kind):
                    self.effects.append(ListChangeObserved(operation.operation_id, kind))
                case TellResourceUpdate(uri):
                    self.effects.append(ResourceUpdateObserved(operation.operation_id, uri))
                case Warn(message):
                    self.report(Severity.WARNING, message)
                case Note(message):
                    self.report(Severity.INFO, message)
                case End(outcome):
                    self.end(operation, outcome)
                    return
        follower = operation.watch or operation.listening
        if follower is not None:
            self.agenda.set((Due.WATCH, operation.operation_id), follower.deadline_ms)

    def _ask(self, operation: Operation, key: str, request: JSONObject) -> None:
        self.effects.append(
            AskInput(
                operation_id=operation.operation_id,
                key=InputKey(key),
                request=request,
                task_id=operation.task_id,
            )
        )

    def end(self, operation: Operation, outcome: Outcome, reason: str | None = None) -> None:
        """The operation is over. What it still has in flight is given up; a request that is no read is told so."""
        for call in self.calls.of(operation.operation_id):
            if call.purpose is Purpose.LISTEN and isinstance(outcome, ListenEnded):
                self.let_finish(call)
                continue
            late_task_goes = operation.on_timeout is OnTimeout.CANCEL or isinstance(outcome, Cancelled)
            tell = call.purpose in (Purpose.STEP, Purpose.LISTEN)
            self.give_up(call, tell=tell, cancels_late_task=late_task_goes, reason=reason)
        if operation.script is not None:
            operation.script.close()
        self._forget(operation)
        self.effects.append(OperationEnded(operation.operation_id, outcome))

    def _forget(self, operation: Operation) -> None:
        del self.operations[operation.operation_id]
        self.agenda.set((Due.OPERATION, operation.operation_id), None)
        self.agenda.set((Due.WATCH, operation.operation_id), None)

    # --- requests

    def answered_with_error(self, call: OpenCall, error: ErrorObject) -> None:
        """The open request got an error; one about the version is worth one more attempt. Source: versioning."""
        self.close(call)
        if error.code == UNSUPPORTED_PROTOCOL_VERSION:
            version, supported = common_version(error.data, self._config.versions)
            if version is not None and call.may_retry:
                self._version = version
                self.put_on_wire(attrs.evolve(call, call_id=self.calls.new_id(), version=version, may_retry=False))
                return
            self._deliver(call, UnsupportedVersion(supported=supported, requested=call.version))
            return
        self._deliver(call, RemoteError(code=error.code, message=error.message, data=error.data, method=call.method))

    def take_notice(self, call: OpenCall, notice: Notice) -> None:
        """The server says something on the subscription of this open request."""
        operation = None if call.operation_id is None else self.operations.get(call.operation_id)
        if operation is None or operation.listening is None:
            return  # it has nothing left to tell, and may still end in good order
        if isinstance(notice, Acknowledged):
            # From now on its silence is no fault.
            self.agenda.set((Due.CALL, call.call_id), None)
        self.apply(operation, operation.listening.heard(notice, self.now_ms))

    def break_off(self, call: OpenCall, reason: str) -> None:
        """The server ended the subscription of this open request without a result."""
        self.give_up(call, tell=False)
        self._deliver(call, StreamLost(call.method, reason))

    def settle(self, call: OpenCall, reply: Reply) -> None:
        """An open request has its reply."""
        self.close(call)
        self._deliver(call, reply)

    def _deliver(self, call: OpenCall, reply: Reply) -> None:
        """Hand the reply of a request that is closed to whom it is for."""
        operation = None if call.operation_id is None else self.operations.get(call.operation_id)
        if operation is None:
            if not isinstance(reply, Succeeded):
                self.report(Severity.INFO, f"{call.method} without anybody waiting came to nothing: {reply}")
            return
        if call.purpose is Purpose.STEP:
            if self._config.cancel_unasked_tasks and isinstance(reply, InvalidResponse) and reply.task_id is not None:
                self.cancel_aside(reply.task_id)
            self.advance(operation, reply)
        elif operation.watch is not None:
            self.apply(operation, operation.watch.replied(call.purpose, reply, self.now_ms))
        elif operation.listening is not None:
            self.apply(operation, operation.listening.replied(call, reply, self.now_ms))

    # --- time

    def pass_time(self) -> None:
        """Do everything whose moment has come: deadlines of callers first, then requests, then polls."""
        for kind, number in sorted(self.agenda.take_due(self.now_ms), key=lambda due: due[0].value):
            match kind:
                case Due.OPERATION:
                    self._deadline_passed(OperationId(number))
                case Due.CALL:
                    self._expired(CallId(number))
                case Due.WATCH:
                    operation = self.operations.get(OperationId(number))
                    follower = None if operation is None else operation.watch or operation.listening
                    if operation is not None and follower is not None:
                        self.apply(operation, follower.time_passed(self.now_ms))

    def _deadline_passed(self, operation_id: OperationId) -> None:
        operation = self.operations.get(operation_id)
        if operation is None:
            return
        watch = operation.watch
        cancels = watch is not None and watch.owns and operation.on_timeout is OnTimeout.CANCEL
        if watch is not None and cancels and not watch.cancel_sent:
            self.cancel_aside(watch.task_id)
        self.end(
            operation,
            TimedOut(method=operation.method, task_id=operation.task_id, cancel_sent=cancels),
        )

    def _expired(self, call_id: CallId) -> None:
        call = self.calls.find(call_id)
        if call is None:
            return
        operation = None if call.operation_id is None else self.operations.get(call.operation_id)
        cancels_late_task = operation is not None and operation.on_timeout is OnTimeout.CANCEL
        tell = call.purpose in (Purpose.STEP, Purpose.POLL) or call.method == LISTEN
        self.give_up(call, tell=tell, cancels_late_task=cancels_late_task)
        self._deliver(call, Silent(call.method))
