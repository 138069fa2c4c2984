"""What the command line says about HTTP: where to listen, and which headers to send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mcp_tasks_trio.exit_codes import WrongUsage

_ADDRESS: Final = re.compile(r"(?:(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*):)?([0-9]{1,5})")
_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?[ \t]*")

LOOPBACK: Final = "127.0.0.1"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; the host is loopback where only a port is given.

    Raises:
        WrongUsage: it is none.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        raise WrongUsage(f"--http {text!r}: write HOST:PORT, such as 127.0.0.1:8000, or [::1]:8000, or 8000 alone")
    return (match[1] or LOOPBACK).strip("[]"), int(match[2])


def parse_headers(texts: Sequence[str]) -> dict[str, str]:
    """Headers out of ``NAME: VALUE`` each. Values are not repeated in messages: they hold credentials.

    Raises:
        WrongUsage: one of them is none.
    """
    headers: dict[str, str] = {}
    for text in texts:
        match = _HEADER.fullmatch(text)
        if match is None:
            name = text.partition(":")[0]
            raise WrongUsage(f"--header {name!r}…: write 'NAME: VALUE', the value in printable ASCII")
        headers[match[1]] = match[2] or ""
    return headers
