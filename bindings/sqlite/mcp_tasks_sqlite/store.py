"""The durable task store: one SQLite file, any number of processes, any number of threads in each."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import CapacityExceeded, SharedTaskStore, StoredTask
from mcp_tasks_sqlite.checking import OpenRow, problems_of
from mcp_tasks_sqlite.committing import GroupCommit, Operation, T
from mcp_tasks_sqlite.opening import Synchronous, open_file
from mcp_tasks_sqlite.reading import COLUMNS, ReadConnections, purgeable, stored_task

_SECRET_BYTES_MIN: Final = 32
_PAGE_ROWS: Final = 256
# Expired leases are forgotten this long after the newest one: none that a clock set back could still count.
_LEASE_KEPT_MS: Final = 24 * 60 * 60 * 1000

_LOAD: Final = f"SELECT {COLUMNS} FROM tasks WHERE task_id = ?"
_CREATE: Final = f"""
    INSERT INTO tasks ({COLUMNS}, changed_at_ms, changed)
    SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, position + 1 FROM totals
    WHERE tasks < ? AND coalesce((SELECT tasks FROM owners WHERE tenant = ? AND subject = ?), 0) < ?
    ON CONFLICT (task_id) DO NOTHING
"""
_SWAP: Final = """
    UPDATE tasks
    SET tenant = ?, subject = ?, status = ?, revision = ?, due_at_ms = ?, executor = ?, payload = ?, changed_at_ms = ?,
        changed = (SELECT position + 1 FROM totals)
    WHERE task_id = ? AND revision = ?
"""
_DELETE: Final = "DELETE FROM tasks WHERE task_id = ? AND revision = ?"
_LIST_DUE: Final = f"SELECT {COLUMNS} FROM tasks WHERE due_at_ms <= ? ORDER BY due_at_ms LIMIT ?"
# From name to name through the index, so that a million tasks of living processes cost no more than one.
_LIST_ORPHANS: Final = f"""
    WITH RECURSIVE names (name) AS (
        SELECT min(executor) FROM tasks WHERE executor IS NOT NULL
        UNION ALL
        SELECT (SELECT min(executor) FROM tasks WHERE executor > name) FROM names WHERE name IS NOT NULL
    )
    SELECT {COLUMNS} FROM names CROSS JOIN tasks ON executor = name
    WHERE NOT EXISTS (SELECT 1 FROM leases WHERE leases.executor = name AND until_ms > ?)
    LIMIT ?
"""
_HOLD_LEASE: Final = """
    INSERT INTO leases (executor, until_ms) VALUES (?, ?)
    ON CONFLICT (executor) DO UPDATE SET until_ms = max(until_ms, excluded.until_ms)
"""
_SECRETS: Final = "SELECT key_id, secret FROM request_state_secrets ORDER BY position DESC"
_LIST_CHANGES: Final = "SELECT changed, task_id FROM tasks WHERE changed > ? ORDER BY changed LIMIT ?"


class SqliteTaskStore:
    """Tasks in one SQLite file, shared by every process that opens it and by every thread of these.

    A change is on the disk when its call returns. Readers never wait for writers. Close the store when done.

    Args:
        path: the file; made, for its owner alone, where it is missing. Its folder must be there, on a local disk.
        synchronous: ``"FULL"``: what was acknowledged survives a power failure. ``"NORMAL"``: it survives the death
            of any process, and a power failure may take the last changes back; faster where the disk is slow.
        busy_wait_ms: how long a change may wait while another process holds the write lock, 0 or more.
        open_wait_ms: how long a new file, or one of an earlier version, may be waited for while another process has it
            locked, 0 or more; ``busy_wait_ms`` when ``None``.
        capacity: tasks at the most.
        capacity_per_owner: tasks of one owner at the most.
        clock: wall-clock milliseconds; tells ``purge`` how old a task is.

    Raises:
        LocalProtocolError: an argument is not as said here.
        StoreFileBusy: a new file, or one of an earlier version, was locked for all of the wait.
        StoreNotOpened: the file cannot serve as a store, and why.
    """

    blocks = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "FULL",
        busy_wait_ms: int = 15_000,
        open_wait_ms: int | None = None,
        capacity: int = 1_000_000,
        capacity_per_owner: int = 100_000,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if synchronous not in ("FULL", "NORMAL"):
            raise LocalProtocolError(f'synchronous is "FULL" or "NORMAL", not {synchronous!r}')
        self._capacity = _at_least(1, capacity, "capacity")
        self._capacity_per_owner = _at_least(1, capacity_per_owner, "capacity_per_owner")
        wait_ms = _at_least(0, busy_wait_ms, "busy_wait_ms")
        self._clock = clock
        open_wait_ms = wait_ms if open_wait_ms is None else _at_least(0, open_wait_ms, "open_wait_ms")
        self._file = open_file(path, synchronous=synchronous, wait_ms=open_wait_ms)
        self._commits = GroupCommit(self._file, wait_ms=wait_ms)
        self._reads = ReadConnections(self._file, wait_ms=wait_ms)

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
        """Let the file go. Calls that are being made end first; later ones raise ``StoreError``."""
        self._file.verify_process()
        self._commits.close()
        self._reads.close()

    # --- tasks

    def create(self, row: StoredTask) -> bool:
        tenant, subject = row.owner
        limits = (self._capacity, tenant, subject, self._capacity_per_owner)
        values = (row.task_id, *_fields(row), self._clock(), *limits)

        def operation(connection: sqlite3.Connection) -> bool:
            if connection.execute(_CREATE, values).rowcount == 1:
                return True
            if connection.execute("SELECT 1 FROM tasks WHERE task_id = ?", (row.task_id,)).fetchall():
                return False
            raise self._full(connection, row.owner)

        return self._write(operation)

    def load(self, task_id: TaskId) -> StoredTask | None:
        rows = self._query(_LOAD, (task_id,))
        return stored_task(rows[0]) if rows else None

    def swap(self, row: StoredTask) -> bool:
        values = (*_fields(row), self._clock(), row.task_id, row.revision - 1)
        return self._write(lambda connection: connection.execute(_SWAP, values).rowcount == 1)

    def list_due(self, until_ms: int, limit: int) -> list[StoredTask]:
        return [stored_task(values) for values in self._query(_LIST_DUE, (until_ms, max(0, limit)))]

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        return self._write(lambda connection: connection.execute(_DELETE, (task_id, revision)).rowcount == 1)

    def _full(self, connection: sqlite3.Connection, owner: tuple[str, str]) -> CapacityExceeded:
        if connection.execute("SELECT tasks FROM totals").fetchall()[0][0] >= self._capacity:
            return CapacityExceeded(f"the store holds {self._capacity} tasks, its capacity")
        tenant, subject = owner
        return CapacityExceeded(
            f"the store holds {self._capacity_per_owner} tasks of {subject!r} in {tenant!r}, the capacity for one owner"
        )

    # --- what processes share

    def hold_lease(self, executor: str, until_ms: int) -> None:
        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(_HOLD_LEASE, (executor, until_ms))
            connection.execute("DELETE FROM leases WHERE until_ms < ?", (until_ms - _LEASE_KEPT_MS,))

        self._write(operation)

    def end_lease(self, executor: str) -> None:
        self._write(lambda connection: connection.execute("DELETE FROM leases WHERE executor = ?", (executor,)))

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        return [stored_task(values) for values in self._query(_LIST_ORPHANS, (now_ms, max(0, limit)))]

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        if after < 0:
            return self._query("SELECT position FROM totals")[0][0], []
        changes = self._query(_LIST_CHANGES, (after, max(0, limit)))
        return (changes[-1][0] if changes else after), [TaskId(task_id) for _, task_id in changes]

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        if not isinstance(fresh, bytes) or len(fresh) < _SECRET_BYTES_MIN:
            raise LocalProtocolError(f"fresh is {_SECRET_BYTES_MIN} random bytes or more")

        def operation(connection: sqlite3.Connection) -> list[Any]:
            connection.execute(
                "INSERT INTO request_state_secrets (key_id, secret) SELECT ?, ? "
                "WHERE NOT EXISTS (SELECT 1 FROM request_state_secrets)",
                (hashlib.sha256(fresh).hexdigest()[:16], fresh),
            )
            return connection.execute(_SECRETS).fetchall()

        held = self._query(_SECRETS) or self._write(operation)
        return [(key_id, secret) for key_id, secret in held]

    def replace_request_state_secret(self, key_id: str, held: bytes, replacement: bytes) -> bool:
        """Keep a secret in another form, as when it was sealed anew; ``False`` when it is not held in the first."""
        statement = "UPDATE request_state_secrets SET secret = ? WHERE key_id = ? AND secret = ?"
        values = (replacement, key_id, held)
        return self._write(lambda connection: connection.execute(statement, values).rowcount == 1)

    # --- for operators

    def count(self) -> int:
        """How many tasks there are."""
        tasks: int = self._query("SELECT tasks FROM totals")[0][0]
        return tasks

    def rows(self) -> Iterator[StoredTask]:
        """Every task, in the order of the ids. What is created or changed meanwhile may be seen or not."""
        after = ""
        while page := self._query(
            f"SELECT {COLUMNS} FROM tasks WHERE task_id > ? ORDER BY task_id LIMIT ?", (after, _PAGE_ROWS)
        ):
            yield from (stored_task(values) for values in page)
            after = page[-1][0]

    def purge(self, before_ms: int, *, due_by_ms: int | None = None) -> int:
        """Remove the terminal tasks that nothing has changed since this moment, whatever their TTL; how many it were.

        An operator's tool: to clients these tasks become unknown at once. Unfinished tasks are left alone.

        Args:
            due_by_ms: only those that came due, for their end or for their tombstone's, by this moment.
        """
        condition, values = purgeable(before_ms, due_by_ms)
        page = f"SELECT rowid FROM tasks WHERE rowid > ? AND {condition} ORDER BY rowid LIMIT {_PAGE_ROWS}"
        removed, after = 0, -1

        def operation(connection: sqlite3.Connection) -> list[Any]:
            found = connection.execute(page, (after, *values)).fetchall()
            places = ", ".join("?" * len(found))
            connection.execute(f"DELETE FROM tasks WHERE rowid IN ({places})", [rowid for (rowid,) in found])
            return found

        # Page by page, so that no writer waits long.
        while found := self._write(operation):
            removed += len(found)
            after = found[-1][0]
        return removed

    def check(self, *, open_row: OpenRow | None = None) -> list[str]:
        """What is wrong with the file, one sentence each; nothing when it is sound. Reads everything.

        Args:
            open_row: gives a row its readable payload, where payloads are sealed: ``SealedTaskStore.open_row``.
        """
        return list(problems_of(self._query, self.rows, open_row))

    def _write(self, operation: Operation[T]) -> T:
        self._file.verify_process()
        return self._commits.run(operation)

    def _query(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        self._file.verify_process()
        return self._reads.query(statement, values)


def _fields(row: StoredTask) -> tuple[object, ...]:
    """What a row holds beside its id, in the order of the columns."""
    return (*row.owner, row.status, row.revision, row.due_at_ms, row.executor, row.payload)


def _at_least(least: int, value: int, name: str) -> int:
    if type(value) is not int or value < least:
        raise LocalProtocolError(f"{name} is an integer of {least} or more, not {value!r}")
    return value


if TYPE_CHECKING:
    _: type[SharedTaskStore] = SqliteTaskStore
