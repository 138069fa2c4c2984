"""The Streamable HTTP transport of MCP as a sans-I/O binding: bytes in, events out; messages in, bytes out."""

from __future__ import annotations

from mcp_tasks_http.checks import HttpServerConfig
from mcp_tasks_http.events import (
    BodyReceived,
    ConnectionClosed,
    ExchangeCancelled,
    HeadReceived,
    HttpServerEvent,
    SlowReader,
)
from mcp_tasks_http.heads import RequestHead
from mcp_tasks_http.limits import HttpLimits
from mcp_tasks_http.names import NameRules, is_loopback
from mcp_tasks_http.server import HttpServer, HttpServerConnection

__all__ = [
    "BodyReceived",
    "ConnectionClosed",
    "ExchangeCancelled",
    "HeadReceived",
    "HttpLimits",
    "HttpServer",
    "HttpServerConfig",
    "HttpServerConnection",
    "HttpServerEvent",
    "NameRules",
    "RequestHead",
    "SlowReader",
    "is_loopback",
]
