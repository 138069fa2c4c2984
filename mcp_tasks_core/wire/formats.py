"""The string formats of requested schemas. Source: elicitation, Requested Schema."""

from __future__ import annotations

import re
from typing import Final

from mcp_tasks_core.wire.timestamps import is_date, read_timestamp

# A scheme and something after it, without blanks, controls and the characters that RFC 3986 keeps out of URIs.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f<>\"{}|\\^`]+")
_EMAIL_LOCAL: Final = re.compile(r"[^\s\x00-\x1f\x7f@]{1,64}")
_EMAIL_LABEL: Final = re.compile(r"[^\s\x00-\x1f\x7f@.]{1,63}")


def is_uri(text: str) -> bool:
    """Whether a text is an absolute URI: it has a scheme, and for http and https a host."""
    if _URI.fullmatch(text) is None:
        return False
    scheme, _, rest = text.partition(":")
    if scheme.lower() not in ("http", "https"):
        return True
    authority = re.split(r"[/?#]", rest[2:], maxsplit=1)[0]
    host = authority.rpartition("@")[2]
    return rest.startswith("//") and bool(host) and not host.startswith(":")


def is_email(text: str) -> bool:
    """Whether a text has the shape of a mail address: a local part, one ``@``, a domain."""
    local, _, domain = text.partition("@")
    if _EMAIL_LOCAL.fullmatch(local) is None or len(domain) > 255:
        return False
    return all(_EMAIL_LABEL.fullmatch(label) is not None for label in domain.split("."))


def is_date_time(text: str) -> bool:
    """Whether a text is an RFC 3339 timestamp."""
    try:
        read_timestamp(text)
    except ValueError:
        return False
    return True


FORMATS: Final = {"email": is_email, "uri": is_uri, "date": is_date, "date-time": is_date_time}
"""Every format that a requested schema may name, and its check."""
