"""Bodies: counted as they arrive, chunked or not; what is done with those of refused requests; pipelining."""

from __future__ import annotations

import tracemalloc

import pytest

from mcp_tasks_http import HttpLimits
from tests.http.wire import (
    MESSAGE,
    Conversation,
    chunked,
    head,
    post,
    result,
    server,
    talk,
    talk_in_every_way,
    ways_to_cut,
)

CHUNKED = "Transfer-Encoding: chunked"
SMALL = HttpLimits(body_bytes_max=100, chunk_framing_bytes_max=400, drain_bytes_max=50)


def small():
    return server(SMALL)


def test_a_body_in_chunks_of_one_byte_with_extensions_and_a_trailer_is_served():
    one_byte_each = [MESSAGE[n : n + 1] for n in range(len(MESSAGE))]
    body = chunked(*one_byte_each, extension=b';name="a b"', trailer=b"Checksum: 1\r\nMore: 2\r\n")
    done = talk_in_every_way(head(CHUNKED) + body + post(body=b"{}"))
    assert done.payloads == [MESSAGE, b"{}"]


@pytest.mark.parametrize("size", [99, 100])
def test_a_body_up_to_the_limit_is_served(size):
    payload = b"x" * size
    assert talk_in_every_way(post(body=payload), to=small).payloads == [payload]
    assert talk_in_every_way(head(CHUNKED) + chunked(payload[:50], payload[50:]), to=small).payloads == [payload]


def test_a_declared_length_over_the_limit_is_refused_before_a_byte_of_it_came():
    done = talk(head("Content-Length: 101"), to=small())
    assert [response.status for response in done.responses] == [413]
    assert done.connection.closing
    assert "100 bytes" in done.responses[0].error["message"]


def test_real_bytes_count_whatever_their_chunks_claim():
    for chunks in ([b"x" * 101], [b"x" * 60, b"x" * 41], [b"x"] * 60 + [b"y" * 60]):
        done = talk_in_every_way(head(CHUNKED) + chunked(*chunks), to=small)
        assert [response.status for response in done.responses] == [413]
        assert done.bodies == []
        assert done.connection.closing


def test_a_body_without_end_is_refused_as_soon_as_it_passes_the_limit():
    connection = small().connect(0)
    connection.receive_data(head(CHUNKED) + b"fffffff\r\n" + b"x" * 100, 0)
    assert not connection.closing
    connection.receive_data(b"x", 0)
    assert connection.data_to_send().startswith(b"HTTP/1.1 413 ")
    assert connection.closing


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (head(f"Content-Length: {2**16}"), b"x"),
        (head(f"Content-Length: {2**16}"), b"x" * 16_000),
        (head(CHUNKED) + b"40000000\r\n", b"x" * 1_000),
        (head(CHUNKED) + b"40000000\r\n", b"x" * 16_000),
        (head(CHUNKED), b"1\r\nx\r\n"),
        (head("Content-Length: 10") + b"x" * 10, b"x" * 16_000),
    ],
    ids=["a byte at a time", "all at once", "one endless chunk", "in large reads", "chunks of a byte", "behind it"],
)
def test_a_body_takes_no_more_memory_than_its_limit_whatever_it_claims(start, piece):
    limit = 2**16
    limits = HttpLimits(body_bytes_max=limit, chunk_framing_bytes_max=2**30, read_ahead_bytes_max=limit // 4)
    connection = server(limits).connect(0)
    connection.receive_data(start, 0)
    tracemalloc.start()
    try:
        for _ in range(4 * limit // len(piece) if len(piece) > 1 else limit - 1):
            if not connection.should_read:
                break
            connection.receive_data(piece, 0)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.5 * limit
    assert peak < 2.5 * limit


TOO_MUCH_FRAMING = {
    "one long extension": chunked(b"x" * 10, extension=b";" + b"e" * 500),
    "an extension without end": b"5;" + b"e" * 500,
    "a long line that is no size": b"q" * 500 + b"\r\n",
    "a long trailer": chunked(b"x" * 10, trailer=b"T: " + b"t" * 500 + b"\r\n"),
    "many small chunks": chunked(*[b"x"] * 90),
    "a long extension, then too many bytes": chunked(b"x" * 200, extension=b";" + b"e" * 500),
}


@pytest.mark.parametrize("body", TOO_MUCH_FRAMING.values(), ids=TOO_MUCH_FRAMING)
def test_what_chunks_add_to_a_body_is_bounded_whatever_way_it_is_cut(body):
    done = talk_in_every_way(head(CHUNKED) + body, to=small)
    assert [response.status for response in done.responses] == [400]
    assert "400 bytes" in done.responses[0].error["message"]
    assert done.bodies == []


@pytest.mark.parametrize(("more", "served"), [(0, True), (1, False)])
def test_what_chunks_add_is_allowed_up_to_its_bound_exactly(more, served):
    def body(extension: int) -> bytes:
        return chunked(b"xy", b"z", trailer=b"T: " + b"e" * extension + b"\r\n")

    plain = len(body(0)) - len(b"xyz")
    done = talk_in_every_way(head(CHUNKED) + body(400 - plain + more), to=small)
    assert done.payloads == ([b"xyz"] if served else [])
    assert [response.status for response in done.responses] == [200 if served else 400]


NO_CHUNKS = {
    "no size": b"\r\n",
    "size that is no number": b"zz\r\nabc\r\n0\r\n\r\n",
    "negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "data longer than its size": b"3\r\nhello\r\n0\r\n\r\n",
    "bare LF at the very end": b"5\r\nhello\r\n0\r\n\n",
    "bare LF in a size line": b"5\nhello\r\n0\r\n\r\n",
    "trailer that ends with LF": b"5\r\nhello\r\n0\r\nT: x\n\r\n",
    "trailer without a colon": b"5\r\nhello\r\n0\r\nT\r\n\r\n",
}


@pytest.mark.parametrize("body", NO_CHUNKS.values(), ids=NO_CHUNKS)
def test_malformed_chunks_are_refused_and_nothing_behind_them_runs(body):
    done = talk_in_every_way(head(CHUNKED) + body + post(body=b'{"hidden":1}') * 9)
    assert done.bodies == []
    assert [response.status for response in done.responses] == [400]
    assert done.connection.closing


def test_bytes_behind_a_known_length_are_the_next_request():
    done = talk_in_every_way(post(body=b"{}") + post(body=b'{"n":2}') + post(body=b""))
    assert done.payloads == [b"{}", b'{"n":2}', b""]
    assert [response.status for response in done.responses] == [200, 200, 200]


def test_bytes_behind_a_known_length_that_are_no_request_are_refused():
    done = talk_in_every_way(post(body=b"{}") + b"rubbish without meaning\r\n\r\n")
    assert done.payloads == [b"{}"]
    assert [response.status for response in done.responses] == [200, 400]
    assert done.connection.closing


def test_the_short_body_of_a_refused_request_is_dropped_and_the_connection_kept():
    refused = post(body=b"x" * 50, first="POST /nowhere HTTP/1.1")
    done = talk_in_every_way(refused + post(), to=small)
    assert [response.status for response in done.responses] == [404, 200]
    assert done.payloads == [MESSAGE]
    assert not done.connection.closing


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(body=b"x" * 51, first="POST /nowhere HTTP/1.1"),
        head(CHUNKED, first="POST /nowhere HTTP/1.1") + chunked(b"x"),
        post("Expect: 100-continue", body=b"x", first="POST /nowhere HTTP/1.1"),
        post("Connection: close", body=b"x", first="POST /nowhere HTTP/1.1"),
    ],
    ids=["long", "of unknown length", "that may never come", "of the last request"],
)
def test_where_a_refused_body_cannot_be_dropped_the_connection_ends(request_bytes):
    done = talk_in_every_way(request_bytes + post(), to=small)
    (response,) = done.responses
    assert (response.status, response.fields["connection"]) == (404, "close")
    assert done.bodies == []
    assert done.connection.closing


def test_what_still_comes_after_a_refusal_is_read_within_a_bound():
    done = talk(head("Content-Length: 101"), to=small())
    assert (done.connection.closing, done.connection.closed) == (True, False)
    done.feed(b"x" * 50)
    assert not done.connection.closed
    done.feed(b"x")
    assert done.connection.closed
    assert len(done.ends) == 1


def test_one_connection_serves_many_requests_and_refusals_in_turn():
    bad = [
        post(first="POST /nowhere HTTP/1.1"),
        head(first="GET /mcp HTTP/1.1"),
        post(first="GET /mcp HTTP/1.1"),
        post("Origin: null"),
        post("Accept: text/html", without=["Accept"]),
        post(without=["Content-Type"]),
    ]
    data, expected = b"", []
    for cycle in range(100):
        data += post(body=b'{"cycle":%d}' % cycle) + bad[cycle % len(bad)]
        expected += [200, (404, 405, 405, 403, 406, 415)[cycle % len(bad)]]
    for cuts in ((), range(1, len(data), 7), range(1, len(data), 1000)):
        done = talk(data, cuts=cuts)
        assert [response.status for response in done.responses] == expected
        assert done.payloads == [b'{"cycle":%d}' % cycle for cycle in range(100)]


def test_a_client_that_waits_for_continue_gets_it_once_its_head_is_admitted():
    done = Conversation(server(announce_heads=True).connect(0), admits=False)
    done.feed(head("Expect: 100-Continue", "Content-Length: 2"))
    assert done.sent == b""
    done.connection.admit(done.heads[0].exchange, 0)
    done.go_on()
    assert done.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    done.feed(b"{}")
    assert done.payloads == [b"{}"]
    assert done.responses[0].status == 200


def test_continue_is_not_sent_to_who_does_not_wait():
    expectant = post("Expect: 100-continue")
    assert b"100" not in talk(expectant).sent[:20]
    old = head("Expect: 100-continue", "Content-Length: 2", first="POST /mcp HTTP/1.0")
    assert talk(old).sent == b""
    assert talk(head("Expect: 100-continue", "Content-Length: 0")).responses[0].status == 200


def test_other_expectations_cannot_be_met():
    done = talk_in_every_way(post("Expect: the-unexpected"))
    assert [response.status for response in done.responses] == [417]
    assert done.bodies == []


def test_pipelined_requests_wait_their_turn_and_are_answered_in_order():
    done = Conversation(server().connect(0), application=lambda event: ())
    data = post(body=b'{"n":1}') + post(body=b'{"n":2}')
    done.feed(data)
    assert done.payloads == [b'{"n":1}']
    done.connection.send(done.bodies[0].exchange, result(b"1"), 0)
    done.go_on()
    assert done.payloads == [b'{"n":1}', b'{"n":2}']
    done.connection.send(done.bodies[1].exchange, result(b"2"), 0)
    done.go_on()
    assert [response.body for response in done.responses] == [b"1", b"2"]


def test_what_waits_behind_a_request_in_progress_is_bounded():
    limits = HttpLimits(read_ahead_bytes_max=1000)
    done = Conversation(server(limits).connect(0), application=lambda event: ())
    done.feed(post())
    assert done.connection.should_read
    done.feed(b"x" * 1000)
    assert done.connection.should_read
    done.feed(b"x")
    assert not done.connection.should_read


def test_a_long_body_in_small_pieces_is_put_together_without_repetition():
    payload = bytes(range(32, 127)) * 500
    for cuts in ways_to_cut(post(body=payload), count=3):
        assert talk(post(body=payload), cuts=cuts).payloads == [payload]
