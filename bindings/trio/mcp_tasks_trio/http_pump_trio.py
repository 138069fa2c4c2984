"""Moves the bytes of HTTP connections on trio: a task that reads for each, and writes that wait for nobody.

A task that writes on exists only while a client reads too slowly. No decisions are made here.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from mcp_tasks_trio.http_wire import RECEIVE_BYTES, TLS_HANDSHAKE_S, Accept, Link
from mcp_tasks_trio.kernel_queue import unconfirmed_bytes
from mcp_tasks_trio.tls_layer import TlsLayer

_log = logging.getLogger("mcp_tasks_trio")

_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL_PAUSE_S: Final = 0.1  # when the process has no more file descriptors, until some may be free
_SEND_BYTES: Final = 256 * 1024


class TrioWire:
    """One connection."""

    __slots__ = (
        "_closed", "_closing", "_ending", "_gone", "_link", "_may_read", "_nursery", "_sock", "_tls", "_unsent",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, nursery: trio.Nursery, tls: TlsLayer | None) -> None:
        self._sock = sock
        self._nursery = nursery
        self._tls = tls
        self._unsent = bytearray()
        self._link: Link | None = None
        self._may_read: trio.Event | None = None
        self._gone: trio.Event | None = None
        self._ending = False  # FIN once everything is out
        self._closing = False  # closed once everything is out
        self._closed = False

    # --- from the link

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent) + unconfirmed_bytes(self._sock)

    def write(self, data: bytes) -> None:
        if self._closed or self._closing:
            return
        if self._tls is not None:
            try:
                data = self._tls.encrypt(data)
            except ssl.SSLError:
                self.abort()
                return
        self._put(data)

    def end_writing(self) -> None:
        if self._tls is not None:
            self.close()
        elif self._unsent:
            self._ending = True
        elif not self._closed:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._tls is not None and not self._closing and not self._closed:
            self._put(self._tls.close())
        if self._unsent:
            self._closing = True
        else:
            self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._unsent.clear()
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()
            for waited_for in (self._may_read, self._gone):
                if waited_for is not None:
                    waited_for.set()

    def pause_reading(self) -> None:
        if self._may_read is None and not self._closed:
            self._may_read = trio.Event()

    def resume_reading(self) -> None:
        if self._may_read is not None:
            self._may_read.set()
            self._may_read = None

    # --- bytes out

    def _put(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.abort()
            return
        if sent < len(data):
            self._unsent += data[sent:]
            self._nursery.start_soon(self._write_on)
            if self._link is not None:
                self._link.output_stopped()

    async def _write_on(self) -> None:
        try:
            while self._unsent:
                await trio.lowlevel.wait_writable(self._sock)
                sent = 0
                with contextlib.suppress(BlockingIOError), memoryview(self._unsent) as view:
                    sent = self._sock.send(view[:_SEND_BYTES])
                del self._unsent[:sent]
        except (OSError, trio.ClosedResourceError):
            self.abort()
        if self._closing:
            self.abort()
        elif self._ending:
            self.end_writing()
        elif self._link is not None and not self._closed:
            self._link.output_resumed()

    # --- bytes in

    async def run(self, accept: Accept) -> None:
        """Move bytes until the connection is gone."""
        if self._tls is not None and not await self._shake_hands(self._tls):
            self.abort()
            return
        self._link = link = accept(self)
        try:
            await self._read(link)
        except (OSError, trio.ClosedResourceError):
            pass
        except Exception:  # a fault of ours in one connection must not end the others
            _log.exception("A connection failed")
        finally:
            self.abort()
            link.lose()

    async def _read(self, link: Link) -> None:
        if self._tls is not None:
            return await self._read_tls(link, self._tls)
        sock, wait_readable = self._sock, trio.lowlevel.wait_readable
        while not self._closed:
            await wait_readable(sock)
            try:
                data = sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            if not data:
                break
            link.receive(data)
            if self._may_read is not None:
                await self._may_read.wait()
        if self._closed:
            return None
        link.receive_eof()
        # A client that writes no more may still read. The link closes, or a write that fails.
        if not self._closed:
            self._gone = trio.Event()
            await self._gone.wait()
        return None

    # --- TLS

    async def _read_tls(self, link: Link, tls: TlsLayer) -> None:
        data = b""  # messages may have come with the end of the handshake
        while True:
            try:
                plain, ended = tls.decrypt(data)
            except ssl.SSLError as error:
                _log.info("A TLS connection is broken: %s", error)
                return
            self._put_reply(tls)
            if plain:
                link.receive(plain)
            if ended:
                self.close()
                return
            if self._may_read is not None:
                await self._may_read.wait()
            data = await self._receive()
            if not data:
                return  # no half-open connections: whoever closes has to say so inside of TLS, and means all of it

    async def _shake_hands(self, tls: TlsLayer) -> bool:
        """Whether a TLS connection came about."""
        try:
            with trio.move_on_after(TLS_HANDSHAKE_S):
                while not tls.shake_hands():
                    self._put_reply(tls)
                    data = await self._receive()
                    if not data:
                        return False
                    tls.receive_data(data)
                self._put_reply(tls)
                return True
        except (ssl.SSLError, OSError, trio.ClosedResourceError) as error:
            self._put_reply(tls)
            _log.info("A TLS connection did not come about: %s", error)
        return False

    def _put_reply(self, tls: TlsLayer) -> None:
        reply = tls.data_to_send()
        if reply and not self._closed:
            self._put(reply)

    async def _receive(self) -> bytes:
        while not self._closed:
            await trio.lowlevel.wait_readable(self._sock)
            with contextlib.suppress(BlockingIOError):
                return self._sock.recv(RECEIVE_BYTES)
        return b""


class TrioListeners:
    """Listening sockets."""

    def __init__(self, sockets: Sequence[socket.socket], ssl_context: ssl.SSLContext | None, accept: Accept) -> None:
        self._sockets = sockets
        self._ssl = ssl_context
        self._accept = accept
        self._accepting = trio.CancelScope()

    def stop_accepting(self) -> None:
        self._accepting.cancel()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept and move bytes until the block ends."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._accept_all, nursery)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    async def _accept_all(self, connections: trio.Nursery) -> None:
        with self._accepting:
            async with trio.open_nursery() as nursery:
                for listening in self._sockets:
                    nursery.start_soon(self._accept_from, listening, connections)
        for listening in self._sockets:
            listening.close()

    async def _accept_from(self, listening: socket.socket, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                sock, _ = listening.accept()
            except OSError as error:
                # Most of them are a client that went away in between.
                if error.errno in _FULL:
                    _log.error("No connection can be accepted for now: %s", error)
                    await trio.sleep(_FULL_PAUSE_S)
                continue
            sock.setblocking(False)
            if sock.family != getattr(socket, "AF_UNIX", None):
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = None if self._ssl is None else TlsLayer(self._ssl)
            connections.start_soon(TrioWire(sock, connections, tls).run, self._accept)
