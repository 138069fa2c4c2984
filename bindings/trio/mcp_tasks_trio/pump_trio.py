"""Moves the bytes of a server's stdio on trio. No decisions are made here."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcp_tasks_core.access import Owner
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.file_descriptors import FdWriter, ThreadReader, is_fifo, may_be_watched
from mcp_tasks_trio.stdio_link import OUTPUT_HIGH_WATER, READ_BYTES, StdioLink


class TrioPump:
    """One stdio channel on trio.

    Answers are written at once, without waking a task; a task writes on only where the pipe is full.
    """

    def __init__(self, engine: ServerEngine, owner: Owner, output_fd: int) -> None:
        self._output_fd = output_fd
        self._writer = FdWriter(output_fd, self._blocked, self._progressed, self._broken)
        self._watches_output = may_be_watched(output_fd)
        self._must_write_on = trio.Event()
        self._drained = trio.Event()
        self._drained.set()
        self._may_read = trio.Event()
        self._may_read.set()
        self._thread: ThreadReader | None = None
        self.link = StdioLink(engine, owner, self._write)

    async def drained(self) -> None:
        """Wait until everything that was written is out."""
        await self._drained.wait()

    def _write(self, data: bytes) -> None:
        self._writer.write(data)
        if self._writer.bytes_kept > OUTPUT_HIGH_WATER and self._may_read.is_set():
            self._may_read = trio.Event()
            if self._thread is not None:
                self._thread.pause()

    def _blocked(self) -> None:
        self._drained = trio.Event()
        self._must_write_on.set()
        self.link.output_stopped()

    def _progressed(self) -> None:
        self.link.output_progressed()

    def _broken(self, reason: str) -> None:
        self._drained.set()
        self._may_read.set()
        self.link.lose(reason)

    async def _write_on(self) -> None:
        while True:
            await self._must_write_on.wait()
            self._must_write_on = trio.Event()
            done = False
            while not done and not self.link.broken.is_set():
                await trio.lowlevel.wait_writable(self._output_fd)
                done = self._writer.write_on()
                if self._writer.bytes_kept <= OUTPUT_HIGH_WATER // 2:
                    self._may_read.set()
                    if self._thread is not None:
                        self._thread.resume()
            self._drained.set()
            if done:
                self.link.output_resumed()

    async def _watch_reader(self) -> None:
        """The writing end of a pipe becomes readable when nobody reads it any longer."""
        await trio.lowlevel.wait_readable(self._output_fd)
        self.link.lose("nobody reads stdout any longer")

    async def _read(self, stream: trio.lowlevel.FdStream) -> None:
        try:
            while data := await stream.receive_some(READ_BYTES):
                self.link.receive(data)
                await self._may_read.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):  # a socket that was reset: nothing more comes
            pass
        self.link.receive_eof()

    def _receive_from_thread(self, data: bytes) -> None:
        if data:
            self.link.receive(data)
        else:
            self.link.receive_eof()

    @asynccontextmanager
    async def connected(self, input_fd: int) -> AsyncIterator[None]:
        """Move bytes until the block ends."""
        blocking = {fd: os.get_blocking(fd) for fd in (input_fd, self._output_fd)}
        async with trio.open_nursery() as nursery:
            if self._watches_output:
                os.set_blocking(self._output_fd, False)
                nursery.start_soon(self._write_on)
                if is_fifo(self._output_fd):
                    nursery.start_soon(self._watch_reader)
            if may_be_watched(input_fd):
                nursery.start_soon(self._read, trio.lowlevel.FdStream(os.dup(input_fd)))
            else:
                self._thread = ThreadReader(input_fd, self._receive_from_thread, READ_BYTES)
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()
                for fd, was_blocking in blocking.items():
                    os.set_blocking(fd, was_blocking)
