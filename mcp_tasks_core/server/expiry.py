"""What happens to tasks whose time is over, in the order of DECISIONS D9 and D10.

At its TTL unfinished work fails with a reason; a grace later a tombstone stands in the task's place, which
tells its owner that it has expired; later nothing is left. Source: tasks, Task Polling, Response.
"""

from __future__ import annotations

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.lifecycle import Bury, Fail, Retime, apply
from mcp_tasks_core.records import due_at_ms
from mcp_tasks_core.server.effects import ListDue, Severity
from mcp_tasks_core.server.events import DueListed, StoreFailed
from mcp_tasks_core.server.machine import Machine, Need, Procedure
from mcp_tasks_core.server.storing import Refusal, Storing, Unstorable
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.tasks import TaskRecord, TaskStatus

_RETRY_MS = 1_000  # A row that could not be dealt with is listed again; not at once, or a broken one would spin.


class Expiry:
    """Looks for due rows when the first of them is due, and at the latest after ``sweep_interval_ms``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._next_ms: int | None = 0 if machine.config.tasks else None
        self._sweeping = False

    @property
    def deadline_ms(self) -> int | None:
        return None if self._sweeping else self._next_ms

    def note(self, due_ms: int | None) -> None:
        """A row was stored that is due at this wall-clock moment."""
        if due_ms is not None and self._next_ms is not None:
            now = self._machine.now
            self._next_ms = min(self._next_ms, now.monotonic_ms + max(0, due_ms - now.wall_ms))

    def tick(self, storing: Storing, work: Work) -> None:
        if not self._sweeping and self._next_ms is not None and self._machine.now.monotonic_ms >= self._next_ms:
            self._sweeping = True
            self._next_ms = self._machine.now.monotonic_ms + self._machine.limits.sweep_interval_ms
            self._machine.run(self._sweep(storing, work))

    def _sweep(self, storing: Storing, work: Work) -> Procedure:
        limits = self._machine.limits
        until_ms = self._machine.now.wall_ms + limits.sweep_interval_ms
        answer = yield Need(
            lambda ticket: ListDue(ticket, until_ms, limits.sweep_rows_max),
            (DueListed, StoreFailed),
            limits.answer_wait_ms,
        )
        self._sweeping = False
        if not isinstance(answer, DueListed):
            self._machine.report(Severity.WARNING, str(storing.trouble("listing due tasks", answer)))
            return
        now = self._machine.now
        for row in answer.rows:
            assert row.due_at_ms is not None
            if row.due_at_ms > now.wall_ms:
                self.note(row.due_at_ms)
                return
            self._machine.in_order(row.task_id, self._expire(row.task_id, storing, work))
        if answer.rows:
            self.note(now.wall_ms + _RETRY_MS)

    def _expire(self, task_id: TaskId, storing: Storing, work: Work) -> Procedure:
        try:
            change = yield from storing.change(task_id, self.next_step)
            if change is None:
                return
            if change.after.is_terminal and not change.before.is_terminal:
                work.ended(task_id, "the task's time is over")
            if change.before.expired and self._is_due(change.before):
                loaded = yield from storing.load(task_id)
                if loaded is not None and loaded[1].record.expired:
                    yield from storing.delete(loaded[0])
        except (Refusal, Unstorable) as problem:
            self._machine.report(Severity.WARNING, f"task {task_id} is overdue and could not be dealt with: {problem}")

    def _is_due(self, record: TaskRecord) -> bool:
        due_ms = due_at_ms(record, self._machine.limits)
        return due_ms is not None and due_ms <= self._machine.now.wall_ms

    def next_step(self, record: TaskRecord) -> TaskRecord:
        """The next step towards the end of a task that is due; the same record when it is not, or only goes."""
        if not self._is_due(record) or record.expired:
            return record
        now_ms = self._machine.now.wall_ms
        if record.is_terminal:
            return apply(record, Bury(), now_ms)
        extension_ms = self._machine.config.input_extension_ms
        if self._waits_for_a_person(record) and extension_ms is not None and record.ttl_ms is not None:
            # A person is still deciding: from now on, so that a sweep that came late does not extend into the past.
            ttl_ms = max(record.ttl_ms, now_ms - record.created_at_ms) + extension_ms
            return apply(record, Retime(ttl_ms, record.poll_interval_ms), now_ms)
        reason = f"The task was not finished within its time to live of {record.ttl_ms} ms"
        return apply(record, Fail(ErrorObject(INTERNAL_ERROR, reason, {"reason": "expired"})), now_ms)

    def _waits_for_a_person(self, record: TaskRecord) -> bool:
        """Whether an answer would still lead somewhere: not where no process runs the work any longer."""
        released = record.executor is None and self._machine.config.executor is not None
        return record.status is TaskStatus.INPUT_REQUIRED and not released
