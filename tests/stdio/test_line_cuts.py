"""Whatever way the bytes are cut, the same events come out. Compared with a splitter that sees everything at once."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_stdio import StdioClientConnection, StdioServerConnection
from mcp_tasks_stdio.lines import LineSplitter, OverlongLine

LIMIT = 12
CONVERSATION = (
    '{"id":1}\r\n\n  \r\n{"a":"é😀"}\n'.encode()
    + b"x" * (LIMIT - 1)
    + b"\n{"
    + b"y" * (LIMIT - 1)
    + b"\r\n"
    + b"z" * (LIMIT + 1)
    + b"\r\n\xff\xfe\n"
    + b"z" * (LIMIT * 2)
    + b"\r\r\n{}\nend"
)


def server() -> StdioServerConnection:
    return StdioServerConnection(StreamId(1), LOCAL_OWNER, Limits(frame_bytes_max=LIMIT))


def client() -> StdioClientConnection:
    return StdioClientConnection(Limits(frame_bytes_max=LIMIT), junk_lines_max=3)


def events_of(connection, data: bytes, cuts):
    edges = [0, *cuts, len(data)]
    events = [e for a, b in pairwise(edges) for e in connection.receive_data(data[a:b])]
    return [*events, *connection.receive_eof()]


def lines_by_definition(data: bytes, limit: int):
    """What the splitter promises, in as few words as possible: the oracle."""
    *ended, rest = data.split(b"\n")
    lines = [line.removesuffix(b"\r") for line in ended]
    expected = [OverlongLine(line[:limit]) if len(line) > limit else line for line in lines]
    expected = [line for line in expected if isinstance(line, OverlongLine) or line.strip()]
    too_long = len(rest) > limit + 1 or (len(rest) == limit + 1 and not rest.endswith(b"\r"))
    return [*expected, OverlongLine(rest[:limit])] if too_long else expected


@pytest.mark.spec("I1", "I5")
@pytest.mark.parametrize("connection", [server, client])
def test_every_pair_of_cuts_gives_the_same_events(connection):
    whole = events_of(connection(), CONVERSATION, ())
    assert len(whole) >= 7
    for cuts in combinations(range(1, len(CONVERSATION)), 2):
        assert events_of(connection(), CONVERSATION, cuts) == whole, cuts


@pytest.mark.spec("I1", "I5")
@pytest.mark.parametrize("connection", [server, client])
def test_one_byte_at_a_time_gives_the_same_events(connection):
    whole = events_of(connection(), CONVERSATION, ())
    assert events_of(connection(), CONVERSATION, range(1, len(CONVERSATION))) == whole


@settings(deadline=None, max_examples=300)
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from([b"\n", b"\r", b"\r\n", b"", b" ", b"x" * 6, b"x" * 7, "é".encode()]),
        ),
        max_size=30,
    ),
    limit=st.integers(1, 9),
)
def test_random_bytes_in_random_cuts_give_the_lines_of_the_definition(pieces, limit):
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces for line in splitter.receive_data(piece)]
    assert lines == lines_by_definition(b"".join(pieces), limit)
