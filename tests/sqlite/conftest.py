"""A store's file, records for it, and everything that a test opened closed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import row_of
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TaskRecord, TaskStatus
from mcp_tasks_sqlite import SqliteTaskStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def open_store(path):
    """Opens the file of this test, as often as wanted."""
    stores: list[SqliteTaskStore] = []

    def open_one(**options) -> SqliteTaskStore:
        stores.append(SqliteTaskStore(path, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def record_row():
    """A row with a real record in it."""

    def make(name: str, *, status: TaskStatus = TaskStatus.WORKING, executor: str | None = "p1") -> StoredTask:
        record = TaskRecord(
            task_id=TaskId(name),
            owner=Owner("tenant", "subject"),
            status=status,
            created_at_ms=1_000,
            last_updated_at_ms=1_000,
            ttl_ms=60_000,
            method="tools/call",
            request={"name": "report", "arguments": {"topic": "a secret topic"}},
            capabilities=ClientCapabilities({}),
            executor=executor,
            result={"content": []} if status is TaskStatus.COMPLETED else None,
        )
        return row_of(record, Revision(1), Limits())

    return make
