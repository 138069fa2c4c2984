"""The shipped contract as a server meets it: every call in a worker thread, on both event loops."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_tasks_core.store import MemoryTaskStore, TaskStore
from mcp_tasks_core.testing.store_contract import StoreContract
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio.threads import WorkerThreads


class InThreads:
    """A store whose every call is made in a worker thread of a running loop, as the engine makes it."""

    def __init__(self, store: TaskStore, backend: str) -> None:
        self.store = store
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            async def main() -> Any:
                return await WorkerThreads(1).run(lambda: found(*arguments))

            return anyio.run(main, backend=self._backend)

        return call

    def __len__(self) -> int:
        return len(self.store)  # type: ignore[arg-type]


@pytest.fixture(autouse=True, params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> None:
    """Every test of the contract runs on both loops."""
    if request.instance is not None:
        request.instance.backend = request.param


@pytest.mark.spec("C5", "T1")
class TestSqliteInWorkerThreads(StoreContract):
    backend: str

    def setup_method(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.opened: list[SqliteTaskStore] = []

    def teardown_method(self) -> None:
        for store in self.opened:
            store.close()
        shutil.rmtree(self.folder)

    def _open(self, path: Path | None = None, **options: Any) -> Any:
        store = SqliteTaskStore(path or self.folder / f"{len(self.opened)}.db", **options)
        self.opened.append(store)
        return InThreads(store, self.backend)

    def make_store(self) -> Any:
        return self._open()

    def make_small_store(self, capacity: int) -> Any:
        return self._open(capacity=capacity)

    def reopen(self, store: Any) -> Any:
        return self._open(Path(store.path))


@pytest.mark.spec("C5", "T1")
class TestMemoryInWorkerThreads(StoreContract):
    backend: str

    def make_store(self) -> Any:
        return InThreads(MemoryTaskStore(), self.backend)

    def make_small_store(self, capacity: int) -> Any:
        return InThreads(MemoryTaskStore(capacity=capacity), self.backend)
