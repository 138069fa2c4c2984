"""Event streams as many servers write them: every line end, comments, several data lines, bounds, any cutting."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_http import EventStreamDecoder
from tests.http.wire import ways_to_cut

LIMIT = 100


def decode(data: bytes, cuts=(), limit: int = LIMIT) -> tuple[list[bytes], bool]:
    decoder = EventStreamDecoder(limit)
    messages = []
    for begin, end in pairwise([0, *cuts, len(data)]):
        messages += decoder.receive_data(data[begin:end])
    return messages, decoder.overlong


def decode_in_every_way(data: bytes, limit: int = LIMIT) -> tuple[list[bytes], bool]:
    whole = decode(data, limit=limit)
    for cuts in ways_to_cut(data):
        assert decode(data, cuts, limit) == whole
    return whole


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_end_with_lf_crlf_or_cr(line_end):
    stream = line_end.join([": hello", "", "event: message", 'data: {"n":1}', "", 'data:{"n":2}', "", ""])
    assert decode_in_every_way(stream.encode()) == ([b'{"n":1}', b'{"n":2}'], False)


def test_line_ends_may_be_mixed():
    assert decode_in_every_way(b"data: 1\r\ndata: 2\rdata: 3\n\rdata: 4\r\n\r\ndata: 5\n\r\n") == (
        [b"1\n2\n3", b"4", b"5"],
        False,
    )


def test_a_cr_that_ends_a_stream_of_bytes_ends_the_line_at_once():
    decoder = EventStreamDecoder(LIMIT)
    assert decoder.receive_data(b"data: 1\r\r") == [b"1"]
    assert decoder.receive_data(b"\ndata: 2\n\n") == [b"2"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_no_other_character_ends_a_line(separator):
    text = f'{{"text":"a{separator}b"}}'.encode()
    assert decode_in_every_way(b"data: " + text + b"\n\n") == ([text], False)


def test_several_data_lines_are_joined_with_lf():
    stream = b'data: {\ndata:  "a":\ndata\ndata:\ndata: 1\ndata:}\n\n'
    assert decode_in_every_way(stream) == ([b'{\n "a":\n\n\n1\n}'], False)


def test_comments_unknown_fields_and_other_events_are_ignored():
    stream = (
        b":\n: ka\n:data: x\nretry: 5\nid: 7\nevent: other\nunknown: a\nnocolon\n\n\n\n"
        b"event: ping\ndata: {}\n\nevent:\nid\ndata: 1\nretry: x\n\ndata\n\ndata:\n\n data: 2\n\nDATA: 3\n\n"
        b"event: other\nevent: message\ndata: 4\n\n"
    )
    assert decode_in_every_way(stream) == ([b"1", b"4"], False)


def test_an_event_that_no_empty_line_ends_is_none():
    for rest in (b"data: 2", b"data: 2\n", b"data: 2\r\nid: 1\r\n"):
        assert decode_in_every_way(b"data: 1\n\n" + rest) == ([b"1"], False)


def test_a_byte_order_mark_is_taken_off_at_the_very_beginning_only():
    mark = b"\xef\xbb\xbf"
    assert decode_in_every_way(mark + b"data: 1\n\n") == ([b"1"], False)
    assert decode_in_every_way(mark + mark + b"data: 1\n\ndata: 2\n\n") == ([b"2"], False)
    assert decode_in_every_way(b"data: 1\n\n" + mark + b"data: 2\n\n") == ([b"1"], False)
    assert decode_in_every_way(b"\xef\xbbdata: 1\n\ndata: 2\n\n") == ([b"2"], False)


@pytest.mark.parametrize(
    ("stream", "messages", "overlong"),
    [
        (b"data:" + b"x" * (LIMIT - 5) + b"\n\n", [b"x" * (LIMIT - 5)], False),
        (b"data:" + b"x" * (LIMIT - 4) + b"\n\n", [], True),
        (b"data: 1\n\n:" + b"c" * LIMIT + b"\n\ndata: 2\n\n", [b"1"], True),
        (b"data: 1\n\ndata: " + b"x" * 2 * LIMIT, [b"1"], True),
        ((b"data:" + b"x" * 49 + b"\n") * 2 + b"\n", [b"x" * 49 + b"\n" + b"x" * 49], False),
        ((b"data:" + b"x" * 49 + b"\n") * 3 + b"\ndata: 2\n\n", [], True),
        (b"data:\n" * 101 + b"\n", [b"\n" * 100], False),
        (b"data:\n" * 102 + b"\n", [], True),
    ],
)
def test_lines_and_events_are_bounded_whatever_way_they_are_cut(stream, messages, overlong):
    assert decode_in_every_way(stream) == (messages, overlong)


PIECES = st.sampled_from(
    [
        *(b"data: ", b"data", b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"{}", b"id: 1", b"event: message"),
        *(b"event: x", b"\xef\xbb\xbf", "\u2028é".encode(), b"x" * 30),
    ]
)


def messages_by_definition(stream: bytes) -> list[bytes]:
    """What the standard says, in as few words as possible: the oracle."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    messages, data, kind = [], [], b""
    for line in text.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            joined = b"\n".join(data)
            if joined and kind in (b"", b"message"):
                messages.append(joined)
            data, kind = [], b""
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    return messages


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=25).map(b"".join), st.lists(st.integers(0, 300), max_size=5))
def test_any_stream_cut_anywhere_is_read_as_the_standard_says(stream, places):
    cuts = sorted({place for place in places if place < len(stream)})
    assert decode(stream, cuts, limit=10_000) == (messages_by_definition(stream), False)
