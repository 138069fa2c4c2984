"""The reading side: connections that threads borrow, so that no reader waits for a writer or for another reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from mcp_tasks_core.store import StoreBusy, StoredTask, StoreError
from mcp_tasks_core.tasks import TERMINAL
from mcp_tasks_sqlite.faults import explain, is_lock
from mcp_tasks_sqlite.opening import StoreFile

# Connections kept for the next reader. 16: more than any runner's pool of store threads.
_KEPT_MAX: Final = 16

COLUMNS: Final = "task_id, tenant, subject, status, revision, due_at_ms, executor, payload"
"""What ``stored_task`` makes a row of."""


def stored_task(values: Sequence[Any]) -> StoredTask:
    """The row that these columns hold.

    Raises:
        StoreError: the payload is none.
    """
    task_id, tenant, subject, status, revision, due_at_ms, executor, payload = values
    if type(payload) is not bytes:
        raise StoreError(f"task {task_id}: the payload column holds {type(payload).__name__}, not bytes; run check")
    return StoredTask(
        task_id=task_id,
        owner=(tenant, subject),
        status=status,
        revision=revision,
        due_at_ms=due_at_ms,
        executor=executor,
        payload=payload,
    )


def purgeable(before_ms: int, due_by_ms: int | None) -> tuple[str, tuple[object, ...]]:
    """The condition, and its values, for terminal tasks that are unchanged since a moment and due by another."""
    terminal = tuple(sorted(status.value for status in TERMINAL))
    condition = f"changed_at_ms < ? AND status IN ({', '.join('?' * len(terminal))})"
    if due_by_ms is None:
        return condition, (before_ms, *terminal)
    return f"{condition} AND due_at_ms <= ?", (before_ms, *terminal, due_by_ms)


class ReadConnections:
    """Runs queries, each on a connection of its own and as a transaction of its own.

    Args:
        wait_ms: how long a query waits where another process holds the whole file, as when it repairs the log.
    """

    def __init__(self, file: StoreFile, *, wait_ms: int) -> None:
        self._file = file
        self._wait_ms = wait_ms
        self._free: list[sqlite3.Connection] = []
        self._closed = False

    def query(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows of the answer.

        Raises:
            StoreBusy: another process has had the whole file for itself for all of the wait.
            StoreError: the file cannot be read.
        """
        if self._closed:
            raise StoreError(f"the store {self._file.path} is closed")
        try:
            connection = self._free.pop()  # atomic, so it needs no lock
        except IndexError:
            connection = self._file.connect(wait_ms=self._wait_ms, reads_only=True)
        try:
            rows = connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            connection.close()
            if is_lock(error):
                text = f"another process has kept {self._file.path} from being read for {self._wait_ms} ms"
                raise StoreBusy(text) from error
            raise StoreError(explain(error, self._file.path)) from error
        except (OverflowError, UnicodeError) as error:
            self._give_back(connection)
            raise StoreError(f"this cannot be asked of a store: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return rows

    def close(self) -> None:
        """Refuse what comes and let the connections go; those in use go when they come back."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if self._closed or len(self._free) >= _KEPT_MAX:
            connection.close()
            return
        self._free.append(connection)
        if self._closed:  # closed between the two lines
            self.close()
