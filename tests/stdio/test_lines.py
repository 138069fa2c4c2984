"""The line splitter and joiner: bounds, cuts, and nothing but LF as a line's end."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_stdio.lines import OVERLONG_BEGINNING_BYTES, LineJoiner, LineSplitter, OverlongLine

LIMIT = 8
UNENDING_CHARACTERS = "\u2028\u2029\x85\x0b\x0c\x1c"


def split_whole(data: bytes, limit: int = LIMIT):
    return LineSplitter(limit).receive_data(data)


def split_bytewise(data: bytes, limit: int = LIMIT):
    splitter = LineSplitter(limit)
    return [line for i in range(len(data)) for line in splitter.receive_data(data[i : i + 1])]


@pytest.mark.spec("I1")
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("split", [split_whole, split_bytewise])
def test_a_line_at_the_limit_passes_and_one_byte_more_is_refused(split, end):
    assert split(b"x" * (LIMIT - 1) + end) == [b"x" * (LIMIT - 1)]
    assert split(b"x" * LIMIT + end) == [b"x" * LIMIT]
    assert split(b"x" * (LIMIT + 1) + end) == [OverlongLine(b"x" * LIMIT)]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024])
def test_long_lines_arrive_whole_with_the_line_end_alone_in_a_later_read(size):
    splitter = LineSplitter(16 * 1024 * 1024)
    line = b'{"data":"' + b"x" * (size - 11) + b'"}'
    received = []
    for start in range(0, len(line), 65_536):
        received += splitter.receive_data(line[start : start + 65_536])
    assert received == []
    assert splitter.receive_data(b"\n") == [line]


@pytest.mark.spec("I5")
@pytest.mark.parametrize("split", [split_whole, split_bytewise])
def test_an_overlong_line_is_reported_once_and_skipped_to_its_end(split):
    assert split(b"a\n" + b"x" * (LIMIT * 50) + b"\nb\n") == [b"a", OverlongLine(b"x" * LIMIT), b"b"]


@pytest.mark.spec("I5")
def test_an_overlong_line_is_reported_before_its_end_comes():
    splitter = LineSplitter(LIMIT)
    assert splitter.receive_data(b"x" * LIMIT) == []
    assert splitter.receive_data(b"x") == [OverlongLine(b"x" * LIMIT)]
    assert splitter.receive_data(b"x" * 1000) == []
    assert splitter.receive_data(b"x\nnext\n") == [b"next"]


def test_an_overlong_line_is_not_kept_while_it_is_skipped():
    splitter = LineSplitter(LIMIT)
    for _ in range(1000):
        splitter.receive_data(b"x" * 1000)
        assert len(splitter._pending) <= LIMIT + 1
    assert splitter.receive_eof() is None


def test_the_beginning_of_an_overlong_line_is_bounded():
    (line,) = split_whole(b"x" * 10_000 + b"\n", limit=5_000)
    assert line == OverlongLine(b"x" * OVERLONG_BEGINNING_BYTES)


@pytest.mark.spec("I1")
@pytest.mark.parametrize("character", UNENDING_CHARACTERS)
def test_only_lf_ends_a_line(character):
    text = f'"a{character}b"'.encode()
    assert split_whole(text + b"\n", limit=100) == [text]
    assert split_bytewise(text + b"\n", limit=100) == [text]


def test_a_cr_inside_a_line_stays_and_one_before_the_line_end_goes():
    assert split_whole(b"a\rb\r\n") == [b"a\rb"]
    assert split_bytewise(b"a\rb\r\n") == [b"a\rb"]


def test_a_cr_past_the_limit_that_no_line_end_follows_makes_the_line_overlong():
    data = b"x" * LIMIT + b"\r" + b"y\nz\n"
    assert split_whole(data) == split_bytewise(data) == [OverlongLine(b"x" * LIMIT), b"z"]


def test_an_empty_read_changes_nothing_not_even_between_a_cr_and_its_lf():
    splitter = LineSplitter(LIMIT)
    assert splitter.receive_data(b"x" * LIMIT + b"\r") == []
    assert splitter.receive_data(b"") == []
    assert splitter.receive_data(b"\n") == [b"x" * LIMIT]


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"  \n", b"\t\r\n", b"\n\n\n"])
def test_blank_lines_are_left_out(blank):
    assert split_whole(blank + b"a\n" + blank) == [b"a"]
    assert split_bytewise(blank + b"a\n" + blank) == [b"a"]


@pytest.mark.parametrize("character", ["é", "✓", "😀"])
def test_a_character_that_arrives_byte_by_byte_is_whole(character):
    text = f'{{"a":"{character}"}}'.encode()
    assert split_bytewise(text + b"\n", limit=100) == [text]


def test_bytes_that_are_no_utf8_pass_through_unchanged():
    assert split_whole(b"\xff\xfe\n\xed\xa0\x80\n\xc0\xaf\n\x00\n") == [
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xc0\xaf",
        b"\x00",
    ]


def test_the_rest_of_an_unended_line_is_given_at_the_end_of_the_input():
    splitter = LineSplitter(LIMIT)
    assert splitter.receive_data(b"a\nrest") == [b"a"]
    assert splitter.receive_eof() == b"rest"
    assert splitter.receive_eof() is None


@pytest.mark.parametrize("rest", [b"", b"  ", b"\r"])
def test_blanks_before_the_end_of_the_input_are_no_line(rest):
    splitter = LineSplitter(LIMIT)
    splitter.receive_data(b"a\n" + rest)
    assert splitter.receive_eof() is None


def test_data_after_the_end_of_the_input_is_a_mistake_of_the_caller():
    splitter = LineSplitter(LIMIT)
    splitter.receive_eof()
    with pytest.raises(LocalProtocolError, match="end of the input"):
        splitter.receive_data(b"a\n")


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_a_limit_that_is_no_positive_integer_is_refused(limit):
    with pytest.raises(LocalProtocolError, match="line_bytes_max is an integer of 1 or more"):
        LineSplitter(limit)


@pytest.mark.parametrize("data", [bytearray(b"ab\ncd"), memoryview(b"ab\ncd")])
def test_any_kind_of_buffer_is_taken_and_lines_are_bytes(data):
    (line,) = LineSplitter(LIMIT).receive_data(data)
    assert type(line) is bytes
    assert line == b"ab"


@pytest.mark.spec("I1")
def test_each_message_is_sent_as_one_line_ended_by_lf():
    joiner = LineJoiner()
    joiner.send((b'{"a":', b"1}"))
    joiner.send([b'{"b":2}'])
    assert joiner.bytes_pending == 16
    assert joiner.data_to_send() == b'{"a":1}\n{"b":2}\n'
    assert joiner.data_to_send() == b""
    assert joiner.bytes_pending == 0


@pytest.mark.spec("I1")
@pytest.mark.parametrize("parts", [(b"a\n",), (b"a", b"b\nc"), (b"\n",)])
def test_a_message_with_a_newline_is_refused_and_no_part_of_it_is_sent(parts):
    joiner = LineJoiner()
    joiner.send((b"{}",))
    with pytest.raises(LocalProtocolError, match="no newline"):
        joiner.send(parts)
    assert joiner.data_to_send() == b"{}\n"


@pytest.mark.parametrize("parts", [(), (b"",), (b"", b"")])
def test_an_empty_message_is_refused(parts):
    with pytest.raises(LocalProtocolError, match="not an empty line"):
        LineJoiner().send(parts)
