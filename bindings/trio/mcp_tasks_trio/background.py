"""Runs something beside everything else, bound to the event loop and to no task's scopes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import trio

# asyncio keeps only weak references to tasks.
_running: Final[set[asyncio.Task[None]]] = set()


def start_in_background(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start something that ends by itself and raises nothing but a cancellation.

    A task group would bind it to the task that opens it, and closing from another task would break that task's
    scopes. What is started here is cancelled when the event loop ends, and must clear away after itself then.
    """
    if trio.lowlevel.in_trio_task():
        trio.lowlevel.spawn_system_task(run)
        return
    task = asyncio.get_running_loop().create_task(run())
    _running.add(task)
    task.add_done_callback(_running.discard)
