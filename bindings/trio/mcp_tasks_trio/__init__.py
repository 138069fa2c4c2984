"""MCP servers and clients with tasks on trio and asyncio.

The names here are loaded when they are first asked for: a client does not load what servers need, nor a server
what clients need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_tasks_trio.application import Application
    from mcp_tasks_trio.authentication import BearerTokens, Challenge, Claims, OwnerResolver, ProtectedResource
    from mcp_tasks_trio.client import Client
    from mcp_tasks_trio.client_errors import (
        CallCancelledByClient,
        CallTimedOut,
        ClientError,
        ConnectionLost,
        Detached,
        Forbidden,
        HttpError,
        InputUnhandled,
        InvalidResponse,
        LegacyServer,
        RemoteError,
        ServerNotStarted,
        ServerUnreachable,
        SubscriptionNotAcknowledged,
        SubscriptionsUnsupported,
        TaskCancelled,
        TaskFailed,
        TaskOverdue,
        TaskUnreachable,
        Unauthorized,
        UnknownOutcome,
        UnsupportedVersion,
    )
    from mcp_tasks_trio.client_execution import Execution
    from mcp_tasks_trio.client_http import bearer, connect_http
    from mcp_tasks_trio.client_inputs import InputRequest
    from mcp_tasks_trio.client_listening import ListChange, ResourceUpdate, Subscription, TaskDropped
    from mcp_tasks_trio.client_stdio import connect_stdio
    from mcp_tasks_trio.context import (
        GateContext,
        MethodContext,
        SyncGateContext,
        SyncMethodContext,
        SyncToolContext,
        ToolContext,
    )
    from mcp_tasks_trio.engine import ServerEngine
    from mcp_tasks_trio.http_server import HttpListener, HttpSettings, run_http, serve_http, serving_http
    from mcp_tasks_trio.orphans import OrphanedTask
    from mcp_tasks_trio.questions import ElicitationAnswer
    from mcp_tasks_trio.results import ContentBlock, ToolResult, audio, image, resource, resource_link, text
    from mcp_tasks_trio.stdio_server import run_stdio, serve_pipes, serve_stdio
    from mcp_tasks_trio.task_backends import EngineTask, TaskBackend, WatchableTaskBackend
    from mcp_tasks_trio.tool_errors import CallCancelled, InputUnavailable, ProtocolError, ToolError
    from mcp_tasks_trio.tools import TaskClaim

_HOMES: Final = {
    "application": ("Application",),
    "authentication": ("BearerTokens", "Challenge", "Claims", "OwnerResolver", "ProtectedResource"),
    "client": ("Client",),
    "client_errors": (
        "CallCancelledByClient",
        "CallTimedOut",
        "ClientError",
        "ConnectionLost",
        "Detached",
        "Forbidden",
        "HttpError",
        "InputUnhandled",
        "InvalidResponse",
        "LegacyServer",
        "RemoteError",
        "ServerNotStarted",
        "ServerUnreachable",
        "SubscriptionNotAcknowledged",
        "SubscriptionsUnsupported",
        "TaskCancelled",
        "TaskFailed",
        "TaskOverdue",
        "TaskUnreachable",
        "Unauthorized",
        "UnknownOutcome",
        "UnsupportedVersion",
    ),
    "client_execution": ("Execution",),
    "client_http": ("bearer", "connect_http"),
    "client_inputs": ("InputRequest",),
    "client_listening": ("ListChange", "ResourceUpdate", "Subscription", "TaskDropped"),
    "client_stdio": ("connect_stdio",),
    "context": (
        "GateContext",
        "MethodContext",
        "SyncGateContext",
        "SyncMethodContext",
        "SyncToolContext",
        "ToolContext",
    ),
    "engine": ("ServerEngine",),
    "http_server": ("HttpListener", "HttpSettings", "run_http", "serve_http", "serving_http"),
    "orphans": ("OrphanedTask",),
    "questions": ("ElicitationAnswer",),
    "results": ("ContentBlock", "ToolResult", "audio", "image", "resource", "resource_link", "text"),
    "stdio_server": ("run_stdio", "serve_pipes", "serve_stdio"),
    "task_backends": ("EngineTask", "TaskBackend", "WatchableTaskBackend"),
    "tool_errors": ("CallCancelled", "InputUnavailable", "ProtocolError", "ToolError"),
    "tools": ("TaskClaim",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Application",
    "BearerTokens",
    "CallCancelled",
    "CallCancelledByClient",
    "CallTimedOut",
    "Challenge",
    "Claims",
    "Client",
    "ClientError",
    "ConnectionLost",
    "ContentBlock",
    "Detached",
    "ElicitationAnswer",
    "EngineTask",
    "Execution",
    "Forbidden",
    "GateContext",
    "HttpError",
    "HttpListener",
    "HttpSettings",
    "InputRequest",
    "InputUnavailable",
    "InputUnhandled",
    "InvalidResponse",
    "LegacyServer",
    "ListChange",
    "MethodContext",
    "OrphanedTask",
    "OwnerResolver",
    "ProtectedResource",
    "ProtocolError",
    "RemoteError",
    "ResourceUpdate",
    "ServerEngine",
    "ServerNotStarted",
    "ServerUnreachable",
    "Subscription",
    "SubscriptionNotAcknowledged",
    "SubscriptionsUnsupported",
    "SyncGateContext",
    "SyncMethodContext",
    "SyncToolContext",
    "TaskBackend",
    "TaskCancelled",
    "TaskClaim",
    "TaskDropped",
    "TaskFailed",
    "TaskOverdue",
    "TaskUnreachable",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "Unauthorized",
    "UnknownOutcome",
    "UnsupportedVersion",
    "WatchableTaskBackend",
    "audio",
    "bearer",
    "connect_http",
    "connect_stdio",
    "image",
    "resource",
    "resource_link",
    "run_http",
    "run_stdio",
    "serve_http",
    "serve_pipes",
    "serve_stdio",
    "serving_http",
    "text",
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
