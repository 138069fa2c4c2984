"""Moves the bytes of a server's stdio on asyncio, with a protocol and without a task. No decisions are made here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol

import anyio

from mcp_tasks_core.access import Owner
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.file_descriptors import FdWriter, ThreadReader, is_fifo, may_be_watched
from mcp_tasks_trio.stdio_link import OUTPUT_HIGH_WATER, READ_BYTES, StdioLink
from mcp_tasks_trio.threads import context_for_callbacks


class _Input(Protocol):
    def pause(self) -> None: ...

    def resume(self) -> None: ...


class _PipeInput(asyncio.Protocol):
    """Bytes from a pipe or a socket."""

    def __init__(self, link: StdioLink) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._link.receive(data)

    def eof_received(self) -> bool:
        self._link.receive_eof()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.receive_eof()

    def pause(self) -> None:
        self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()


class AsyncioPump:
    """One stdio channel on asyncio."""

    def __init__(self, engine: ServerEngine, owner: Owner, output_fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._output_fd = output_fd
        self._writer = FdWriter(output_fd, self._blocked, self._progressed, self._broken)
        self._watches_output = may_be_watched(output_fd)
        self._drained = anyio.Event()
        self._drained.set()
        self._input: _Input | None = None
        self._paused = False
        self.link = StdioLink(engine, owner, self._write)

    async def drained(self) -> None:
        """Wait until everything that was written is out."""
        await self._drained.wait()

    def _write(self, data: bytes) -> None:
        self._writer.write(data)
        if self._writer.bytes_kept > OUTPUT_HIGH_WATER and not self._paused and self._input is not None:
            self._paused = True
            self._input.pause()

    def _blocked(self) -> None:
        self._drained = anyio.Event()
        self._loop.add_writer(self._output_fd, self._write_on)
        self.link.output_stopped()

    def _write_on(self) -> None:
        done = self._writer.write_on()
        if done:
            self._loop.remove_writer(self._output_fd)
            self._drained.set()
            self.link.output_resumed()
        if self._paused and self._writer.bytes_kept <= OUTPUT_HIGH_WATER // 2 and self._input is not None:
            self._paused = False
            self._input.resume()

    def _progressed(self) -> None:
        self.link.output_progressed()

    def _broken(self, reason: str) -> None:
        if self._watches_output:
            self._loop.remove_writer(self._output_fd)
        self._drained.set()
        self.link.lose(reason)

    def _reader_left(self) -> None:
        self._loop.remove_reader(self._output_fd)
        self.link.lose("nobody reads stdout any longer")

    def _receive_from_thread(self, data: bytes) -> None:
        if data:
            self.link.receive(data)
        else:
            self.link.receive_eof()

    async def _connect(self, file: BinaryIO) -> _PipeInput:
        _, pipe = await self._loop.connect_read_pipe(lambda: _PipeInput(self.link), file)
        return pipe

    @asynccontextmanager
    async def connected(self, input_fd: int) -> AsyncIterator[None]:
        """Move bytes until the block ends."""
        blocking = {fd: os.get_blocking(fd) for fd in (input_fd, self._output_fd)}
        if self._watches_output:
            os.set_blocking(self._output_fd, False)
            if is_fifo(self._output_fd):
                self._loop.add_reader(self._output_fd, self._reader_left)
        pipe: _PipeInput | None = None
        if may_be_watched(input_fd):
            file = os.fdopen(os.dup(input_fd), "rb")
            # A transport calls back in the context that it was made in.
            pipe = await self._loop.create_task(self._connect(file), context=context_for_callbacks())
            self._input = pipe
        else:
            self._input = ThreadReader(input_fd, self._receive_from_thread, READ_BYTES)
        try:
            yield
        finally:
            if pipe is not None:
                pipe.close()
            if self._watches_output:
                self._loop.remove_reader(self._output_fd)
                self._loop.remove_writer(self._output_fd)
            for fd, was_blocking in blocking.items():
                os.set_blocking(fd, was_blocking)
