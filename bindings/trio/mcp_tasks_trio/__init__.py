"""MCP servers and clients with tasks on trio and asyncio."""

from __future__ import annotations

from mcp_tasks_trio.application import Application, EngineTask, TaskBackend
from mcp_tasks_trio.context import (
    GateContext,
    MethodContext,
    SyncGateContext,
    SyncMethodContext,
    SyncToolContext,
    ToolContext,
)
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.questions import ElicitationAnswer
from mcp_tasks_trio.results import ContentBlock, ToolResult, audio, image, resource, resource_link, text
from mcp_tasks_trio.serve_stdio import run_stdio, serve_pipes, serve_stdio
from mcp_tasks_trio.tool_errors import CallCancelled, InputUnavailable, ProtocolError, ToolError
from mcp_tasks_trio.tools import TaskClaim

__all__ = [
    "Application",
    "CallCancelled",
    "ContentBlock",
    "ElicitationAnswer",
    "EngineTask",
    "GateContext",
    "InputUnavailable",
    "MethodContext",
    "ProtocolError",
    "ServerEngine",
    "SyncGateContext",
    "SyncMethodContext",
    "SyncToolContext",
    "TaskBackend",
    "TaskClaim",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "audio",
    "image",
    "resource",
    "resource_link",
    "run_stdio",
    "serve_pipes",
    "serve_stdio",
    "text",
]
