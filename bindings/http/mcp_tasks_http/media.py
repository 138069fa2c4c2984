"""Media types: which form of answer a client takes, and whether a body says that it is JSON.

Source: streamable-http, Sending Messages; RFC 9110, section 12.5.1.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

_WEIGHT: Final = re.compile(r"q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)


@attrs.frozen(slots=True)
class AcceptedForms:
    """In which forms an answer may be given."""

    json: bool
    event_stream: bool


def accepted_forms(accept: str | None) -> AcceptedForms:
    """What an Accept value lets us answer. Missing or empty means anything; ``q=0`` means not this one.

    The most specific range that matches a type decides, whatever the order.
    """
    if accept is None or not accept.strip():
        return AcceptedForms(True, True)
    weights: dict[str, float] = {}
    for item in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in item.split(";"))
        if media_range:
            weights[media_range] = max(weights.get(media_range, 0.0), _weight(parameters))
    return AcceptedForms(_takes(weights, JSON), _takes(weights, EVENT_STREAM))


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        match = _WEIGHT.fullmatch(parameter)
        if match is not None:
            return float(match[1])
    return 1.0


def _takes(weights: dict[str, float], media_type: str) -> bool:
    for media_range in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
        if media_range in weights:
            return weights[media_range] > 0
    return False


def media_type_of(content_type: str | None) -> str | None:
    """The type and subtype of a Content-Type value in lower case, parameters left out."""
    return None if content_type is None else content_type.partition(";")[0].strip().lower()
