"""Living beside other processes on one store: a lease, other processes' changes, and the work of the dead.

A process names itself as the executor of the work it runs and holds a lease on that name. Work whose executor holds
none is settled by whoever finds it first, by the tool's ``Recovery``; the store's compare-and-swap sees to it that
only one does. Hints of change come from the store; re-reading everything that runs here is the truth.
"""

from __future__ import annotations

from collections.abc import Callable

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.lifecycle import Adopt, Cancel, Fail, apply
from mcp_tasks_core.server.catalogue import Catalogue
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import ListChanges, ListOrphans, OrphanLeft, ResumeWork, Severity
from mcp_tasks_core.server.events import ChangesListed, OrphansListed, StoreFailed
from mcp_tasks_core.server.expiry import Expiry
from mcp_tasks_core.server.lease import Lease
from mcp_tasks_core.server.machine import Machine, Need, Procedure
from mcp_tasks_core.server.storing import Refusal, Step, Storing, Unstorable
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.tasks import TaskRecord

WORKER_LOST = ErrorObject(
    INTERNAL_ERROR,
    "The process that ran this task ended before the task was finished",
    {"reason": "worker_lost"},
)


class Sharing:
    """What a process on a shared store does from time to time. Does nothing where ``executor`` is not configured.

    Args:
        changed: told of each task that any process may have changed.
    """

    def __init__(
        self,
        machine: Machine,
        storing: Storing,
        work: Work,
        lease: Lease,
        expiry: Expiry,
        changed: Callable[[TaskId], None],
    ) -> None:
        self._machine = machine
        self._storing = storing
        self._work = work
        self._lease = lease
        self._expiry = expiry
        self._changed = changed
        first_ms = None if lease.executor is None else 0
        self._lease_ms = first_ms
        self._hints_ms = first_ms
        self._orphans_ms: int | None = None  # there are more of them than one look takes
        self._leasing = False
        self._listing = False
        self._position = -1
        self._recovering: set[TaskId] = set()
        self._doubtful: dict[TaskId, str] = {}
        self.catalogue: Catalogue | None = None

    @property
    def deadline_ms(self) -> int | None:
        moments = []
        if self._lease_ms is not None and not self._leasing:
            moments.append(self._lease_ms)
        if self._orphans_ms is not None and not self._leasing:
            moments.append(self._orphans_ms)
        if self._hints_ms is not None and not self._listing:
            moments.append(self._hints_ms)
        return min(moments) if moments else None

    def tick(self) -> None:
        now_ms, limits = self._machine.now.monotonic_ms, self._machine.limits
        if not self._leasing:
            if self._lease_ms is not None and now_ms >= self._lease_ms:
                self._leasing = True
                self._lease_ms = now_ms + limits.lease_renewal_ms
                self._machine.run(self._live_on())
            elif self._orphans_ms is not None and now_ms >= self._orphans_ms:
                self._leasing = True
                self._machine.run(self._look_for_orphans())
        if self._hints_ms is not None and not self._listing and now_ms >= self._hints_ms:
            self._listing = True
            self._hints_ms = now_ms + limits.hint_interval_ms
            self._machine.run(self._take_hints())

    def _again_soon(self) -> int:
        """When something that failed is tried again: sooner than its turn, later than at once."""
        return self._machine.now.monotonic_ms + self._machine.limits.settle_retry_ms

    # --- this process

    def _live_on(self) -> Procedure:
        """Renew the lease, look at all that runs here, then look for work of the dead."""
        try:
            yield from self._lease.hold()
        except Refusal:
            assert self._lease_ms is not None
            self._lease_ms = min(self._lease_ms, self._again_soon())
            self._leasing = False
            return
        self._work.reconcile_all()
        for task_id, executor in list(self._doubtful.items()):
            self._start_recovery(task_id, executor)
        yield from self._look_for_orphans()

    def _look_for_orphans(self) -> Step[None]:
        limits, now_ms = self._machine.limits, self._machine.now.wall_ms
        self._orphans_ms = None
        if not self._lease.believes_others:
            self._leasing = False
            return
        answer = yield Need(
            lambda ticket: ListOrphans(ticket, now_ms, limits.sweep_rows_max),
            (OrphansListed, StoreFailed),
            limits.answer_wait_ms,
        )
        self._leasing = False
        if not isinstance(answer, OrphansListed):
            self._storing.trouble("listing the tasks of dead processes", answer)
            self._orphans_ms = self._again_soon()
            return
        if len(answer.rows) >= limits.sweep_rows_max:
            self._orphans_ms = self._again_soon()
        for row in answer.rows:
            if row.executor is not None and row.executor != self._lease.executor:
                self._start_recovery(row.task_id, row.executor)

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
            self._storing.trouble("listing changes", answer)
            self._hints_ms = max(self._hints_ms or 0, self._again_soon())
            return
        self._position = answer.position
        if len(answer.task_ids) >= limits.hints_max:
            self._hints_ms = self._machine.now.monotonic_ms
        for task_id in dict.fromkeys(answer.task_ids):
            self._changed(task_id)

    # --- the dead

    def _recovery_of(self, record: TaskRecord) -> Recovery:
        tool = None if self.catalogue is None else self.catalogue.find(str(record.request.get("name")))
        recovery = Recovery.FAIL if tool is None else tool.recovery
        # Nobody can begin anew what the application began by itself.
        return Recovery.FAIL if recovery is Recovery.RESUME and not record.restarts else recovery

    def _start_recovery(self, task_id: TaskId, executor: str) -> None:
        if task_id not in self._recovering:
            self._recovering.add(task_id)
            self._machine.in_order(task_id, self._recover(task_id, executor))

    def _recover(self, task_id: TaskId, executor: str) -> Procedure:
        """Settle, resume or leave a task whose executor is dead, unless somebody else was first."""

        def decide(record: TaskRecord) -> TaskRecord:
            if record.is_terminal or record.executor != executor:
                return record
            return self._take_over(record)

        try:
            change = yield from self._storing.change(task_id, decide)
        except (Refusal, Unstorable) as problem:
            # It may have been stored all the same: then the task is this process's, and nobody else looks after it.
            self._doubtful[task_id] = executor
            self._machine.report(Severity.WARNING, f"task {task_id} of a dead process was not recovered: {problem}")
            return
        finally:
            self._recovering.discard(task_id)
        self._doubtful.pop(task_id, None)
        if change is None or change.after.is_terminal:
            return
        if change.after.executor == self._lease.executor and not self._work.runs(task_id):
            self._begin(change.after)

    def _take_over(self, record: TaskRecord) -> TaskRecord:
        now_ms = self._machine.now.wall_ms
        if record.cancel_requested_at_ms is not None:
            return apply(record, Cancel(), now_ms)
        overdue = self._expiry.next_step(record)
        if overdue.is_terminal:
            return overdue
        if self._recovery_of(record) is Recovery.FAIL or record.attempts >= self._machine.limits.work_attempts_max:
            return apply(record, Fail(WORKER_LOST), now_ms)
        return apply(record, Adopt(self._lease.executor), now_ms)

    def _begin(self, record: TaskRecord) -> None:
        """Have the work of a task that was taken over run here, by its tool or by the application."""
        self._work.begun_anew(record.task_id)
        arguments = record.request.get("arguments")
        effect = OrphanLeft if self._recovery_of(record) is Recovery.LEAVE else ResumeWork
        self._machine.emit(
            effect(
                task_id=record.task_id,
                name=str(record.request.get("name")),
                arguments=arguments if isinstance(arguments, dict) else {},
                owner=record.owner,
                meta=record.request.get("_meta") or {},
                capabilities=record.capabilities,
                attempt=record.attempts,
                answered=record.answered,
                ttl_ms=record.ttl_ms,
            )
        )
