"""Where the choices of a storm come from: Hypothesis, which can shrink them, or a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st

_T = TypeVar("_T")


class Pick(Protocol):
    """One choice after the other. The first of several is the dull one."""

    def of(self, options: Sequence[_T]) -> _T: ...

    def number(self, least: int, most: int) -> int: ...

    def bytes(self, most: int) -> bytes: ...


class DrawnPick:
    """Choices that Hypothesis draws."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def of(self, options: Sequence[_T]) -> _T:
        chosen: _T = options[self._data.draw(st.integers(0, len(options) - 1))]
        return chosen

    def number(self, least: int, most: int) -> int:
        drawn: int = self._data.draw(st.integers(least, most))
        return drawn

    def bytes(self, most: int) -> bytes:
        drawn: bytes = self._data.draw(st.binary(max_size=most))
        return drawn


class SeededPick:
    """Choices of a seeded generator: the same for the same seed, on every machine and under every hash seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def of(self, options: Sequence[_T]) -> _T:
        return options[self._random.randrange(len(options))]

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def bytes(self, most: int) -> bytes:
        return self._random.randbytes(self._random.randint(0, most))
