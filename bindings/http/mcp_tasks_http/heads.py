"""Bytes to request heads: h11 decides, and a strict fast path reads what is plain and complete.

The fast path reads one POST with unlike field names and one Content-Length, and nothing that would need a second
look. Whatever it does not match goes to h11, behind checks that are stricter than h11 where leniency lets
two readers of the same bytes see different requests.

Source: streamable-http, Sending Messages; RFC 9112, sections 2, 3, 5 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import attrs
import h11

from mcp_tasks_core.errors import HEADER_MISMATCH, INVALID_REQUEST
from mcp_tasks_core.wire.headers import RoutingHeaders

Fields = Sequence[tuple[bytes, bytes]]

# More than any limit of ours: h11's own bound looks at how bytes were cut, ours count them.
_H11_BUFFER_BYTES_MAX: Final = 2**62
# Lines remembered with their reading. Clients repeat almost all of theirs; 512 serves some fifty kinds of client.
_KNOWN_LINES_MAX: Final = 512
_KNOWN_LINE_BYTES_MAX: Final = 256
# Whole heads remembered: a client that polls a task sends the same one each time. 256 of at most 1 KiB.
_KNOWN_HEADS_MAX: Final = 256
_KNOWN_HEAD_BYTES_MAX: Final = 1024

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PLAIN_HEAD: Final = re.compile(
    rb"POST ([\x21-\x7e]++) HTTP/1\.1\r\n((?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*+\r\n)++)\r\n"
)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_NOT_PLAIN: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection"})
_PARAM_PREFIX: Final = b"mcp-param-"


@attrs.frozen(slots=True, eq=False)
class RequestHead:
    """The head of one request.

    Args:
        method: as sent, such as ``POST``.
        target: as sent: a path, perhaps with a query.
        fields: names in lower case, values without outer blanks, in order.
        by_name: the same, the values of a repeated name joined with a comma.
        body_bytes: what Content-Length says; ``None`` for a chunked body.
        version_1_0: the client speaks HTTP/1.0: no chunks, no second request.
        keep_alive: the connection may serve another request after this one.
        expects_continue: the client waits for ``100 Continue`` before it sends the body.
        routing: what ``routing_headers_of`` gives, where it is known already.
    """

    method: str
    target: str
    fields: Fields
    by_name: Mapping[bytes, bytes]
    body_bytes: int | None
    version_1_0: bool = False
    keep_alive: bool = True
    expects_continue: bool = False
    routing: RoutingHeaders | None = attrs.field(default=None, repr=False)

    @property
    def path(self) -> str:
        """The target without query, and without the authority that an absolute target begins with."""
        return split_target(self.target)[1]

    def get(self, name: str) -> str | None:
        """A field's value by its name in any case, repeated ones joined with a comma; ``None`` where it is absent."""
        value = self.by_name.get(name.lower().encode("latin-1", "replace"))
        return None if value is None else value.decode("latin-1")


_ABSOLUTE: Final = re.compile(r"https?://([^/?]*)(.*)", re.IGNORECASE)


def split_target(target: str) -> tuple[str | None, str]:
    """The authority of an absolute target, ``None`` otherwise, and the path."""
    authority = None
    if not target.startswith("/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            return None, target
        authority, target = absolute[1], absolute[2] or "/"
    return authority, target.partition("?")[0]


@attrs.frozen(slots=True, kw_only=True)
class Refusal:
    """A request that is answered by the transport alone.

    Args:
        status: HTTP status, 400 or more.
        message: one sentence for people: what is wrong and what is allowed.
        code: of the JSON-RPC error in the body.
        fields: more response fields.
        close: the connection cannot go on, since it is unclear where the next request begins.
    """

    status: int
    message: str
    code: int = INVALID_REQUEST
    fields: tuple[tuple[str, str], ...] = ()
    close: bool = False


def malformed(message: str, *, status: int = 400, code: int = INVALID_REQUEST) -> Refusal:
    """A refusal after which nothing more can be read."""
    return Refusal(status=status, message=message, code=code, close=True)


class BodyParser(Protocol):
    """Where h11 goes on after a head: bytes in, parts of a chunked body out."""

    def receive_data(self, data: bytes) -> None: ...

    def next_event(self) -> object: ...

    @property
    def trailing_data(self) -> tuple[bytes, bool]: ...


@attrs.frozen(slots=True, eq=False)
class ReadHead:
    """A head, how many bytes it took, and who reads its body if that is chunked."""

    head: RequestHead
    end: int
    chunks: BodyParser | None = None


class HeadParser(Protocol):
    """Reads one complete head, which ends with its empty line."""

    def parse(self, data: bytes) -> ReadHead | Refusal: ...


class H11HeadParser:
    """The authority on heads: h11, and before it what h11 would tolerate."""

    def __init__(self, head_fields_max: int) -> None:
        self._head_fields_max = head_fields_max

    def parse(self, data: bytes) -> ReadHead | Refusal:
        fault = self._fault_of_lines(data[:-4].split(b"\r\n"))
        if fault is not None:
            return fault
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_H11_BUFFER_BYTES_MAX)
        connection.receive_data(data)
        try:
            request = connection.next_event()
        except h11.RemoteProtocolError as problem:
            # What follows the colon repeats the client's bytes.
            return malformed(f"the request is not valid HTTP/1.1: {str(problem).partition(':')[0]}")
        if not isinstance(request, h11.Request):
            return malformed("the request is not valid HTTP/1.1: it has no request line")
        if request.http_version not in (b"1.1", b"1.0"):
            return malformed("this server speaks HTTP/1.1 and HTTP/1.0")
        return self._read(request, connection, len(data))

    def _fault_of_lines(self, lines: list[bytes]) -> Refusal | None:
        """What h11 lets through or hides: control characters, folded lines, doubtful framing."""
        if len(lines) - 1 > self._head_fields_max:
            return malformed(f"the head has more than {self._head_fields_max} fields", status=431)
        lengths: list[bytes] = []
        codings: list[bytes] = []
        for line in lines[1:]:
            if line[:1] in (b" ", b"\t"):
                return malformed("a field is folded over two lines, which HTTP/1.1 no longer allows")
            name, _, value = line.partition(b":")
            name = name.lower()
            if _CONTROL.search(value):
                ours = name.startswith(b"mcp-")
                text = f"the field {name.decode('latin-1')!r} holds control characters, which no field may"
                return malformed(text, code=HEADER_MISMATCH if ours else INVALID_REQUEST)
            if name == b"content-length":
                lengths.append(value.strip(b" \t"))
            elif name == b"transfer-encoding":
                codings.append(value.strip(b" \t").lower())
        return _fault_of_framing(lengths, codings, lines[0].endswith(b"HTTP/1.0"))

    def _read(self, request: h11.Request, connection: h11.Connection, end: int) -> ReadHead | Refusal:
        fields = [(bytes(name), bytes(value)) for name, value in request.headers]
        by_name: dict[bytes, bytes] = {}
        for name, value in fields:
            by_name[name] = by_name[name] + b", " + value if name in by_name else value
        version_1_0 = request.http_version == b"1.0"
        expectation = b"" if version_1_0 else by_name.get(b"expect", b"").lower()
        if expectation not in (b"", b"100-continue"):
            return malformed("the only expectation that can be met is 100-continue", status=417)
        options = {option.strip(b" \t").lower() for option in by_name.get(b"connection", b"").split(b",")}
        chunked = b"transfer-encoding" in by_name
        head = RequestHead(
            request.method.decode("ascii"),
            request.target.decode("ascii"),
            fields,
            by_name,
            None if chunked else int(by_name.get(b"content-length", b"0")),
            version_1_0,
            not version_1_0 and b"close" not in options,
            expectation == b"100-continue",
        )
        return ReadHead(head, end, connection if chunked else None)


def _fault_of_framing(lengths: list[bytes], codings: list[bytes], version_1_0: bool) -> Refusal | None:
    """Why it is unclear how long the body is. Source: RFC 9112, section 6.3."""
    if lengths and codings:
        return malformed("a request has Content-Length or Transfer-Encoding, not both")
    if len(lengths) > 1 or (lengths and not _LENGTH.fullmatch(lengths[0])):
        return malformed("Content-Length is given once, as one decimal number")
    if codings and (codings != [b"chunked"] or version_1_0):
        return malformed("Transfer-Encoding is given once, as chunked, and in HTTP/1.1 alone")
    return None


class PlainHeadParser:
    """The fast path: one regular expression over a whole head, and no opinion on what that does not match."""

    def __init__(self, head_fields_max: int) -> None:
        self._head_fields_max = head_fields_max
        self._known_lines: dict[bytes, tuple[bytes, bytes]] = {}

    def parse(self, data: bytes | bytearray) -> ReadHead | None:
        """The head at the beginning of ``data``; ``None`` where somebody more patient has to look."""
        match = _PLAIN_HEAD.match(data)
        if match is None:
            return None
        lines = bytes(match[2]).split(b"\r\n")
        lines.pop()
        known = self._known_lines.get
        fields = [known(line) or self._read_line(line) for line in lines]
        by_name = dict(fields)
        length = by_name.get(b"content-length", b"")
        if (
            len(by_name) != len(fields)
            or len(fields) > self._head_fields_max
            or b"host" not in by_name
            or not length.isdigit()
            or len(length) > 18
            or not (_NOT_PLAIN.isdisjoint(by_name) or _is_plain_keep_alive(by_name))
        ):
            return None
        target = bytes(match[1]).decode("ascii")
        routing = _routing_headers(by_name)
        return ReadHead(RequestHead("POST", target, fields, by_name, int(length), routing=routing), match.end())

    def _read_line(self, line: bytes) -> tuple[bytes, bytes]:
        name, _, value = line.partition(b":")
        field = (name.lower(), value.strip(b" \t"))
        if len(line) <= _KNOWN_LINE_BYTES_MAX:
            if len(self._known_lines) >= _KNOWN_LINES_MAX:
                self._known_lines.clear()
            self._known_lines[line] = field
        return field


def _is_plain_keep_alive(by_name: Mapping[bytes, bytes]) -> bool:
    """Whether all that is unusual about a head is that it says what is the rule anyway."""
    unusual = _NOT_PLAIN.intersection(by_name)
    return unusual == {b"connection"} and by_name[b"connection"].lower() == b"keep-alive"


class HeadReader:
    """Finds where a head ends, bounds it, and has it read. One serves all connections of a server.

    The verdict depends on the bytes alone, not on how they were cut: what decides is what comes first, an empty
    line, a line end without its CR, or one byte too many.
    """

    def __init__(self, head_bytes_max: int, head_fields_max: int, authority: HeadParser | None = None) -> None:
        self._head_bytes_max = head_bytes_max
        self._plain = PlainHeadParser(head_fields_max)
        self._known: dict[bytes, ReadHead] = {}
        self._authority = authority if authority is not None else H11HeadParser(head_fields_max)

    def read(self, data: bytes | bytearray, seen: int = 0) -> ReadHead | Refusal | None:
        """The head at the beginning of ``data``; ``None`` while it is incomplete.

        Args:
            seen: how much of ``data`` an earlier call looked at.
        """
        start = max(0, seen - 3)
        limit = self._head_bytes_max
        end = data.find(b"\r\n\r\n", start, limit) + 4
        if end > 3:
            plain = self._read_plain(data, end)
            if plain is not None:
                return plain
        if _has_bare_line_end(data, start, end if end > 3 else limit):
            return malformed("a line ends with LF alone, and lines of HTTP/1.1 end with CR and LF")
        if end > 3:
            return self._authority.parse(bytes(data[:end]))
        if len(data) >= limit:
            return malformed(f"the head is longer than the {limit} bytes that are allowed", status=431)
        return None

    def _read_plain(self, data: bytes | bytearray, end: int) -> ReadHead | None:
        """What the fast path makes of a head; the same bytes are read once."""
        if end > _KNOWN_HEAD_BYTES_MAX:
            return self._plain.parse(data)
        raw = bytes(data[:end])
        known = self._known.get(raw)
        if known is None:
            known = self._plain.parse(raw)
            if known is not None:
                if len(self._known) >= _KNOWN_HEADS_MAX:
                    self._known.clear()
                self._known[raw] = known
        return known


def _has_bare_line_end(data: bytes | bytearray, start: int, end: int) -> bool:
    position = data.find(b"\n", start, end)
    while position >= 0:
        if position == 0 or data[position - 1] != 0x0D:
            return True
        position = data.find(b"\n", position + 1, end)
    return False


def routing_headers_of(head: RequestHead) -> RoutingHeaders:
    """What the core compares with the body: raw values, as they were sent."""
    return head.routing if head.routing is not None else _routing_headers(head.by_name)


def _routing_headers(by_name: Mapping[bytes, bytes]) -> RoutingHeaders:
    get = by_name.get
    version, method, name = get(b"mcp-protocol-version"), get(b"mcp-method"), get(b"mcp-name")
    params: dict[str, str] = {}
    # Almost no request has any, and one search over all names is a tenth of a look at each.
    if _PARAM_PREFIX in b"\n".join(by_name):
        for key, value in by_name.items():
            if key.startswith(_PARAM_PREFIX):
                params[key[len(_PARAM_PREFIX) :].decode("latin-1")] = value.decode("latin-1")
    return RoutingHeaders(
        protocol_version=None if version is None else version.decode("latin-1"),
        method=None if method is None else method.decode("latin-1"),
        name=None if name is None else name.decode("latin-1"),
        params=params,
    )
