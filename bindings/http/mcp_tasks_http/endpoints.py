"""Where a server is reached: the parts of an http or https URL.

Source: streamable-http, introduction; authorization, Token Requirements (no credentials in a URL).
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from mcp_tasks_core.errors import LocalProtocolError

_URL: Final = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::([0-9]{1,5}))?(/[!$-~]*)?(\?[!$-~]*)?", re.IGNORECASE
)
_SCHEME_PORTS: Final = {"http": 80, "https": 443}


@attrs.frozen(slots=True, kw_only=True)
class Endpoint:
    """The parts of a URL that a connection needs.

    Args:
        host: to connect to, an IPv6 address without its brackets.
        authority: what Host says.
        target: path and query.
    """

    secure: bool
    host: str
    port: int
    authority: str
    target: str

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """The endpoint at a URL.

        Raises:
            LocalProtocolError: it is no plain http or https URL. Names and passwords belong into headers.
        """
        match = _URL.fullmatch(url)
        port = 0 if match is None or match[3] is None else int(match[3])
        if match is None or port > 65535 or (match[3] is not None and port == 0):
            raise LocalProtocolError(
                f"{url!r} is no endpoint: one is http:// or https://, a host in ASCII, perhaps a port and a path, "
                "without user name, blanks or fragment"
            )
        scheme, host = match[1].lower(), match[2].lower()
        own = _SCHEME_PORTS[scheme]
        authority = host if port in (0, own) else f"{host}:{port}"
        target = (match[4] or "/") + (match[5] or "")
        return cls(
            secure=scheme == "https", host=host.strip("[]"), port=port or own, authority=authority, target=target
        )
