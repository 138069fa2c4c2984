"""Moments at which something is due, by name, with the earliest one at hand however many there are."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# The heap is built anew when it is mostly moments that were set again since. Small ones are left alone.
_REBUILD_FROM = 64


class Agenda(Generic[K]):
    """One moment per name. A name that is set again leaves its former entry in the heap until it comes up."""

    def __init__(self) -> None:
        self._moments: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._moments)

    def set(self, name: K, moment_ms: int | None) -> None:
        """Something is due at this moment, and at no other; ``None`` for never."""
        present = self._moments.get(name)
        if moment_ms is None:
            if present is not None:
                del self._moments[name]
            return
        if present is not None and present[0] == moment_ms:
            return
        self._count += 1
        self._moments[name] = (moment_ms, self._count)
        heapq.heappush(self._heap, (moment_ms, self._count, name))
        if len(self._heap) > _REBUILD_FROM + 4 * len(self._moments):
            self._heap = [(*entry, key) for key, entry in self._moments.items()]
            heapq.heapify(self._heap)

    @property
    def earliest_ms(self) -> int | None:
        """The next moment at which something is due."""
        self._drop_former()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """Everything that is due, the earliest first, and among equals what was set first; it is no longer set."""
        due: list[K] = []
        while (earliest := self.earliest_ms) is not None and earliest <= now_ms:
            name = heapq.heappop(self._heap)[2]
            del self._moments[name]
            due.append(name)
        return due

    def _drop_former(self) -> None:
        heap = self._heap
        while heap and self._moments.get(heap[0][2]) != heap[0][:2]:
            heapq.heappop(heap)
