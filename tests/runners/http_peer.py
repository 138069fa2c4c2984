"""A server on a loopback socket, and a client for tests that speaks to it in raw bytes."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from mcp_tasks_trio import Application, HttpListener, ServerEngine, serving_http
from runners.served import CAPABILITIES, message

NAMED_BY = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


def post(
    method: str,
    params: dict[str, Any] | None = None,
    *,
    request_id: object = 1,
    capabilities: dict[str, Any] = CAPABILITIES,
    headers: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
    path: str = "/mcp",
) -> bytes:
    """The bytes of one whole request."""
    told = message(method, params or {}, capabilities, **(meta or {}))
    if request_id is not None:
        told["id"] = request_id
    body = json.dumps(told).encode()
    fields = {
        "Host": "localhost:80",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Content-Length": str(len(body)),
    }
    if method in NAMED_BY:
        fields["Mcp-Name"] = (params or {})[NAMED_BY[method]]
    fields.update(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def call(tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> bytes:
    """The bytes of a tool call."""
    return post("tools/call", {"name": tool, "arguments": arguments or {}}, **options)


class Response:
    """A head, and a body where it has a length."""

    def __init__(self, status: int, fields: dict[str, str], body: bytes = b"") -> None:
        self.status = status
        self.fields = fields
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> dict[str, Any]:
        assert self.status == 200, (self.status, self.body)
        result: dict[str, Any] = self.json["result"]
        return result

    @property
    def text(self) -> str:
        text: str = self.result["content"][0]["text"]
        return text


class Stream(Protocol):
    async def receive(self, max_bytes: int = 65536) -> bytes: ...

    async def send(self, item: bytes) -> None: ...

    async def send_eof(self) -> None: ...

    async def aclose(self) -> None: ...


class HttpPeer:
    """One connection to a server."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def more(self) -> bool:
        """Wait for more bytes; whether there are any."""
        try:
            data = await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return False
        self._buffer += data
        return True

    async def until(self, mark: bytes) -> bytes:
        """Everything up to a mark, which is taken away."""
        while mark not in self._buffer:
            assert await self.more(), f"the connection ended; what came is {self._buffer!r}"
        found, _, self._buffer = self._buffer.partition(mark)
        return found

    async def bytes(self, count: int) -> bytes:
        while len(self._buffer) < count:
            assert await self.more(), f"the connection ended; what came is {self._buffer!r}"
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found

    async def head(self) -> Response:
        """The head of a response."""
        status_line, *lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
        return Response(int(status_line.split(" ")[1]), {name.lower(): value for name, value in fields.items()})

    async def response(self) -> Response:
        """A response with a body of known length."""
        response = await self.head()
        assert "content-length" in response.fields, response.fields
        response.body = await self.bytes(int(response.fields["content-length"]))
        return response

    async def stream_head(self) -> Response:
        response = await self.head()
        assert (response.status, response.fields["content-type"]) == (200, "text/event-stream"), response.fields
        return response

    async def chunk(self) -> bytes:
        """The next chunk; nothing for the last one."""
        size = int(await self.until(b"\r\n"), 16)
        data = await self.bytes(size + 2)
        return data[:-2]

    async def event(self) -> dict[str, Any]:
        """The next event of a stream, comments passed over."""
        while True:
            data = await self.chunk()
            assert data, "the stream ended"
            if data.startswith(b"data: "):
                assert data.endswith(b"\n\n")
                assert b"\n" not in data[:-2]
                decoded: dict[str, Any] = json.loads(data[6:-2])
                return decoded
            assert data.startswith(b":"), data

    async def ended(self) -> bytes:
        """Wait for the end of the connection; what came before it."""
        while await self.more():
            pass
        return self._buffer

    async def answer(self, request: bytes) -> Response:
        """Send a request and wait for a response that is no stream."""
        await self.send(request)
        return await self.response()

    async def aclose(self) -> None:
        """End the connection in good order."""
        await self.stream.aclose()

    async def reset(self) -> None:
        """End it as a crash or an abort does."""
        sock: socket.socket = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await anyio.aclose_forcefully(self.stream)


class HttpServed:
    """A server that listens on loopback."""

    def __init__(self, engine: ServerEngine, listener: HttpListener) -> None:
        self.engine = engine
        self.listener = listener
        self.url = listener.url

    @asynccontextmanager
    async def peer(self, ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[HttpPeer]:
        """A new connection."""
        assert self.listener.port is not None
        host = self.listener.settings.host
        if ssl_context is None:
            stream: Any = await anyio.connect_tcp(host, self.listener.port)
        else:
            stream = await anyio.connect_tcp(host, self.listener.port, ssl_context=ssl_context, tls_hostname=host)
        peer = HttpPeer(stream)
        try:
            yield peer
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def ask(self, request: bytes) -> Response:
        """The answer to one request on a connection of its own."""
        async with self.peer() as peer:
            return await peer.answer(request)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the server go on until something is so; the bound of the test ends it otherwise."""
        while not holds():
            await anyio.lowlevel.checkpoint()

    async def is_clean(self) -> None:
        """Wait until nothing is left of any connection or request."""
        await self.until(
            lambda: not (self.listener.connections or self.engine.streams_open or self.engine.protocol.open_exchanges)
        )


@asynccontextmanager
async def http_served(
    application: Application, *, store: Any = None, grace: float = 1.0, **settings: Any
) -> AsyncIterator[HttpServed]:
    """Serve an application while the block runs; afterwards nothing may be left of any connection."""
    engine = ServerEngine(application, store=store)
    settings = {"port": 0, "allowed_hosts": ["localhost:80"], **settings}
    async with engine.running():
        async with serving_http(engine, shutdown_grace_seconds=grace, **settings) as listener:
            yield HttpServed(engine, listener)
        assert listener.connections == 0
        assert engine.streams_open == 0
        assert not engine.protocol.open_exchanges


class Doors:
    """Lets a test know when a tool has begun and when it was cancelled, and lets the tool end."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.open = anyio.Event()
        self.cancelled = anyio.Event()

    async def pass_through(self) -> None:
        self.begun.set()
        try:
            await self.open.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise


Test = Callable[[], Awaitable[None]]
