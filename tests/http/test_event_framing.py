"""Events of streams: what is framed once for many streams is byte for byte what would be framed for each alone."""

from __future__ import annotations

import random

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_http.framing import EventFraming
from mcp_tasks_http.responses import stream_event
from tests.http.wire import post, responses_of, server

FIRST, LAST = b'{"jsonrpc":"2.0","id":', b',"params":{}}'


def test_the_framing_that_is_kept_is_that_of_each_stream_alone():
    framing, source = EventFraming(), random.Random(1)
    firsts = [FIRST, b'{"jsonrpc":"2.0","method":"a","id":', b"{" * 300]
    lasts = [LAST, b"}" * 100_000, b', "z":"\xc3\xa9"}']
    owns = [b"", b"1", b"2", b'"a"', b'"' + b"i" * 500 + b'"']
    for _ in range(2000):
        payload = (source.choice(firsts), source.choice(owns), source.choice(lasts))[: source.randint(1, 3)]
        for chunked in (True, False):
            if any(payload):
                assert framing.event(payload, chunked=chunked) == b"".join(stream_event(payload, chunked=chunked))


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_line_end_is_refused_in_every_part_whatever_was_framed_before(end: bytes, place: int):
    framing = EventFraming()
    good = (FIRST, b"1" * (1 + len(end)), LAST)
    bad = tuple(part if index != place else part[:1] + end for index, part in enumerate(good))
    for payload in (good, bad, good, bad):
        if payload is good:
            framing.event(payload, chunked=True)
        else:
            with pytest.raises(LocalProtocolError, match="no line end"):
                framing.event(payload, chunked=True)


def test_a_message_of_nothing_is_refused_whatever_was_framed_before():
    framing = EventFraming()
    for payload in ((b"", b"", b""), (), (b"",)):
        framing.event((FIRST, b"1", LAST), chunked=True)
        with pytest.raises(LocalProtocolError, match="not nothing"):
            framing.event(payload, chunked=True)


def test_equal_bytes_that_are_other_objects_are_looked_through_again():
    framing = EventFraming()
    framing.event((FIRST, b"1", LAST), chunked=True)
    with pytest.raises(LocalProtocolError, match="no line end"):
        framing.event((FIRST, b"1", bytes(bytearray(LAST)) + b"\n"), chunked=True)


def test_streams_of_both_versions_of_http_share_a_state_and_each_gets_it_with_its_own_id():
    shared = server()
    state = b',"state":"working"}'
    streams = [shared.connect(0) for _ in range(6)]
    for number, connection in enumerate(streams):
        (event,) = connection.receive_data(post(first="POST /mcp HTTP/1." + str(number % 2)), 0)
        for _ in range(2):
            frame = Frame(StreamId(event.exchange), (FIRST, b"%d" % number, state), False)
            connection.send(event.exchange, frame, 0)
    for number, connection in enumerate(streams):
        one = b"data: " + FIRST + b"%d" % number + state + b"\n\n"
        assert responses_of(connection.data_to_send())[0].body == one * 2
