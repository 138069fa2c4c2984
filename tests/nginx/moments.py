"""What happened when, on both sides of nginx."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import anyio
import attrs

# How much sooner than asked a sleep may be over, by the clocks of the loops.
EARLY_SECONDS: Final = 0.05


@attrs.frozen
class Moment:
    """Something that happened, in seconds since the beginning."""

    what: str
    at: float


class Chronicle(ABC):
    """Moments in their order. Server and client are in one process and write it together.

    Args:
        note: called with everything that happens.
    """

    def __init__(self, note: Callable[[Moment], None]) -> None:
        self.moments: list[Moment] = []
        self._note = note
        self._begun = 0.0

    def begin(self) -> None:
        self._begun = anyio.current_time()

    def happened(self, what: str) -> None:
        moment = Moment(what, anyio.current_time() - self._begun)
        self.moments.append(moment)
        self._note(moment)

    @abstractmethod
    def faults(self) -> list[str]:
        """What is wrong with what happened."""
