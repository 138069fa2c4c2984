"""Timestamps as they stand on the wire. Source: RFC 3339, section 5.6; DECISIONS D14."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

from mcp_tasks_core.wire.converter import DecodeError, shown

_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,30}))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_date(text: str) -> bool:
    """Whether a text is a day of the calendar, such as ``2026-07-28``."""
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    try:
        date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        return False
    return True


def read_timestamp(text: str) -> int:
    """Wall-clock milliseconds since the Unix epoch of an RFC 3339 timestamp with any offset.

    Raises:
        ValueError: the text is no such timestamp.
    """
    day, time = _DATE.match(text), _TIME.fullmatch(text, 11)
    if day is None or time is None or text[10] not in "Tt ":
        raise ValueError(f"{text[:40]!r} is not an RFC 3339 timestamp")
    hour, minute, second = int(time[1]), int(time[2]), int(time[3])
    if time[5] is None:
        offset_minutes = 0
    else:
        if int(time[6]) > 23 or int(time[7]) > 59:
            raise ValueError(f"{text[:40]!r} has an offset of more than a day")
        offset_minutes = (int(time[6]) * 60 + int(time[7])) * (-1 if time[5] == "-" else 1)
    leap = second == 60  # A leap second, which datetime has no name for: read as the moment after it.
    moment = datetime(int(day[1]), int(day[2]), int(day[3]), hour, minute, 59 if leap else second, tzinfo=UTC)
    millisecond = int((time[4] or "0").ljust(3, "0")[:3])
    return (moment - _EPOCH) // timedelta(milliseconds=1) + (1000 if leap else millisecond) - offset_minutes * 60_000


def check_timestamp(value: object, path: str) -> None:
    """Raises ``DecodeError`` for anything but an RFC 3339 timestamp."""
    try:
        if type(value) is not str:
            raise ValueError
        read_timestamp(value)
    except ValueError:
        raise DecodeError(path, f"an RFC 3339 timestamp, not {shown(value)}") from None
