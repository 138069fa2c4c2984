"""The Streamable HTTP transport of MCP as a sans-I/O binding: bytes in, events out; messages in, bytes out."""

from __future__ import annotations

from mcp_tasks_http.challenges import Challenge, parse_challenges
from mcp_tasks_http.checks import HttpServerConfig
from mcp_tasks_http.client import HttpClientConnection, HttpClientLimits
from mcp_tasks_http.client_events import EndKind, HttpClientEvent, RefusalKind, Refused, ReplyReceived, ResponseEnded
from mcp_tasks_http.endpoints import Endpoint
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
from mcp_tasks_http.sse import EventStreamDecoder

__all__ = [
    "BodyReceived",
    "Challenge",
    "ConnectionClosed",
    "EndKind",
    "Endpoint",
    "EventStreamDecoder",
    "ExchangeCancelled",
    "HeadReceived",
    "HttpClientConnection",
    "HttpClientEvent",
    "HttpClientLimits",
    "HttpLimits",
    "HttpServer",
    "HttpServerConfig",
    "HttpServerConnection",
    "HttpServerEvent",
    "NameRules",
    "RefusalKind",
    "Refused",
    "ReplyReceived",
    "RequestHead",
    "ResponseEnded",
    "SlowReader",
    "is_loopback",
    "parse_challenges",
]
