"""One clock for all connections of a listener, for however many moments they name.

A connection names a moment with nearly every byte that moves, and nearly all of them are moved on before they
come. So a moment that was moved further away is left standing, and is looked at again when it comes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Final, Protocol

import anyio

_REBUILD_FROM: Final = 64
_PAUSE_S: Final = 0.005  # a deadline that has passed and stands is not asked about faster than this


class Alarm:
    """One entry of the clock; without its owner it is skipped when it comes up."""

    __slots__ = ("count", "moment_ms", "owner")

    def __init__(self, moment_ms: int, count: int, owner: Timed) -> None:
        self.moment_ms = moment_ms
        self.count = count
        self.owner: Timed | None = owner

    def __lt__(self, other: Alarm) -> bool:
        return (self.moment_ms, self.count) < (other.moment_ms, other.count)


class Timed(Protocol):
    """Something that has to be told when a moment of its own has come. ``alarm`` is the clock's own note."""

    alarm: Alarm | None

    @property
    def deadline_ms(self) -> int | None:
        """Monotonic milliseconds, ``None`` for never."""

    def tick(self, now_ms: int) -> None:
        """The moment has come."""


class DeadlineClock:
    """Tells each thing when its deadline comes.

    Args:
        now_ms: monotonic milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._heap: list[Alarm] = []
        self._count = 0
        self._silent = 0
        self._wakes_ms: float = math.inf
        self._sooner = anyio.Event()

    def watch(self, timed: Timed) -> None:
        """Its deadline may have changed."""
        deadline_ms, alarm = timed.deadline_ms, timed.alarm
        if deadline_ms is None:
            return
        if alarm is not None:
            if alarm.moment_ms <= deadline_ms:
                return
            self._silence(alarm)
        self._count += 1
        timed.alarm = Alarm(deadline_ms, self._count, timed)
        heapq.heappush(self._heap, timed.alarm)
        if deadline_ms < self._wakes_ms:
            self._sooner.set()

    def forget(self, timed: Timed) -> None:
        """It is over, and is not kept until its moment comes."""
        if timed.alarm is not None:
            self._silence(timed.alarm)
            timed.alarm = None

    def _silence(self, alarm: Alarm) -> None:
        """Leave an entry where it is; when a quarter of them are such, build the heap anew."""
        alarm.owner = None
        self._silent += 1
        if self._silent > _REBUILD_FROM and self._silent > len(self._heap) // 4:
            self._heap = [each for each in self._heap if each.owner is not None]
            heapq.heapify(self._heap)
            self._silent = 0

    async def run(self) -> None:
        """Keep time, for ever."""
        while True:
            self._sooner = anyio.Event()
            self._wakes_ms = self._heap[0].moment_ms if self._heap else math.inf
            wait_s = (self._wakes_ms - self._now_ms()) / 1000
            with anyio.move_on_after(max(wait_s, _PAUSE_S)):
                await self._sooner.wait()
                continue
            self.tell_due(self._now_ms())

    def tell_due(self, now_ms: int) -> None:
        """Everything whose deadline has come is told so."""
        due: list[Timed] = []
        while self._heap and self._heap[0].moment_ms <= now_ms:
            owner = heapq.heappop(self._heap).owner
            if owner is None:
                self._silent -= 1
            else:
                owner.alarm = None
                due.append(owner)
        for timed in due:
            deadline_ms = timed.deadline_ms
            if deadline_ms is not None and deadline_ms <= now_ms:
                timed.tick(now_ms)
            self.watch(timed)
