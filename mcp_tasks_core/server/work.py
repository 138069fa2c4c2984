"""The work behind tasks: what it tells about itself, and what it is told.

Every change goes through the store and, within one task, in the order in which it was reported.
Source: tasks, Task Status; tasks, Task Cancellation; progress, Behavior Requirements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.lifecycle import (
    Adopt,
    Advance,
    Ask,
    Cancel,
    ForbiddenTransition,
    RequestCancel,
    Retime,
    TaskInput,
    Withdraw,
    apply,
)
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import DeliverInput, RefuseInput, Severity, StopWork
from mcp_tasks_core.server.ends import end_of, status_message
from mcp_tasks_core.server.events import (
    UNCHANGED,
    InputNeeded,
    InputWithdrawn,
    Raised,
    WorkCompleted,
    WorkOutcome,
    WorkProgressed,
    WorkReleased,
    WorkRetimed,
    WorkStopped,
)
from mcp_tasks_core.server.machine import Machine, Procedure
from mcp_tasks_core.server.notices import check_progress
from mcp_tasks_core.server.pacing import ProgressPacing
from mcp_tasks_core.server.storing import Refusal, Storing, Unstorable
from mcp_tasks_core.tasks import TaskRecord
from mcp_tasks_core.wire.methods import check_input_request

_JSON_INTEGER_MAX: Final = 2**53 - 1  # what every peer reads exactly


def check_durations(ttl_ms: object, poll_interval_ms: object) -> None:
    """Refuse durations that a task cannot have.

    Raises:
        LocalProtocolError: one is neither ``None`` nor an integer from 1 to 2**53 - 1.
    """
    for name, value in (("ttl_ms", ttl_ms), ("poll_interval_ms", poll_interval_ms)):
        if (
            value is not None
            and value is not UNCHANGED
            and (type(value) is not int or not 1 <= value <= _JSON_INTEGER_MAX)
        ):
            raise LocalProtocolError(f"{name} is None or an integer from 1 to 2**53 - 1, not {value!r}")


class _TakenOver(Exception):
    """Another process runs the work of this task by now, or none: what this one says of it does not count."""


_ELSEWHERE: Final = "another process has taken the task over"


_Retry: TypeAlias = tuple[int, int, WorkOutcome, bool]


class Work:
    """The work of the tasks that this process knows of."""

    def __init__(self, machine: Machine, storing: Storing) -> None:
        self._machine = machine
        self._storing = storing
        self._live: dict[TaskId, set[InputKey]] = {}
        self._unsure: dict[TaskId, int] = {}
        self._graces_ms: dict[TaskId, int] = {}
        self._pacing = ProgressPacing(machine.limits.progress_interval_ms)
        self._retries: dict[TaskId, _Retry] = {}
        self._releases_ms: dict[TaskId, int] = {}
        self._reconciling: set[TaskId] = set()

    def started(self, task_id: TaskId) -> None:
        """Work of this task runs in this process from now on, until it says how it ended."""
        self._live.setdefault(task_id, set())

    def begun_anew(self, task_id: TaskId) -> None:
        """As ``started``, for a task that is back after other processes had it: no earlier end is this work's."""
        self._retries.pop(task_id, None)
        self._releases_ms.pop(task_id, None)
        self._graces_ms.pop(task_id, None)
        self.started(task_id)

    def runs(self, task_id: TaskId) -> bool:
        """Whether work of this task runs here, as far as it has told."""
        return task_id in self._live

    def released(self, event: WorkReleased) -> None:
        """Nobody runs the work of this task any longer, and it is to stay as it is."""
        self._machine.in_order(event.task_id, self._release(event.task_id))

    def _release(self, task_id: TaskId) -> Procedure:
        def decide(record: TaskRecord) -> TaskRecord:
            # A cancel that was accepted has nobody to wait for any longer.
            task_input = Adopt(None) if record.cancel_requested_at_ms is None else Cancel()
            return apply(self._own(record), task_input, self._machine.now.wall_ms)

        self._forget(task_id)
        try:
            yield from self._storing.change(task_id, decide)
        except Refusal:
            # Until that is stored the task is this process's: nobody else would end it for a client that cancels.
            self._releases_ms[task_id] = self._machine.now.monotonic_ms + self._machine.limits.settle_retry_ms
        except (ForbiddenTransition, _TakenOver):
            pass  # It has ended, or is another process's by now.

    def _forget(self, task_id: TaskId) -> None:
        self._live.pop(task_id, None)
        self._unsure.pop(task_id, None)
        self._pacing.forget(task_id)
        self._graces_ms.pop(task_id, None)

    # --- progress

    def progressed(self, event: WorkProgressed) -> None:
        message = self._message_of(event)
        if message is not None:
            self._progress(event.task_id, message)

    def _message_of(self, event: WorkProgressed) -> str | None:
        message = event.message
        if not isinstance(message, str | None):
            raise LocalProtocolError(f"a progress message is a string, not {message!r}")
        if message is None and event.progress is not None:
            check_progress(event.progress, event.total)
            message = f"{event.progress:g}" if event.total is None else f"{event.progress:g} of {event.total:g}"
        return status_message(self._machine, message)

    def _progress(self, task_id: TaskId, message: str) -> None:
        if self._pacing.take(task_id, message, self._machine.now.monotonic_ms):
            self._machine.in_order(task_id, self._change(task_id, Advance(message)))

    def _change(self, task_id: TaskId, task_input: TaskInput) -> Procedure:
        return self._changing(task_id, type(task_input).__name__, self._applying(task_input))

    def _changing(self, task_id: TaskId, name: str, decide: Callable[[TaskRecord], TaskRecord]) -> Procedure:
        """A change that the work reports and that nobody waits for."""
        try:
            change = yield from self._storing.change(task_id, decide)
        except _TakenOver:
            self.ended(task_id, _ELSEWHERE)
        except ForbiddenTransition:
            self._machine.emit(StopWork(task_id, "the task has ended"))
        except (Refusal, Unstorable, LocalProtocolError) as problem:
            self._machine.report(Severity.WARNING, f"{name} of task {task_id} was not stored: {problem}")
        else:
            if change is None:
                self._machine.emit(StopWork(task_id, "there is no such task"))

    def _applying(self, task_input: TaskInput) -> Callable[[TaskRecord], TaskRecord]:
        return lambda record: apply(self._own(record), task_input, self._machine.now.wall_ms)

    def _own(self, record: TaskRecord) -> TaskRecord:
        """The record, if what the work of this process says of it counts.

        Raises:
            _TakenOver: the task is unfinished, and not this process's.
        """
        if not record.is_terminal and not self._is_ours(record):
            raise _TakenOver
        return record

    def _is_ours(self, record: TaskRecord) -> bool:
        return record.executor == self._machine.config.executor

    def retimed(self, event: WorkRetimed) -> None:
        ttl_ms, poll_interval_ms = event.ttl_ms, event.poll_interval_ms
        check_durations(ttl_ms, poll_interval_ms)

        def decide(record: TaskRecord) -> TaskRecord:
            retime = Retime(
                record.ttl_ms if ttl_ms is UNCHANGED else ttl_ms,
                record.poll_interval_ms if poll_interval_ms is UNCHANGED else poll_interval_ms,
            )
            return apply(self._own(record), retime, self._machine.now.wall_ms)

        self._machine.in_order(event.task_id, self._changing(event.task_id, "Retime", decide))

    # --- questions

    def input_needed(self, event: InputNeeded) -> None:
        limit = self._machine.limits.input_key_chars_max
        if not isinstance(event.key, str) or not 1 <= len(event.key) <= limit:
            raise LocalProtocolError(f"a question's key is a string of 1 to {limit} characters, not {event.key!r}")
        problem = check_input_request(event.request)
        if problem is not None:
            raise LocalProtocolError(f"the question {event.key!r}: {problem}")
        self._live.setdefault(event.task_id, set()).add(event.key)
        self._machine.in_order(event.task_id, self._ask(event))

    def _ask(self, event: InputNeeded) -> Procedure:
        task_id, key = event.task_id, event.key

        def decide(record: TaskRecord) -> TaskRecord:
            missing = self._own(record).capabilities.missing_for(event.request)
            if missing is not None:
                raise Refusal(faults.capability_missing(missing))
            if key not in record.inputs:
                self._check_room(record)
            return apply(record, Ask(key, event.request), self._machine.now.wall_ms)

        try:
            change = yield from self._storing.change(task_id, decide)
        except _TakenOver:
            self._refuse(task_id, key, ErrorObject(INTERNAL_ERROR, _ELSEWHERE))
            self.ended(task_id, _ELSEWHERE)
        except Refusal as refusal:
            self._refuse(task_id, key, refusal.error)
        except (LocalProtocolError, Unstorable) as problem:
            self._refuse(task_id, key, ErrorObject(INTERNAL_ERROR, str(problem)))
        else:
            if change is None:
                self._refuse(task_id, key, ErrorObject(INTERNAL_ERROR, "there is no such task"))
            else:
                self.deliver(change.after)

    def _refuse(self, task_id: TaskId, key: InputKey, error: ErrorObject) -> None:
        self._live.get(task_id, set()).discard(key)
        self._machine.emit(RefuseInput(task_id, key, error))

    def _check_room(self, record: TaskRecord) -> None:
        limits = self._machine.limits
        if len(record.inputs) >= limits.inputs_per_task_max:
            raise LocalProtocolError(f"a task asks at most {limits.inputs_per_task_max} questions")
        if len(record.outstanding) >= limits.inputs_outstanding_max:
            raise LocalProtocolError(f"at most {limits.inputs_outstanding_max} questions of a task stand open at once")

    def input_withdrawn(self, event: InputWithdrawn) -> None:
        self._live.get(event.task_id, set()).discard(event.key)
        self._machine.in_order(event.task_id, self._change(event.task_id, Withdraw(event.key)))

    def deliver(self, record: TaskRecord) -> None:
        """Hand every stored answer that work of this process waits for to it, once."""
        waiting = self._live.get(record.task_id)
        if not waiting:
            return
        if not record.is_terminal and not self._is_ours(record):
            self.ended(record.task_id, _ELSEWHERE)
            return
        for key, entry in record.inputs.items():
            if key in waiting and entry.answer is not None:
                waiting.discard(key)
                self._machine.emit(DeliverInput(record.task_id, key, entry.answer))

    # --- what may have been stored all the same

    def look_again(self, task_id: TaskId) -> None:
        """A change by a client had no certain outcome: what the store holds is yet to reach the work."""
        if task_id in self._live:
            self._unsure[task_id] = self._machine.now.monotonic_ms + self._machine.limits.settle_retry_ms

    def reconcile(self, task_id: TaskId) -> None:
        """Bring what the store holds to the work of this task, if that runs here."""
        if task_id in self._live and task_id not in self._reconciling:
            self._reconciling.add(task_id)
            self._machine.in_order(task_id, self._reconcile(task_id))

    def reconcile_all(self) -> None:
        for task_id in list(self._live):
            self.reconcile(task_id)

    def _reconcile(self, task_id: TaskId) -> Procedure:
        self._reconciling.discard(task_id)  # what is hinted at from now on may not be in what is read now
        try:
            loaded = yield from self._storing.load(task_id)
        except Refusal:
            self.look_again(task_id)
            return
        record = None if loaded is None else loaded[1].record
        if task_id not in self._live:
            return  # It ended while it was being looked at.
        if record is None or record.is_terminal:
            self.ended(task_id, "the task has ended")
        elif not self._is_ours(record):
            self.ended(task_id, _ELSEWHERE)
        else:
            self.deliver(record)
            if record.cancel_requested_at_ms is not None:
                self.stop(record, "the client cancelled the task")

    # --- ends

    def completed(self, event: WorkCompleted) -> None:
        let_go = self._live.pop(event.task_id, None) is None
        self._unsure.pop(event.task_id, None)
        self.settle(event.task_id, event.outcome, let_go=let_go)

    def settle(self, task_id: TaskId, outcome: WorkOutcome, attempt: int = 1, *, let_go: bool = False) -> None:
        """Give the task the end that its work came to, unless it has one already.

        Args:
            let_go: this process did not take the work for its own any longer when it ended.
        """
        self._pacing.forget(task_id)
        self._graces_ms.pop(task_id, None)
        self._machine.in_order(task_id, self._settle(task_id, outcome, attempt, let_go))

    def _settle(self, task_id: TaskId, outcome: WorkOutcome, attempt: int, let_go: bool) -> Procedure:
        task_input = end_of(self._machine, task_id, outcome)

        def decide(record: TaskRecord) -> TaskRecord:
            if let_go and record.attempts > 1:
                # Other processes had the task meanwhile. Should it be back, its work begins anew, and this end is
                # that of the work that was told to stop.
                raise _TakenOver
            return self._applying(task_input)(record)

        try:
            yield from self._storing.change(task_id, decide)
        except (ForbiddenTransition, _TakenOver):
            pass  # Another end was durable first, and stays; or the task is another process's by now.
        except Refusal as refusal:
            self._retry(task_id, outcome, attempt, let_go, refusal)
            return
        except Unstorable as problem:
            self._machine.report(Severity.ERROR, str(problem))
            self._retries[task_id] = (self._machine.now.monotonic_ms, attempt + 1, Raised(faults.INTERNAL), let_go)
            return
        self._graces_ms.pop(task_id, None)

    def _retry(self, task_id: TaskId, outcome: WorkOutcome, attempt: int, let_go: bool, refusal: Refusal) -> None:
        limits = self._machine.limits
        pause_ms = limits.settle_retry_ms
        if attempt >= limits.settle_attempts_max:
            # Never given up: nobody else would end a task whose process lives.
            pause_ms = limits.sweep_interval_ms
            self._machine.report(
                Severity.ERROR,
                f"the end of task {task_id} is not stored after {attempt} attempts; "
                f"from now on it is tried every {pause_ms} ms: {refusal}",
            )
        at_ms = self._machine.now.monotonic_ms + pause_ms
        # An end that waits to be stored is not displaced by one that came later, such as that of a grace.
        self._retries.setdefault(task_id, (at_ms, attempt + 1, outcome, let_go))

    # --- cancelling

    def cancelled(self, record: TaskRecord) -> TaskRecord:
        """The record once a client wants it cancelled; at its end where no process runs the work."""
        now_ms = self._machine.now.wall_ms
        wanted = apply(record, RequestCancel(), now_ms)
        released = record.executor is None and self._machine.config.executor is not None
        return apply(wanted, Cancel(), now_ms) if released and not record.is_terminal else wanted

    def stop(self, record: TaskRecord, reason: str) -> None:
        """Tell the work to stop, and give it its grace. Work of another process is stopped there."""
        if not self._is_ours(record):
            return
        self._machine.emit(StopWork(record.task_id, reason))
        grace_ms = self._machine.limits.cancel_grace_ms
        self._graces_ms.setdefault(record.task_id, self._machine.now.monotonic_ms + grace_ms)

    def ended(self, task_id: TaskId, reason: str) -> None:
        """The task has an end that its work did not give it: the work is to stop, and nothing waits for it."""
        self._live.pop(task_id, None)
        self._pacing.forget(task_id)
        self._graces_ms.pop(task_id, None)
        self._machine.emit(StopWork(task_id, reason))

    # --- time

    @property
    def deadline_ms(self) -> int | None:
        if not (self._graces_ms or self._unsure or self._releases_ms or self._retries):
            return self._pacing.deadline_ms
        moments = [*self._graces_ms.values(), *self._unsure.values(), *self._releases_ms.values()]
        moments.extend(retry[0] for retry in self._retries.values())
        if self._pacing.deadline_ms is not None:
            moments.append(self._pacing.deadline_ms)
        return min(moments) if moments else None

    def tick(self) -> None:
        now_ms = self._machine.now.monotonic_ms
        for task_id, message in self._pacing.due(now_ms):
            self._progress(task_id, message)
        for task_id, at_ms in list(self._unsure.items()):
            if now_ms >= at_ms:
                del self._unsure[task_id]
                self._machine.in_order(task_id, self._reconcile(task_id))
        for task_id, at_ms in list(self._releases_ms.items()):
            if now_ms >= at_ms:
                del self._releases_ms[task_id]
                self._machine.in_order(task_id, self._release(task_id))
        for task_id, at_ms in list(self._graces_ms.items()):
            if now_ms >= at_ms:
                del self._graces_ms[task_id]
                self.settle(task_id, WorkStopped("Cancelled; its work did not stop in time"))
        for task_id, (at_ms, attempt, outcome, let_go) in list(self._retries.items()):
            if now_ms >= at_ms:
                del self._retries[task_id]
                self.settle(task_id, outcome, attempt, let_go=let_go)
