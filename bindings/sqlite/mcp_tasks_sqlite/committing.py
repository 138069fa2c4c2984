"""Group commit: writers that come while a transaction is being made durable share the next one.

The writer that finds nobody at work leads: it begins a transaction, runs everything that waits, commits once and
tells the others. A single writer waits for nobody and for no timer. What an operation says is decided inside the
transaction and told after it is durable.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from mcp_tasks_core.store import StoreBusy, StoreError, StoreUncertain
from mcp_tasks_sqlite.faults import explain, failure_of, is_lock, is_storage, primary_code
from mcp_tasks_sqlite.opening import StoreFile

T = TypeVar("T")

Operation: TypeAlias = "Callable[[sqlite3.Connection], T]"
"""Decides and changes with at most one changing statement that matters: a statement that fails undoes itself alone."""

# Operations of one transaction. 256: enough for any pool of threads, and little enough to hold the lock for 10 ms.
_BATCH_MAX: Final = 256
_PAUSE_SECONDS_MIN: Final = 0.0005
_PAUSE_SECONDS_MAX: Final = 0.01  # a lock that changes hands often is free for moments only


class _Entry(Generic[T]):
    """One operation, from the moment it was handed in until its thread takes the outcome."""

    __slots__ = ("done", "error", "leads", "operation", "result", "since", "turn")

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation
        self.since = time.monotonic()
        self.turn = threading.Lock()  # released when the outcome is there, or when it is this thread's turn to lead
        self.turn.acquire()
        self.leads = False
        self.done = False
        self.result: T
        self.error: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done = True

    def outcome(self) -> T:
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # the traceback holds this frame: no cycle
        return self.result


class GroupCommit:
    """The writing side of a store: one connection, and any number of threads that write through it.

    Args:
        wait_ms: how long one operation may wait for another process's write lock.
    """

    def __init__(self, file: StoreFile, *, wait_ms: int) -> None:
        self._file = file
        self._wait_ms = wait_ms
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[_Entry[Any]] = deque()
        self._led = False
        self._closing = threading.Event()

    def run(self, operation: Operation[T]) -> T:
        """The operation's result, once it is durable.

        Raises:
            StoreUncertain: the disk failed while the transaction was made durable.
            StoreBusy: another process has held the write lock for as long as one operation waits.
            StoreError: nothing was changed.
        """
        entry = _Entry(operation)
        with self._lock:
            if self._closing.is_set():
                raise StoreError(f"the store {self._file.path} is closed")
            self._waiting.append(entry)
            entry.leads = not self._led
            self._led = True
        try:
            if not entry.leads:
                entry.turn.acquire()
            if not entry.done:
                self._commit_what_waits()
        finally:
            self._leave(entry)
        return entry.outcome()

    def close(self) -> None:
        """Refuse what comes, finish what is there unless it waits for another process, and let the file go."""
        self._closing.set()
        with self._idle:
            while self._led:
                self._idle.wait()
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _leave(self, entry: _Entry[Any]) -> None:
        """Hand the lead on, if this thread has it; also when an interrupt cut its wait or its work short."""
        with self._lock:
            if not entry.done and entry in self._waiting:
                self._waiting.remove(entry)
            if not entry.leads:
                return
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].turn.release()
            else:
                self._led = False
                self._idle.notify_all()

    def _commit_what_waits(self) -> None:
        connection = self._begin()
        if connection is None:
            return
        batch: list[_Entry[Any]] = []
        failure: Exception = StoreError("the transaction was interrupted before its end; nothing was changed")
        committed = False
        try:
            with self._lock:
                while self._waiting and len(batch) < _BATCH_MAX:
                    batch.append(self._waiting.popleft())
            try:
                for entry in batch:
                    self._attempt(entry, connection)
            except sqlite3.Error as error:
                failure = failure_of(error, self._file.path)
            else:
                failure = StoreUncertain("the transaction was interrupted while it was made durable")
                self._commit(connection)
                committed = True
        except StoreError as error:
            failure = error
        finally:
            if not committed:
                self._undo(failure)
            for entry in batch:
                if not committed:
                    # One exception for each thread: a raised one carries that thread's traceback.
                    entry.error = type(failure)(*failure.args)
                entry.done = True
                entry.turn.release()

    def _begin(self) -> sqlite3.Connection | None:
        """The connection with the write lock held; ``None`` once the leader's own operation has failed for want of it.

        The operations are taken only after this: what comes while the lock is waited for still joins.
        """
        pause = _PAUSE_SECONDS_MIN
        while True:
            try:
                connection = self._connection
                if connection is None:
                    connection = self._connection = self._file.connect(wait_ms=0, reads_only=False)
                else:
                    self._file.verify_in_place()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")  # an interrupt came between two lines
                connection.execute("BEGIN IMMEDIATE")
            except StoreBusy:
                pass  # another process has the whole file for itself, and not for long
            except StoreError as error:
                self._fail_first(error)
                return None
            except sqlite3.Error as error:
                if not is_lock(error):
                    self._fail_first(failure_of(error, self._file.path))
                    return None
            else:
                return connection
            waited_ms = int((time.monotonic() - self._waiting[0].since) * 1000)
            if waited_ms >= self._wait_ms or self._closing.wait(pause):
                held = f"another process has held the write lock of {self._file.path} for {waited_ms} ms"
                self._fail_first(StoreBusy(f"{held}; nothing was changed"))
                return None
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _fail_first(self, error: StoreError) -> None:
        """Only the leader's own operation fails: those behind it may wait longer, and one of them leads next."""
        with self._lock:
            self._waiting.popleft().fail(error)

    def _attempt(self, entry: _Entry[Any], connection: sqlite3.Connection) -> None:
        """Run one operation of a transaction. Only a fault of the file itself goes beyond it.

        Raises:
            sqlite3.Error: the transaction cannot go on.
        """
        try:
            entry.result = entry.operation(connection)
        except sqlite3.Error as error:
            if is_storage(error) or is_lock(error) or not connection.in_transaction:
                raise
            entry.error = StoreError(f"this row cannot be kept: {explain(error, self._file.path)}")
        except (OverflowError, UnicodeError) as error:
            entry.error = StoreError(f"this row cannot be kept: {error}")
        except Exception as error:
            entry.error = error

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Make the transaction durable.

        Raises:
            StoreUncertain: the disk failed in it: the log may hold the whole transaction, or a part of it.
            StoreError: it was not made. A full disk leaves the log without the frame that would end it.
        """
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if primary_code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}:
                raise failure_of(error, self._file.path) from error
            text = explain(error, self._file.path)
            raise StoreUncertain(f"{text}; whether the change was made is not known") from error

    def _undo(self, failure: Exception) -> None:
        """Take the transaction back, and the connection with it where the file may differ from what it believes."""
        connection = self._connection
        assert connection is not None
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if type(failure) is not StoreUncertain:
                return
            # A transaction that failed at its end may lie whole in the log, unseen until the log is read anew after
            # a crash. The next transaction takes its place there, so that what readers see now stays true.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE sums SET position = position + 1 WHERE scope = 0")
            connection.execute("COMMIT")
        except sqlite3.Error:
            self._connection = None
            connection.close()
