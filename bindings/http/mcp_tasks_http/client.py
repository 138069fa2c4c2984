"""One connection of an HTTP client: messages to requests, responses of every form to messages.

One request at a time. Nothing is ever sent twice: a runner that repeats a call on another connection decides so.

Source: streamable-http, Sending Messages; streamable-http, Receiving Messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
import h11

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http.challenges import parse_challenges
from mcp_tasks_http.client_events import EndKind, HttpClientEvent, RefusalKind, Refused, ReplyReceived, ResponseEnded
from mcp_tasks_http.endpoints import Endpoint
from mcp_tasks_http.media import EVENT_STREAM, JSON, media_type_of
from mcp_tasks_http.sse import EventStreamDecoder

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
_OWN_FIELDS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "expect", "upgrade"}
)
_H11_BUFFER_BYTES_MAX: Final = 2**62
# h11 is fed this much at once, since asking it what it has not used copies that.
_SLICE_BYTES: Final = 4096
_EXCERPT_BYTES: Final = 300


def _positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise LocalProtocolError(f"{attribute.name} is an integer of 1 or more, not {value!r}")


@attrs.frozen(kw_only=True)
class HttpClientLimits:
    """What a client's connection accepts. Every value is an integer of 1 or more."""

    # Heads of one response, interim ones included.
    head_bytes_max: int = attrs.field(default=64 * 1024, validator=_positive)
    # What the chunked coding may put between two parts of a body.
    chunk_framing_bytes_max: int = attrs.field(default=64 * 1024, validator=_positive)
    # One message: a JSON body, or one event of a stream. The core's own frame limit.
    message_bytes_max: int = attrs.field(default=16 * 1024 * 1024, validator=_positive)
    # The body of a response without a message, such as a page, is read that far, so that the connection can be kept.
    refusal_bytes_max: int = attrs.field(default=64 * 1024, validator=_positive)
    # A connection that was idle for longer is not used again. 4 s: common servers close theirs after 5 s.
    idle_reuse_ms: int = attrs.field(default=4_000, validator=_positive)


class _Response:
    """A response whose head was read."""

    __slots__ = ("body", "decoder", "fields", "keeps", "refusal", "size", "status")

    def __init__(self, status: int, fields: list[tuple[str, str]]) -> None:
        self.status = status
        self.fields = fields
        self.body = bytearray()
        self.size = 0
        self.keeps = True
        self.refusal: RefusalKind | None = None
        self.decoder: EventStreamDecoder | None = None

    def get(self, name: str) -> str | None:
        values = [value for key, value in self.fields if key == name]
        return ", ".join(values) if values else None


class HttpClientConnection:
    """Both directions of one TCP connection to an endpoint, without I/O.

    Args:
        endpoint: whose authority and target every request names.
    """

    def __init__(self, endpoint: Endpoint, limits: HttpClientLimits | None = None) -> None:
        self._endpoint = endpoint
        self._limits = limits if limits is not None else HttpClientLimits()
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_H11_BUFFER_BYTES_MAX)
        self._call: int | None = None
        self._response: _Response | None = None
        self._over = False
        self._idle_since: int | None = None
        self._received = 0
        self._counted = 0

    @property
    def busy(self) -> bool:
        """A call is waiting for its response."""
        return self._call is not None

    @property
    def over(self) -> bool:
        """Nothing can be sent any more: close the connection."""
        return self._over

    def reusable(self, now_ms: int) -> bool:
        """Whether another request may be sent now."""
        if self._over or self._call is not None:
            return False
        return self._idle_since is None or now_ms - self._idle_since <= self._limits.idle_reuse_ms

    def send_request(self, call: int, payload: Sequence[bytes], headers: Iterable[tuple[str, str]]) -> bytes:
        """The bytes of one request, to be written whole.

        Args:
            call: what its events will carry.
            payload: one message, in parts that follow one another.
            headers: the routing headers, credentials and others; values encoded where that is needed.

        Raises:
            LocalProtocolError: the connection is busy or over, or a header cannot be sent. Nothing was begun then,
                and the connection can be used as before.
        """
        if self._call is not None or self._over:
            raise LocalProtocolError("this connection is " + ("busy" if self._call is not None else "over"))
        body = b"".join(payload)
        if not body:
            raise LocalProtocolError("a message is one JSON object, not nothing")
        fields = [("Host", self._endpoint.authority), ("Content-Type", JSON), ("Accept", f"{JSON}, {EVENT_STREAM}")]
        fields += [_checked(name, value) for name, value in headers]
        fields.append(("Content-Length", str(len(body))))
        request = h11.Request(method="POST", target=self._endpoint.target, headers=fields)
        parts = [self._connection.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage())]
        self._call = call
        self._response = None
        self._received = self._counted = 0
        return b"".join(part for part in parts if part is not None)

    def receive_data(self, data: bytes, now_ms: int) -> Sequence[HttpClientEvent]:
        """Take bytes from the server, cut anywhere."""
        events: list[HttpClientEvent] = []
        for start in range(0, len(data), _SLICE_BYTES):
            if self._over:
                break
            if self._call is None:
                # Nothing was asked, so this answers nothing; a later answer could be mistaken for another's.
                self._over = True
                break
            piece = data[start : start + _SLICE_BYTES]
            self._received += len(piece)
            self._connection.receive_data(piece)
            self._read(now_ms, events)
        return events

    def receive_eof(self, now_ms: int) -> Sequence[HttpClientEvent]:
        """Take the end of the server's bytes."""
        events: list[HttpClientEvent] = []
        if self._call is not None and not self._over:
            self._connection.receive_data(b"")
            self._read(now_ms, events)
        return [*events, *self.connection_lost()]

    def connection_lost(self) -> Sequence[HttpClientEvent]:
        """The connection was reset, could not be written to, or is given up."""
        self._over = True
        return [] if self._call is None else [self._end(EndKind.CUT, "the connection ended before the response did")]

    # --- reading

    def _read(self, now_ms: int, events: list[HttpClientEvent]) -> None:
        while self._call is not None and not self._over:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as problem:
                cut = self._connection.trailing_data[1]
                reason = "the connection ended before the response did" if cut else f"not valid HTTP/1.1: {problem}"
                self._give_up(EndKind.CUT if cut else EndKind.MALFORMED, reason, events)
                return
            if isinstance(event, h11.Data):
                if self._is_framing_too_long(len(event.data), self._limits.chunk_framing_bytes_max, events):
                    return
                self._take_data(bytes(event.data), events)
            elif isinstance(event, h11.Response | h11.InformationalResponse):
                if self._is_framing_too_long(0, self._limits.head_bytes_max, events, keep_counting=True):
                    return
                if isinstance(event, h11.Response):
                    self._counted = self._received - len(self._connection.trailing_data[0])
                    self._take_head(event, events)
            elif isinstance(event, h11.EndOfMessage):
                self._complete(now_ms, events)
            elif isinstance(event, h11.ConnectionClosed):
                self._give_up(EndKind.CUT, "the connection ended before the response did", events)
            else:
                head = self._response is None
                limit = self._limits.head_bytes_max if head else self._limits.chunk_framing_bytes_max
                if self._received - self._counted > limit:
                    self._give_up(EndKind.MALFORMED, f"more than {limit} bytes are no part of a message", events)
                return

    def _is_framing_too_long(
        self, data_bytes: int, limit: int, events: list[HttpClientEvent], *, keep_counting: bool = False
    ) -> bool:
        """Bound what is no data by the bytes that were used, whatever way they were cut."""
        used = self._received - len(self._connection.trailing_data[0])
        if used - data_bytes - self._counted > limit:
            self._give_up(EndKind.MALFORMED, f"more than {limit} bytes are no part of a message", events)
            return True
        if not keep_counting:
            self._counted = used
        return False

    def _take_head(self, head: h11.Response, events: list[HttpClientEvent]) -> None:
        fields = [(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers]
        response = _Response(head.status_code, fields)
        self._response = response
        response.refusal = _refusal_of(response)
        if response.refusal is None and media_type_of(response.get("content-type")) == EVENT_STREAM:
            response.decoder = EventStreamDecoder(self._limits.message_bytes_max)

    def _take_data(self, data: bytes, events: list[HttpClientEvent]) -> None:
        response, call = self._response, self._call
        assert response is not None
        assert call is not None
        response.size += len(data)
        if response.decoder is not None:
            events += [ReplyReceived(call, payload, response.status) for payload in response.decoder.receive_data(data)]
            if response.decoder.overlong:
                self._give_up(EndKind.TOO_LARGE, f"an event is over {self._limits.message_bytes_max} bytes", events)
            return
        limits = self._limits
        if response.size <= (limits.message_bytes_max if response.refusal is None else limits.refusal_bytes_max):
            response.body += data
        elif response.refusal is None:
            self._give_up(EndKind.TOO_LARGE, f"the body is over {self._limits.message_bytes_max} bytes", events)
        else:
            # A page that does not end is not read for its excerpt.
            events.append(self._refused(response, response.refusal))
            self._over = True

    def _complete(self, now_ms: int, events: list[HttpClientEvent]) -> None:
        response, call = self._response, self._call
        assert response is not None
        assert call is not None
        body = bytes(response.body)
        if response.refusal is not None and (body.strip() or not 200 <= response.status < 300):
            events.append(self._refused(response, response.refusal))
        elif response.status in (202, 204):
            events.append(self._end(EndKind.ACCEPTED, EndKind.ACCEPTED.value))
        else:
            if response.decoder is None and body.strip():
                events.append(ReplyReceived(call, body, response.status))
            events.append(self._end(EndKind.COMPLETE, EndKind.COMPLETE.value))
        self._next_cycle(now_ms)

    def _next_cycle(self, now_ms: int) -> None:
        connection = self._connection
        done = connection.our_state is h11.DONE and connection.their_state is h11.DONE
        if not done or connection.trailing_data != (b"", False):
            self._over = True
            return
        connection.start_next_cycle()
        self._idle_since = now_ms

    # --- endings

    def _refused(self, response: _Response, kind: RefusalKind) -> Refused:
        call = self._call
        assert call is not None
        self._call = None
        self._response = None
        asked = response.get("www-authenticate")
        challenges = () if asked is None else parse_challenges(asked)
        return Refused(call, kind, response.status, response.fields, _excerpt(response.body), challenges)

    def _end(self, kind: EndKind, reason: str) -> ResponseEnded:
        call, response = self._call, self._response
        assert call is not None
        self._call = None
        self._response = None
        status = None if response is None else response.status
        return ResponseEnded(call, kind, status, self._received == 0, reason)

    def _give_up(self, kind: EndKind, reason: str, events: list[HttpClientEvent]) -> None:
        self._over = True
        response = self._response
        if response is not None and response.refusal is not None:
            events.append(self._refused(response, response.refusal))
        else:
            events.append(self._end(kind, reason))


def _checked(name: str, value: str) -> tuple[str, str]:
    if not _NAME.fullmatch(name) or name.lower() in _OWN_FIELDS:
        raise LocalProtocolError(f"{name!r} is no name of a header that may be given here")
    if not _VALUE.fullmatch(value):
        raise LocalProtocolError(f"{name}: a value is visible ASCII with blanks inside only; others are to be encoded")
    return name, value


def _refusal_of(response: _Response) -> RefusalKind | None:
    """Why a response of this head can hold no message; ``None`` where it can."""
    status = response.status
    if status == 401:
        return RefusalKind.UNAUTHORIZED
    if status == 403:
        return RefusalKind.FORBIDDEN
    if 300 <= status < 400:
        return RefusalKind.REDIRECTED
    if status in (202, 204):
        return None
    coding = (response.get("content-encoding") or "identity").lower()
    if coding != "identity" or media_type_of(response.get("content-type")) not in (JSON, EVENT_STREAM):
        return RefusalKind.NOT_MCP if status < 400 else RefusalKind.FAILED
    return None


def _excerpt(body: bytearray) -> str:
    """How a body begins, in one line that is safe to print."""
    text = body[:_EXCERPT_BYTES].decode("utf-8", "replace")
    shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shown + "…" if len(body) > _EXCERPT_BYTES else shown
