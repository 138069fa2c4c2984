"""A server on two real pipes, and a client for tests that speaks to it in raw messages."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_tasks_trio import Application, ServerEngine, serve_pipes

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])

CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
WITHOUT_TASKS: dict[str, Any] = {name: value for name, value in CAPABILITIES.items() if name != "extensions"}
PATIENCE_SECONDS = 20.0  # a test that waits longer than this hangs


def run(backend: str, test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test on one loop; it fails where it would hang."""

    async def bounded() -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            await test()

    anyio.run(bounded, backend=backend)


def message(method: str, params: dict[str, Any], capabilities: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A request or notification without its id."""
    told = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        **meta,
    }
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": told}}


class Peer:
    """The client's end of the pipes."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd: int | None = write_fd
        self._buffer = b""
        self._ids = 0
        self._unclaimed: list[dict[str, Any]] = []
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    async def send_bytes(self, data: bytes) -> None:
        assert self._write_fd is not None
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._write_fd, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._write_fd)

    async def send(self, *messages: dict[str, Any]) -> None:
        await self.send_bytes(b"".join(json.dumps(m).encode() + b"\n" for m in messages))

    async def start(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        capabilities: dict[str, Any] = CAPABILITIES,
        **meta: Any,
    ) -> int:
        """Send a request; gives its id."""
        self._ids += 1
        await self.send({**message(method, params or {}, capabilities, **meta), "id": self._ids})
        return self._ids

    async def cancel(self, request_id: int) -> None:
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    async def line(self) -> bytes:
        """The next line, without its end; nothing at the end of the stream."""
        while b"\n" not in self._buffer:
            try:
                data = os.read(self._read_fd, 1 << 20)
            except BlockingIOError:
                await anyio.wait_readable(self._read_fd)
                continue
            if not data:
                assert not self._buffer, "the server's output ends inside a line"
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def next(self) -> dict[str, Any]:
        """The next message."""
        line = await self.line()
        assert line, "the server has closed its output"
        decoded: dict[str, Any] = json.loads(line)
        return decoded

    async def answer_to(self, request_id: int) -> dict[str, Any]:
        """The answer to this request; other messages that come before it are kept in ``unclaimed``."""
        for kept in self._unclaimed:
            if kept.get("id") == request_id:
                self._unclaimed.remove(kept)
                return kept
        while True:
            received = await self.next()
            if received.get("id") == request_id:
                return received
            self._unclaimed.append(received)

    @property
    def unclaimed(self) -> list[dict[str, Any]]:
        """Messages that nobody has asked for so far, in order."""
        return self._unclaimed

    async def request(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """Send a request as ``start`` does, and wait for its answer."""
        return await self.answer_to(await self.start(method, params, **options))

    async def result(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """The result of a request that succeeds."""
        answer = await self.request(method, params, **options)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, params: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """The error of a request that fails."""
        answer = await self.request(method, params, **options)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any] | None = None,
        *,
        params: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """The result of calling a tool."""
        return await self.result(
            "tools/call", {"name": tool, "arguments": arguments or {}, **(params or {})}, **options
        )

    async def task(self, task_id: str) -> dict[str, Any]:
        return await self.result("tasks/get", {"taskId": task_id})

    async def task_where(self, task_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The task once this holds of it: read again and again, each time after the server had a turn."""
        while True:
            task = await self.task(task_id)
            if holds(task):
                return task

    async def task_in(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """The task once it is in one of these statuses."""
        return await self.task_where(task_id, lambda task: task["status"] in statuses)

    def close_input(self) -> None:
        if self._write_fd is not None:
            os.close(self._write_fd)
            self._write_fd = None

    def close(self) -> None:
        self.close_input()
        os.close(self._read_fd)


class Served:
    """A running server and its client."""

    def __init__(self, engine: ServerEngine, peer: Peer) -> None:
        self.engine = engine
        self.peer = peer
        self.ended = anyio.Event()


@asynccontextmanager
async def served(application: Application, *, eof_grace_seconds: float = 1.0, **options: Any) -> AsyncIterator[Served]:
    """Serve an application on two pipes while the block runs; afterwards its input ends, and it must end, too."""
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    engine = ServerEngine(application, **options)
    peer = Peer(to_client, from_client)
    both = Served(engine, peer)

    async def serve() -> None:
        await serve_pipes(engine, to_server, from_server, eof_grace_seconds=eof_grace_seconds)
        both.ended.set()

    try:
        async with anyio.create_task_group() as task_group:
            task_group.start_soon(serve)
            yield both
            peer.close_input()
            await both.ended.wait()
    finally:
        peer.close()
        for fd in (to_server, from_server):
            os.close(fd)
