"""A client's connections to one endpoint: opened when they are needed, kept for a while, never too many.

Source: RFC 9112, section 9.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute

from mcp_tasks_core.client.calls import LISTEN
from mcp_tasks_http import Endpoint, HttpClientConnection, HttpClientEvent, HttpClientLimits
from mcp_tasks_trio.client_errors import ServerUnreachable

# For the name, the connection and TLS together. Half of the silence after which a server counts as legacy.
CONNECT_S: Final = 5.0
_CLOSE_S: Final = 0.5  # for TLS to say goodbye
_RECEIVE_BYTES: Final = 64 * 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)


def now_ms() -> int:
    return int(anyio.current_time() * 1000)


class PooledConnection:
    """One TCP connection and what is spoken on it."""

    def __init__(self, stream: ByteStream, http: HttpClientConnection) -> None:
        self.stream = stream
        self.http = http
        self.was_used = False
        self.idle_since_s = 0.0

    @property
    def alive(self) -> bool:
        """Whether another request may go out on it: the server has not closed it, nor sent what nobody asked for."""
        return self.http.reusable(now_ms()) and not _is_readable(self.stream.extra(SocketAttribute.raw_socket))

    async def receive(self) -> Sequence[HttpClientEvent]:
        """What came next; the last events at the end."""
        try:
            data = await self.stream.receive(_RECEIVE_BYTES)
        except anyio.EndOfStream:
            return self.http.receive_eof(now_ms())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            return self.http.connection_lost()
        return self.http.receive_data(data, now_ms())

    async def aclose(self) -> None:
        """Close, without waiting for the server for long.

        A request that is given up is ended with a reset: a server cannot tell any other end from that of a client
        that only sends nothing more.
        """
        if self.http.busy:
            with contextlib.suppress(Exception):
                raw = self.stream.extra(SocketAttribute.raw_socket)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        with anyio.move_on_after(_CLOSE_S, shield=True), contextlib.suppress(Exception):
            await anyio.aclose_forcefully(self.stream)


def _is_readable(sock: socket.socket) -> bool:
    """Whether something could be read at once, the end included. Buffered TLS records count for nothing here."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


class ConnectionPool:
    """The connections to one endpoint.

    Args:
        unix_socket: connect there in place of the endpoint's host and port.
        connections_max: at the same time, for calls, and for subscriptions, which last; requests about tasks have a few
            of their own, so that a task can be cancelled while all the others wait.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        ssl_context: ssl.SSLContext | None,
        unix_socket: str | Path | None,
        connections_max: int,
        limits: HttpClientLimits,
    ) -> None:
        self._endpoint = endpoint
        self._ssl = ssl_context
        self._unix_socket = unix_socket
        self._limits = limits
        self.connections_max = connections_max
        self._slots = anyio.Semaphore(connections_max)
        self._listen_slots = anyio.Semaphore(connections_max)
        self._task_slots = anyio.Semaphore(max(2, connections_max // 4))
        self._idle: list[PooledConnection] = []
        self._has_idle = anyio.Event()
        self.open = 0

    def slot(self, method: str) -> anyio.Semaphore:
        """What bounds the connections for such requests: to be held while one is used."""
        if method == LISTEN:
            return self._listen_slots
        return self._task_slots if method.startswith("tasks/") else self._slots

    async def take(self, *, fresh: bool = False) -> PooledConnection:
        """A connection that is ready for a request.

        Args:
            fresh: a new one, whatever there is.

        Raises:
            ServerUnreachable: none came about.
        """
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.alive:
                return connection
            await self.drop(connection)
        stream = await self._connect()
        self.open += 1
        return PooledConnection(stream, HttpClientConnection(self._endpoint, self._limits))

    async def give_back(self, connection: PooledConnection) -> None:
        """Its request is over."""
        if connection.http.reusable(now_ms()):
            connection.was_used = True
            connection.idle_since_s = anyio.current_time()
            self._idle.append(connection)
            self._has_idle.set()
        else:
            await self.drop(connection)

    async def drop(self, connection: PooledConnection) -> None:
        """Close it, whatever happens on it."""
        self.open -= 1
        await connection.aclose()

    async def close_idle(self) -> None:
        """Close, for ever, what was idle for too long to be used again."""
        keep_s = self._limits.idle_reuse_ms / 1000
        while True:
            await self._has_idle.wait()
            self._has_idle = anyio.Event()
            while self._idle:
                oldest_s = min(connection.idle_since_s for connection in self._idle)
                await anyio.sleep_until(oldest_s + keep_s + 0.01)
                limit_s = anyio.current_time() - keep_s
                old = [connection for connection in self._idle if connection.idle_since_s <= limit_s]
                self._idle = [connection for connection in self._idle if connection.idle_since_s > limit_s]
                for connection in old:
                    await self.drop(connection)

    async def aclose(self) -> None:
        """Close what is idle."""
        while self._idle:
            await self.drop(self._idle.pop())

    async def _connect(self) -> ByteStream:
        endpoint = self._endpoint
        where = f"{endpoint.host} port {endpoint.port}" if self._unix_socket is None else str(self._unix_socket)
        try:
            with anyio.fail_after(CONNECT_S):
                if self._unix_socket is not None:
                    return await anyio.connect_unix(self._unix_socket)
                if not endpoint.secure:
                    return await anyio.connect_tcp(endpoint.host, endpoint.port)
                return await anyio.connect_tcp(
                    endpoint.host,
                    endpoint.port,
                    tls=True,
                    ssl_context=self._ssl,
                    # HTTP itself says where a response ends; servers often close without a word of TLS.
                    tls_standard_compatible=False,
                )
        except TimeoutError as error:
            raise ServerUnreachable(f"no connection to {where} within {CONNECT_S:g} s") from error
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream, ValueError) as error:
            raise ServerUnreachable(f"no connection to {where}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """What went wrong, in the words of the system. AnyIO's own words, such as "all attempts failed", have a cause."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_reason(each) for each in cause.exceptions))
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError) and error.strerror:
        return os.strerror(error.errno) if isinstance(error, ConnectionError) and error.errno else error.strerror
    if isinstance(error, (anyio.BrokenResourceError, anyio.EndOfStream)) and cause is None:
        return "the other end closed it at once"
    return str(error) if cause is None else _reason(cause)
