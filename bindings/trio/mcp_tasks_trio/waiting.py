"""Waiting for whichever of several things comes first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of these has ended; the others are cancelled.

    Args:
        waits: each waits for one thing, such as ``event.wait``.
    """
    async with anyio.create_task_group() as task_group:

        async def end_after(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            task_group.cancel_scope.cancel()

        for wait in waits:
            task_group.start_soon(end_after, wait)
