"""The embedded durable store of MCP Tasks: one SQLite file, shared by several processes.

The sealed stores need the extra ``encryption``; everything else needs the standard library alone.
"""

from mcp_tasks_sqlite.faults import StoreFileBusy, StoreNotOpened
from mcp_tasks_sqlite.key_file import read_key_file
from mcp_tasks_sqlite.sealing import (
    KeyMissing,
    SealBroken,
    SealedLocalTaskStore,
    SealedTaskStore,
    SealingKey,
    sealing_key_id,
)
from mcp_tasks_sqlite.store import SqliteTaskStore
from mcp_tasks_sqlite.viewing import SqliteStoreView, ViewedTask

__all__ = [
    "KeyMissing",
    "SealBroken",
    "SealedLocalTaskStore",
    "SealedTaskStore",
    "SealingKey",
    "SqliteStoreView",
    "SqliteTaskStore",
    "StoreFileBusy",
    "StoreNotOpened",
    "ViewedTask",
    "read_key_file",
    "sealing_key_id",
]
