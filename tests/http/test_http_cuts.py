"""Conversations at random, well-formed and not, cut anywhere: one verdict for the same bytes, never an exception."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_http import ConnectionClosed, HttpLimits
from tests.http.fuzz import PIECES, mutate
from tests.http.wire import OWN, chunked, head, notice, post, responses_of, result, server, talk

LIMITS = HttpLimits(
    head_bytes_max=600, head_fields_max=12, body_bytes_max=120, chunk_framing_bytes_max=150, drain_bytes_max=80
)

REQUESTS = (
    post(),
    post("Connection: close"),
    post("X: 1", "X: 2"),
    post(body=b"x" * 120),
    post(body=b"x" * 121),
    post(first="POST /mcp HTTP/1.0"),
    post(first="POST /nowhere HTTP/1.1", body=b"x" * 80),
    post(first="POST /nowhere HTTP/1.1", body=b"x" * 81),
    post("Origin: null"),
    post("Accept: application/json", without=["Accept"]),
    post("Accept: text/event-stream", without=["Accept"]),
    post("Accept: text/html", without=["Accept"]),
    head(first="GET /mcp HTTP/1.1"),
    head(first="OPTIONS * HTTP/1.1"),
    head("Transfer-Encoding: chunked") + chunked(b"one", b"two"),
    head("Transfer-Encoding: chunked") + chunked(b"a" * 70, b"b" * 70),
    head("Transfer-Encoding: chunked") + chunked(b"a", extension=b";" + b"e" * 100, trailer=b"T: t\r\n"),
    head("Transfer-Encoding: chunked") + chunked(b"a", extension=b";" + b"e" * 200),
    head("X: " + "p" * 300, "Content-Length: 0"),
    head("X: " + "p" * 500, "Content-Length: 0"),
    head(f"Host: {OWN}", "Content-Length: 0"),
    b"\r\n",
    b"GET /\r\n\r\n",
)


def application(event):
    """Answers in every form, chosen by the message, so that the choice does not depend on cuts."""
    if len(event.payload) % 3 == 0:
        return (notice(), notice(), result(b"{}"))
    return (result(b'{"n":%d}' % len(event.payload)),)


conversations = st.tuples(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=4), st.integers(0, 2**32))


@settings(max_examples=400, deadline=None)
@given(conversations, st.lists(st.integers(1, 1500), max_size=8), st.integers(0, 2), st.booleans())
def test_one_verdict_whatever_way_a_conversation_is_cut(conversation, places, mutations, eof):
    requests, seed = conversation
    source = random.Random(seed)
    data = b"".join(requests)
    for _ in range(mutations):
        start = source.randrange(len(data))
        data = data[:start] + mutate(data[start:], source)
    if b"100-" in data or not data:
        return  # whether 100 Continue is sent depends on what has come, and so it should
    cuts = sorted({place for place in places if place < len(data)})
    served = server(LIMITS)
    settings_of_talk = {"to": served, "eof": eof, "application": application}
    whole, cut = (talk(data, cuts=where, **settings_of_talk) for where in ((), cuts))
    assert cut.outcome == whole.outcome
    # When a refused peer has been listened to for long enough is a matter of how much still came.
    assert max(len(whole.ends), len(cut.ends)) <= 1
    if eof:
        assert whole.ends == cut.ends == [ConnectionClosed()]
    methods = ["HEAD" if b"HEAD " in data else "POST"] * 100
    found = responses_of(whole.sent, methods)
    assert len(found) >= len(whole.bodies)
    assert all(response.status in EXPECTED for response in found)
    assert len(whole.connection._incoming._pending) <= len(data)


EXPECTED = {200, 400, 403, 404, 405, 406, 408, 413, 415, 417, 431}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=3), st.lists(st.sampled_from(PIECES), max_size=3))
def test_byte_by_byte_is_no_other_conversation(requests, pieces):
    data = b"".join(requests) + b"".join(pieces)
    if b"100-" in data:
        return
    whole = talk(data, to=server(LIMITS), application=application)
    slow = talk(data, cuts=range(1, len(data)), to=server(LIMITS), application=application)
    assert slow.outcome == whole.outcome
