"""The client's end: every form of response, in every way of cutting; what is sent, and when a connection is reused."""

from __future__ import annotations

import random
from itertools import pairwise

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.wire.headers import routing_headers
from mcp_tasks_http import (
    EndKind,
    Endpoint,
    HttpClientConnection,
    HttpClientLimits,
    RefusalKind,
    Refused,
    ReplyReceived,
    ResponseEnded,
)
from tests.http.wire import MESSAGE, RESULT, chunked, server, talk, ways_to_cut

ENDPOINT = Endpoint.parse("http://127.0.0.1:8000/mcp")
HEADERS = routing_headers("tools/list", {}, "2026-07-28")
SMALL = HttpClientLimits(
    head_bytes_max=300, chunk_framing_bytes_max=100, message_bytes_max=200, refusal_bytes_max=400, idle_reuse_ms=10
)


def asked(call: int = 7, limits: HttpClientLimits | None = None) -> HttpClientConnection:
    client = HttpClientConnection(ENDPOINT, limits)
    client.send_request(call, [MESSAGE], HEADERS)
    return client


def events_of(data: bytes, cuts=(), *, eof: bool = False, limits: HttpClientLimits | None = None):
    client = asked(limits=limits)
    events = []
    for begin, end in pairwise([0, *cuts, len(data)]):
        if begin < end:
            events += client.receive_data(data[begin:end], 0)
    if eof:
        events += client.receive_eof(0)
    return events, client.reusable(0)


def in_every_way(data: bytes, *, eof: bool = False, limits: HttpClientLimits | None = None):
    whole = events_of(data, eof=eof, limits=limits)
    for cuts in ways_to_cut(data):
        assert events_of(data, cuts, eof=eof, limits=limits) == whole
    return whole


def response(*lines: str, body: bytes = b"", status: str = "200 OK", length: bool = True) -> bytes:
    more = [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, *more, "", ""]).encode("latin-1") + body


JSON = "Content-Type: application/json"
STREAM = "Content-Type: text/event-stream"
CHUNKED = "Transfer-Encoding: chunked"


def ended(kind: EndKind, status: int | None = 200, *, unanswered: bool = False, reason: str | None = None):
    return ResponseEnded(7, kind, status, unanswered, kind.value if reason is None else reason)


COMPLETE = ended(EndKind.COMPLETE)


# --- what is sent


@pytest.mark.spec("H9")
def test_a_request_names_both_forms_of_answer_and_its_routing_headers():
    client = HttpClientConnection(Endpoint.parse("https://mcp.example.com/a?b=c"))
    headers = routing_headers("tools/call", {"name": "größe"}, "2026-07-28")
    data = client.send_request(1, [b'{"a":', b"1}"], [*headers, ("Authorization", "Bearer x")])
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(data)
    request, body = reader.next_event(), reader.next_event()
    assert (request.method, request.target) == (b"POST", b"/a?b=c")
    assert dict(request.headers) == {
        b"host": b"mcp.example.com",
        b"content-type": b"application/json",
        b"accept": b"application/json, text/event-stream",
        b"mcp-protocol-version": b"2026-07-28",
        b"mcp-method": b"tools/call",
        b"mcp-name": b"=?base64?Z3LDtsOfZQ==?=",
        b"authorization": b"Bearer x",
        b"content-length": b"7",
    }
    assert body.data == b'{"a":1}'


def test_our_own_server_understands_it_on_its_fast_path():
    data = HttpClientConnection(ENDPOINT).send_request(1, [MESSAGE], HEADERS)
    served = server()
    assert talk(data, to=served).payloads == [MESSAGE]
    assert served.reader._plain.parse(data) is not None


BAD_HEADERS = [
    ("Mcp-Name", " edge"),
    ("Mcp-Name", "edge "),
    ("Mcp-Name", "two\r\nlines"),
    ("Mcp-Name", "nul\0"),
    ("Mcp-Name", "größe"),
    ("Bad Name", "x"),
    ("", "x"),
    ("X:", "x"),
    ("Content-Length", "3"),
    ("transfer-encoding", "chunked"),
    ("Host", "evil.example"),
    ("Connection", "close"),
    ("Accept", "text/html"),
]


@pytest.mark.parametrize(("name", "value"), BAD_HEADERS)
def test_a_header_that_cannot_be_sent_is_refused_before_any_byte_and_the_connection_stays_usable(name, value):
    client = HttpClientConnection(ENDPOINT)
    with pytest.raises(LocalProtocolError):
        client.send_request(1, [MESSAGE], [("X-Good", "1"), (name, value)])
    assert client.reusable(0)
    assert not client.busy
    assert client.send_request(2, [MESSAGE], HEADERS).endswith(MESSAGE)
    assert client.receive_data(response(JSON, body=RESULT), 0) == [
        ReplyReceived(2, RESULT, 200),
        ResponseEnded(2, EndKind.COMPLETE, 200, False, EndKind.COMPLETE.value),
    ]


def test_a_busy_or_finished_connection_takes_no_request():
    client = asked()
    assert client.busy
    with pytest.raises(LocalProtocolError, match="busy"):
        client.send_request(8, [MESSAGE], HEADERS)
    client.connection_lost()
    with pytest.raises(LocalProtocolError, match="over"):
        client.send_request(8, [MESSAGE], HEADERS)
    with pytest.raises(LocalProtocolError, match="not nothing"):
        HttpClientConnection(ENDPOINT).send_request(1, [b""], HEADERS)


# --- one message


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found", "500 Oops", "503"])
def test_a_json_body_is_read_at_any_status(status):
    code = int(status[:3])
    reply = ReplyReceived(7, RESULT, code)
    assert in_every_way(response(JSON, body=RESULT, status=status)) == ([reply, ended(EndKind.COMPLETE, code)], True)


def test_a_json_body_may_come_in_chunks_or_until_the_end_of_the_connection():
    data = response(JSON + "; charset=utf-8", CHUNKED, body=chunked(RESULT[:9], RESULT[9:]), length=False)
    assert in_every_way(data) == ([ReplyReceived(7, RESULT, 200), COMPLETE], True)
    data = response(JSON, body=RESULT, length=False)
    assert in_every_way(data, eof=True) == ([ReplyReceived(7, RESULT, 200), COMPLETE], False)


def test_interim_responses_are_passed_over():
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + response(JSON, body=RESULT)
    assert in_every_way(data) == ([ReplyReceived(7, RESULT, 200), COMPLETE], True)


@pytest.mark.parametrize("status", [202, 204])
def test_an_accepted_notification_has_no_message(status):
    data = response(status=f"{status} Accepted", length=status == 202)
    assert in_every_way(data) == ([ended(EndKind.ACCEPTED, status)], True)


@pytest.mark.parametrize("line", [JSON, "Content-Type: text/html", "X: y"])
def test_an_empty_body_is_a_response_without_a_message(line):
    assert in_every_way(response(line)) == ([COMPLETE], True)


# --- event streams


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_an_event_stream_gives_its_messages_as_they_come(line_end, framing):
    body = (b": ka\n\nid: 1\nevent: message\ndata: 1\n\n: ka\ndata: 2\n\ndata: " + RESULT + b"\n\n").replace(
        b"\n", line_end
    )
    lines = [STREAM, CHUNKED] if framing == "chunked" else [STREAM]
    sent = chunked(*(body[n : n + 9] for n in range(0, len(body), 9))) if framing == "chunked" else body
    events, reusable = in_every_way(response(*lines, body=sent, length=framing == "length"), eof=framing == "close")
    assert events == [*(ReplyReceived(7, payload, 200) for payload in (b"1", b"2", RESULT)), COMPLETE]
    assert reusable is (framing != "close")


def test_a_message_of_a_stream_is_given_before_the_stream_ends():
    client = asked()
    start = response(STREAM, CHUNKED, length=False) + b"9\r\ndata: 1\n\n\r\n"
    assert client.receive_data(start, 0) == [ReplyReceived(7, b"1", 200)]
    assert client.busy


NO_ANSWER = {
    "an end in good order": (chunked(b"data: 1\n\n"), False, COMPLETE),
    "an event that was not ended": (chunked(b"data: 1\n\ndata: 2\n"), False, COMPLETE),
    "a connection that ends between events": (b"9\r\ndata: 1\n\n\r\n", True, EndKind.CUT),
    "a connection that ends inside an event": (b"ff\r\ndata: 1\n\ndata: 2", True, EndKind.CUT),
    "chunks that are none": (b"9\r\ndata: 1\n\n\r\nzz\r\n", False, EndKind.MALFORMED),
}


@pytest.mark.parametrize(("body", "eof", "end"), NO_ANSWER.values(), ids=NO_ANSWER)
def test_a_stream_that_ends_without_an_answer_ends_the_call_at_once(body, eof, end):
    data = response(STREAM, CHUNKED, body=body, length=False)
    for cuts in ways_to_cut(data):
        events, reusable = events_of(data, cuts, eof=eof)
        assert events[0] == ReplyReceived(7, b"1", 200)
        assert len(events) == 2
        kind = end.kind if isinstance(end, ResponseEnded) else end
        assert (type(events[1]), events[1].kind, events[1].status) == (ResponseEnded, kind, 200)
        assert reusable is (kind is EndKind.COMPLETE)


# --- connections that end


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\nContent-", response(JSON, body=RESULT)[:-1]])
@pytest.mark.parametrize("how", ["eof", "lost"])
def test_a_connection_that_ends_in_the_middle_ends_the_call(part, how):
    client = asked()
    events = list(client.receive_data(part, 0)) if part else []
    events += client.receive_eof(0) if how == "eof" else client.connection_lost()
    (event,) = events
    assert isinstance(event, ResponseEnded)
    assert (event.kind, event.unanswered) == (EndKind.CUT, not part)
    assert event.status == (200 if part.endswith(b"}") or b"{" in part else None)
    assert client.over
    assert list(client.connection_lost()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 abc OK\r\n\r\n",
        response(JSON, "Content-Length: 3", "Content-Length: 4", length=False),
        response(JSON, "Transfer-Encoding: gzip", length=False),
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    ],
)
def test_what_is_no_http_ends_the_call(data):
    for cuts in ways_to_cut(data):
        events, reusable = events_of(data, cuts, eof=False)
        assert [event.kind for event in events] == [EndKind.MALFORMED]
        assert not reusable


# --- refusals


def test_a_challenge_is_read():
    data = response(
        'WWW-Authenticate: Bearer realm="a, b", error="invalid_token", resource_metadata="https://a/.well-known/x"',
        "WWW-Authenticate: Basic",
        JSON,
        body=b'{"jsonrpc":"2.0","error":{}}',
        status="401 Unauthorized",
    )
    (event,), reusable = in_every_way(data)
    assert isinstance(event, Refused)
    assert (event.kind, event.status, reusable) == (RefusalKind.UNAUTHORIZED, 401, True)
    assert [challenge.scheme for challenge in event.challenges] == ["bearer", "basic"]
    assert event.challenges[0].parameters == {
        "realm": "a, b",
        "error": "invalid_token",
        "resource_metadata": "https://a/.well-known/x",
    }


HTML = "Content-Type: text/html"
REFUSALS = {
    "forbidden": (response(JSON, body=b"{}", status="403 No"), RefusalKind.FORBIDDEN, "{}"),
    "redirect": (response("Location: https://evil.example/", status="307 Go"), RefusalKind.REDIRECTED, ""),
    "see other": (response("Location: /login", body=b"moved", status="303 Go"), RefusalKind.REDIRECTED, "moved"),
    "a page": (
        response(HTML, body=b"<p>\x1b[31m\n log in\0"),
        RefusalKind.NOT_MCP,
        "<p> [31m log in",
    ),
    "compressed": (response(JSON, "Content-Encoding: gzip", body=b"\x1f\x8b"), RefusalKind.NOT_MCP, "\ufffd"),
    "no type": (response(body=b"hello"), RefusalKind.NOT_MCP, "hello"),
    "a proxy's page": (
        response(HTML, body=b"<b>502</b>", status="502 Bad"),
        RefusalKind.FAILED,
        "<b>502</b>",
    ),
    "nothing at 404": (response(status="404 Not Found"), RefusalKind.FAILED, ""),
    "a long page": (response(HTML, body=b"x" * 390), RefusalKind.NOT_MCP, "x" * 300 + "…"),
}


@pytest.mark.parametrize(("data", "kind", "excerpt"), REFUSALS.values(), ids=REFUSALS)
def test_a_response_without_a_message_is_refused_with_how_it_begins(data, kind, excerpt):
    (event,), reusable = in_every_way(data, limits=SMALL)
    assert isinstance(event, Refused)
    assert (event.kind, event.excerpt, reusable) == (kind, excerpt, True)
    assert event.status == int(data[9:12])
    assert event.get("LOCATION") == (None if "Location" not in data.decode("latin-1") else event.get("location"))


def test_a_page_is_not_read_for_ever():
    data = response(HTML, CHUNKED, body=b"fffff\r\n" + b"x" * 500, length=False)
    for cuts in ways_to_cut(data):
        (event,), reusable = events_of(data, cuts, limits=SMALL)
        assert isinstance(event, Refused)
        assert (event.kind, reusable) == (RefusalKind.NOT_MCP, False)


def test_a_page_that_is_cut_is_still_refused_as_one():
    data = response(HTML, body=b"<p>too short")[:-1]
    (event,), _ = events_of(data, eof=True)
    assert isinstance(event, Refused)
    assert event.excerpt == "<p>too shor"


# --- bounds


TOO_LARGE = {
    "a body": response(JSON, body=b"x" * 201),
    "a body of unknown length": response(JSON, CHUNKED, body=b"ffff\r\n" + b"x" * 201, length=False),
    "an event": response(STREAM, CHUNKED, body=chunked(b"data:" + b"x" * 100, b"y" * 100), length=False),
}


@pytest.mark.parametrize("data", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_message_over_the_limit_ends_the_call(data):
    for cuts in ways_to_cut(data):
        events, reusable = events_of(data, cuts, limits=SMALL)
        assert [(event.kind, event.status) for event in events] == [(EndKind.TOO_LARGE, 200)]
        assert not reusable


def test_a_message_at_the_limit_is_read():
    assert in_every_way(response(JSON, body=b"x" * 200), limits=SMALL)[0][0] == ReplyReceived(7, b"x" * 200, 200)


def padded_head(size: int) -> bytes:
    data = response(JSON, "X: ", "Content-Length: 2", length=False)
    return data.replace(b"X: ", b"X: " + b"p" * (size - len(data)))


@pytest.mark.parametrize(("size", "read"), [(299, True), (300, True), (301, False), (900, False)])
def test_a_head_is_bounded_by_its_bytes_and_not_by_how_they_were_cut(size, read):
    data = padded_head(size) + b"{}"
    for cuts in (*ways_to_cut(data), [size - 1], [size], [size - 3]):
        events, _ = events_of(data, cuts, limits=SMALL)
        if read:
            assert events == [ReplyReceived(7, b"{}", 200), COMPLETE]
        else:
            assert [event.kind for event in events] == [EndKind.MALFORMED]


def test_interim_responses_are_bounded_too():
    for cuts in ((), range(1, 700)):
        events, _ = events_of(b"HTTP/1.1 100 Continue\r\n\r\n" * 30, cuts, limits=SMALL)
        assert [event.kind for event in events] == [EndKind.MALFORMED]


@pytest.mark.parametrize("extension", [90, 200])
def test_what_chunks_add_between_two_parts_of_a_body_is_bounded(extension):
    body = b"1\r\n{\r\n1;" + b"e" * extension + b"\r\n}\r\n0\r\n\r\n"
    data = response(JSON, CHUNKED, body=body, length=False)
    for cuts in ways_to_cut(data):
        events, _ = events_of(data, cuts, limits=SMALL)
        if extension < 100:
            assert events == [ReplyReceived(7, b"{}", 200), COMPLETE]
        else:
            assert [event.kind for event in events] == [EndKind.MALFORMED]


def test_a_long_stream_of_small_events_is_read_to_its_end():
    events = 3000
    body = chunked(*(b"data: %d\n\n" % n for n in range(events)))
    replies, reusable = events_of(response(STREAM, CHUNKED, body=body, length=False), limits=SMALL)
    assert [reply.payload for reply in replies[:-1]] == [b"%d" % n for n in range(events)]
    assert (replies[-1], reusable) == (COMPLETE, True)


# --- reuse


def test_a_connection_is_used_again_after_a_whole_response():
    client = HttpClientConnection(ENDPOINT, SMALL)
    for call in range(50):
        assert client.reusable(call)
        client.send_request(call, [MESSAGE], HEADERS)
        assert not client.reusable(call)
        events = client.receive_data(response(JSON, body=RESULT), call)
        assert [event.call for event in events] == [call, call]


def test_a_connection_that_was_idle_for_long_is_not_used_again():
    client = asked(limits=SMALL)
    client.receive_data(response(JSON, body=RESULT), 100)
    assert client.reusable(110)
    assert not client.reusable(111)


@pytest.mark.parametrize(
    "data",
    [
        response(JSON, "Connection: close", body=RESULT),
        response(JSON, body=RESULT).replace(b"HTTP/1.1", b"HTTP/1.0"),
        response(JSON, body=RESULT) + b"HTTP/1.1 200 OK\r\n",
    ],
    ids=["told to close", "HTTP/1.0", "more than was asked for"],
)
def test_a_connection_with_nothing_to_come_on_it_is_not_used_again(data):
    for cuts in ways_to_cut(data):
        events, reusable = events_of(data, cuts)
        assert events[0] == ReplyReceived(7, RESULT, 200)
        assert not reusable


def test_bytes_that_nobody_asked_for_are_no_answer_to_the_next_call():
    client = asked()
    client.receive_data(response(JSON, body=RESULT), 0)
    assert list(client.receive_data(response(JSON, body=b'{"stray":1}'), 1)) == []
    assert client.over


def test_a_connection_that_ended_while_idle_ends_nothing():
    client = asked()
    client.receive_data(response(JSON, body=RESULT), 0)
    assert list(client.receive_eof(1)) == []
    assert not client.reusable(1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 400), max_size=6))
def test_mutants_of_responses_end_the_call_once_whatever_way_they_are_cut(seed, places):
    """A peer's fault is an event, never an exception, and the same one for any cutting."""
    source = random.Random(seed)
    base = source.choice(
        [
            response(JSON, body=RESULT),
            response(STREAM, CHUNKED, body=chunked(b"data: 1\n\n", b"data: 2\n\n"), length=False),
            response("WWW-Authenticate: Bearer a=b", status="401 No", body=b"x"),
        ]
    )
    mutant = bytearray(base)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(mutant))
        mutant[place : place + source.randrange(3)] = source.choice([b"\r\n", b"\n", b"x", b"\0", b"1", b":", b""])
    data = bytes(mutant)

    def shape(events):
        return [(type(event), event.kind if hasattr(event, "kind") else event.payload) for event in events]

    whole, reusable = events_of(data, eof=True)
    cuts = sorted({place for place in places if place < len(data)})
    cut, reusable_too = events_of(data, cuts, eof=True)
    assert shape(cut) == shape(whole)
    assert reusable_too is reusable is False
    assert sum(isinstance(event, ResponseEnded | Refused) for event in whole) == 1
