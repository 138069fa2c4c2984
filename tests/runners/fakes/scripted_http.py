"""An HTTP server for tests of clients: it does with each request what a test wrote, byte by byte."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

META = {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "1"}}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": META,
}


class FakeRequest:
    """One request that came in, and the connection to answer it on."""

    def __init__(self, connection: int, fields: dict[str, str], body: bytes, stream: Any) -> None:
        self.connection = connection
        self.fields = fields
        self.body = body
        self.stream = stream
        self.message: dict[str, Any] = json.loads(body)

    @property
    def method(self) -> str:
        method: str = self.message["method"]
        return method

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.message["params"]
        return params

    async def raw(self, data: bytes) -> None:
        await self.stream.send(data)

    async def respond(
        self, body: bytes | str, *, status: int = 200, content_type: str = "application/json", **fields: str
    ) -> None:
        """A whole response; names of fields with underscores for dashes."""
        data = body.encode() if isinstance(body, str) else body
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\n{more}Content-Length: {len(data)}\r\n\r\n"
        await self.raw(head.encode() + data)

    def answer(self, **member: Any) -> str:
        """A JSON-RPC response with a ``result`` or an ``error``."""
        return json.dumps({"jsonrpc": "2.0", "id": self.message["id"], **member})

    async def result(self, **members: Any) -> None:
        await self.respond(self.answer(result={"resultType": "complete", "_meta": META, **members}))

    async def text(self, text: str) -> None:
        """The result of a tool call."""
        await self.result(content=[{"type": "text", "text": text}])

    async def error(self, code: int, message: str = "no", *, status: int = 400, **members: Any) -> None:
        await self.respond(self.answer(error={"code": code, "message": message, **members}), status=status)

    async def begin_stream(self) -> None:
        await self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes | str) -> None:
        sent = data.encode() if isinstance(data, str) else data
        await self.raw(b"%x\r\n%b\r\n" % (len(sent), sent))

    async def close(self) -> None:
        await self.stream.aclose()


Handler = Callable[[FakeRequest], Awaitable[None]]


class FakeServer:
    """What a fake server saw."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.requests: list[FakeRequest] = []
        self.connections = 0
        self.closed = 0  # connections that the client has closed
        self.changed = anyio.Event()

    def of(self, method: str) -> list[FakeRequest]:
        return [request for request in self.requests if request.method == method]

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed = anyio.Event()
            await self.changed.wait()


@asynccontextmanager
async def fake_server(handler: Handler, *, discover: bool = True) -> AsyncIterator[FakeServer]:
    """Serve with a handler on loopback; ``server/discover`` is answered as a good server does."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port: int = listener.extra(anyio.abc.SocketAttribute.local_port)
    server = FakeServer(port)

    async def serve(stream: Any) -> None:
        server.connections += 1
        number = server.connections
        try:
            async with stream:
                buffer = b""
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await stream.receive()
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    lines = head.decode("latin-1").split("\r\n")
                    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                    length = int(fields["content-length"])
                    while len(buffer) < length:
                        buffer += await stream.receive()
                    body, buffer = buffer[:length], buffer[length:]
                    request = FakeRequest(number, {":line": lines[0], **fields}, body, stream)
                    server.requests.append(request)
                    server.changed.set()
                    if discover and request.method == "server/discover":
                        await request.respond(request.answer(result=DISCOVERED))
                    else:
                        await handler(request)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            server.closed += 1
            server.changed.set()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield server
        group.cancel_scope.cancel()
