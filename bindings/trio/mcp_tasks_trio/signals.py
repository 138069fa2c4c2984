"""Signals that tell a server to end, and the end of a process that does not end by itself."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import TaskStatus

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))


def leave() -> None:
    """End the process at once: something in it refuses to end."""
    with suppress(Exception):
        sys.stderr.flush()
    os._exit(0)


@asynccontextmanager
async def signalled(signals: tuple[signal.Signals, ...]) -> AsyncIterator[anyio.Event]:
    """An event that is set by the first of these signals; a second one ends the process."""
    stopped = anyio.Event()
    if not signals:
        yield stopped
        return

    async def watch(*, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(*signals) as received:
            task_status.started()
            async for _ in received:
                if stopped.is_set():
                    leave()
                stopped.set()

    async with anyio.create_task_group() as task_group:
        await task_group.start(watch)
        yield stopped
        task_group.cancel_scope.cancel()
