"""A store as an operator looks into it: from outside, beside running servers, and without changing anything."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import attrs

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import StoredTask
from mcp_tasks_sqlite.checking import OpenRow, problems_of
from mcp_tasks_sqlite.faults import StoreNotOpened
from mcp_tasks_sqlite.opening import open_existing, verify_privacy
from mcp_tasks_sqlite.reading import COLUMNS, ReadConnections, purgeable, stored_task

_PAGE_ROWS: Final = 256
_POSITION_MAX: Final = 2**63 - 1


@attrs.frozen
class ViewedTask:
    """A row, and when it was written last."""

    row: StoredTask
    changed_at_ms: int


class SqliteStoreView:
    """A store's file, opened for reading alone: it is neither made, nor migrated, nor changed. Close it when done.

    Args:
        busy_wait_ms: how long to wait while another process repairs the file, 0 or more.

    Raises:
        LocalProtocolError: the path is no path of a file.
        StoreNotOpened: there is no such file, or it is not a store of this version.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_wait_ms: int = 15_000) -> None:
        self._file = open_existing(path)
        self._reads = ReadConnections(self._file, wait_ms=busy_wait_ms)

    @property
    def path(self) -> str:
        return self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._reads.close()

    def count(self, *, status: str | None = None, owner: str | None = None) -> int:
        """How many tasks there are; see ``newest`` for the arguments."""
        condition, values = _wanted(status, owner)
        count: int = self._query(f"SELECT count(*) FROM tasks WHERE {condition}", values)[0][0]
        return count

    def find(self, task_id: TaskId) -> ViewedTask | None:
        """The task of this id, ``None`` where there is none."""
        rows = self._query(f"SELECT {COLUMNS}, changed_at_ms FROM tasks WHERE task_id = ?", (task_id,))
        return _viewed(rows[0]) if rows else None

    def newest(self, *, status: str | None = None, owner: str | None = None) -> Iterator[ViewedTask]:
        """Every task, the one that changed last first. What changes meanwhile may be seen or not.

        Args:
            status: only tasks of this status.
            owner: only tasks of this owner, as ``tenant/subject``.
        """
        condition, values = _wanted(status, owner)
        statement = (
            f"SELECT {COLUMNS}, changed_at_ms, changed FROM tasks WHERE changed < ? AND {condition} "
            f"ORDER BY changed DESC LIMIT {_PAGE_ROWS}"
        )
        before = _POSITION_MAX
        while page := self._query(statement, (before, *values)):
            yield from (_viewed(row[:-1]) for row in page)
            before = page[-1][-1]

    def rows(self) -> Iterator[StoredTask]:
        """Every row, the one that changed last first."""
        return (viewed.row for viewed in self.newest())

    def leases(self) -> dict[str, int]:
        """Until which moment, in wall-clock milliseconds, each process last said that it lives."""
        return dict(self._query("SELECT executor, until_ms FROM leases"))

    def count_purgeable(self, before_ms: int, *, due_by_ms: int | None = None) -> int:
        """How many tasks ``SqliteTaskStore.purge`` would remove now."""
        condition, values = purgeable(before_ms, due_by_ms)
        count: int = self._query(f"SELECT count(*) FROM tasks WHERE {condition}", values)[0][0]
        return count

    def check(self, *, open_row: OpenRow | None = None) -> Iterator[str]:
        """What is wrong with the file and with who may read it, one sentence each. Reads everything.

        Args:
            open_row: as ``SqliteTaskStore.check``; gives ``None`` for a row whose payload cannot be read here.
        """
        try:
            verify_privacy(self.path)
        except StoreNotOpened as problem:
            yield str(problem)
        yield from problems_of(self._query, self.rows, open_row)

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        return self._reads.query(statement, values)


def _wanted(status: str | None, owner: str | None) -> tuple[str, tuple[object, ...]]:
    conditions: list[str] = ["1"]
    values: list[object] = []
    for condition, value in (("status = ?", status), ("tenant || '/' || subject = ?", owner)):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    return " AND ".join(conditions), tuple(values)


def _viewed(values: Sequence[Any]) -> ViewedTask:
    return ViewedTask(stored_task(values[:-1]), values[-1])
