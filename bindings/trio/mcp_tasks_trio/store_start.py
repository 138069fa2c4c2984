"""How a server that starts waits for its store while other processes keep it busy: for a bounded time, and told once.

A store that is busy at that moment is no reason to end, and one that stays busy no reason to wait for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

import anyio

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import StoreBusy
from mcp_tasks_trio.threads import WorkerThreads

T = TypeVar("T")

_log: Final = logging.getLogger("mcp_tasks_trio")

START_WAIT_SECONDS: Final = 60.0  # backups and migrations of a store of a million tasks hold it for less
QUIET_WAIT_SECONDS: Final = 1.0  # a wait that is over by then is not told
RETRY_SECONDS: Final = 0.1


def checked_wait(seconds: float) -> float:
    """The time that a starting server may wait.

    Raises:
        LocalProtocolError: it is not more than 0.
    """
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not seconds > 0:
        raise LocalProtocolError(f"start_wait_seconds is a number above 0, not {seconds!r}")
    return seconds


def still_busy(seconds: float, busy: StoreBusy | None) -> StoreBusy:
    """What is said when all of the wait is over."""
    why = "it did not answer" if busy is None else str(busy)
    waited_s = round(seconds, 1)
    return StoreBusy(f"the server did not start, for it waited {waited_s:g} s for its task store in vain: {why}")


class ToldOnce:
    """One line in the log about a wait, however often there is reason for it."""

    def __init__(self, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._told = False

    def tell(self) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "The server waits for its task store, which others keep busy; it starts as soon as the store is free"
                " and gives up after %g s",
                round(self._wait_seconds, 1),
            )


async def ask_when_free(ask: Callable[[], T], *, blocks: bool, wait_seconds: float) -> T:
    """What a store answers, asked again for as long as it is busy.

    Args:
        blocks: ask in a worker thread. When the time is over or the caller cancelled, that thread is left to itself.
        wait_seconds: at the most, above 0.

    Raises:
        StoreBusy: the store was busy, or did not answer, for all of that time.
        Exception: whatever else the store raises, at once.
    """
    threads = WorkerThreads(1) if blocks else None
    told = ToldOnce(wait_seconds)
    answers: list[T] = []
    failure: Exception | None = None
    busy: StoreBusy | None = None

    async def tell_of_a_long_wait() -> None:
        await anyio.sleep(QUIET_WAIT_SECONDS)
        told.tell()

    async with anyio.create_task_group() as task_group:
        task_group.start_soon(tell_of_a_long_wait)
        with anyio.move_on_after(wait_seconds):
            while not answers and failure is None:
                try:
                    answers.append(ask() if threads is None else await threads.run(ask))
                except StoreBusy as error:
                    busy = error
                    told.tell()
                    await anyio.sleep(RETRY_SECONDS)
                except Exception as error:  # raised beyond the task group, which would wrap it
                    failure = error
        task_group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not answers:
        raise still_busy(wait_seconds, busy) from busy
    return answers[0]
