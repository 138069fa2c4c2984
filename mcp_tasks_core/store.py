"""The store contract, and the store that keeps everything in memory.

A store knows rows: an opaque payload and the few fields that it must index. Its calls are synchronous;
``blocks`` tells the runner whether to make them in a worker thread.
"""

from __future__ import annotations

import heapq
from typing import Protocol

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, TaskId


@attrs.frozen(kw_only=True, slots=True)
class StoredTask:
    """One row of a store.

    Args:
        owner: tenant and subject, for quotas and operators.
        status: the wire name of the status.
        revision: 1 when created, one more with each swap.
        due_at_ms: wall-clock milliseconds at which something is to be done about the task, ``None`` for never.
        executor: the process that runs the work, ``None`` when none does.
        payload: the record as ``record_codec`` wrote it; opaque to the store.
    """

    task_id: TaskId
    owner: tuple[str, str]
    status: str
    revision: Revision
    due_at_ms: int | None
    executor: str | None
    payload: bytes


class StoreError(Exception):
    """The store could not do it and nothing was changed."""


class StoreUncertain(StoreError):
    """The store cannot say whether the change was made: read again before deciding anything."""


class StoreBusy(StoreError):
    """Somebody else stood in the way for as long as the store waits. Nothing was changed: to try again may help."""


class CapacityExceeded(StoreError):
    """The store is full, for everybody or for this owner. Nothing was changed."""


class TaskStore(Protocol):
    """What a store promises. ``create`` and ``swap`` are atomic, and durable when they return.

    Any call may raise ``StoreError``.
    """

    @property
    def blocks(self) -> bool:
        """Whether calls may wait for a disk or a lock; a runner makes such calls in worker threads."""

    def create(self, row: StoredTask) -> bool:
        """Keep a new row; ``False``, and no change, when the id is taken."""

    def load(self, task_id: TaskId) -> StoredTask | None:
        """The newest row of this id, ``None`` when there is none."""

    def swap(self, row: StoredTask) -> bool:
        """Replace the row whose revision is one less; ``False``, and no change, when it is not there."""

    def list_due(self, until_ms: int, limit: int) -> list[StoredTask]:
        """Up to ``limit`` rows with a ``due_at_ms`` of ``until_ms`` or less, the earliest first."""

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        """Remove the row if it still has this revision; ``False``, and no change, otherwise."""


class SharedTaskStore(TaskStore, Protocol):
    """A store that several processes have open at once, and that outlives each of them.

    Every process names itself as the ``executor`` of the work that it runs, under a name that no other process ever
    had, and holds a lease on that name while it lives. All moments are wall-clock milliseconds.
    """

    def hold_lease(self, executor: str, until_ms: int) -> None:
        """This process lives, and says so again before that moment."""

    def end_lease(self, executor: str) -> None:
        """This process ends; whatever it still ran is for others to settle."""

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        """Up to ``limit`` rows whose executor holds no lease at this moment, and never held a longer one.

        A row's executor is ``None`` once its task is terminal, so these are unfinished tasks of dead processes.
        """

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        """Hints: ids of tasks that any process changed after this position, and the position to ask from next.

        Positions only grow; -1 asks for the newest position alone. Hints may be forgotten after a while, and tell
        nothing but that a look is worth it.
        """

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        """The keys that seal request states, id and secret, the sealing one first: the same for every process.

        Args:
            fresh: 32 random bytes or more; the first secret of a store that has none.
        """


class MemoryTaskStore:
    """A store that lives as long as the process. For tests and for servers whose tasks may die with them.

    Args:
        capacity: rows at the most.
    """

    blocks = False

    def __init__(self, *, capacity: int = 100_000) -> None:
        if type(capacity) is not int or capacity < 1:
            raise LocalProtocolError(f"capacity is an integer of 1 or more, not {capacity!r}")
        self._capacity = capacity
        self._rows: dict[TaskId, StoredTask] = {}
        self._due: list[tuple[int, TaskId]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def create(self, row: StoredTask) -> bool:
        if row.task_id in self._rows:
            return False
        if len(self._rows) >= self._capacity:
            raise CapacityExceeded(f"the store holds {self._capacity} tasks, its capacity")
        self._keep(row)
        return True

    def load(self, task_id: TaskId) -> StoredTask | None:
        return self._rows.get(task_id)

    def swap(self, row: StoredTask) -> bool:
        held = self._rows.get(row.task_id)
        if held is None or held.revision + 1 != row.revision:
            return False
        self._keep(row, held)
        return True

    def _keep(self, row: StoredTask, held: StoredTask | None = None) -> None:
        self._rows[row.task_id] = row
        if row.due_at_ms is not None and (held is None or held.due_at_ms != row.due_at_ms):
            heapq.heappush(self._due, (row.due_at_ms, row.task_id))
            if len(self._due) > 4 * len(self._rows) + 64:
                self._due = [(r.due_at_ms, r.task_id) for r in self._rows.values() if r.due_at_ms is not None]
                heapq.heapify(self._due)

    def list_due(self, until_ms: int, limit: int) -> list[StoredTask]:
        due: list[StoredTask] = []
        taken: set[tuple[int, TaskId]] = set()
        while self._due and self._due[0][0] <= until_ms and len(due) < limit:
            entry = heapq.heappop(self._due)
            row = self._rows.get(entry[1])
            # An entry is stale once its row is gone or due at another time; that time has an entry of its own.
            if row is not None and row.due_at_ms == entry[0] and entry not in taken:
                due.append(row)
                taken.add(entry)
        for entry in taken:
            heapq.heappush(self._due, entry)
        return due

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        held = self._rows.get(task_id)
        if held is None or held.revision != revision:
            return False
        del self._rows[task_id]
        return True
