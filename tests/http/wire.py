"""What the tests of the HTTP binding share: requests as bytes, ways to cut them, and a runner without a network."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import attrs
import h11

from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_http import (
    BodyReceived,
    ConnectionClosed,
    ExchangeCancelled,
    HeadReceived,
    HttpLimits,
    HttpServer,
    HttpServerConfig,
    HttpServerConnection,
    NameRules,
    SlowReader,
)

PORT = 8000
OWN = f"127.0.0.1:{PORT}"
MESSAGE = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'

USUAL = (
    ("Host", OWN),
    ("Content-Type", "application/json"),
    ("Accept", "application/json, text/event-stream"),
    ("MCP-Protocol-Version", "2026-07-28"),
    ("Mcp-Method", "tools/list"),
)


def head(*lines: str, first: str = "POST /mcp HTTP/1.1", without: Iterable[str] = ()) -> bytes:
    """A head with the usual fields, those left out that are named, and more lines behind them."""
    left_out = {name.lower() for name in without}
    usual = [f"{name}: {value}" for name, value in USUAL if name.lower() not in left_out]
    return "\r\n".join([first, *usual, *lines, "", ""]).encode("latin-1")


def post(*lines: str, body: bytes = MESSAGE, first: str = "POST /mcp HTTP/1.1", without: Iterable[str] = ()) -> bytes:
    """A whole request of known length."""
    return head(*lines, f"Content-Length: {len(body)}", first=first, without=without) + body


def chunked(*chunks: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    parts = [b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


def server(limits: HttpLimits | None = None, **settings: Any) -> HttpServer:
    settings.setdefault("names", NameRules.for_server("127.0.0.1", PORT))
    return HttpServer(HttpServerConfig(limits=limits or HttpLimits(), **settings))


def result(payload: bytes = RESULT) -> Frame:
    return Frame(StreamId(1), (payload,), True)


def notice(payload: bytes = b'{"jsonrpc":"2.0","method":"notifications/progress"}') -> Frame:
    return Frame(StreamId(1), (payload,), False)


def echo(event: BodyReceived) -> Sequence[Frame]:
    """An application that answers with what it was asked."""
    return (result(b'{"asked":' + json.dumps(event.payload.decode("latin-1")).encode() + b"}"),)


@attrs.define
class Conversation:
    """A connection with an application behind it that answers at once."""

    connection: HttpServerConnection
    application: Callable[[BodyReceived], Sequence[Frame]] = echo
    admits: bool = True
    now_ms: int = 0
    sent: bytes = b""
    heads: list[HeadReceived] = attrs.field(factory=list)
    bodies: list[BodyReceived] = attrs.field(factory=list)
    cancelled: list[int] = attrs.field(factory=list)
    ends: list[ConnectionClosed | SlowReader] = attrs.field(factory=list)

    def feed(self, data: bytes) -> None:
        self._carry_out(self.connection.receive_data(data, self.now_ms))

    def eof(self) -> None:
        self._carry_out(self.connection.receive_eof(self.now_ms))

    def lose(self) -> None:
        self._carry_out(self.connection.connection_lost())

    def tick(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._carry_out(self.connection.tick(now_ms))

    def go_on(self) -> None:
        """What a runner does after an answer that came later."""
        self._carry_out(self.connection.proceed(self.now_ms))

    def _carry_out(self, events: Sequence[object]) -> None:
        while events:
            for event in events:
                match event:
                    case HeadReceived():
                        self.heads.append(event)
                        if self.admits:
                            self.connection.admit(event.exchange, self.now_ms)
                    case BodyReceived():
                        self.bodies.append(event)
                        for frame in self.application(event):
                            self.connection.send(event.exchange, frame, self.now_ms)
                    case ExchangeCancelled():
                        self.cancelled.append(event.exchange)
                    case ConnectionClosed() | SlowReader():
                        self.ends.append(event)
            events = self.connection.proceed(self.now_ms)
        self.sent += self.connection.data_to_send()

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.bodies]

    @property
    def responses(self) -> list[Response]:
        return responses_of(self.sent)

    @property
    def outcome(self) -> tuple[object, ...]:
        """All that may not depend on how the bytes were cut."""
        return (self.sent, [(event.payload, event.headers) for event in self.bodies], self.connection.closing)


@attrs.frozen
class Response:
    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


def responses_of(data: bytes, methods: Sequence[str] = ()) -> list[Response]:
    """The responses in these bytes as a client reads them; the last one may be incomplete."""
    found: list[Response] = []
    while data:
        client = h11.Connection(h11.CLIENT)
        method = methods[len(found)] if len(found) < len(methods) else "GET"
        client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        start: h11.Response | None = None
        body = b""
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                start = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                break
        assert start is not None
        fields = {name.decode(): value.decode() for name, value in start.headers}
        assert len(fields) == len(start.headers)
        found.append(Response(start.status_code, fields, body))
        data = client.trailing_data[0] if isinstance(event, h11.EndOfMessage) else b""
    return found


def talk(
    data: bytes, *, cuts: Sequence[int] = (), to: HttpServer | None = None, eof: bool = False, **settings: Any
) -> Conversation:
    """A whole conversation: the bytes in these pieces, to a new connection."""
    conversation = Conversation((to or server()).connect(0), **settings)
    for begin, end in pairwise([0, *cuts, len(data)]):
        if begin < end:
            conversation.feed(data[begin:end])
    if eof:
        conversation.eof()
    return conversation


def ways_to_cut(data: bytes, seed: int = 1, count: int = 6) -> Iterator[Sequence[int]]:
    """In one piece, byte by byte, and at random."""
    yield ()
    yield range(1, len(data))
    source = random.Random(seed)
    for _ in range(count):
        yield sorted(source.sample(range(1, len(data)), min(len(data) - 1, source.randint(1, 6))))


def talk_in_every_way(data: bytes, *, to: Callable[[], HttpServer] = server, **settings: Any) -> Conversation:
    """The conversation, after a look that it is the same one whatever way the bytes are cut."""
    first, *others = (talk(data, cuts=cuts, to=to(), **settings) for cuts in ways_to_cut(data))
    for other in others:
        assert other.outcome == first.outcome
    return first
