"""The file of a store: who may read it, whether it is a store at all, and connections to it."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import StoreError
from mcp_tasks_sqlite.faults import StoreFileBusy, StoreNotOpened, explain, failure_of, is_lock
from mcp_tasks_sqlite.schema import MIGRATIONS, Migration, migrate, needs_migration

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]

_OWNER_ALONE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_LOCK_PAUSE_SECONDS: Final = 0.005
_FIRST_LOOK_MS: Final = 5_000  # another process has the whole file for itself only while it repairs the log
# What the write-ahead log may keep of the disk after a burst. 64 MiB: sixteen times what one checkpoint leaves.
_LOG_BYTES_KEPT: Final = 64 * 1024 * 1024


@attrs.frozen(kw_only=True)
class StoreFile:
    """A store's file that was found to be one.

    Args:
        path: absolute, so that a change of the working directory changes nothing.
        device, inode: which file it was when it was opened.
        process_id: the process that opened it, and the only one that may use it.
        reads_only: no connection of this process can change the file.
    """

    path: str
    device: int
    inode: int
    process_id: int
    synchronous: Synchronous
    reads_only: bool = False

    def connect(self, *, wait_ms: int, reads_only: bool) -> sqlite3.Connection:
        """A connection of this process to this very file.

        Args:
            wait_ms: how long SQLite itself waits for a lock.

        Raises:
            StoreBusy: another process has the whole file for itself, as while it repairs the log.
            StoreError: the file has gone, or cannot be opened.
        """
        self.verify_in_place()
        try:
            connection = _connect(self.path, wait_ms, reads_only=self.reads_only)
            connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES_KEPT}")
            connection.execute("PRAGMA temp_store = MEMORY")
            # What was deleted is overwritten where that costs no further writes.
            connection.execute("PRAGMA secure_delete = FAST")
            if reads_only:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            raise failure_of(error, self.path) from error
        return connection

    def verify_process(self) -> None:
        """Refuse a child that inherited the store: SQLite's connections and locks do not survive a fork.

        Raises:
            StoreError: this is not the process that opened the store.
        """
        if os.getpid() != self.process_id:
            raise StoreError(
                f"the store {self.path} was opened by process {self.process_id} and is used by process "
                f"{os.getpid()}, forked from it: open the store anew in the child"
            )

    def verify_in_place(self) -> None:
        """Refuse to work on a file that nobody else can find any longer: what it is told would be lost.

        Raises:
            StoreError: the file was removed, or another one lies in its place.
        """
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise StoreError(f"the store {self.path} is no longer there: {error.strerror}") from error
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            raise StoreError(f"the store {self.path} was replaced by another file while it was open")


def open_file(
    path: str | os.PathLike[str],
    *,
    synchronous: Synchronous,
    wait_ms: int,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> StoreFile:
    """Find or make the file of a store and bring it to the newest schema version.

    Raises:
        LocalProtocolError: the path is no path of a file.
        StoreFileBusy: another process has kept it locked for that long.
        StoreNotOpened: the file cannot serve as a store.
    """
    absolute = _absolute(path)
    _make_file(absolute)
    verify_privacy(absolute)
    try:
        connection = _connect(absolute, 0)
        try:
            _prepare(connection, absolute, wait_ms, migrations)
        finally:
            connection.close()
        found = os.stat(absolute)
    except sqlite3.Error as error:
        raise StoreNotOpened(explain(error, absolute)) from error
    except OSError as error:
        raise StoreNotOpened(f"the store {absolute} went away while it was opened: {error.strerror}") from error
    return _store_file(absolute, found, synchronous, reads_only=False)


def open_existing(path: str | os.PathLike[str]) -> StoreFile:
    """Find the file of a store, for reading alone. It is neither made, nor migrated, nor changed.

    SQLite puts the files -wal and -shm beside it, as it does for whoever reads.

    Raises:
        LocalProtocolError: the path is no path of a file.
        StoreNotOpened: there is no such file, or it is not a store of this version.
    """
    absolute = _absolute(path)
    try:
        found = os.stat(absolute)
    except OSError as error:
        raise StoreNotOpened(f"there is no store {absolute}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise StoreNotOpened(f"{absolute} is not a file, so it cannot be a store")
    try:
        connection = _connect(absolute, _FIRST_LOOK_MS, reads_only=True)
        try:
            migration_needed = needs_migration(connection, absolute, MIGRATIONS)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise StoreNotOpened(explain(error, absolute)) from error
    if migration_needed:
        what = "is empty" if found.st_size == 0 else "has the schema of an earlier version"
        raise StoreNotOpened(f"{absolute} {what}; a server that opens it makes it a store of this version")
    return _store_file(absolute, found, "FULL", reads_only=True)


def _store_file(path: str, found: os.stat_result, synchronous: Synchronous, *, reads_only: bool) -> StoreFile:
    return StoreFile(
        path=path,
        device=found.st_dev,
        inode=found.st_ino,
        process_id=os.getpid(),
        synchronous=synchronous,
        reads_only=reads_only,
    )


def _absolute(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or text == ":memory:" or text.startswith("file:") or "\0" in text:
        raise LocalProtocolError(
            f"path names a file, not {text!r}; for a store in memory take mcp_tasks_core.store.MemoryTaskStore"
        )
    return os.path.abspath(text)


def _make_file(path: str) -> None:
    """Make the file for its owner alone before SQLite would make it for all; -wal and -shm follow its permissions.

    A file that is there is not opened here: to close it again would drop the locks that this process may hold on it.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreNotOpened(f"the folder {folder} of the store is missing: make it first")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNER_ALONE))
    except FileExistsError:
        if not os.path.isfile(path):
            raise StoreNotOpened(f"{path} is not a file, so it cannot be a store") from None
    except OSError as error:
        raise StoreNotOpened(f"{path} cannot be made: {error.strerror}") from error


def verify_privacy(path: str) -> None:
    """Refuse files that others may read or write: tasks hold what people typed in, and what tools answered.

    Raises:
        StoreNotOpened: the file of a store, or one of those that belong to it, is such a file.
    """
    if os.name != "posix":
        return
    for name in (path, f"{path}-wal", f"{path}-shm"):
        try:
            mode = stat.S_IMODE(os.stat(name).st_mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreNotOpened(f"{name} cannot be looked at: {error.strerror}") from error
        if mode & _OTHERS:
            raise StoreNotOpened(
                f"{name} is open to other users (mode {mode:04o}); a store belongs to its owner alone: "
                f"chmod 600 {name}, and think about who may have read it"
            )


def _connect(path: str, wait_ms: int, *, reads_only: bool = False) -> sqlite3.Connection:
    name = f"file:{quote(path)}?mode=ro" if reads_only else path
    # Transactions are begun by hand: the module's own are deferred, and fail at once when another writer was first.
    return sqlite3.connect(name, timeout=wait_ms / 1000, isolation_level=None, check_same_thread=False, uri=reads_only)


def _prepare(connection: sqlite3.Connection, path: str, wait_ms: int, migrations: Sequence[Migration]) -> None:
    give_up_at = time.monotonic() + wait_ms / 1000
    while True:
        try:
            migration_needed = needs_migration(connection, path, migrations)
            journal_mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()[0][0]
            if journal_mode != "wal":
                raise StoreNotOpened(
                    f"{path} lies on a file system without shared memory (journal mode {journal_mode}): "
                    "a store needs a local disk"
                )
            connection.execute("PRAGMA synchronous = FULL")
            if migration_needed:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    migrate(connection, path, migrations)
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if not is_lock(error):
                raise
            if time.monotonic() >= give_up_at:
                raise StoreFileBusy(
                    f"another process has held {path} locked for {wait_ms} ms, so it could not be opened"
                ) from error
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return
