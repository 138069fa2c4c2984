"""The stdio transport of MCP as a sans-I/O binding: bytes in, events out; messages in, bytes out."""

from __future__ import annotations

from mcp_tasks_stdio.client import (
    JUNK_LINES_MAX,
    LineReceived,
    LineSkipped,
    SkipReason,
    StdioClientConnection,
    StdioClientEvent,
    TooMuchJunk,
)
from mcp_tasks_stdio.server import StdioServerConnection, StdioServerEvent
from mcp_tasks_stdio.shutdown import ShutdownLadder, ShutdownStep, ShutdownWaits, StderrTail

__all__ = [
    "JUNK_LINES_MAX",
    "LineReceived",
    "LineSkipped",
    "ShutdownLadder",
    "ShutdownStep",
    "ShutdownWaits",
    "SkipReason",
    "StderrTail",
    "StdioClientConnection",
    "StdioClientEvent",
    "StdioServerConnection",
    "StdioServerEvent",
    "TooMuchJunk",
]
