"""What a WWW-Authenticate field asks for.

Source: authorization, Protected Resource Metadata Discovery; RFC 9110, section 11.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_GAP: Final = re.compile(r"[ \t,]*")
_PARAMETER: Final = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:({_TOKEN})|"((?:[^"\\]|\\.)*)")(?=[ \t]*(?:,|$))')
_SCHEME: Final = re.compile(rf"({_TOKEN})(?:[ \t]+|(?=,|$))")
_TOKEN68: Final = re.compile(r"([A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|$))")


@attrs.frozen(slots=True)
class Challenge:
    """One way to authenticate.

    Args:
        scheme: in lower case, such as ``bearer``.
        parameters: names in lower case, such as ``resource_metadata``, ``error``, ``scope``.
    """

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(value: str) -> tuple[Challenge, ...]:
    """The challenges of a field, repeated fields joined with a comma. What is malformed ends the reading."""
    found: list[tuple[str, dict[str, str]]] = []
    position = 0
    while True:
        gap = _GAP.match(value, position)
        position = position if gap is None else gap.end()
        parameter = _PARAMETER.match(value, position)
        if parameter is not None and found:
            text = parameter[2] if parameter[2] is not None else re.sub(r"\\(.)", r"\1", parameter[3])
            found[-1][1].setdefault(parameter[1].lower(), text)
            position = parameter.end()
            continue
        scheme = None if parameter is not None else _SCHEME.match(value, position)
        if scheme is None:
            break
        found.append((scheme[1].lower(), {}))
        position = scheme.end()
        # Credentials in one word, which some schemes have in place of parameters.
        word = None if _PARAMETER.match(value, position) else _TOKEN68.match(value, position)
        if word is not None and value[scheme.end(1) : position]:
            position = word.end()
    return tuple(Challenge(scheme, parameters) for scheme, parameters in found)
