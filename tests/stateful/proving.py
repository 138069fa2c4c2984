"""The one form in which an invariant fails: the requirement's id, then what was seen."""

from __future__ import annotations


def prove(holds: bool, requirement: str, seen: str) -> None:
    """Fail with the id of the requirement that does not hold."""
    if not holds:
        raise AssertionError(f"{requirement}: {seen}")
