"""One request in progress: who asked what on which stream, and the one answer it gets."""

from __future__ import annotations

from typing import Final

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.identifiers import ProgressToken, RequestId, StreamId, Ticket, key_of_request_id
from mcp_tasks_core.wire.headers import RoutingHeaders
from mcp_tasks_core.wire.meta import RequestMeta

_NOTHING_SAID: Final = RequestMeta("", ClientCapabilities({}), None, None, None, {})


class Exchange:
    """A request between its arrival and its answer.

    ``closed`` once it was answered, cancelled, or its stream is gone: nothing more is sent for it, though a
    change that it began in the store goes on to its end.
    """

    __slots__ = (
        "closed",
        "headers",
        "id_bytes",
        "invocation",
        "meta",
        "method",
        "own_stream",
        "owner",
        "progress",
        "request_id",
        "stream_id",
        "ticket",
    )

    def __init__(
        self,
        stream_id: StreamId,
        request_id: RequestId,
        id_bytes: bytes,
        method: str,
        owner: Owner,
        meta: RequestMeta,
        headers: RoutingHeaders | None = None,
        own_stream: bool = False,
    ) -> None:
        self.stream_id = stream_id
        self.request_id = request_id
        self.id_bytes = id_bytes
        self.method = method
        self.owner = owner
        self.meta = meta
        self.headers = headers
        self.own_stream = own_stream
        self.closed = False
        self.ticket: Ticket | None = None
        self.invocation: Ticket | None = None
        self.progress: float | None = None

    def forget_what_was_said(self) -> None:
        """Keep no more of the request than its answer needs, which may go on for an hour."""
        self.meta = _NOTHING_SAID
        self.headers = None

    @property
    def progress_token(self) -> ProgressToken | None:
        return self.meta.progress_token


@attrs.frozen(kw_only=True)
class OpenExchange:
    """A request in progress, for people who debug: what it is, and what it waits for.

    Args:
        waits_for: names of the events that would let it go on; empty while it waits for its turn at a task.
    """

    stream_id: StreamId
    request_id: RequestId
    method: str
    owner: Owner
    ticket: Ticket | None
    waits_for: tuple[str, ...]


class ExchangeTable:
    """The open exchanges, by stream and request id. Ids are never compared across streams (DECISIONS D41)."""

    def __init__(self) -> None:
        self._streams: dict[StreamId, dict[tuple[bool, RequestId], Exchange]] = {}
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def find(self, stream_id: StreamId, request_id: RequestId) -> Exchange | None:
        return self._streams.get(stream_id, {}).get(key_of_request_id(request_id))

    def count(self, stream_id: StreamId) -> int:
        return len(self._streams.get(stream_id, ()))

    def add(self, exchange: Exchange) -> None:
        stream = self._streams.get(exchange.stream_id)
        if stream is None:
            stream = self._streams[exchange.stream_id] = {}
        stream[key_of_request_id(exchange.request_id)] = exchange
        self._open += 1

    def remove(self, exchange: Exchange) -> None:
        """Close an exchange: its id may be used again, and nothing more is sent for it."""
        exchange.closed = True
        stream = self._streams.get(exchange.stream_id)
        if stream is not None:
            if stream.pop(key_of_request_id(exchange.request_id), None) is not None:
                self._open -= 1
            if not stream:
                del self._streams[exchange.stream_id]

    def of_stream(self, stream_id: StreamId) -> list[Exchange]:
        return list(self._streams.get(stream_id, {}).values())

    def all(self) -> list[Exchange]:
        return [exchange for stream in self._streams.values() for exchange in stream.values()]
