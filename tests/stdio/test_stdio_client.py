"""The client's end of a pipe: messages out of what servers really print."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.limits import Limits
from mcp_tasks_stdio import LineReceived, LineSkipped, SkipReason, StdioClientConnection, TooMuchJunk

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'


def connection(junk_lines_max: int = 10, frame_bytes_max: int = 1000) -> StdioClientConnection:
    return StdioClientConnection(Limits(frame_bytes_max=frame_bytes_max), junk_lines_max=junk_lines_max)


@pytest.mark.parametrize(
    ("line", "excerpt"),
    [
        (b"Reports server v1.0 ready", "Reports server v1.0 ready"),
        (b"\x1b[32mready\x1b[0m", r"\x1b[32mready\x1b[0m"),
        (b"42", "42"),
        (b'["batch"]', '["batch"]'),
        (b"null", "null"),
        (b"\xff\xfe", r"\xff\xfe"),
        (b"\x00", r"\x00"),
        ("✓ bereit".encode(), "✓ bereit"),
    ],
)
def test_a_line_that_is_no_object_is_skipped_and_reported_and_the_answer_arrives(line, excerpt):
    assert connection().receive_data(line + b"\n\n" + ANSWER + b"\n") == [
        LineSkipped(excerpt, SkipReason.NOT_AN_OBJECT),
        LineReceived(ANSWER),
    ]


@pytest.mark.parametrize("payload", [b"{}", b"  {}", b"\t{}", b'{"half"', b'{"a":"\xff"}'])
def test_whatever_begins_like_an_object_is_the_cores_to_judge(payload):
    assert connection().receive_data(payload + b"\n") == [LineReceived(payload)]


def test_a_banner_is_cut_to_an_excerpt():
    (event,) = connection().receive_data(b"=" * 500 + b"\n")
    assert event == LineSkipped("=" * 120 + "…", SkipReason.NOT_AN_OBJECT)


def test_junk_up_to_the_bound_is_skipped_and_one_line_more_ends_the_connection():
    pipe = connection(junk_lines_max=3)
    events = pipe.receive_data(b"log\n" * 3)
    assert [type(event) for event in events] == [LineSkipped] * 3
    events = pipe.receive_data(b"log\n" + ANSWER + b"\n")
    message = (
        "4 lines in a row on the server's stdout are no messages, and 3 are allowed: "
        "is the server writing logs to stdout?"
    )
    assert events == [LineSkipped("log", SkipReason.NOT_AN_OBJECT), TooMuchJunk(4, message)]


def test_after_too_much_junk_nothing_more_is_given():
    pipe = connection(junk_lines_max=0)
    assert isinstance(pipe.receive_data(b"log\nlo")[-1], TooMuchJunk)
    assert pipe.receive_data(ANSWER + b"\n" + ANSWER) == ()
    assert pipe.receive_eof() == ()


def test_overlong_lines_are_junk_too():
    events = connection(junk_lines_max=2, frame_bytes_max=5).receive_data(b"{xxxxxxx\n" * 3)
    assert [type(event) for event in events] == [LineSkipped, LineSkipped, LineSkipped, TooMuchJunk]


def test_a_message_between_them_starts_the_count_of_junk_anew():
    pipe = connection(junk_lines_max=3)
    events = pipe.receive_data((b"log\n" * 3 + ANSWER + b"\n") * 100)
    assert sum(isinstance(event, LineReceived) for event in events) == 100
    assert not any(isinstance(event, TooMuchJunk) for event in events)


def test_blank_lines_are_no_junk():
    assert connection(junk_lines_max=0).receive_data(b"\n \r\n\t\n" * 1000 + ANSWER + b"\n") == [LineReceived(ANSWER)]


@pytest.mark.spec("I5")
def test_an_overlong_line_is_skipped_with_how_it_begins_and_the_next_one_is_read():
    line = b'{"id":7,"result":{"data":"' + b"x" * 1000
    events = connection().receive_data(line + b"\n" + ANSWER + b"\n")
    assert events == [
        LineSkipped(line[:120].decode() + "…", SkipReason.TOO_LONG),
        LineReceived(ANSWER),
    ]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024])
def test_long_messages_pass_in_both_directions(size):
    pipe = StdioClientConnection(Limits())
    line = b"{" + b" " * (size - 2) + b"}"
    assert pipe.receive_data(line) == []
    assert pipe.receive_data(b"\n") == [LineReceived(line)]
    pipe.send((line[:100], line[100:]))
    assert pipe.data_to_send() == line + b"\n"


def test_a_line_that_the_end_of_the_output_cuts_is_reported():
    pipe = connection()
    pipe.receive_data(ANSWER + b"\n" + ANSWER[:10])
    assert pipe.receive_eof() == (LineSkipped(ANSWER[:10].decode(), SkipReason.UNFINISHED),)
    assert pipe.receive_eof() == ()


@pytest.mark.spec("I1")
def test_a_message_with_a_newline_is_refused():
    with pytest.raises(LocalProtocolError, match="no newline"):
        connection().send((b"{\n}",))


@pytest.mark.parametrize("value", [-1, 1.0, True, None])
def test_a_bound_on_junk_that_is_no_count_is_refused(value):
    with pytest.raises(LocalProtocolError, match="junk_lines_max is an integer of 0 or more"):
        StdioClientConnection(Limits(), junk_lines_max=value)
