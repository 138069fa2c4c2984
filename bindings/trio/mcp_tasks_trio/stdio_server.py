"""Serves an application on stdin and stdout, on asyncio or trio, and ends when its client does.

Source: stdio, Shutdown.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final, Protocol

import anyio

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import TaskStore
from mcp_tasks_trio.application import Application
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.signals import SIGNALS, leave, signalled
from mcp_tasks_trio.starting import reached_store
from mcp_tasks_trio.stdio_link import StdioLink
from mcp_tasks_trio.store_start import START_WAIT_SECONDS
from mcp_tasks_trio.threads import in_trio
from mcp_tasks_trio.waiting import first_of

BACKENDS: Final = ("asyncio", "trio")
EOF_GRACE_SECONDS: Final = 1.0  # for requests that are being answered when stdin ends
_FLUSH_SECONDS: Final = 0.2  # for the last answers to get out
_EXIT_SECONDS: Final = 0.3  # for cancelled work to end, before the process ends without it


async def serve_stdio(
    application: Application,
    *,
    store: TaskStore | None = None,
    owner: Owner = LOCAL_OWNER,
    eof_grace_seconds: float = EOF_GRACE_SECONDS,
    start_wait_seconds: float = START_WAIT_SECONDS,
    shutting_down: Callable[[], None] | None = None,
) -> None:
    """Serve on this process's stdin and stdout until stdin ends, stdout breaks, or SIGINT or SIGTERM comes.

    While it runs, stdout belongs to the protocol: what anything else prints goes to stderr.

    Args:
        store: where tasks are kept; the application's own when ``None``.
        owner: on whose behalf everything is asked.
        eof_grace_seconds: how long requests in progress may still be answered when stdin has ended.
        start_wait_seconds: how long the start may wait for a store that other processes keep busy; above 0.
        shutting_down: called when the end begins.

    Raises:
        StoreBusy: the store was busy for all of that time.
        StoreError: the store failed at the start.
    """
    with _standard_streams() as (input_fd, output_fd):
        engine = ServerEngine(application, store=store, start_wait_seconds=start_wait_seconds)
        await serve_pipes(
            engine,
            input_fd,
            output_fd,
            owner=owner,
            eof_grace_seconds=eof_grace_seconds,
            signals=SIGNALS if threading.current_thread() is threading.main_thread() else (),
            shutting_down=shutting_down,
        )


async def serve_pipes(
    engine: ServerEngine,
    input_fd: int,
    output_fd: int,
    *,
    owner: Owner = LOCAL_OWNER,
    eof_grace_seconds: float = EOF_GRACE_SECONDS,
    signals: tuple[signal.Signals, ...] = (),
    shutting_down: Callable[[], None] | None = None,
) -> None:
    """Serve on two file descriptors until the input ends or the output breaks. They stay open.

    Raises:
        StoreBusy, StoreError: as ``serve_stdio``.
    """
    if not await reached_store(engine, signals=signals, input_fd=input_fd):
        return
    async with engine.running():
        pump = _pump_of_this_loop(engine, owner, output_fd)
        async with signalled(signals) as stopped, pump.connected(input_fd):
            link = pump.link
            await first_of(link.input_ended.wait, link.broken.wait, stopped.wait)
            if shutting_down is not None:
                shutting_down()
            if not link.broken.is_set():
                # Whoever sends nothing more, or is told to end, waits for no more changes: subscriptions end now,
                # and the grace is for requests.
                link.shut_down()
                with anyio.move_on_after(eof_grace_seconds):
                    await first_of(engine.quiet, link.broken.wait)
            link.close()
            with anyio.move_on_after(_FLUSH_SECONDS):
                await pump.drained()


def run_stdio(
    application: Application,
    *,
    backend: str = "asyncio",
    store: TaskStore | None = None,
    owner: Owner = LOCAL_OWNER,
    eof_grace_seconds: float = EOF_GRACE_SECONDS,
    start_wait_seconds: float = START_WAIT_SECONDS,
) -> int:
    """Serve on stdin and stdout as the main thing that this process does; gives its exit status.

    Whatever tools do, the process ends within a second of the grace: one that does not let itself be cancelled
    is ended with the process.

    Raises:
        LocalProtocolError: there is no such backend.
        StoreBusy, StoreError: as ``serve_stdio``.
    """
    if backend not in BACKENDS:
        raise LocalProtocolError(f"backend is one of {', '.join(BACKENDS)}; not {backend!r}")

    def shutting_down() -> None:
        timer = threading.Timer(eof_grace_seconds + _FLUSH_SECONDS + _EXIT_SECONDS, leave)
        timer.daemon = True
        timer.start()

    async def main() -> None:
        await serve_stdio(
            application,
            store=store,
            owner=owner,
            eof_grace_seconds=eof_grace_seconds,
            start_wait_seconds=start_wait_seconds,
            shutting_down=shutting_down,
        )

    anyio.run(main, backend=backend)
    return 0


class _Pump(Protocol):
    @property
    def link(self) -> StdioLink: ...

    def connected(self, input_fd: int) -> AbstractAsyncContextManager[None]: ...

    async def drained(self) -> None: ...


def _pump_of_this_loop(engine: ServerEngine, owner: Owner, output_fd: int) -> _Pump:
    if in_trio():
        from mcp_tasks_trio.pump_trio import TrioPump

        return TrioPump(engine, owner, output_fd)
    from mcp_tasks_trio.pump_asyncio import AsyncioPump

    return AsyncioPump(engine, owner, output_fd)


@contextmanager
def _standard_streams() -> Iterator[tuple[int, int]]:
    """Stdin and stdout for the protocol alone: everybody else reads nothing, and writes to stderr."""
    sys.stdout.flush()
    input_fd, output_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no stderr
            os.dup2(nothing, 1)
        stdout, sys.stdout = sys.stdout, sys.stderr
        try:
            yield input_fd, output_fd
        finally:
            sys.stdout = stdout
            os.dup2(input_fd, 0)
            os.dup2(output_fd, 1)
    finally:
        for fd in (input_fd, output_fd, nothing):
            os.close(fd)
