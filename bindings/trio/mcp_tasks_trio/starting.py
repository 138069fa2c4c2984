"""A server that waits for its store can be told to end meanwhile: by a signal, or because its client has gone."""

from __future__ import annotations

import select
import signal
from typing import Final

import anyio

from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.signals import signalled
from mcp_tasks_trio.store_start import QUIET_WAIT_SECONDS, RETRY_SECONDS

UNREAD_GRACE_SECONDS: Final = 1.0  # for requests that lie in stdin unread when it has ended
_ENDED: Final = 0 if not hasattr(select, "poll") else select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)


class InputWatch:
    """Tells when nobody can write to a pipe or a socket any longer. Reads nothing: what lies in it is the server's.

    A file, a terminal and ``/dev/null`` never end in this sense, nor does anything on Windows.
    """

    def __init__(self, fd: int) -> None:
        self._poll: select.poll | None = None
        if _ENDED:
            self._poll = select.poll()
            self._poll.register(fd, _ENDED | select.POLLIN)

    @property
    def grace_seconds(self) -> float | None:
        """How long a start may still take: ``None`` for as long as it wants, 0 when nothing waits to be answered."""
        found = self._poll.poll(0) if self._poll is not None else []
        events = found[0][1] if found else 0
        if not events & _ENDED:
            return None
        return UNREAD_GRACE_SECONDS if events & select.POLLIN else 0.0


async def reached_store(
    engine: ServerEngine,
    *,
    signals: tuple[signal.Signals, ...] = (),
    stop: anyio.Event | None = None,
    input_fd: int | None = None,
) -> bool:
    """Whether the engine reached its store; ``False`` when the server was told to end before.

    Args:
        input_fd: when it has ended nobody waits for the server.

    Raises:
        StoreBusy, StoreError: as ``ServerEngine.reach_store``.
    """
    if engine.store_reached:
        return True
    failure: Exception | None = None
    async with signalled(signals) as signal_came, anyio.create_task_group() as task_group:

        async def end_after(event: anyio.Event) -> None:
            await event.wait()
            task_group.cancel_scope.cancel()

        async def end_after_input(watch: InputWatch) -> None:
            # A store that answers at once is no wait: what was asked is answered, whether more can come or not.
            await anyio.sleep(QUIET_WAIT_SECONDS)
            grace_seconds = watch.grace_seconds
            while grace_seconds is None:
                await anyio.sleep(RETRY_SECONDS)
                grace_seconds = watch.grace_seconds
            await anyio.sleep(grace_seconds)
            task_group.cancel_scope.cancel()

        for event in (signal_came, stop):
            if event is not None:
                task_group.start_soon(end_after, event)
        if input_fd is not None:
            task_group.start_soon(end_after_input, InputWatch(input_fd))
        try:
            await engine.reach_store()
        except Exception as error:  # raised beyond the task groups, which would wrap it
            failure = error
        task_group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return engine.store_reached
