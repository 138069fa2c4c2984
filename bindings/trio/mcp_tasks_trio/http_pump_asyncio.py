"""Moves the bytes of HTTP connections on asyncio: a protocol for each, and no task. No decisions are made here."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mcp_tasks_trio.http_wire import RECEIVE_BYTES, TLS_HANDSHAKE_S, Accept, Link
from mcp_tasks_trio.kernel_queue import unconfirmed_bytes
from mcp_tasks_trio.threads import context_for_callbacks

_BACKLOG = 512


class AsyncioWire(asyncio.BufferedProtocol):
    """One connection.

    Args:
        buffer: what is read goes through it. asyncio's own way makes an object of 256 KiB for every read, which costs
            more than all else that a read does. The loop fills and hands over in one turn, so connections share one.
    """

    __slots__ = ("_accept", "_buffer", "_link", "_transport")

    _link: Link
    _transport: asyncio.Transport

    def __init__(self, accept: Accept, buffer: memoryview) -> None:
        self._accept = accept
        self._buffer = buffer

    # --- from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._link = self._accept(self)
        # The link wants to know of anything that is not taken at once. With 0, asyncio's TLS would always be paused.
        transport.set_write_buffer_limits(high=1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._link.receive(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        if not self._transport.can_write_eof():
            return False  # TLS: whoever ends it means both directions, and the connection is lost next
        self._link.receive_eof()
        return True  # a client that writes no more may still read

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.lose()

    def pause_writing(self) -> None:
        self._link.output_stopped()

    def resume_writing(self) -> None:
        self._link.output_resumed()

    # --- from the link

    @property
    def unsent_bytes(self) -> int:
        # With TLS, asyncio tells of a part of its own buffers only; what the kernel has changes all the same.
        kept = self._transport.get_write_buffer_size()
        return kept + unconfirmed_bytes(self._transport.get_extra_info("socket"))

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def end_writing(self) -> None:
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()
        else:
            self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()


class AsyncioListeners:
    """Listening sockets."""

    def __init__(self, sockets: Sequence[socket.socket], ssl_context: ssl.SSLContext | None, accept: Accept) -> None:
        self._sockets = sockets
        self._ssl = ssl_context
        self._accept = accept
        self._servers: list[asyncio.Server] = []
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            server = await loop.create_server(
                lambda: AsyncioWire(self._accept, self._buffer),
                sock=listening,
                ssl=self._ssl,
                backlog=_BACKLOG,
                ssl_handshake_timeout=None if self._ssl is None else TLS_HANDSHAKE_S,
            )
            self._servers.append(server)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept and move bytes until the block ends, which has closed all connections by then."""
        # A server accepts, and its transports call back, in the context that it was made in.
        await asyncio.get_running_loop().create_task(self._listen(), context=context_for_callbacks())
        try:
            yield
        finally:
            self.stop_accepting()
