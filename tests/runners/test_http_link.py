"""One HTTP connection between a wire and an engine, both of them fakes: what is told of readers that take nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import CutStream, Frame
from mcp_tasks_core.server.events import MessageReceived, ServerEvent, StreamBlocked, StreamClosed, StreamUnblocked
from mcp_tasks_http import HttpLimits, HttpServer, HttpServerConfig, NameRules
from mcp_tasks_trio.http_clock import DeadlineClock
from mcp_tasks_trio.http_link import HttpLink, monotonic_ms
from runners.http_peer import post

NOTICE, RESULT = b'{"jsonrpc":"2.0","method":"x"}', b'{"jsonrpc":"2.0","id":1,"result":{}}'
LISTEN = post("subscriptions/listen", {"notifications": {}})


class FakeEngine:
    """Notes what it is told, and ends each turn by flushing the links that were given frames."""

    limits = Limits()

    def __init__(self) -> None:
        self.told: list[ServerEvent] = []
        self.sinks: dict[StreamId, HttpLink] = {}
        self.answers: list[tuple[bytes, bool]] = [(NOTICE, False)]  # to each message
        self._turning = False

    def open_stream(self, sink: HttpLink, stream_id: StreamId) -> StreamId:
        self.sinks[stream_id] = sink
        return stream_id

    def end_stream(self, stream_id: StreamId) -> None:
        self.sinks.pop(stream_id, None)

    def feed(self, event: ServerEvent) -> None:
        self.feed_all((event,))

    def feed_all(self, events: Iterable[ServerEvent]) -> None:
        if self._turning:
            self.told.extend(events)
            return
        self._turning = True
        for event in events:
            self.told.append(event)
            if type(event) is MessageReceived:
                self.send(event.stream_id, *self.answers)
        self._turning = False

    def send(self, stream_id: StreamId, *frames: tuple[bytes, bool]) -> None:
        """One turn that sends these."""
        link = self.sinks[stream_id]
        for payload, final in frames:
            link.send(Frame(stream_id, (payload,), final))
        link.flush()

    def cut(self, stream_id: StreamId) -> None:
        link = self.sinks.pop(stream_id)
        link.cut(CutStream(stream_id, "because"))
        link.flush()

    def since(self, count: int) -> Sequence[ServerEvent]:
        return self.told[count:]


class FakeWire:
    """Takes bytes, as many as there is room for."""

    def __init__(self) -> None:
        self.link: HttpLink
        self.room = 10**9
        self.written = b""
        self.taken = 0
        self.ends: list[str] = []

    @property
    def unsent_bytes(self) -> int:
        return len(self.written) - self.taken

    def write(self, data: bytes) -> None:
        assert not self.ends
        self.written += data
        if len(self.written) > self.room:
            self.link.output_stopped()

    def make_room(self, count: int = 10**9) -> None:
        self.room = len(self.written) + count
        self.link.output_resumed()

    def take_no_more(self) -> None:
        self.room = -1

    def end_writing(self) -> None:
        self.ends.append("end_writing")

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FakeListener:
    def __init__(self, limits: HttpLimits) -> None:
        names = NameRules.for_server("127.0.0.1", 80)
        self.engine: Any = FakeEngine()
        self.http = HttpServer(HttpServerConfig(names=names, limits=limits))
        self.clock = DeadlineClock(monotonic_ms)
        self.owner = LOCAL_OWNER
        self.resolver = None

    def start_soon(self, function: Any, *args: object) -> None:
        raise AssertionError("nothing of this takes time")

    def forget(self, link: HttpLink) -> None: ...


def connected(limits: HttpLimits | None = None) -> tuple[HttpLink, FakeWire, FakeEngine]:
    listener, wire = FakeListener(limits or HttpLimits()), FakeWire()
    wire.link = link = HttpLink(listener, wire)
    return link, wire, listener.engine


def listening(limits: HttpLimits | None = None) -> tuple[HttpLink, FakeWire, FakeEngine, StreamId]:
    link, wire, engine = connected(limits)
    link.receive(LISTEN)
    (event,) = engine.told
    assert isinstance(event, MessageReceived)
    return link, wire, engine, event.stream_id


def test_a_message_has_a_stream_of_its_own() -> None:
    _, _, engine, _ = listening()
    (event,) = engine.told
    assert isinstance(event, MessageReceived)
    assert event.own_stream


@pytest.mark.spec("S11")
def test_the_core_is_told_once_that_a_stream_is_blocked_and_once_that_it_no_longer_is() -> None:
    _, wire, engine, stream = listening()
    engine.send(stream, (NOTICE, False))
    assert engine.since(1) == []
    wire.take_no_more()
    engine.send(stream, (NOTICE, False))
    assert engine.since(1) == [StreamBlocked(stream)]
    wire.link.output_stopped()
    assert engine.since(1) == [StreamBlocked(stream)]
    wire.make_room()
    assert engine.since(2) == [StreamUnblocked(stream)]
    wire.link.output_resumed()
    assert engine.since(3) == []


@pytest.mark.spec("S11")
def test_what_is_added_for_a_blocked_reader_is_told_again_and_kept_and_goes_out_before_the_stream_is_free() -> None:
    _, wire, engine, stream = listening()
    wire.take_no_more()
    engine.send(stream, (b'{"n":1}', False))
    count = len(wire.written)
    engine.send(stream, (b'{"n":2}', False), (b'{"n":3}', False))
    wire.link.flush()  # of a turn that sent nothing here
    assert engine.since(1) == [StreamBlocked(stream)] * 2
    assert len(wire.written) == count
    wire.make_room(5)  # not enough for what waits
    assert wire.written.count(b'"n":') == 3
    assert engine.since(3) == [StreamBlocked(stream)]
    wire.make_room()
    assert engine.since(4) == [StreamUnblocked(stream)]


def test_nothing_is_told_of_an_answer_that_is_complete() -> None:
    link, wire, engine = connected()
    engine.answers = [(RESULT, True)]
    wire.take_no_more()
    link.receive(post("tools/list"))
    assert [type(event) for event in engine.told] == [MessageReceived]
    assert engine.sinks == {}
    wire.make_room()
    wire.take_no_more()
    engine.answers = [(NOTICE, False), (RESULT, True)]
    link.receive(post("tools/list"))
    wire.make_room()
    link.lose()
    assert [type(event) for event in engine.told] == [MessageReceived] * 2


@pytest.mark.spec("S11")
def test_a_stream_that_opens_on_a_blocked_connection_is_told_of() -> None:
    link, wire, engine = connected()
    engine.answers = [(RESULT, True)]
    wire.take_no_more()
    link.receive(post("tools/list"))
    engine.answers = [(NOTICE, False)]
    link.receive(LISTEN)
    stream = engine.told[1].stream_id  # type: ignore[union-attr]
    assert engine.since(2) == [StreamBlocked(stream)]
    wire.make_room()
    assert engine.since(3) == [StreamUnblocked(stream)]


@pytest.mark.spec("D22")
def test_a_stream_is_cut_without_a_last_chunk_and_nothing_more_is_told_of_it() -> None:
    link, wire, engine, stream = listening()
    engine.cut(stream)
    assert wire.ends == ["close"]
    assert not wire.written.endswith(b"0\r\n\r\n")
    link.lose()
    assert engine.since(1) == []


@pytest.mark.spec("D22", "S11")
def test_the_bytes_of_a_blocked_reader_are_not_waited_for_when_its_stream_is_cut() -> None:
    link, wire, engine, stream = listening()
    wire.take_no_more()
    engine.send(stream, (NOTICE, False))
    engine.send(stream, (NOTICE, False))
    count = len(wire.written)
    engine.cut(stream)
    assert wire.ends[0] == "abort"
    assert len(wire.written) == count
    link.output_resumed()  # a wire may say so in the same moment
    link.lose()
    assert [type(event) for event in engine.since(1)] == [StreamBlocked, StreamBlocked]


def test_a_stream_that_is_cut_in_the_turn_that_brought_its_request_ends_too() -> None:
    link, wire, engine = connected()
    engine.answers = []
    link.receive(LISTEN)
    engine.cut(next(iter(engine.sinks)))
    assert (wire.ends, wire.written) == (["close"], b"")


@pytest.mark.spec("S11")
def test_a_reader_over_the_write_limit_is_closed_once_and_the_core_told_once() -> None:
    link, wire, engine, stream = listening(HttpLimits(write_wait_ms=1))
    wire.take_no_more()
    engine.send(stream, (NOTICE, False))
    link.tick(monotonic_ms() + 1000)
    link.tick(monotonic_ms() + 2000)
    link.lose()
    assert "abort" in wire.ends
    assert engine.since(2) == [StreamClosed(stream)]


@pytest.mark.spec("S11")
@pytest.mark.parametrize("streams", [True, False])
def test_a_reader_that_is_slow_has_its_time_anew_whenever_it_has_taken_something(streams: bool) -> None:
    link, wire, engine = connected(HttpLimits(write_wait_ms=8000, idle_wait_ms=10**9))
    engine.answers = [(NOTICE, not streams)]
    wire.take_no_more()
    link.receive(LISTEN if streams else post("tools/list"))
    now_ms = begun_ms = monotonic_ms()
    told = len(engine.told)
    for _ in range(20):
        wire.taken += 1
        for _ in range(7):
            now_ms += 1000
            assert link.deadline_ms is not None
            assert link.deadline_ms <= now_ms + 50, "it is looked several times"
            link.tick(now_ms)
    assert wire.ends == []
    assert now_ms - begun_ms > 100_000
    progress = engine.since(told)
    if streams:
        (stream,) = engine.sinks
        assert progress == [StreamBlocked(stream, progressed=True)] * 20
    else:
        assert progress == []
    for _ in range(2):
        assert wire.ends == []
        now_ms += 1000
        link.tick(now_ms)
    assert "abort" in wire.ends, "it has taken nothing for 8 seconds"
    link.lose()
    assert [type(event) for event in engine.since(told + len(progress))] == [StreamClosed] * streams


@pytest.mark.spec("H8")
def test_a_client_that_goes_away_closes_its_stream_once() -> None:
    link, _, engine, stream = listening()
    link.lose()
    link.lose()
    assert engine.since(1) == [StreamClosed(stream)]
    assert engine.sinks == {}


def test_an_idle_stream_keeps_no_head_of_its_request() -> None:
    link, _, _, _ = listening()
    assert link._connection._head is None


# --- whatever order things happen in

STEPS = st.lists(
    st.sampled_from(["send", "send twice", "block", "room", "little room", "flush", "comment", "end", "listen", "cut"]),
    max_size=40,
)


@pytest.mark.spec("S11")
@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_in_any_order_every_frame_goes_out_once_and_the_core_knows_when_its_reader_takes_nothing(
    steps: list[str],
) -> None:
    limits = HttpLimits(write_wait_ms=10**9, idle_wait_ms=10**9)
    link, wire, engine = connected(limits)
    now_ms, count, blocked, due = monotonic_ms(), 0, False, b""
    for step in [*steps, "room"]:
        told = len(engine.told)
        stream = next(iter(engine.sinks), None)
        was_blocked = blocked
        match step:
            case "send" | "send twice" if stream is not None:
                frames = [(b'{"n":%d}' % (count + number), False) for number in range(1 + (step == "send twice"))]
                count += len(frames)
                due += b"".join(b"%x\r\ndata: %b\n\n\r\n" % (len(payload) + 8, payload) for payload, _ in frames)
                engine.send(stream, *frames)
                if was_blocked:
                    assert engine.since(told) == [StreamBlocked(stream)]
            case "block":
                wire.take_no_more()
            case "room" | "little room":
                wire.make_room(5 if step == "little room" else 10**9)
            case "flush":
                link.flush()
                assert engine.since(told) == []
            case "comment":
                now_ms += limits.comment_interval_ms
                before = len(wire.written)
                link.tick(now_ms)
                assert not was_blocked or len(wire.written) == before
            case "end" if stream is not None:
                engine.send(stream, (RESULT, True))
                due += b"%x\r\ndata: %b\n\n\r\n0\r\n\r\n" % (len(RESULT) + 8, RESULT)
            case "listen" if stream is None:
                link.receive(LISTEN)
                due += b"%x\r\ndata: %b\n\n\r\n" % (len(NOTICE) + 8, NOTICE)
            case "cut" if stream is not None:
                engine.cut(stream)
                assert wire.ends == (["abort", "close"] if was_blocked else ["close"])
                assert engine.since(told) == []
                break
        for event in engine.since(told):
            if isinstance(event, StreamBlocked | StreamUnblocked):
                assert event.stream_id in (stream, next(iter(engine.sinks), None))
        blocked = link._blocked
        if stream in engine.sinks and blocked is not was_blocked:
            assert type(engine.told[-1]) is (StreamBlocked if blocked else StreamUnblocked)
    else:
        assert link._connection.bytes_pending == 0
        assert _events_of(wire.written) == due


def _events_of(written: bytes) -> bytes:
    """What was written, without heads and comments."""
    return re.sub(rb"HTTP/1\.1 200 OK\r\n(?:[^\r\n]+\r\n)+\r\n", b"", written).replace(b"3\r\n:\n\n\r\n", b"")
