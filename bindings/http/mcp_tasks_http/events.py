"""What a server's connection tells its runner."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcp_tasks_core.wire.headers import RoutingHeaders
from mcp_tasks_http.heads import RequestHead


@attrs.frozen(slots=True)
class HeadReceived:
    """A request's head passed the checks. Answer with ``admit`` or ``refuse``, now or later.

    Only with ``announce_heads``. Its exchange ends with one of ``refuse``, the answer, or ``ExchangeCancelled``.
    """

    exchange: int
    head: RequestHead


@attrs.frozen(slots=True)
class BodyReceived:
    """A request is complete: one message, its bytes as they were. Answer with ``send`` or ``acknowledge``."""

    exchange: int
    payload: bytes
    headers: RoutingHeaders


@attrs.frozen(slots=True)
class ExchangeCancelled:
    """Nobody waits for this exchange any more, and nothing more can be sent for it.

    The client went away, or its body was refused or never came. Only for exchanges that an event told of.
    """

    exchange: int


@attrs.frozen(slots=True)
class SlowReader:
    """The peer does not take what we write: the connection is over, and what was not sent is dropped."""

    unsent_bytes: int


@attrs.frozen(slots=True)
class ConnectionClosed:
    """The connection is over; the last event. What ``data_to_send`` still gives is to be sent before closing."""


HttpServerEvent: TypeAlias = HeadReceived | BodyReceived | ExchangeCancelled | SlowReader | ConnectionClosed
