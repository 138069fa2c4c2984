"""Living beside other processes on one store: a lease, other processes' changes, and the work of the dead.

A process names itself as the executor of the work it runs and holds a lease on that name. Work whose executor holds
none is settled by whoever finds it first, by the tool's ``Recovery``; the store's compare-and-swap sees to it that
only one does. Hints of change come from the store; re-reading everything that runs here is the truth.
"""

from __future__ import annotations

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.lifecycle import Adopt, Cancel, Fail, apply
from mcp_tasks_core.server.catalogue import Catalogue
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import (
    HoldLease,
    ListChanges,
    ListOrphans,
    OrphanLeft,
    ResumeWork,
    Severity,
)
from mcp_tasks_core.server.events import ChangesListed, LeaseHeld, OrphansListed, StoreFailed
from mcp_tasks_core.server.machine import Machine, Need, Procedure
from mcp_tasks_core.server.storing import Refusal, Storing, Unstorable
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.tasks import TaskRecord

WORKER_LOST = ErrorObject(
    INTERNAL_ERROR,
    "The process that ran this task ended before the task was finished",
    {"reason": "worker_lost"},
)


class Sharing:
    """What a process on a shared store does from time to time. Does nothing where ``executor`` is not configured."""

    def __init__(self, machine: Machine, storing: Storing, work: Work) -> None:
        self._machine = machine
        self._storing = storing
        self._work = work
        self._executor = machine.config.executor
        first_ms = None if self._executor is None else 0
        self._lease_ms = first_ms
        self._hints_ms = first_ms
        self._leasing = False
        self._listing = False
        self._position = -1
        self.catalogue: Catalogue | None = None

    @property
    def deadline_ms(self) -> int | None:
        moments = []
        if self._lease_ms is not None and not self._leasing:
            moments.append(self._lease_ms)
        if self._hints_ms is not None and not self._listing:
            moments.append(self._hints_ms)
        return min(moments) if moments else None

    def tick(self) -> None:
        now_ms, limits = self._machine.now.monotonic_ms, self._machine.limits
        if self._lease_ms is not None and not self._leasing and now_ms >= self._lease_ms:
            self._leasing = True
            self._lease_ms = now_ms + limits.lease_renewal_ms
            self._machine.run(self._live_on())
        if self._hints_ms is not None and not self._listing and now_ms >= self._hints_ms:
            self._listing = True
            self._hints_ms = now_ms + limits.hint_interval_ms
            self._machine.run(self._take_hints())

    # --- this process

    def _live_on(self) -> Procedure:
        """Renew the lease, look at all that runs here, then look for work of the dead."""
        limits, executor = self._machine.limits, self._executor
        assert executor is not None
        until_ms = self._machine.now.wall_ms + limits.lease_ms
        answer = yield Need(
            lambda ticket: HoldLease(ticket, executor, until_ms), (LeaseHeld, StoreFailed), limits.answer_wait_ms
        )
        self._leasing = False
        if not isinstance(answer, LeaseHeld):
            self._machine.report(Severity.WARNING, str(self._storing.trouble("renewing the lease", answer)))
            return
        self._work.reconcile_all()
        now_ms = self._machine.now.wall_ms
        found = yield Need(
            lambda ticket: ListOrphans(ticket, now_ms, limits.sweep_rows_max),
            (OrphansListed, StoreFailed),
            limits.answer_wait_ms,
        )
        if not isinstance(found, OrphansListed):
            self._machine.report(Severity.WARNING, str(self._storing.trouble("listing orphans", found)))
            return
        for row in found.rows:
            if row.executor is not None and row.executor != executor:
                self._machine.in_order(row.task_id, self._recover(row.task_id, row.executor))

    # --- other processes

    def _take_hints(self) -> Procedure:
        limits, after = self._machine.limits, self._position
        answer = yield Need(
            lambda ticket: ListChanges(ticket, after, limits.hints_max),
            (ChangesListed, StoreFailed),
            limits.answer_wait_ms,
        )
        self._listing = False
        if not isinstance(answer, ChangesListed):
            self._machine.report(Severity.WARNING, str(self._storing.trouble("listing changes", answer)))
            return
        self._position = answer.position
        for task_id in dict.fromkeys(answer.task_ids):
            self._work.reconcile(task_id)

    # --- the dead

    def _recovery_of(self, record: TaskRecord) -> Recovery:
        tool = None if self.catalogue is None else self.catalogue.find(str(record.request.get("name")))
        return Recovery.FAIL if tool is None else tool.recovery

    def _recover(self, task_id: TaskId, executor: str) -> Procedure:
        """Settle, resume or leave a task whose executor is dead, unless somebody else was first."""

        def decide(record: TaskRecord) -> TaskRecord:
            if record.is_terminal or record.executor != executor:
                return record
            return self._take_over(record)

        try:
            change = yield from self._storing.change(task_id, decide)
        except (Refusal, Unstorable) as problem:
            self._machine.report(Severity.WARNING, f"task {task_id} of a dead process was not recovered: {problem}")
            return
        if change is None or change.after.is_terminal:
            return
        record = change.after
        made = change.before is not record or (change.unsure and record.executor in (None, self._executor))
        if not made:
            return
        if record.executor is None:
            self._machine.emit(OrphanLeft(task_id))
            return
        self._work.started(task_id)
        arguments = record.request.get("arguments")
        self._machine.emit(
            ResumeWork(
                task_id=task_id,
                name=record.request["name"],
                arguments=arguments if isinstance(arguments, dict) else {},
                owner=record.owner,
                meta=record.request.get("_meta") or {},
                capabilities=record.capabilities,
                attempt=record.attempts,
            )
        )

    def _take_over(self, record: TaskRecord) -> TaskRecord:
        now_ms, limits = self._machine.now.wall_ms, self._machine.limits
        if record.cancel_requested_at_ms is not None:
            return apply(record, Cancel(), now_ms)
        recovery = self._recovery_of(record)
        if recovery is Recovery.LEAVE:
            return apply(record, Adopt(None), now_ms)
        if recovery is Recovery.RESUME and record.attempts < limits.work_attempts_max:
            return apply(record, Adopt(self._executor), now_ms)
        return apply(record, Fail(WORKER_LOST), now_ms)
