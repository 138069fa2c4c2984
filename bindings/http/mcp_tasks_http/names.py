"""By which names a server may be spoken to, and from which pages: the Host and Origin rules.

A page of any site can make a browser send requests to a server on the same machine, and a rebound name makes that
server look like the page's own site. So Host must be a name of the server where it listens on loopback, and an
Origin must be the server's own or an allowed one. Port rule: a name without a port means the scheme's own port (80
or 443), ``name:*`` any port.

Source: streamable-http, Security & Endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError

_HOST: Final = r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)"
_AUTHORITY: Final = re.compile(_HOST + r"(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://" + _HOST + r"(?::([0-9]{1,5}))?", re.IGNORECASE)
_RULE: Final = re.compile(r"(?:(https?)://)?" + _HOST + r"(?::([0-9]{1,5}|\*))?", re.IGNORECASE)
_SCHEME_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::", "[::]"})

# A host in lower case and its port; port None stands for any.
_Place: TypeAlias = tuple[str, int | None]


def is_loopback(host: str) -> bool:
    """Whether a server bound to this address can be reached from its own machine alone."""
    host = host.strip("[]").lower()
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


@attrs.frozen(slots=True)
class NameRules:
    """Which Host and Origin values are let in.

    Args:
        hosts: names and ports that Host may hold; ``None`` to let every valid one in.
        origins: scheme, name and port that Origin may hold. A missing Origin is always let in: it is no browser's.
    """

    hosts: frozenset[_Place] | None
    origins: frozenset[tuple[str, str, int | None]]

    @classmethod
    def for_server(
        cls,
        bound_host: str | None,
        bound_port: int = 0,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> NameRules:
        """The rules of a server that listens there.

        Args:
            bound_host: the address it is bound to; ``None`` for a Unix socket.
            hosts: more names it is known by, such as ``mcp.example.com`` or ``localhost:*``. With any of these Host
                is checked although the server is not bound to loopback.
            origins: more pages to let in, such as ``https://app.example.com``, ``http://localhost:*``.

        Raises:
            LocalProtocolError: a name or an origin that cannot be read.
        """
        more = [_parse_rule(text, with_scheme=False) for text in hosts]
        own: list[_Place] = []
        if bound_host is not None and is_loopback(bound_host):
            own += [(name, bound_port) for name in (*_LOOPBACK_NAMES, _in_brackets(bound_host))]
        elif bound_host is not None and bound_host not in _WILDCARDS:
            own.append((_in_brackets(bound_host), bound_port))
        own += [(host, port) for _, host, given in more for port in ((80, 443) if given == 0 else (given,))]
        checked = bool(more) or (bound_host is not None and is_loopback(bound_host))
        allowed = {(scheme, host, port) for scheme in _SCHEME_PORTS for host, port in own}
        for scheme, host, port in (_parse_rule(text, with_scheme=True) for text in origins):
            allowed.add((scheme, host, _SCHEME_PORTS[scheme] if port == 0 else port))
        return cls(frozenset(own) if checked else None, frozenset(allowed))

    def allows_host(self, value: str) -> bool:
        """Whether a Host value, or the authority of an absolute target, names this server."""
        match = _AUTHORITY.fullmatch(value)
        if match is None:
            return False
        if self.hosts is None:
            return True
        host = match[1].lower()
        ports = (80, 443) if match[2] is None else (int(match[2]),)
        return (host, None) in self.hosts or any((host, port) in self.hosts for port in ports)

    def allows_origin(self, value: str) -> bool:
        """Whether a request from this page is let in. ``null``, lists and anything unparsable are not."""
        match = _ORIGIN.fullmatch(value)
        if match is None:
            return False
        scheme, host = match[1].lower(), match[2].lower()
        port = _SCHEME_PORTS[scheme] if match[3] is None else int(match[3])
        return (scheme, host, port) in self.origins or (scheme, host, None) in self.origins


def _in_brackets(host: str) -> str:
    host = host.lower()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _parse_rule(text: str, *, with_scheme: bool) -> tuple[str, str, int | None]:
    """Scheme, host and port of a rule; port 0 where it names none, ``None`` for any."""
    match = _RULE.fullmatch(text)
    if match is None or (match[1] is not None) != with_scheme:
        shape = "https://name, https://name:port or https://name:*" if with_scheme else "name, name:port or name:*"
        raise LocalProtocolError(f"{text!r} is not of the form {shape}")
    port = 0 if match[3] is None else None if match[3] == "*" else int(match[3])
    return (match[1] or "").lower(), match[2].lower(), port
