"""The transport to a server that is a child process, one message a line."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import attrs
from anyio.abc import Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_tasks_trio.doctor.exchanges import (
    ConnectionFailed,
    Exchange,
    Sent,
    TransportName,
    decode,
    encode,
    same_id,
)

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_EXIT_SECONDS: Final = 5.0
_QUEUE: Final = 10_000


@attrs.define(kw_only=True, eq=False)
class _Open:
    """A request that waits for its answer."""

    exchange: Exchange
    done: anyio.Event = attrs.field(factory=anyio.Event)
    queue: MemoryObjectSendStream[Any] | None = None


class StdioListening:
    """A request whose messages are taken one by one."""

    def __init__(self, exchange: Exchange, queue: MemoryObjectReceiveStream[Any]) -> None:
        self.exchange = exchange
        self._queue = queue

    async def next(self, wait_seconds: float) -> Any | None:
        with anyio.move_on_after(wait_seconds), suppress(anyio.EndOfStream):
            return await self._queue.receive()
        return None


class StdioTransport:
    """One child process. Answers find their requests by id; the rest goes to whoever sent something unreadable."""

    name: TransportName = "stdio"

    def __init__(self, process: Process) -> None:
        self._process = process
        self._open: list[_Open] = []
        self._sending = anyio.Lock()
        self._over = False
        self._closed = False
        self._asked: set[tuple[type, Any]] = set()
        # Lines on stdout that are no JSON object, and messages that belong to no request: faults of their own.
        self.junk: list[bytes] = []
        self.unasked: list[Any] = []

    async def exchange(self, sent: Sent, wait_seconds: float) -> Exchange:
        waiting = _Open(exchange=Exchange(sent=sent))
        self._open.append(waiting)
        self._asked.add(_key(sent.request_id))
        try:
            await self._write(sent.body, waiting.exchange)
            if not waiting.exchange.problem:
                with anyio.move_on_after(wait_seconds):
                    await waiting.done.wait()
            if waiting.exchange.answer is None and not waiting.exchange.problem:
                over = "the server ended" if self._over else f"no answer within {wait_seconds:g} s"
                waiting.exchange.problem = over
                if sent.request_id is not None and not self._over:
                    await self.cancel(sent.request_id)
        finally:
            self._open.remove(waiting)
        return waiting.exchange

    @asynccontextmanager
    async def listening(self, sent: Sent) -> AsyncIterator[StdioListening]:
        send, receive = anyio.create_memory_object_stream[Any](_QUEUE)
        waiting = _Open(exchange=Exchange(sent=sent), queue=send)
        self._open.append(waiting)
        try:
            with send, receive:
                await self._write(sent.body, waiting.exchange)
                yield StdioListening(waiting.exchange, receive)
        finally:
            self._open.remove(waiting)
            if waiting.exchange.answer is None:
                with anyio.CancelScope(shield=True):
                    await self.cancel(sent.request_id)

    async def cancel(self, request_id: Any) -> None:
        """Tell the server that an answer is no longer wanted."""
        params = {"requestId": request_id}
        message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        await self._write(encode(message), Exchange(sent=Sent(body=b"")))

    async def close_input(self) -> int | None:
        """Close the server's stdin; gives its exit status, ``None`` if it does not end."""
        assert self._process.stdin is not None
        self._closed = True
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.aclose()
        with anyio.move_on_after(_EXIT_SECONDS):
            return await self._process.wait()
        return None

    async def _write(self, body: bytes, exchange: Exchange) -> None:
        assert self._process.stdin is not None
        if self._over or self._closed:
            exchange.problem = "the server has ended" if self._over else "the server's stdin is closed"
            return
        try:
            async with self._sending:
                await self._process.stdin.send(body + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            exchange.problem = "the server has closed its stdin"

    async def read(self) -> None:
        """Read stdout to its end."""
        assert self._process.stdout is not None
        buffer = bytearray()
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while len(buffer) <= _LINE_BYTES_MAX:
                buffer += await self._process.stdout.receive()
                *lines, rest = bytes(buffer).split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    self._take(line)
        if buffer:
            self.junk.append(bytes(buffer))
        self._over = True
        for waiting in self._open:
            waiting.done.set()
            if waiting.queue is not None:
                waiting.queue.close()

    def _take(self, line: bytes) -> None:
        try:
            message = decode(line)
        except ValueError:
            self.junk.append(line)
            return
        if not isinstance(message, dict):
            self.junk.append(line)
        elif "method" in message:
            self._take_notification(message)
        else:
            self._take_response(message)

    def _take_notification(self, message: dict[str, Any]) -> None:
        """It goes to the request that it names; one that names none goes to all that wait for an answer."""
        params = message.get("params")
        told = params if isinstance(params, dict) else {}
        if message["method"] == "notifications/progress":
            owners = [w for w in self._open if same_id(_token(w.exchange.sent.params), told.get("progressToken"))]
        elif (named := _named_request(told)) is not None:
            owners = [w for w in self._open if same_id(w.exchange.sent.request_id, named)]
        else:
            owners = [w for w in self._open if w.queue is None]
        if not owners:
            self.unasked.append(message)
        for waiting in owners:
            self._hand(waiting, message)

    def _take_response(self, message: dict[str, Any]) -> None:
        for waiting in self._open:
            if waiting.exchange.answer is None and self._answers(waiting.exchange.sent, message):
                waiting.exchange.answer = message
                self._hand(waiting, message)
                waiting.done.set()
                return
        # The answer to a request that was given up is late, and no fault.
        if _key(message.get("id")) not in self._asked:
            self.unasked.append(message)

    def _answers(self, sent: Sent, message: dict[str, Any]) -> bool:
        """Whether a response is to this message. To one whose id cannot be read, it is what answers no other."""
        own = message.get("id")
        if sent.request_id is not None and same_id(sent.request_id, own):
            return True
        return sent.hostile and (own is None or (sent.request_id is None and _key(own) not in self._asked))

    @staticmethod
    def _hand(waiting: _Open, message: Any) -> None:
        waiting.exchange.messages.append(message)
        if waiting.queue is not None:
            with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
                waiting.queue.send_nowait(message)


def _named_request(params: dict[str, Any]) -> Any:
    meta = params.get("_meta")
    if isinstance(meta, dict) and "io.modelcontextprotocol/subscriptionId" in meta:
        return meta["io.modelcontextprotocol/subscriptionId"]
    return params.get("requestId")


def _token(params: dict[str, Any]) -> Any:
    meta = params.get("_meta")
    return meta.get("progressToken") if isinstance(meta, dict) else None


def _key(request_id: Any) -> tuple[type, Any]:
    return type(request_id), request_id if isinstance(request_id, str | int) else None


@asynccontextmanager
async def open_stdio_transport(command: Sequence[str], *, show_stderr: bool = False) -> AsyncIterator[StdioTransport]:
    """Start a server and carry messages to it while the block runs; then end it.

    Raises:
        ConnectionFailed: it cannot be started.
    """
    stderr = None if show_stderr else subprocess.DEVNULL
    try:
        process = await anyio.open_process([*command], stderr=stderr, start_new_session=True)
    except OSError as error:
        raise ConnectionFailed(f"{command[0]} cannot be started: {error.strerror or error}") from error
    transport = StdioTransport(process)
    failure: ConnectionFailed | None = None
    async with anyio.create_task_group() as task_group:
        task_group.start_soon(transport.read)
        try:
            yield transport
        except ConnectionFailed as problem:
            # Raised below as it is: out of a task group it would come in a group of its own.
            failure = problem
        finally:
            with anyio.CancelScope(shield=True):
                if await transport.close_input() is None:
                    process.kill()
                    await process.wait()
                await process.aclose()
            task_group.cancel_scope.cancel()
    if failure is not None:
        raise failure
