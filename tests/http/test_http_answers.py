"""Answers: one JSON body or an event stream, the status by the error's code, refusals, acknowledgements."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    LocalProtocolError,
)
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_http import EventStreamDecoder, HttpLimits
from tests.http.wire import (
    MESSAGE,
    RESULT,
    Conversation,
    head,
    notice,
    post,
    responses_of,
    result,
    server,
    talk,
)


def silent(event):
    return ()


def waiting(data: bytes | None = None, **settings) -> Conversation:
    """A connection with a request that waits for its answer."""
    done = Conversation(server(**settings).connect(0), application=silent)
    done.feed(post() if data is None else data)
    assert done.payloads == [MESSAGE]
    return done


def send(done: Conversation, *frames: Frame) -> bytes:
    before = len(done.sent)
    for frame in frames:
        done.connection.send(done.bodies[-1].exchange, frame, done.now_ms)
    done.go_on()
    return done.sent[before:]


def messages_in(body: bytes) -> list[bytes]:
    return EventStreamDecoder(10_000).receive_data(body)


STATUSES = {
    None: 200,
    METHOD_NOT_FOUND: 404,
    INTERNAL_ERROR: 500,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_REQUIRED_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
    -32000: 400,
    1: 400,
}


@pytest.mark.spec("H3", "H7", "D26")
@pytest.mark.parametrize(("code", "status"), STATUSES.items())
def test_a_first_and_last_frame_is_one_json_body_with_the_status_of_its_code(code, status):
    done = waiting()
    send(done, Frame(StreamId(1), (b'{"a":', b"1}"), True, code))
    (response,) = done.responses
    assert response.status == status
    assert response.body == b'{"a":1}'
    assert response.fields == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "content-length": "7",
    }


@pytest.mark.spec("H3")
def test_frames_before_the_last_make_an_event_stream_with_the_response_last():
    done = waiting()
    first = send(done, notice())
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\n\n\r\n")  # the whole event, at once
    send(done, notice(b"2"), result())
    (response,) = done.responses
    assert response.fields == {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        "transfer-encoding": "chunked",
    }
    assert messages_in(response.body) == [notice().payload[0], b"2", RESULT]
    lines = response.body.split(b"\n")
    assert all(line.startswith(b"data: ") or not line for line in lines)
    assert done.sent.endswith(b"0\r\n\r\n")
    done.feed(post())
    assert len(done.bodies) == 2


@pytest.mark.spec("D26")
def test_an_error_on_a_stream_that_has_begun_stays_at_200():
    done = waiting()
    send(done, notice(), Frame(StreamId(1), (b"{}",), True, INTERNAL_ERROR))
    (response,) = done.responses
    assert response.status == 200
    assert messages_in(response.body) == [notice().payload[0], b"{}"]


def test_a_client_of_http_1_0_gets_a_stream_without_chunks_that_ends_with_the_connection():
    done = waiting(post(first="POST /mcp HTTP/1.0"))
    send(done, notice(), result())
    start, _, body = done.sent.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in start
    assert b"chunked" not in start
    assert messages_in(body) == [notice().payload[0], RESULT]
    assert done.connection.closed


def test_frames_before_the_last_are_left_out_for_a_client_that_takes_json_only():
    done = waiting(post("Accept: application/json", without=["Accept"]))
    assert send(done, notice()) == b""
    send(done, result())
    (response,) = done.responses
    assert (response.fields["content-type"], response.body) == ("application/json", RESULT)


def test_a_result_goes_as_an_event_to_a_client_that_takes_no_json_and_an_error_keeps_its_status():
    streams_only = post("Accept: text/event-stream, application/json;q=0", without=["Accept"])
    done = waiting(streams_only)
    send(done, result())
    assert messages_in(done.responses[0].body) == [RESULT]
    failed = waiting(streams_only)
    send(failed, Frame(StreamId(1), (b"{}",), True, METHOD_NOT_FOUND))
    assert failed.responses[0].status == 404


@pytest.mark.spec("H4")
def test_a_notification_that_was_taken_in_is_answered_202_without_a_body():
    done = waiting()
    done.connection.acknowledge(done.bodies[0].exchange, True, 0)
    done.go_on()
    (response,) = done.responses
    assert (response.status, response.body, response.fields) == (202, b"", {"content-length": "0"})
    done.feed(post())
    assert len(done.bodies) == 2


@pytest.mark.spec("H4")
def test_a_notification_that_was_not_taken_in_is_answered_with_an_error_without_an_id():
    done = waiting()
    done.connection.acknowledge(done.bodies[0].exchange, False, 0)
    done.go_on()
    (response,) = done.responses
    assert response.status == 400
    assert "id" not in response.error


@pytest.mark.spec("H11")
def test_a_challenge_is_sent_before_the_body_is_read_and_the_connection_goes_on():
    done = Conversation(server(announce_heads=True).connect(0), admits=False)
    done.feed(post("Authorization: Bearer stale"))
    assert done.bodies == []
    announced = done.heads[0]
    assert announced.head.get("AUTHORIZATION") == "Bearer stale"
    assert announced.head.get("X-Absent") is None
    assert (announced.head.method, announced.head.path) == ("POST", "/mcp")
    challenge = 'Bearer error="invalid_token", resource_metadata="https://a/b"'
    fields = [("WWW-Authenticate", challenge), ("Content-Type", "application/json")]
    done.connection.refuse(announced.exchange, 401, fields, b"{}", 0)
    done.admits = True
    done.go_on()
    done.feed(post())
    assert done.payloads == [MESSAGE]
    refused, served = done.responses
    assert (refused.status, refused.fields["www-authenticate"], refused.body) == (401, challenge, b"{}")
    assert served.status == 200


BAD_FIELDS = [
    ("X-A", "line\r\nX-B: injected"),
    ("X-A", "\x00"),
    ("X-A", " blank"),
    ("X-A", "é"),
    ("X A", "b"),
    ("", "b"),
    ("Content-Length", "5"),
    ("Transfer-Encoding", "chunked"),
    ("connection", "close"),
]


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS)
def test_a_response_field_that_cannot_be_sent_is_a_local_mistake_and_sends_nothing(name, value):
    done = Conversation(server(announce_heads=True).connect(0), admits=False)
    done.feed(post())
    with pytest.raises(LocalProtocolError):
        done.connection.refuse(done.heads[0].exchange, 401, [("X-Good", "1"), (name, value)], b"", 0)
    assert done.connection.data_to_send() == b""
    done.connection.refuse(done.heads[0].exchange, 403, [("X-Good", "1")], b"", 0)
    assert done.connection.data_to_send().startswith(b"HTTP/1.1 403 Forbidden\r\nX-Good: 1\r\n")


@pytest.mark.parametrize("status", [100, 101, 199, 204, 304, 600, "200", True])
def test_a_status_that_no_body_may_follow_is_a_local_mistake(status):
    done = Conversation(server(announce_heads=True).connect(0), admits=False)
    done.feed(post())
    with pytest.raises(LocalProtocolError):
        done.connection.refuse(done.heads[0].exchange, status, [], b"", 0)


@pytest.mark.parametrize("payload", [(b"a\nb",), (b"a", b"\r"), (b"",), ()])
@pytest.mark.parametrize("begun", [False, True])
def test_a_message_with_a_line_end_or_without_a_byte_is_a_local_mistake_and_sends_nothing(payload, begun):
    done = waiting()
    if begun:
        send(done, notice())
    with pytest.raises(LocalProtocolError):
        done.connection.send(done.bodies[0].exchange, Frame(StreamId(1), payload, True), 0)
    assert done.connection.data_to_send() == b""
    send(done, result())
    assert RESULT in done.sent


def test_answering_what_does_not_wait_is_a_local_mistake():
    done = waiting()
    exchange = done.bodies[0].exchange
    for wrong in (0, exchange - 1, exchange + 1):
        with pytest.raises(LocalProtocolError, match="is not waiting"):
            done.connection.send(wrong, result(), 0)
    with pytest.raises(LocalProtocolError, match="is not waiting"):
        done.connection.admit(exchange, 0)
    send(done, result())
    for again in (
        lambda: done.connection.send(exchange, result(), 0),
        lambda: done.connection.acknowledge(exchange, True, 0),
        lambda: done.connection.refuse(exchange, 401, [], b"", 0),
        lambda: done.connection.cut(exchange, 0),
    ):
        with pytest.raises(LocalProtocolError, match="is not waiting"):
            again()
    assert done.connection.data_to_send() == b""


@pytest.mark.parametrize("begun", [True, False])
def test_a_stream_that_is_cut_has_no_end_and_takes_the_connection_along(begun):
    done = waiting()
    if begun:
        send(done, notice())
    done.connection.cut(done.bodies[0].exchange, 0)
    done.go_on()
    assert done.connection.closed
    assert len(done.ends) == 1
    assert not done.sent.endswith(b"0\r\n\r\n")
    assert done.cancelled == []


@pytest.mark.spec("D41")
def test_each_of_many_connections_with_the_same_id_gets_its_own_answer():
    served = server()
    talks = [Conversation(served.connect(0), application=silent) for _ in range(10)]
    for number, done in enumerate(talks):
        done.feed(post(body=b'{"id":1,"n":%d}' % number))
    exchanges = [done.bodies[0].exchange for done in talks]
    assert len(set(exchanges)) == 10
    for number in (3, 1, 9, 0, 2, 8, 4, 7, 5, 6):
        send(talks[number], result(b'{"id":1,"answer":%d}' % number))
    for number, done in enumerate(talks):
        assert [response.body for response in done.responses] == [b'{"id":1,"answer":%d}' % number]


@pytest.mark.parametrize("line", ["Connection: close", "Connection: keep-alive, Close"])
def test_a_client_that_wants_one_answer_gets_one(line):
    done = talk(post(line) + post())
    (response,) = done.responses
    assert (response.status, response.fields["connection"]) == (200, "close")
    assert done.connection.closing


def test_the_last_request_of_a_connection_is_told_so():
    limits = HttpLimits(requests_per_connection_max=3)
    done = talk(post() * 4, to=server(limits))
    assert [response.fields.get("connection") for response in done.responses] == [None, None, "close"]
    assert done.connection.closing
    streamed = Conversation(server(HttpLimits(requests_per_connection_max=1)).connect(0), application=silent)
    streamed.feed(post())
    send(streamed, notice(), result())
    assert streamed.responses[0].fields["connection"] == "close"
    assert streamed.connection.closed


def test_pending_bytes_are_counted_until_they_are_taken():
    done = waiting()
    done.connection.send(done.bodies[0].exchange, notice(), 0)
    pending = done.connection.bytes_pending
    assert pending == len(done.connection.data_to_send()) > 0
    assert done.connection.bytes_pending == 0
    assert done.connection.data_to_send() == b""


def test_a_head_request_for_nothing_has_no_body():
    (response,) = responses_of(talk(head(first="HEAD /nothing HTTP/1.1")).sent, ["HEAD"])
    assert (response.status, response.body) == (404, b"")
