"""Listens to what the task engines of an application say of their tasks, and goes on listening whatever happens."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import anyio
import attrs

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.server.events import TaskChanged
from mcp_tasks_trio.endings import is_own_end
from mcp_tasks_trio.threads import JoiningHandover, WorkerThreads

_log = logging.getLogger("mcp_tasks_trio")

_PAUSE_SECONDS: Final = 1.0  # before a feed that has ended is asked again; twice as long each time, up to:
_PAUSE_SECONDS_MAX: Final = 60.0  # and a feed that lasted for as long as this has begun anew

Hints: TypeAlias = JoiningHandover[TaskChanged]


async def follow_all(
    backends: Sequence[tuple[str, object]],
    take: Callable[[Sequence[TaskChanged]], None],
    *,
    pause: Callable[[float], Awaitable[object]] = anyio.sleep,
) -> None:
    """Follow the changes of all engines that tell of them, until cancelled.

    Args:
        backends: with the prefix of their ids, for the log.
        take: takes the hints, in the event loop; equal ones that come together are joined.
        pause: waits for so many seconds.
    """
    hints: Hints = JoiningHandover(take, "The server")
    try:
        async with anyio.create_task_group() as task_group:
            for prefix, backend in backends:
                changes = getattr(backend, "changes", None)
                if changes is not None:
                    task_group.start_soon(_Feed(prefix, changes, hints, pause).follow)
    finally:
        hints.end()


@attrs.frozen
class _Feed:
    """What one engine says, over and over again."""

    prefix: str
    changes: Callable[[], Any]
    hints: Hints
    pause: Callable[[float], Awaitable[object]]

    async def follow(self) -> None:
        pause_seconds = _PAUSE_SECONDS
        while True:
            begun = anyio.current_time()
            failure: BaseException | None = None
            try:
                await self._listen()
            except BaseException as error:
                if is_own_end(error):
                    raise
                failure = error
            if anyio.current_time() - begun >= _PAUSE_SECONDS_MAX:
                pause_seconds = _PAUSE_SECONDS
            _log.warning(
                "The changes of the task engine %r %s; they are asked for again in %g s",
                self.prefix,
                "have ended" if failure is None else "have failed",
                pause_seconds,
                exc_info=failure,
            )
            await self.pause(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _PAUSE_SECONDS_MAX)

    async def _listen(self) -> None:
        """Hand on what the engine says until it says no more."""
        told = self.changes()
        if inspect.isawaitable(told):
            told = await told
        if isinstance(told, AsyncIterable):
            await self._listen_in_loop(told)
        elif isinstance(told, Iterable) and not isinstance(told, str | bytes):
            # Threads of its own, not the tools': it holds one for as long as the server runs.
            await WorkerThreads(1).run(lambda: self._listen_in_thread(told))
        else:
            raise TypeError(f"changes() gives an iterator of task ids, asynchronous or not; not {told!r}")

    async def _listen_in_loop(self, told: AsyncIterable[object]) -> None:
        iterator = aiter(told)
        try:
            async for task_id in iterator:
                self.hints.give(_hint(task_id))
        finally:
            if inspect.isasyncgen(iterator):
                await iterator.aclose()

    def _listen_in_thread(self, told: Iterable[object]) -> None:
        iterator = iter(told)
        try:
            for task_id in iterator:
                if self.hints.ended:
                    return  # the server has, and nobody could wake this thread
                self.hints.give(_hint(task_id))
        finally:
            if inspect.isgenerator(iterator):
                iterator.close()


def _hint(task_id: object) -> TaskChanged:
    if not isinstance(task_id, str):
        raise TypeError(f"changes() gives task ids, which are strings; not {task_id!r}")
    return TaskChanged(TaskId(task_id))
