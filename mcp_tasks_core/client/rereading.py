"""When a subscription reads its tasks all the same: at once while nobody listens, and slowly while somebody does.

A server that listens badly, or lost a task, says nothing; without these reads its client would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from mcp_tasks_core.client.agenda import Agenda
from mcp_tasks_core.client.config import ClientLimits
from mcp_tasks_core.client.polling import PollSchedule
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.tasks import Task


class ReadPlan:
    """What is to be read of the tasks of one subscription, what is being read, and when each comes next."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._queue: dict[TaskId, None] = {}
        self._in_flight: set[TaskId] = set()
        self._due: Agenda[TaskId] = Agenda()
        self._waits_ms: dict[TaskId, int] = {}  # of those whose last read failed, or that were not seen yet
        self._lives: dict[TaskId, PollSchedule] = {}
        self._is_told = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read, nor waits to be."""
        return not self._queue and not self._in_flight

    @property
    def earliest_ms(self) -> int | None:
        """When the next read is due."""
        return self._due.earliest_ms

    def stream_began(self, task_ids: Iterable[TaskId], now_ms: int) -> None:
        """The server tells of these tasks from now on, and of the present state of each at first."""
        self._is_told = True
        for task_id in task_ids:
            self._waits_ms[task_id] = self._limits.listen_snapshot_ms
            self._due.set(task_id, now_ms + self._limits.listen_snapshot_ms)

    def stream_ended(self, task_ids: Iterable[TaskId]) -> None:
        """Nobody tells of anything: all these are read at once."""
        self._is_told = False
        self._queue = {}
        for task_id in task_ids:
            self._due.set(task_id, None)
            if task_id not in self._in_flight:
                self._queue[task_id] = None
        self._waits_ms.clear()

    def saw(self, task: Task, now_ms: int) -> None:
        """The task is there. It is read again after a long silence, and when its time to live is over."""
        life = self._lives.setdefault(task.task_id, PollSchedule(self._limits, self._limits.poll_interval_ms_default))
        life.see(task, now_ms)
        self._waits_ms.pop(task.task_id, None)
        moment_ms = now_ms + max(self._limits.listen_reread_ms, life.interval)
        overdue_ms = life.overdue_ms
        if overdue_ms is not None and now_ms < overdue_ms < moment_ms:
            moment_ms = overdue_ms
        self._plan(task.task_id, moment_ms)

    def read_failed(self, task_id: TaskId, now_ms: int) -> None:
        """It is read again, ever more slowly."""
        wait_ms = 2 * self._waits_ms.get(task_id, self._limits.listen_snapshot_ms)
        self._waits_ms[task_id] = wait_ms = min(wait_ms, self._limits.listen_reread_ms)
        self._plan(task_id, now_ms + wait_ms)

    def nothing_gets_through(self, now_ms: int) -> None:
        """What waits to be read would only fail, too."""
        for task_id in self._queue:
            self.read_failed(task_id, now_ms)
        self._queue = {}

    def forget(self, task_id: TaskId) -> None:
        """Nothing more is wanted of this task."""
        self._due.set(task_id, None)
        self._queue.pop(task_id, None)
        self._waits_ms.pop(task_id, None)
        self._lives.pop(task_id, None)

    def finished(self, task_id: TaskId) -> None:
        """The read of this task has its reply."""
        self._in_flight.discard(task_id)

    def take(self, now_ms: int) -> list[TaskId]:
        """The tasks to be read now; from now on they count as being read."""
        for task_id in self._due.take_due(now_ms):
            if task_id not in self._in_flight:
                self._queue[task_id] = None
        taken: list[TaskId] = []
        while self._queue and len(self._in_flight) < self._limits.listen_reads_max:
            task_id = next(iter(self._queue))
            del self._queue[task_id]
            self._in_flight.add(task_id)
            taken.append(task_id)
        return taken

    def shortest_interval_ms(self) -> int:
        """How often the servers of these tasks want them polled at most; the default where none says so."""
        default_ms = self._limits.poll_interval_ms_default
        return min((life.interval for life in self._lives.values()), default=default_ms)

    def _plan(self, task_id: TaskId, moment_ms: int) -> None:
        # While nobody tells, the end of a wait has every task read anyway.
        if self._is_told:
            self._due.set(task_id, moment_ms)
