"""Durations as applications write them and as the protocol counts them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mcp_tasks_core.errors import LocalProtocolError

_DURATION_MS_MAX: Final = 2**53 - 1  # what every JSON reader keeps exactly; 285,000 years


def duration_ms(value: object, name: str) -> int:
    """A duration as whole milliseconds.

    Raises:
        LocalProtocolError: it is no ``timedelta``, shorter than 1 ms, no whole number of milliseconds, or too long.
    """
    if not isinstance(value, timedelta):
        raise LocalProtocolError(f"{name} is a timedelta, such as timedelta(hours=1), not {value!r}")
    whole, rest = divmod(value, timedelta(milliseconds=1))
    if rest or whole < 1:
        raise LocalProtocolError(f"{name} is 1 millisecond or more, in whole milliseconds, not {value!r}")
    if whole > _DURATION_MS_MAX:
        raise LocalProtocolError(f"{name} is at most 2**53 - 1 milliseconds; for no limit say {name}=None")
    return whole


def optional_duration_ms(value: object, name: str) -> int | None:
    """As ``duration_ms``; ``None`` stays ``None``."""
    return None if value is None else duration_ms(value, name)
