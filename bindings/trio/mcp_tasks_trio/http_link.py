"""What stands between one HTTP connection and a server's engine: bytes in, bytes out, who asks. No I/O of its own.

Each request is a stream of the engine, so that nothing is keyed by what a client chose.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, Protocol

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import INTERNAL_ERROR, INVALID_REQUEST
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.server.effects import Acknowledge, CutStream, Frame
from mcp_tasks_core.server.events import (
    MessageReceived,
    ServerEvent,
    StreamBlocked,
    StreamClosed,
    StreamEnding,
    StreamUnblocked,
)
from mcp_tasks_http import (
    BodyReceived,
    ConnectionClosed,
    ExchangeCancelled,
    HeadReceived,
    HttpServer,
    HttpServerEvent,
    RequestHead,
    SlowReader,
)
from mcp_tasks_http.responses import refusal_body
from mcp_tasks_trio.authentication import Challenge, OwnerResolver
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.http_clock import Alarm, DeadlineClock
from mcp_tasks_trio.http_wire import Wire

_log = logging.getLogger("mcp_tasks_trio")

# How often, in the time that a reader may take nothing, it is looked whether it has taken something.
_LOOKS_PER_WAIT: Final = 8
_JSON_FIELDS: Final = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Listener(Protocol):
    """What all links of one server share."""

    engine: ServerEngine
    http: HttpServer
    clock: DeadlineClock
    owner: Owner
    resolver: OwnerResolver | None

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run something beside everything else."""

    def forget(self, link: HttpLink) -> None:
        """This connection is gone."""


class HttpLink:
    """One connection: the sink of its streams, one at a time."""

    __slots__ = (
        "_blocked",
        "_carrying_on",
        "_connection",
        "_deciding",
        "_engine",
        "_gone",
        "_listener",
        "_look_ms",
        "_now_ms",
        "_owner",
        "_paused",
        "_shutting_down",
        "_unsent_bytes",
        "_untold",
        "_wire",
        "_writing_ended",
        "alarm",
    )

    def __init__(self, listener: Listener, wire: Wire) -> None:
        self._listener = listener
        self._engine = listener.engine
        self._wire = wire
        self._connection = listener.http.connect(monotonic_ms())
        self._owner = listener.owner
        self._deciding = 0  # the exchange that waits for its owner
        self._blocked = False
        self._untold = False  # the core does not know that what was added last waits for a reader that is blocked
        self._look_ms = 0  # when it is looked again what a reader that is blocked has taken
        self._unsent_bytes = 0  # at the last look
        self._carrying_on = False
        self._now_ms = 0
        self._paused = False
        self._writing_ended = False
        self._shutting_down = False
        self._gone = False
        self.alarm: Alarm | None = None
        listener.clock.watch(self)

    # --- from the pump

    def receive(self, data: bytes) -> None:
        """Bytes came. All requests in them are handled, then their answers are written at once."""
        if not self._gone:
            now_ms = monotonic_ms()
            self._carry_on(self._connection.receive_data(data, now_ms), now_ms)

    def receive_eof(self) -> None:
        if not self._gone:
            now_ms = monotonic_ms()
            self._carry_on(self._connection.receive_eof(now_ms), now_ms)

    def lose(self) -> None:
        if not self._gone:
            self._gone = True
            self._listener.clock.forget(self)
            self._listener.forget(self)
            self._engine.feed_all(self._messages(self._connection.connection_lost(), monotonic_ms()))

    def output_stopped(self) -> None:
        if not self._blocked:
            self._blocked = True
            now_ms = monotonic_ms()
            self._connection.writing_blocked(now_ms)
            self._note_unsent(now_ms)
            self._listener.clock.watch(self)
            self._tell_blocked()

    def output_resumed(self) -> None:
        if self._blocked and not self._gone:
            self._blocked = False
            now_ms = monotonic_ms()
            self._connection.writing_resumed()
            self._carry_on(self._connection.proceed(now_ms), now_ms)
            stream = self._connection.open_stream
            if stream and not self._blocked:
                self._engine.feed(StreamUnblocked(StreamId(stream)))

    # --- from the clock

    @property
    def deadline_ms(self) -> int | None:
        deadline_ms = self._connection.deadline_ms
        if not self._blocked or deadline_ms is None:
            return deadline_ms
        return min(deadline_ms, self._look_ms)

    def tick(self, now_ms: int) -> None:
        if self._blocked and now_ms >= self._look_ms:
            self._look_for_progress(now_ms)
        self._carry_on(self._connection.tick(now_ms), now_ms)

    # --- from the listener

    @property
    def idle(self) -> bool:
        return self._connection.idle

    def shut_down(self) -> None:
        """Serve nothing more: end now if nothing is owed, otherwise after the answer, which a subscription gets now."""
        if not self._gone:
            self._shutting_down = True
            self._carry_on(self._connection.shut_down(), monotonic_ms())
            if self._connection.answering:
                self._engine.feed(StreamEnding(StreamId(self._connection.answering)))

    def abort(self) -> None:
        self._wire.abort()

    # --- from the engine

    def send(self, frame: Frame) -> None:
        stream_id = frame.stream_id
        if frame.final:
            self._engine.end_stream(stream_id)
        self._untold = True
        self._connection.send(stream_id, frame, self._now_ms if self._carrying_on else monotonic_ms())

    def acknowledge(self, effect: Acknowledge) -> None:
        self._engine.end_stream(effect.stream_id)
        self._connection.acknowledge(effect.stream_id, effect.accepted, monotonic_ms())

    def cut(self, effect: CutStream) -> None:
        blocked = self._blocked
        self._connection.cut(effect.stream_id, monotonic_ms())
        if blocked:
            self._wire.abort()  # what the wire keeps is not waited for, either

    def flush(self) -> None:
        """The engine's turn is over: write, and go on with what was waiting behind an answer."""
        if self._gone or self._carrying_on:
            return
        connection = self._connection
        if connection.open_stream and not self._blocked:
            # Events of a stream that goes on, perhaps of very many: behind them nothing can have changed.
            data = connection.data_to_send()
            if data:
                self._wire.write(data)
            return
        now_ms = monotonic_ms()
        self._carry_on(connection.proceed(now_ms), now_ms)

    # --- in between

    def _note_unsent(self, now_ms: int) -> None:
        wait_ms = min(self._listener.http.config.limits.write_wait_ms, self._engine.limits.slow_reader_ms)
        self._look_ms = now_ms + max(1, wait_ms // _LOOKS_PER_WAIT)
        self._unsent_bytes = self._wire.unsent_bytes

    def _look_for_progress(self, now_ms: int) -> None:
        """A reader that is slow has its time anew whenever it has taken something; one that takes nothing has not."""
        before = self._unsent_bytes
        self._note_unsent(now_ms)
        if self._unsent_bytes != before:
            self._connection.writing_progressed(now_ms)
            stream = self._connection.open_stream
            if stream:
                self._engine.feed(StreamBlocked(StreamId(stream), progressed=True))

    def _tell_blocked(self) -> None:
        """The core holds back what a stream's reader has no room for. An answer that is complete is nothing to it."""
        self._untold = False
        stream = self._connection.open_stream
        if stream:
            self._engine.feed(StreamBlocked(StreamId(stream)))

    def _carry_on(self, events: Sequence[HttpServerEvent], now_ms: int) -> None:
        """Do what the connection says, then write everything that came of it."""
        if events:
            self._carrying_on, self._now_ms = True, now_ms
            try:
                self._engine.feed_all(self._messages(events, now_ms))
            finally:
                self._carrying_on = False
        connection = self._connection
        if connection.bytes_pending:
            if not self._blocked:
                self._wire.write(connection.data_to_send())
            elif self._untold:
                self._tell_blocked()
        if connection.closing:
            self._end()
        elif connection.should_read is self._paused:
            self._paused = not self._paused
            (self._wire.pause_reading if self._paused else self._wire.resume_reading)()
        alarm = self.alarm
        if alarm is None or (deadline_ms := self.deadline_ms) is None or deadline_ms < alarm.moment_ms:
            self._listener.clock.watch(self)

    def _messages(self, events: Sequence[HttpServerEvent], now_ms: int) -> Iterator[ServerEvent]:
        """The engine's events. What follows an answer is read when the answer was given."""
        connection = self._connection
        while events:
            for event in events:
                if type(event) is BodyReceived:
                    stream_id = StreamId(event.exchange)
                    self._engine.open_stream(self, stream_id)
                    yield MessageReceived(stream_id, event.payload, self._owner, event.headers, True)
                    if self._shutting_down:
                        yield StreamEnding(stream_id)
                elif type(event) is HeadReceived:
                    self._ask_owner(event.exchange, event.head, now_ms)
                elif type(event) is ExchangeCancelled:
                    self._deciding = 0
                    stream_id = StreamId(event.exchange)
                    self._engine.end_stream(stream_id)
                    yield StreamClosed(stream_id)
                elif type(event) is SlowReader:
                    _log.info("A client that reads no answers was given up with %d bytes unsent", event.unsent_bytes)
                    self._wire.abort()
                else:
                    assert type(event) is ConnectionClosed
            # A client that takes no answers gets no more of them made.
            events = () if self._blocked or self._gone else connection.proceed(now_ms)

    def _end(self) -> None:
        if self._blocked and self._connection.bytes_pending:
            return  # goes on when the client takes its bytes, or at the deadline for that
        if self._connection.closed:
            self._wire.close()
        elif not self._writing_ended:
            self._writing_ended = True
            self._wire.end_writing()

    # --- whose request it is

    def _ask_owner(self, exchange: int, head: RequestHead, now_ms: int) -> None:
        resolver = self._listener.resolver
        assert resolver is not None
        self._deciding = exchange
        answer: Owner | Challenge | Awaitable[Owner | Challenge] | None
        try:
            answer = resolver(head)
        except Exception as error:
            _log_failure(error)
            answer = None
        if inspect.isawaitable(answer):
            self._listener.start_soon(self._wait_for_owner, exchange, answer)
        else:
            self._decide(exchange, answer, now_ms)

    async def _wait_for_owner(self, exchange: int, answer: Awaitable[Owner | Challenge]) -> None:
        owner: Owner | Challenge | None = None
        try:
            owner = await answer
        except Exception as error:
            _log_failure(error)
        if not self._gone:
            now_ms = monotonic_ms()
            self._decide(exchange, owner, now_ms)
            self._carry_on(self._connection.proceed(now_ms), now_ms)

    def _decide(self, exchange: int, answer: Owner | Challenge | None, now_ms: int) -> None:
        if self._deciding != exchange:
            return  # the client has gone meanwhile
        self._deciding = 0
        if isinstance(answer, Owner):
            self._owner = answer
            self._connection.admit(exchange, now_ms)
        elif isinstance(answer, Challenge):
            body = refusal_body(INVALID_REQUEST, answer.message)
            fields = (("WWW-Authenticate", answer.www_authenticate), *_JSON_FIELDS)
            self._connection.refuse(exchange, answer.status, fields, body, now_ms)
        else:
            if answer is not None:
                _log.error("The owner resolver gave a %s, not an Owner or a Challenge", type(answer).__name__)
            body = refusal_body(INTERNAL_ERROR, "it could not be found out who sends this request")
            self._connection.refuse(exchange, 500, _JSON_FIELDS, body, now_ms)


def _log_failure(error: Exception) -> None:
    """Of an owner resolver: its message may quote what it was given, and that holds credentials."""
    _log.error("The owner resolver failed with %s%s", type(error).__name__, _where(error))


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" in {trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
