"""A store that breaks its promise: it says that a change is durable, and writes it a moment later."""

from __future__ import annotations

import threading
from typing import Final

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import StoredTask
from mcp_tasks_sqlite import SqliteTaskStore

_LATE_SECONDS: Final = 0.1


class ForgetfulTaskStore(SqliteTaskStore):
    """What it has not written yet it shows to its own process alone, and forgets when that is killed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._late: dict[TaskId, StoredTask] = {}
        self._changing = threading.Lock()

    def create(self, row: StoredTask) -> bool:
        return self._keep(row, None)

    def swap(self, row: StoredTask) -> bool:
        with self._changing:
            held = self.load(row.task_id)
        return held is not None and held.revision + 1 == row.revision and self._keep(row, held)

    def load(self, task_id: TaskId) -> StoredTask | None:
        return self._late.get(task_id) or super().load(task_id)

    def _keep(self, row: StoredTask, held: StoredTask | None) -> bool:
        self._late[row.task_id] = row
        timer = threading.Timer(_LATE_SECONDS, super().create if held is None else super().swap, [row])
        timer.daemon = True
        timer.start()
        return True
