"""The server's end of a pipe."""

from __future__ import annotations

import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import INVALID_REQUEST, PARSE_ERROR, ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_core.server.events import MessageReceived, MessageRefused
from mcp_tasks_stdio import StdioServerConnection

STREAM = StreamId(7)


def connection(limits: Limits | None = None, owner: Owner = LOCAL_OWNER) -> StdioServerConnection:
    return StdioServerConnection(STREAM, owner, limits or Limits())


@pytest.mark.spec("I1")
def test_each_line_is_a_message_of_this_stream_and_owner():
    owner = Owner("acme", "ada")
    assert connection(owner=owner).receive_data(b'{"id":1}\n{"id":2}\r\n{"id"') == [
        MessageReceived(STREAM, b'{"id":1}', owner),
        MessageReceived(STREAM, b'{"id":2}', owner),
    ]


@pytest.mark.spec("I5")
def test_a_line_over_the_limit_is_refused_with_the_limit_named_and_the_next_one_is_served():
    events = connection(Limits(frame_bytes_max=10)).receive_data(b"x" * 11 + b"\n{}\n")
    text = "the line is longer than the 10 bytes that are allowed, and was skipped to its end"
    assert events == [
        MessageRefused(STREAM, ErrorObject(INVALID_REQUEST, text)),
        MessageReceived(STREAM, b"{}", LOCAL_OWNER),
    ]


@pytest.mark.spec("I5")
def test_each_overlong_line_is_refused_once():
    events = connection(Limits(frame_bytes_max=10)).receive_data((b"x" * 50 + b"\n") * 3)
    assert [type(event) for event in events] == [MessageRefused] * 3


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024, 16 * 1024 * 1024])
def test_messages_up_to_the_default_limit_are_served_in_both_directions(size):
    pipe = connection()
    line = b"{" + b" " * (size - 2) + b"}"
    assert pipe.receive_data(line) == []
    assert pipe.receive_data(b"\n") == [MessageReceived(STREAM, line, LOCAL_OWNER)]
    pipe.send(Frame(STREAM, (line,), True))
    assert pipe.bytes_pending == size + 1
    assert pipe.data_to_send() == line + b"\n"


def test_bytes_that_are_no_utf8_are_handed_on_unchanged_for_the_core_to_refuse():
    assert connection().receive_data(b'\xff\xfe\n{"a":"\xc3"}\n') == [
        MessageReceived(STREAM, b"\xff\xfe", LOCAL_OWNER),
        MessageReceived(STREAM, b'{"a":"\xc3"}', LOCAL_OWNER),
    ]


def test_ten_thousand_lines_of_garbage_are_ten_thousand_messages_and_the_channel_lives():
    events = connection().receive_data(b"garbage\n" * 10_000 + b"{}\n")
    assert len(events) == 10_001
    assert events[-1] == MessageReceived(STREAM, b"{}", LOCAL_OWNER)


def test_a_line_that_the_end_of_the_input_cuts_is_refused_and_never_run():
    pipe = connection()
    assert pipe.receive_data(b'{"method":"tools/call"}') == []
    (event,) = pipe.receive_eof()
    assert isinstance(event, MessageRefused)
    assert event.stream_id == STREAM
    assert event.error.code == PARSE_ERROR
    assert "a message ends with a newline" in event.error.message
    assert pipe.receive_eof() == ()


def test_an_input_that_ends_between_lines_ends_quietly():
    pipe = connection()
    pipe.receive_data(b"{}\n")
    assert pipe.receive_eof() == ()


def test_what_is_answered_after_the_end_of_the_input_is_still_sent():
    pipe = connection()
    pipe.receive_data(b"{}\n")
    pipe.receive_eof()
    pipe.send(Frame(STREAM, (b"{}",), True))
    assert pipe.data_to_send() == b"{}\n"


def test_data_after_the_end_of_the_input_is_a_mistake_of_the_runner():
    pipe = connection()
    pipe.receive_eof()
    with pytest.raises(LocalProtocolError, match="end of the input"):
        pipe.receive_data(b"{}\n")


@pytest.mark.spec("I1")
def test_the_parts_of_a_frame_are_one_line_and_no_cr_is_ever_written():
    pipe = connection()
    pipe.send(Frame(STREAM, (b'{"jsonrpc":"2.0","id":', b"1", b',"result":{}}'), True))
    pipe.send(Frame(STREAM, ('{"a":"é😀\u2028"}'.encode(),), False))
    assert pipe.data_to_send() == '{"jsonrpc":"2.0","id":1,"result":{}}\n{"a":"é😀\u2028"}\n'.encode()


@pytest.mark.spec("I1")
def test_a_frame_that_holds_a_newline_is_refused_where_it_was_made():
    pipe = connection()
    with pytest.raises(LocalProtocolError, match="no newline"):
        pipe.send(Frame(STREAM, (b"{", b"\n}"), True))
    assert pipe.data_to_send() == b""


def test_a_frame_of_another_stream_is_refused():
    with pytest.raises(LocalProtocolError, match="this pipe is stream 7, the frame is for stream 8"):
        connection().send(Frame(StreamId(8), (b"{}",), True))
