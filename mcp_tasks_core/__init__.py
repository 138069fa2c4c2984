"""The MCP Tasks extension (io.modelcontextprotocol/tasks, revision 2026-07-28), without I/O.

The names here are loaded when they are first asked for: importing the package alone costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_tasks_core.access import LOCAL_OWNER, Access, AccessRule, Owner
    from mcp_tasks_core.answers import check_answer
    from mcp_tasks_core.capabilities import advertise_tasks, declares_tasks, is_task_handle
    from mcp_tasks_core.client.config import ClientConfig
    from mcp_tasks_core.client.protocol import ClientProtocol
    from mcp_tasks_core.errors import ErrorObject, LocalProtocolError, RemoteProtocolError
    from mcp_tasks_core.identifiers import Instant, StreamId, TaskId
    from mcp_tasks_core.limits import Limits
    from mcp_tasks_core.request_state import RequestStateKey
    from mcp_tasks_core.server.config import Recovery, ServerConfig, ToolEntry
    from mcp_tasks_core.server.protocol import ServerProtocol
    from mcp_tasks_core.store import MemoryTaskStore, SharedTaskStore, StoreBusy, StoredTask, StoreError, TaskStore

_HOMES: Final = {
    "access": ("LOCAL_OWNER", "Access", "AccessRule", "Owner"),
    "answers": ("check_answer",),
    "capabilities": ("advertise_tasks", "declares_tasks", "is_task_handle"),
    "client.config": ("ClientConfig",),
    "client.protocol": ("ClientProtocol",),
    "errors": ("ErrorObject", "LocalProtocolError", "RemoteProtocolError"),
    "identifiers": ("Instant", "StreamId", "TaskId"),
    "limits": ("Limits",),
    "request_state": ("RequestStateKey",),
    "server.config": ("Recovery", "ServerConfig", "ToolEntry"),
    "server.protocol": ("ServerProtocol",),
    "store": ("MemoryTaskStore", "SharedTaskStore", "StoreBusy", "StoreError", "StoredTask", "TaskStore"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LOCAL_OWNER",
    "Access",
    "AccessRule",
    "ClientConfig",
    "ClientProtocol",
    "ErrorObject",
    "Instant",
    "Limits",
    "LocalProtocolError",
    "MemoryTaskStore",
    "Owner",
    "Recovery",
    "RemoteProtocolError",
    "RequestStateKey",
    "ServerConfig",
    "ServerProtocol",
    "SharedTaskStore",
    "StoreBusy",
    "StoreError",
    "StoredTask",
    "StreamId",
    "TaskId",
    "TaskStore",
    "ToolEntry",
    "advertise_tasks",
    "check_answer",
    "declares_tasks",
    "is_task_handle",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
