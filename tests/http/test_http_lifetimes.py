"""Time and ends: slow and silent clients, half-closed and lost connections, slow readers, shutting down."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http import ConnectionClosed, HttpLimits, SlowReader
from tests.http.wire import MESSAGE, RESULT, Conversation, chunked, head, notice, post, responses_of, result, server

LIMITS = HttpLimits(
    head_wait_ms=10,
    body_wait_ms=20,
    idle_wait_ms=50,
    write_wait_ms=30,
    linger_ms=5,
    comment_interval_ms=15,
    eof_comment_interval_ms=4,
    unsent_bytes_max=1000,
)
COMMENT_CHUNK = b"3\r\n:\n\n\r\n"


def open_connection(limits: HttpLimits = LIMITS, *, answers: bool = False, **settings) -> Conversation:
    connection = server(limits, **settings).connect(0)
    return Conversation(connection) if answers else Conversation(connection, application=lambda event: ())


def send(done: Conversation, frame) -> None:
    done.connection.send(done.bodies[-1].exchange, frame, done.now_ms)
    done.go_on()


# --- deadlines


def test_an_idle_connection_ends_without_a_word():
    done = open_connection()
    assert done.connection.deadline_ms == 50
    done.tick(49)
    assert done.ends == []
    done.tick(50)
    assert (done.ends, done.sent, done.connection.closed) == ([ConnectionClosed()], b"", True)
    assert done.connection.deadline_ms is None


def test_between_requests_the_time_begins_anew():
    done = open_connection(answers=True)
    done.now_ms = 40
    done.feed(post())
    assert done.connection.deadline_ms == 90
    assert done.connection.idle


@pytest.mark.parametrize("piece", [b"P", b"POST /mcp HTTP/1.1\r\nHost: a\r\n", b"\r\n"])
def test_a_head_that_does_not_end_in_time_is_refused(piece):
    done = open_connection()
    done.now_ms = 5
    done.feed(piece)
    assert done.connection.deadline_ms == 15
    done.now_ms = 14
    done.feed(b"X")  # a byte now and then buys no time
    assert done.connection.deadline_ms == 15
    done.tick(15)
    assert [response.status for response in done.responses] == [408]
    assert done.connection.closing


@pytest.mark.parametrize("request_bytes", [head("Content-Length: 10"), head("Transfer-Encoding: chunked") + b"3\r\nab"])
def test_a_body_that_does_not_end_in_time_is_refused_and_cancelled_where_it_was_announced(request_bytes):
    for announces in (True, False):
        done = open_connection(announce_heads=announces)
        done.feed(request_bytes)
        done.now_ms = 19
        done.feed(b"x" if b"Content-Length" in request_bytes else b"c")
        assert done.connection.deadline_ms == 20
        done.tick(20)
        assert [response.status for response in done.responses] == [408]
        assert done.cancelled == [event.exchange for event in done.heads]
        assert done.connection.closing


def test_a_body_that_is_to_be_dropped_has_its_time_too():
    done = open_connection()
    done.feed(head("Content-Length: 10", first="POST /nowhere HTTP/1.1"))
    done.tick(19)
    assert not done.connection.closed
    done.tick(20)
    assert done.connection.closed
    assert [response.status for response in done.responses] == [404]


def test_lingering_ends_in_time():
    done = open_connection()
    done.feed(b"nonsense\r\n\r\n")
    assert (done.connection.closing, done.connection.closed, done.connection.deadline_ms) == (True, False, 5)
    assert done.connection.should_read
    done.tick(5)
    assert (done.connection.closed, done.ends) == (True, [ConnectionClosed()])
    assert not done.connection.should_read


def test_a_request_that_waits_for_admission_has_no_deadline():
    done = open_connection(announce_heads=True)
    done.admits = False
    done.feed(post())
    assert done.connection.deadline_ms is None
    done.connection.admit(done.heads[0].exchange, 1000)
    done.now_ms = 1000
    done.go_on()
    assert done.payloads == [MESSAGE]


# --- signs of life


@pytest.mark.spec("H3")
def test_a_quiet_stream_gets_a_comment_at_every_interval():
    done = open_connection()
    done.feed(post())
    send(done, notice())
    before = len(done.sent)
    done.tick(14)
    assert len(done.sent) == before
    done.tick(15)
    done.tick(29)
    done.tick(30)
    assert done.sent[before:] == COMMENT_CHUNK * 2
    done.now_ms = 40
    send(done, notice())
    assert done.connection.deadline_ms == 55


@pytest.mark.spec("H3")
def test_a_long_silence_before_the_first_frame_begins_the_stream():
    done = open_connection()
    done.feed(post())
    done.tick(15)
    assert done.sent.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
    assert done.sent.endswith(COMMENT_CHUNK)
    send(done, result())
    assert responses_of(done.sent)[0].body == b":\n\ndata: " + RESULT + b"\n\n"


def test_a_client_that_takes_json_only_waits_in_silence():
    done = open_connection()
    done.feed(post("Accept: application/json", without=["Accept"]))
    assert done.connection.deadline_ms is None
    done.tick(10**6)
    assert done.sent == b""


def test_an_acknowledgement_after_the_stream_has_begun_ends_it():
    done = open_connection()
    done.feed(post())
    done.tick(15)
    done.connection.acknowledge(done.bodies[0].exchange, True, 15)
    done.go_on()
    assert responses_of(done.sent)[0].body == b":\n\n"
    assert done.connection.idle


# --- the client's end


@pytest.mark.spec("D40")
def test_a_client_that_shut_its_side_after_a_whole_request_still_gets_json():
    done = open_connection()
    done.feed(post())
    done.eof()
    assert (done.cancelled, done.sent, done.ends) == ([], b"", [])
    assert not done.connection.should_read
    send(done, result())
    assert done.responses[0].body == RESULT
    assert (done.connection.closed, done.ends) == (True, [ConnectionClosed()])


@pytest.mark.spec("D40")
def test_on_an_open_stream_the_end_of_the_clients_bytes_is_answered_with_a_comment():
    done = open_connection()
    done.feed(post())
    send(done, notice())
    before = len(done.sent)
    done.eof()
    assert done.sent[before:] == COMMENT_CHUNK
    assert done.cancelled == []
    send(done, notice())
    send(done, result())
    assert done.sent.endswith(b"0\r\n\r\n")
    assert done.connection.closed


@pytest.mark.spec("D40", "H8")
def test_after_the_end_of_the_clients_bytes_comments_come_more_often_since_only_their_fate_tells_who_is_there():
    streaming = open_connection()
    streaming.feed(post())
    send(streaming, notice())
    streaming.eof()
    before = len(streaming.sent)
    streaming.tick(3)
    assert len(streaming.sent) == before
    streaming.tick(4)
    streaming.tick(8)
    assert streaming.sent[before:] == COMMENT_CHUNK * 2
    silent = open_connection()
    silent.feed(post(body=b"1") + post(body=b"2"))
    silent.eof()
    assert silent.connection.deadline_ms == 4
    send(silent, result(b"a"))
    assert (silent.payloads, silent.connection.deadline_ms) == ([b"1", b"2"], 4)
    before = len(silent.sent)
    silent.tick(4)
    assert silent.sent[before:].endswith(COMMENT_CHUNK)
    silent.lose()
    assert silent.cancelled == [silent.bodies[1].exchange]


@pytest.mark.spec("D40")
def test_everything_that_was_pipelined_before_the_end_is_answered():
    done = open_connection(answers=True)
    done.feed((post(body=b"1") + post(body=b"2") + post(body=b"3"))[:-1])
    done.feed(b"3")
    done.eof()
    assert done.payloads == [b"1", b"2", b"3"]
    assert len(done.responses) == 3
    late = open_connection()
    late.feed(post(body=b"1") + post(body=b"2"))
    late.eof()
    send(late, result(b"a"))
    assert late.payloads == [b"1", b"2"]
    send(late, result(b"b"))
    assert [response.body for response in late.responses] == [b"a", b"b"]
    assert late.ends == [ConnectionClosed()]


INCOMPLETE = {
    "nothing": b"",
    "half a head": post()[:40],
    "half a body": post()[:-1],
    "half a chunk": head("Transfer-Encoding: chunked") + chunked(MESSAGE)[:-1],
    "a refused body": head("Content-Length: 5", first="POST /x HTTP/1.1") + b"12",
}


@pytest.mark.spec("H8")
@pytest.mark.parametrize("data", INCOMPLETE.values(), ids=INCOMPLETE)
@pytest.mark.parametrize("end", ["eof", "lose"])
def test_what_ends_in_the_middle_is_no_request(data, end):
    done = open_connection(announce_heads=True)
    if data:
        done.feed(data)
    getattr(done, end)()
    assert done.bodies == []
    assert done.cancelled == [event.exchange for event in done.heads]
    assert (done.ends, done.connection.closed) == ([ConnectionClosed()], True)


@pytest.mark.spec("H8")
@pytest.mark.parametrize("begun", [True, False])
def test_a_lost_connection_cancels_the_request_in_progress_and_nothing_is_sent_for_it(begun):
    done = open_connection()
    done.feed(post() + post())
    if begun:
        send(done, notice())
    before = done.sent
    done.lose()
    exchange = done.bodies[0].exchange
    assert done.cancelled == [exchange]
    assert done.ends == [ConnectionClosed()]
    assert len(done.bodies) == 1
    done.connection.send(exchange, notice(), 0)  # these crossed the cancellation
    done.connection.send(exchange, result(), 0)
    done.connection.acknowledge(exchange, True, 0)
    done.connection.cut(exchange, 0)
    done.go_on()
    done.lose()
    assert (done.sent, done.ends) == (before, [ConnectionClosed()])


@pytest.mark.spec("H8")
def test_a_connection_that_is_lost_during_admission_ignores_the_verdict():
    done = open_connection(announce_heads=True)
    done.admits = False
    done.feed(post())
    done.lose()
    assert done.cancelled == [done.heads[0].exchange]
    done.connection.admit(done.heads[0].exchange, 0)
    done.connection.refuse(done.heads[0].exchange, 401, [], b"", 0)
    done.go_on()
    assert (done.bodies, done.sent) == ([], b"")


def test_a_connection_that_is_lost_between_requests_cancels_nothing():
    done = open_connection(answers=True)
    done.feed(post())
    done.lose()
    assert (done.cancelled, done.ends) == ([], [ConnectionClosed()])


def test_data_after_the_end_is_a_local_mistake():
    done = open_connection()
    done.feed(post())
    done.eof()
    with pytest.raises(LocalProtocolError, match="no data can follow"):
        done.connection.receive_data(b"x", 0)


def test_what_comes_after_the_last_answer_is_dropped():
    done = open_connection(answers=True)
    done.feed(post("Connection: close"))
    assert done.connection.closed
    done.feed(post())
    assert len(done.bodies) == 1
    assert done.ends == [ConnectionClosed()]


# --- slow readers


def test_a_peer_that_makes_no_room_in_time_is_given_up_on():
    done = open_connection()
    done.feed(post())
    send(done, notice())
    done.connection.writing_blocked(10)
    done.connection.writing_blocked(25)  # said again, not begun again
    done.connection.send(done.bodies[0].exchange, notice(), 16)
    unsent = done.connection.bytes_pending
    assert done.connection.deadline_ms == 31
    before = done.sent
    events = [*done.connection.tick(39), *done.connection.tick(40)]
    assert events[0] == SlowReader(unsent)
    assert events[-1] == ConnectionClosed()
    assert len(events) == 3
    assert done.connection.closed
    assert done.connection.data_to_send() == b""
    assert done.sent == before


def test_a_peer_that_takes_something_has_its_time_to_take_the_rest_anew():
    done = open_connection(answers=True)
    done.connection.writing_progressed(5)  # nothing waits for it: there is no time to give
    assert done.connection.deadline_ms == 50
    done.feed(post())
    done.connection.writing_blocked(10)
    for now_ms in (35, 60, 85):
        done.connection.writing_progressed(now_ms)
        done.tick(now_ms + 4)
    assert not any(isinstance(end, SlowReader) for end in done.ends)
    done.tick(114)
    assert not any(isinstance(end, SlowReader) for end in done.ends)
    done.tick(115)
    assert [type(end) for end in done.ends if isinstance(end, SlowReader)] == [SlowReader]


def test_what_was_written_before_an_end_still_has_its_time_to_get_out_and_no_more():
    done = open_connection(answers=True)
    done.feed(post())
    done.connection.writing_blocked(45)
    done.tick(50)  # the connection was idle for long enough
    assert done.connection.closed
    assert done.connection.deadline_ms == 75
    done.tick(75)
    assert [type(end) for end in done.ends] == [ConnectionClosed, SlowReader]
    assert done.connection.deadline_ms is None


def test_a_peer_that_makes_room_again_is_kept_and_gets_no_comment_meanwhile():
    done = open_connection()
    done.feed(post())
    send(done, notice())
    before = len(done.sent)
    done.connection.writing_blocked(10)
    done.tick(15)
    assert done.sent[before:] == b""
    done.connection.writing_resumed()
    done.tick(40)
    assert done.sent[before:] == COMMENT_CHUNK
    assert done.ends == []


def test_no_more_than_a_bound_waits_for_a_slow_peer():
    done = open_connection()
    done.feed(post())
    send(done, notice())
    done.connection.writing_blocked(0)
    done.connection.send(done.bodies[0].exchange, notice(b"x" * 400), 0)
    framing = done.connection.bytes_pending - 400
    done.connection.send(done.bodies[0].exchange, notice(b"x" * (600 - 2 * framing)), 0)
    assert done.connection.bytes_pending == 1000
    assert done.connection.proceed(0) == []
    done.connection.send(done.bodies[0].exchange, notice(b"x"), 0)
    events = done.connection.proceed(0)
    assert [type(event).__name__ for event in events] == ["SlowReader", "ExchangeCancelled", "ConnectionClosed"]
    assert done.connection.bytes_pending == 0


# --- shutting down


def test_on_shutdown_an_idle_connection_ends_and_a_busy_one_after_its_answer():
    idle = open_connection()
    assert list(idle.connection.shut_down()) == [ConnectionClosed()]
    assert idle.connection.closed
    busy = open_connection()
    busy.feed(post() + post())
    assert list(busy.connection.shut_down()) == []
    send(busy, result())
    assert [response.fields.get("connection") for response in busy.responses] == ["close"]
    assert len(busy.bodies) == 1
    assert busy.connection.closing


def test_on_shutdown_a_request_that_is_on_its_way_is_still_served():
    done = open_connection(answers=True)
    done.feed(post()[:-1])
    done.connection.shut_down()
    done.feed(post()[-1:])
    assert done.payloads == [MESSAGE]
    assert done.responses[0].fields["connection"] == "close"


# --- streams that are broken off


@pytest.mark.spec("D22")
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_stream_that_is_cut_ends_without_its_last_chunk_and_the_connection_with_it(version):
    done = open_connection()
    done.feed(post(first=f"POST /mcp HTTP/{version}") + post())
    send(done, notice())
    before = len(done.sent)
    exchange = done.bodies[0].exchange
    assert done.connection.open_stream == exchange
    done.connection.cut(exchange, 0)
    done.go_on()
    assert done.sent[before:] == b""
    assert (done.connection.closed, done.connection.open_stream) == (True, 0)
    assert (done.cancelled, done.ends, len(done.bodies)) == ([], [ConnectionClosed()], 1)
    assert done.connection.deadline_ms is None


@pytest.mark.spec("D22")
def test_what_was_sent_before_the_cut_goes_out_but_not_to_a_peer_that_takes_nothing():
    for blocked in (False, True):
        done = open_connection()
        done.feed(post())
        send(done, notice())
        if blocked:
            done.connection.writing_blocked(0)
        done.connection.send(done.bodies[0].exchange, notice(), 0)
        pending = done.connection.bytes_pending
        done.connection.cut(done.bodies[0].exchange, 0)
        assert done.connection.bytes_pending == (0 if blocked else pending)
        assert done.connection.closed
        assert list(done.connection.tick(10**6)) == [ConnectionClosed()]


def test_a_request_that_is_cut_before_its_answer_began_gets_none():
    done = open_connection()
    done.feed(post())
    done.connection.cut(done.bodies[0].exchange, 0)
    done.go_on()
    assert (done.sent, done.connection.closed) == (b"", True)


def test_only_a_stream_that_goes_on_counts_as_open():
    done = open_connection()
    assert done.connection.open_stream == 0
    done.feed(post())
    assert done.connection.open_stream == 0
    send(done, notice())
    assert done.connection.open_stream == done.bodies[0].exchange
    send(done, result())
    assert done.connection.open_stream == 0
    done.feed(post())
    send(done, result())
    assert done.connection.open_stream == 0
