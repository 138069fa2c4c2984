"""On what the fast path reads it reads exactly what h11 reads; everything else is h11's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_http.heads import H11HeadParser, PlainHeadParser, ReadHead
from tests.http.fuzz import FIELDS_MAX, PIECES, SEEDS, fuzz, read_by_fast_path, read_by_h11
from tests.http.wire import head, post


@pytest.mark.parametrize("seed", range(8))
def test_mutants_of_real_requests_are_read_alike(seed):
    tally = fuzz(2500, seed)
    # Both ways are well travelled: otherwise nothing was compared.
    assert tally.read > 250
    assert tally.kept_by_h11 > 250


TOKENS = st.sampled_from(
    [*PIECES, b"Host: a", b"POST", b"/mcp", b" HTTP/1.1\r\n", b"Content-Length: 2\r\n", b"{}", b"a"]
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_heads_put_together_from_pieces_are_read_alike(data):
    fields = data.draw(st.lists(st.lists(TOKENS, max_size=5).map(b"".join), max_size=6))
    request = b"POST /mcp HTTP/1.1\r\nHost: a\r\n" + b"".join(fields) + b"\r\nContent-Length: 2\r\n\r\n{}rest"
    fast = read_by_fast_path(request)
    if fast is not None:
        assert fast == read_by_h11(request)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 60))
def test_any_bytes_in_a_head_are_read_alike(noise, place):
    base = SEEDS[1]
    request = base[:place] + noise + base[place:]
    fast = read_by_fast_path(request)
    if fast is not None:
        assert fast == read_by_h11(request)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text("!#$%&'*+-.^_`|~019azAZ", min_size=1, max_size=12),
            st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20),
        ),
        max_size=8,
    )
)
def test_every_valid_field_is_read_alike_by_both_ways(fields):
    """The same RequestHead from both, not only the same bytes: what the rest of the binding sees is one thing."""
    request = post(*(f"x-{name}: {value}" for name, value in fields))
    plain = PlainHeadParser(FIELDS_MAX).parse(request)
    patient = H11HeadParser(FIELDS_MAX).parse(request[: request.index(b"\r\n\r\n") + 4])
    assert isinstance(patient, ReadHead)
    names = [f"x-{name}".lower() for name, _ in fields]
    assert (plain is None) == (len(set(names)) != len(names))
    if plain is not None:
        for attribute in RequestHeadAttributes:
            assert getattr(plain.head, attribute) == getattr(patient.head, attribute)
        assert plain.end == patient.end


RequestHeadAttributes = (
    "method",
    "target",
    "fields",
    "by_name",
    "body_bytes",
    "version_1_0",
    "keep_alive",
    "expects_continue",
)

NOT_PLAIN = {
    "another method": head("Content-Length: 0", first="GET /mcp HTTP/1.1"),
    "HTTP/1.0": head("Content-Length: 0", first="POST /mcp HTTP/1.0"),
    "no length": head(),
    "chunked": head("Transfer-Encoding: chunked"),
    "length and chunked": head("Content-Length: 0", "Transfer-Encoding: chunked"),
    "two lengths": head("Content-Length: 0", "Content-Length: 0"),
    "length that is no number": head("Content-Length: +1"),
    "length of too many digits": head("Content-Length: " + "1" * 19),
    "no host": head("Content-Length: 0", without=["Host"]),
    "two fields of one name": head("Content-Length: 0", "X: 1", "x: 1"),
    "Expect": head("Content-Length: 0", "Expect: 100-continue"),
    "Upgrade": head("Content-Length: 0", "Upgrade: x"),
    "Connection that closes": head("Content-Length: 0", "Connection: close"),
    "Connection that lists": head("Content-Length: 0", "Connection: keep-alive, close"),
    "control character": head("Content-Length: 0", "X: \x01"),
    "fold": head("Content-Length: 0", "X: a", " b"),
    "space before colon": head("Content-Length : 0"),
    "bare LF": head("Content-Length: 0", "X: a\nY: b"),
    "too many fields": head("Content-Length: 0", *(f"X-{n}: 1" for n in range(FIELDS_MAX))),
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_needs_a_second_look_is_left_to_h11(data):
    assert PlainHeadParser(FIELDS_MAX).parse(data) is None


def test_the_usual_request_takes_the_fast_path():
    for request in (post(), post("Connection: Keep-Alive"), post("Mcp-Param-A: =?base64?SGVsbG8=?=")):
        assert PlainHeadParser(FIELDS_MAX).parse(request) is not None


def test_a_line_that_was_seen_before_is_read_as_the_first_time():
    parser = PlainHeadParser(FIELDS_MAX)
    first, second = parser.parse(post("X-A:  b ")), parser.parse(post("X-A:  b "))
    assert first is not None
    assert second is not None
    assert list(first.head.fields) == list(second.head.fields)
    assert first.head.by_name[b"x-a"] == b"b"
