"""A store that several cores of one test share, as processes share a durable one."""

from __future__ import annotations

import hashlib

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import MemoryTaskStore, StoredTask


class SharedMemoryTaskStore(MemoryTaskStore):
    """What ``SharedTaskStore`` asks, in memory: leases, hints of change, and one set of request-state secrets."""

    def __init__(self, *, capacity: int = 100_000) -> None:
        super().__init__(capacity=capacity)
        self._leases_ms: dict[str, int] = {}
        self._changes: list[TaskId] = []
        self._secrets: list[tuple[str, bytes]] = []

    def create(self, row: StoredTask) -> bool:
        return self._hinted(row, super().create(row))

    def swap(self, row: StoredTask) -> bool:
        return self._hinted(row, super().swap(row))

    def _hinted(self, row: StoredTask, done: bool) -> bool:
        if done:
            self._changes.append(row.task_id)
        return done

    def hold_lease(self, executor: str, until_ms: int) -> None:
        self._leases_ms[executor] = max(until_ms, self._leases_ms.get(executor, until_ms))

    def end_lease(self, executor: str) -> None:
        self._leases_ms.pop(executor, None)

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        running = [row for row in self.rows() if row.executor is not None]
        return [row for row in running if self._leases_ms.get(row.executor or "", now_ms) <= now_ms][:limit]

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        if after < 0:
            return len(self._changes), []
        changed = self._changes[after : after + limit]
        return after + len(changed), changed

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        if not self._secrets:
            self._secrets.append((hashlib.sha256(fresh).hexdigest()[:16], fresh))
        return list(self._secrets)

    def rows(self) -> list[StoredTask]:
        """Every row, in the order of creation."""
        return list(self._rows.values())
