"""The embedded durable store of MCP Tasks: one SQLite file, shared by several processes.

The sealed stores need the extra ``encryption``; everything else needs the standard library alone.
"""

from mcp_tasks_sqlite.faults import StoreNotOpened
from mcp_tasks_sqlite.sealing import KeyMissing, SealBroken, SealedLocalTaskStore, SealedTaskStore, SealingKey
from mcp_tasks_sqlite.store import SqliteTaskStore

__all__ = [
    "KeyMissing",
    "SealBroken",
    "SealedLocalTaskStore",
    "SealedTaskStore",
    "SealingKey",
    "SqliteTaskStore",
    "StoreNotOpened",
]
