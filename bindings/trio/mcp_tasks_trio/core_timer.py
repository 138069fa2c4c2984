"""The one timer of a protocol core: it is told when the moment has come that it named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

_PAUSE_SECONDS: Final = 0.005  # a deadline that has passed and stands is not asked about faster than this


class CoreTimer:
    """Waits for a core's deadline, which any event may change.

    Args:
        deadline: the core's, in monotonic milliseconds; ``None`` for never.
        now_ms: monotonic milliseconds.
        tell: tells the core that the moment has come.
    """

    def __init__(self, deadline: Callable[[], int | None], now_ms: Callable[[], int], tell: Callable[[], None]) -> None:
        self._deadline = deadline
        self._now_ms = now_ms
        self._tell = tell
        self._armed_ms: int | None = None
        self._sooner = anyio.Event()

    def look(self) -> None:
        """The deadline may have changed. One that was moved further away is looked at again when it comes."""
        deadline_ms = self._deadline()
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._sooner.set()

    async def run(self) -> None:
        """Keep time, for ever."""
        while True:
            self._sooner = anyio.Event()
            self._armed_ms = deadline_ms = self._deadline()
            if deadline_ms is None:
                await self._sooner.wait()
                continue
            wait_seconds = (deadline_ms - self._now_ms()) / 1000
            with anyio.move_on_after(max(wait_seconds, _PAUSE_SECONDS)):
                await self._sooner.wait()
                continue
            self._tell()
