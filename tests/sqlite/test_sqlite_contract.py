"""The shipped contract suites, on SQLite and on sealed stores."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from mcp_tasks_core.store import MemoryTaskStore, TaskStore
from mcp_tasks_core.testing.shared_store_contract import SharedStoreContract
from mcp_tasks_core.testing.store_contract import StoreContract
from mcp_tasks_sqlite import SealedLocalTaskStore, SealedTaskStore, SealingKey, SqliteTaskStore

KEYS = [SealingKey("k2", b"2" * 32), SealingKey("k1", b"1" * 32)]


class Files:
    """Files of one test, and the stores that it opened on them."""

    def setup_method(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.opened: list[SqliteTaskStore] = []

    def teardown_method(self) -> None:
        for store in self.opened:
            store.close()
        shutil.rmtree(self.folder)

    def open(self, path: Path | None = None, **options) -> SqliteTaskStore:
        store = SqliteTaskStore(path or self.folder / f"{len(self.opened)}.db", **options)
        self.opened.append(store)
        return store


@pytest.mark.spec("C5", "T1")
class TestSqliteTaskStore(Files, SharedStoreContract):
    def make_store(self) -> SqliteTaskStore:
        return self.open()

    def make_small_store(self, capacity: int) -> SqliteTaskStore:
        return self.open(capacity=capacity)

    def reopen(self, store: TaskStore) -> SqliteTaskStore:
        return self.open(Path(store.path))


class TestSqliteTaskStoreWithNormalSynchronization(TestSqliteTaskStore):
    def make_store(self) -> SqliteTaskStore:
        return self.open(synchronous="NORMAL")


class TestSqliteTaskStoreWithOneOwnersCapacity(TestSqliteTaskStore):
    def make_small_store(self, capacity: int) -> SqliteTaskStore:
        return self.open(capacity_per_owner=capacity)


@pytest.mark.spec("C5", "T1")
class TestSealedSqliteTaskStore(Files, SharedStoreContract):
    def make_store(self) -> SealedTaskStore:
        return SealedTaskStore(self.open(), KEYS)

    def make_small_store(self, capacity: int) -> SealedTaskStore:
        return SealedTaskStore(self.open(capacity=capacity), KEYS)

    def reopen(self, store: TaskStore) -> SealedTaskStore:
        # As after a change of the key: what the first sealed the second opens, and the other way round.
        return SealedTaskStore(self.open(Path(self.opened[-1].path)), KEYS[::-1])


@pytest.mark.spec("T1")
class TestSealedMemoryTaskStore(StoreContract):
    def make_store(self) -> SealedLocalTaskStore:
        return SealedLocalTaskStore(MemoryTaskStore(), KEYS)

    def make_small_store(self, capacity: int) -> SealedLocalTaskStore:
        return SealedLocalTaskStore(MemoryTaskStore(capacity=capacity), KEYS)
