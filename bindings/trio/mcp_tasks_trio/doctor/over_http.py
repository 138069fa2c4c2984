"""The transport to a server over HTTP: every message on a connection of its own, with whatever headers a check wants.

h11 reads the responses. The requests are written here, since h11 would refuse to send the wrong ones.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import h11
from anyio.abc import ByteStream

from mcp_tasks_http.endpoints import Endpoint
from mcp_tasks_http.sse import EventStreamDecoder
from mcp_tasks_trio.doctor.exchanges import ConnectionFailed, Exchange, Sent, TransportName, decode

_BODY_BYTES_MAX: Final = 64 * 1024 * 1024
_CONNECT_SECONDS: Final = 10.0
_READ_BYTES: Final = 65_536
# How long a response may go on after its answer before it counts as one that does not end.
_END_SECONDS: Final = 2.0


class _Response:
    """Reads one response into an exchange."""

    def __init__(self, exchange: Exchange, endpoint: Endpoint) -> None:
        self.exchange = exchange
        self.over = False
        self._decoder: EventStreamDecoder | None = None
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        verb = exchange.sent.verb
        self._h11.send(h11.Request(method=verb, target=endpoint.target, headers=[("host", endpoint.authority)]))
        self._h11.send(h11.EndOfMessage())

    def receive(self, data: bytes) -> list[Any]:
        """Messages that these bytes complete; no bytes are the end of the connection."""
        found: list[Any] = []
        try:
            self._h11.receive_data(data)
            while not self.over:
                event = self._h11.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                found += self._take(event)
        except h11.RemoteProtocolError as problem:
            self._fail(f"the response is no HTTP: {problem}")
        if not data:
            self.over = True
        return found

    def _take(self, event: Any) -> list[Any]:
        if isinstance(event, h11.Response):
            self.exchange.status = event.status_code
            self.exchange.fields = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in event.headers]
            media = (self.exchange.field("content-type") or "").partition(";")[0].strip().lower()
            if media == "text/event-stream":
                self._decoder = EventStreamDecoder(_BODY_BYTES_MAX)
        elif isinstance(event, h11.Data):
            data = bytes(event.data)
            self.exchange.body = (self.exchange.body + data)[:_BODY_BYTES_MAX]
            if self._decoder is not None:
                return [message for text in self._decoder.receive_data(data) for message in self._message(text)]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            self.over = True
            if self._decoder is None and self.exchange.body and isinstance(event, h11.EndOfMessage):
                return self._message(self.exchange.body)
        return []

    def _message(self, text: bytes) -> list[Any]:
        try:
            message = decode(text)
        except ValueError as problem:
            if self._decoder is not None or "json" in (self.exchange.field("content-type") or ""):
                self.exchange.faults.append(f"a message that is no JSON ({problem}): {text[:200]!r}")
            return []
        self.exchange.messages.append(message)
        if isinstance(message, dict) and "method" not in message:
            # Whatever its id is: that it is another one is for a check to say.
            self.exchange.answer = self.exchange.answer or message
        return [message]

    def _fail(self, problem: str) -> None:
        self.exchange.problem = problem
        self.over = True


class HttpListening:
    """A response stream that stays open."""

    def __init__(self, response: _Response, stream: ByteStream) -> None:
        self.exchange = response.exchange
        self._response = response
        self._stream = stream
        self._ready: list[Any] = []

    async def next(self, wait_seconds: float) -> Any | None:
        with anyio.move_on_after(wait_seconds):
            while not self._ready and not self._response.over:
                self._ready += self._response.receive(await _received(self._stream))
        return self._ready.pop(0) if self._ready else None


class HttpTransport:
    """Carries messages to one endpoint.

    Args:
        tls: for https.
    """

    name: TransportName = "http"

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._tls = tls

    async def exchange(self, sent: Sent, wait_seconds: float) -> Exchange:
        response = _Response(Exchange(sent=sent), self.endpoint)
        try:
            async with await self.connect() as stream:
                await self._converse(stream, response, wait_seconds)
        except (ConnectionFailed, anyio.BrokenResourceError, ssl.SSLError) as problem:
            response.exchange.problem = f"the connection failed: {problem or type(problem).__name__}"
        return response.exchange

    async def _converse(self, stream: ByteStream, response: _Response, wait_seconds: float) -> None:
        exchange = response.exchange
        with suppress(anyio.BrokenResourceError):
            await stream.send(self._request_bytes(exchange.sent))
        with anyio.move_on_after(wait_seconds):
            while not response.over and exchange.answer is None:
                response.receive(await _received(stream))
        exchange.ended = response.over
        if exchange.answer is None:
            if not response.over:
                exchange.problem = f"no answer within {wait_seconds:g} s"
            elif exchange.status is None and not exchange.problem:
                exchange.problem = "the server closed the connection without a response"
            return
        with anyio.move_on_after(_END_SECONDS):
            while not response.over:
                response.receive(await _received(stream))
        exchange.ended = response.over

    @asynccontextmanager
    async def listening(self, sent: Sent) -> AsyncIterator[HttpListening]:
        response = _Response(Exchange(sent=sent), self.endpoint)
        async with await self.connect() as stream:
            await stream.send(self._request_bytes(sent))
            yield HttpListening(response, stream)
            with anyio.CancelScope(shield=True), suppress(anyio.BrokenResourceError):
                await anyio.aclose_forcefully(stream)

    async def connect(self) -> ByteStream:
        """A new connection.

        Raises:
            ConnectionFailed: there is none.
        """
        host, port = self.endpoint.host, self.endpoint.port
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                if self._tls is None:
                    return await anyio.connect_tcp(host, port)
                return await anyio.connect_tcp(
                    host, port, tls=True, ssl_context=self._tls, tls_standard_compatible=False
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            raise ConnectionFailed(f"{host} port {port} cannot be reached: {_words(error)}") from error

    def _request_bytes(self, sent: Sent) -> bytes:
        given = {name.lower() for name, _ in sent.headers}
        lines = [f"{sent.verb} {self.endpoint.target} HTTP/1.1"]
        if "host" not in given:
            lines.append(f"Host: {self.endpoint.authority}")
        lines += [f"{name}: {value}" for name, value in sent.headers]
        if sent.verb == "POST":
            lines.append(f"Content-Length: {len(sent.body)}")
        lines.append("Connection: close")
        return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + sent.body


async def _received(stream: ByteStream) -> bytes:
    try:
        return await stream.receive(_READ_BYTES)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return b""


def _words(error: BaseException) -> str:
    causes = error.exceptions if isinstance(error, BaseExceptionGroup) else [error.__cause__ or error]
    return "; ".join(str(cause) or type(cause).__name__ for cause in causes)


def http_transport(url: str) -> HttpTransport:
    """The transport to an endpoint.

    Raises:
        LocalProtocolError: the URL names none.
    """
    endpoint = Endpoint.parse(url)
    return HttpTransport(endpoint, ssl.create_default_context() if endpoint.secure else None)
