"""One connection of an HTTP server: bytes to requests, messages to responses, deadlines as a query.

One request at a time: what is pipelined behind it waits, up to a bound, and is answered in its turn.

Half-close: the end of the client's bytes after a whole request is no loss of interest. A JSON answer is still
given. On an open event stream it makes us write a comment at once, and more soon after; when nobody is there, these
writes bring the reset that ``connection_lost`` tells of. An answer that takes longer becomes such a stream.

How a runner uses it::

    events = connection.receive_data(data, now_ms)
    while events:
        ...                                     # carry them out: admit, refuse, send, acknowledge
        events = connection.proceed(now_ms)     # what was pipelined behind what was answered
    write(connection.data_to_send())

and ``proceed`` likewise after an answer that came later. When ``closing`` turns true, write what there is, shut down
writing, and read on until ``closed``; then close. When ``deadline_ms`` has come, call ``tick``.

Source: streamable-http, Sending Messages; streamable-http, Receiving Messages; streamable-http, Cancellation.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_http import responses
from mcp_tasks_http.answers import Answer
from mcp_tasks_http.checks import DocumentAsked, HeadJudge, HttpServerConfig
from mcp_tasks_http.events import (
    BodyReceived,
    ConnectionClosed,
    ExchangeCancelled,
    HeadReceived,
    HttpServerEvent,
    SlowReader,
)
from mcp_tasks_http.framing import EventFraming
from mcp_tasks_http.heads import HeadReader, ReadHead, Refusal, RequestHead, malformed, routing_headers_of
from mcp_tasks_http.media import AcceptedForms
from mcp_tasks_http.reading import RequestStream
from mcp_tasks_http.writing import Outgoing


class HttpServer:
    """What the connections of one server share: the configuration, and readings of heads that repeat.

    Args:
        next_exchange: gives a number that was never given before; the runner may use them as stream ids.
    """

    __slots__ = ("config", "framing", "judge", "next_exchange", "reader")

    def __init__(self, config: HttpServerConfig, next_exchange: Callable[[], int] | None = None) -> None:
        self.config = config
        self.next_exchange = next_exchange if next_exchange is not None else itertools.count(1).__next__
        self.judge = HeadJudge(config)
        self.framing = EventFraming()
        self.reader = HeadReader(config.limits.head_bytes_max, config.limits.head_fields_max)

    def connect(self, now_ms: int) -> HttpServerConnection:
        """A connection that was accepted just now."""
        return HttpServerConnection(self, now_ms)


class _State(enum.Enum):
    HEAD = enum.auto()  # between requests, or inside a head
    ADMISSION = enum.auto()  # the runner decides
    BODY = enum.auto()
    ANSWER = enum.auto()  # the application works, perhaps on an open stream
    DRAIN = enum.auto()  # the body of a refused request is read and dropped
    CLOSING = enum.auto()  # nothing more is sent; what still comes is dropped
    CLOSED = enum.auto()


# Where the end of the client's bytes ends the connection, since what was to come will not.
_INCOMPLETE = frozenset({_State.HEAD, _State.BODY, _State.DRAIN})


class HttpServerConnection:
    """Both directions of one TCP connection, without I/O. Times are milliseconds of a clock that never goes back."""

    __slots__ = (
        "_announced",
        "_answer",
        "_closed_told",
        "_config",
        "_deadline",
        "_discarded",
        "_eof",
        "_exchange",
        "_forms",
        "_head",
        "_incoming",
        "_limits",
        "_outgoing",
        "_requests",
        "_server",
        "_state",
        "_undrained",
    )

    def __init__(self, server: HttpServer, now_ms: int) -> None:
        self._server = server
        self._config = server.config
        self._limits = server.config.limits
        self._state = _State.HEAD
        self._incoming = RequestStream(server.reader, self._limits)
        self._outgoing = Outgoing()
        self._head: RequestHead | None = None
        self._forms = AcceptedForms(True, True)
        self._answer: Answer | None = None
        self._exchange = 0
        # Whether an event told of the exchange.
        self._announced = False
        self._undrained = 0
        self._discarded = 0
        self._requests = 0
        self._eof = False
        self._closed_told = False
        self._deadline: int | None = now_ms + self._limits.idle_wait_ms

    # --- queries

    @property
    def closing(self) -> bool:
        """Nothing will be sent but what ``data_to_send`` has."""
        return self._state is _State.CLOSING or self._state is _State.CLOSED

    @property
    def closed(self) -> bool:
        """Nothing need be read any more: send what there is, then close."""
        return self._state is _State.CLOSED

    @property
    def should_read(self) -> bool:
        """False while enough waits behind the request in progress, or the connection is over."""
        if self._state is _State.CLOSED or self._eof:
            return False
        return self._incoming.bytes_pending <= self._limits.read_ahead_bytes_max

    @property
    def idle(self) -> bool:
        """Between requests: the connection may be closed without anybody losing an answer."""
        return self._state is _State.HEAD and not self._incoming.bytes_pending

    @property
    def answering(self) -> int:
        """The exchange whose answer is owed, streamed or not; 0 where there is none."""
        return self._exchange if self._state is _State.ANSWER else 0

    @property
    def open_stream(self) -> int:
        """The exchange whose answer is an event stream that goes on; 0 where there is none."""
        answer = self._answer
        return self._exchange if answer is not None and answer.streams else 0

    @property
    def bytes_pending(self) -> int:
        """Bytes that ``data_to_send`` would give: what a slow reader makes pile up."""
        return self._outgoing.bytes_pending

    @property
    def deadline_ms(self) -> int | None:
        """The next moment at which ``tick`` is to be called."""
        blocked_since = self._outgoing.blocked_since
        if blocked_since is None:
            return self._deadline
        blocked = blocked_since + self._limits.write_wait_ms
        return blocked if self._deadline is None else min(blocked, self._deadline)

    def data_to_send(self) -> bytes:
        """The bytes that were added since the last call, to be written whole and in order."""
        return self._outgoing.take()

    # --- what happens to the connection

    def receive_data(self, data: bytes, now_ms: int) -> Sequence[HttpServerEvent]:
        """Take bytes from the client, cut anywhere.

        Raises:
            LocalProtocolError: the end of the input was already received.
        """
        if self._eof:
            raise LocalProtocolError("no data can follow the end of the input")
        if self._state is _State.CLOSED:
            return self._tell_closed()
        if self._state is _State.CLOSING:
            return self._discard(len(data))
        self._incoming.add(data)
        return self.proceed(now_ms)

    def receive_eof(self, now_ms: int) -> Sequence[HttpServerEvent]:
        """Take the end of the client's bytes. It ends what is incomplete, and nothing that is complete."""
        self._eof = True
        events = list(self.proceed(now_ms))
        # ``proceed`` has ended what is incomplete. Whether somebody still reads a stream is shown by writing to it.
        if self._state is _State.CLOSING:
            events += self._end()
        elif self._answer is not None and self._answer.streams:
            self._comment(now_ms)
        elif self._answer is not None and self._answer.may_stream:
            self._deadline = now_ms + self._comment_interval_ms
        return events

    def connection_lost(self) -> Sequence[HttpServerEvent]:
        """The connection was reset, a write failed, or the runner closed it: this cancels the request in progress."""
        self._outgoing.drop()
        self._outgoing.blocked_since = None
        return self._end()

    def writing_blocked(self, now_ms: int) -> None:
        """The peer takes no more bytes for now. Repeats are harmless."""
        if self._outgoing.blocked_since is None:
            self._outgoing.blocked_since = now_ms

    def writing_progressed(self, now_ms: int) -> None:
        """The peer has taken some of what it is blocked on: it is slow, and has its time anew."""
        if self._outgoing.blocked_since is not None:
            self._outgoing.blocked_since = now_ms

    def writing_resumed(self) -> None:
        """The peer has taken everything."""
        self._outgoing.blocked_since = None

    def tick(self, now_ms: int) -> Sequence[HttpServerEvent]:
        """Time has passed. Harmless before ``deadline_ms``."""
        blocked_since = self._outgoing.blocked_since
        if blocked_since is not None and now_ms >= blocked_since + self._limits.write_wait_ms:
            return self._give_up_on_slow_reader()
        if self._deadline is None or now_ms < self._deadline:
            return self._tell_closed()
        match self._state:
            case _State.HEAD if not self._incoming.in_head:
                return self._end()
            case _State.HEAD:
                return self._refuse(malformed("the request did not arrive in time", status=408), now_ms)
            case _State.BODY:
                return self._refuse(malformed("the body did not arrive in time", status=408), now_ms)
            case _State.DRAIN | _State.CLOSING:
                return self._end()
            case _State.ANSWER:
                self._comment(now_ms)
            case _State.ADMISSION | _State.CLOSED:
                self._deadline = None
            case _:
                assert_never(self._state)
        return self._check_unsent()

    def shut_down(self) -> Sequence[HttpServerEvent]:
        """Serve nothing more: an idle connection ends now, any other after the answer that it owes."""
        self._requests = self._limits.requests_per_connection_max
        if self._answer is not None:
            self._answer.closes = True
        if self._state is _State.HEAD and not self._incoming.bytes_pending:
            return self._end()
        return ()

    # --- answers

    def admit(self, exchange: int, now_ms: int) -> None:
        """Go on with a request whose head was announced. ``proceed`` gives what follows."""
        if self._is_current(exchange, _State.ADMISSION):
            self._admit(now_ms)

    def refuse(self, exchange: int, status: int, fields: Iterable[tuple[str, str]], body: bytes, now_ms: int) -> None:
        """Answer a request whose head was announced without reading its body, such as with a challenge.

        Raises:
            LocalProtocolError: the status or a field may not be sent; nothing was.
        """
        if not self._is_current(exchange, _State.ADMISSION):
            return
        head = self._head
        assert head is not None
        close = not self._can_drain(head)
        response = responses.whole_response(status, fields, body, close=close, with_body=head.method != "HEAD")
        self._answer_unread(response, close, now_ms)

    def acknowledge(self, exchange: int, accepted: bool, now_ms: int) -> None:
        """Answer a message that wants no answer: 202, or 400 where it was not taken in."""
        answer = self._answer
        if self._is_current(exchange, _State.ANSWER):
            assert answer is not None
            answer.acknowledge(accepted)
            self._finish(answer.closes, now_ms)

    def send(self, exchange: int, frame: Frame, now_ms: int) -> None:
        """Send one frame: JSON where the first is the last, else an event of a stream.

        Where the client does not take event streams, frames before the last are left out.

        Raises:
            LocalProtocolError: the exchange was never begun or is answered; the frame is empty or holds a line end.
        """
        answer = self._answer
        if not self._is_current(exchange, _State.ANSWER):
            return
        assert answer is not None
        if answer.send(frame, self._server.framing):
            self._finish(answer.closes, now_ms)
        elif answer.streams:
            self._deadline = now_ms + self._comment_interval_ms

    def cut(self, exchange: int, now_ms: int) -> None:
        """End an exchange without an answer: its stream breaks off, and the connection with it.

        What was sent before still goes out, but not to a peer that takes nothing: that is dropped.
        """
        if self._is_current(exchange, _State.ANSWER):
            if self._outgoing.blocked_since is not None:
                self._outgoing.drop()
                self._outgoing.blocked_since = None
            self._close(now_ms, linger=False)

    def _is_current(self, exchange: int, state: _State) -> bool:
        """Whether an answer is due. Not when the exchange was cancelled, which its answer may have crossed."""
        if exchange == self._exchange and self._state is state:
            return True
        if self.closing:
            return False
        raise LocalProtocolError(f"exchange {exchange} is not waiting for this answer")

    # --- reading

    def proceed(self, now_ms: int) -> Sequence[HttpServerEvent]:
        """Go on with what was received: what was admitted, what was pipelined. Empty when nothing is to be done."""
        events: list[HttpServerEvent] = []
        more = True
        while more:
            match self._state:
                case _State.HEAD:
                    more = self._incoming.bytes_pending > 0 and self._read_head(now_ms, events)
                case _State.BODY:
                    more = self._read_body(now_ms, events)
                case _State.DRAIN:
                    more = self._drain(now_ms)
                case _:
                    more = False
        if self._eof and self._state in _INCOMPLETE:
            events += self._end()
        elif self._state is _State.CLOSED or self._outgoing.blocked_since is not None:
            events += self._check_unsent()
        return events

    def _read_head(self, now_ms: int, events: list[HttpServerEvent]) -> bool:
        """Read one head and judge it; false when it is incomplete or nothing more can be read."""
        if not self._incoming.in_head:
            self._deadline = now_ms + self._limits.head_wait_ms
        read = self._incoming.read_head()
        if type(read) is ReadHead:
            self._take_head(read.head, now_ms, events)
            return True
        if type(read) is Refusal:
            events += self._refuse(read, now_ms)
        return False

    def _take_head(self, head: RequestHead, now_ms: int, events: list[HttpServerEvent]) -> None:
        self._head = head
        self._requests += 1
        verdict = self._server.judge.judge(head)
        if type(verdict) is AcceptedForms:
            self._forms = verdict
            self._exchange = self._server.next_exchange()
            if self._config.announce_heads:
                self._state = _State.ADMISSION
                self._deadline = None
                self._announced = True
                events.append(HeadReceived(self._exchange, head))
            else:
                self._admit(now_ms)
        elif type(verdict) is Refusal:
            events += self._refuse(verdict, now_ms)
        else:
            assert type(verdict) is DocumentAsked
            close = not self._can_drain(head)
            fields = (("Content-Type", "application/json"),)
            with_body = head.method != "HEAD"
            response = responses.whole_response(200, fields, verdict.body, close=close, with_body=with_body)
            self._answer_unread(response, close, now_ms)

    def _admit(self, now_ms: int) -> None:
        head = self._head
        assert head is not None
        self._state = _State.BODY
        self._deadline = now_ms + self._limits.body_wait_ms
        if head.expects_continue and not self._incoming.bytes_pending and head.body_bytes != 0:
            self._outgoing.put(responses.CONTINUE)

    def _read_body(self, now_ms: int, events: list[HttpServerEvent]) -> bool:
        payload = self._incoming.read_body()
        if type(payload) is bytes:
            head = self._head
            assert head is not None
            answer = Answer(self._outgoing, head, self._forms, closes=self._closes_after_answer())
            self._answer = answer
            self._head = None  # an answer may go on for an hour, and needs it no more
            self._state = _State.ANSWER
            # A proxy gives up on silence: where the answer takes long, a stream begins before there is a first frame.
            self._deadline = now_ms + self._comment_interval_ms if answer.may_stream else None
            self._announced = True
            events.append(BodyReceived(self._exchange, payload, routing_headers_of(head)))
        elif type(payload) is Refusal:
            events += self._refuse(payload, now_ms)
        return False

    def _drain(self, now_ms: int) -> bool:
        self._undrained -= self._incoming.drop(self._undrained)
        if self._undrained:
            return False
        self._finish(close=False, now_ms=now_ms)
        return True

    def _discard(self, count: int) -> Sequence[HttpServerEvent]:
        """Drop what a client still sends to a connection that is ending, within a bound."""
        self._discarded += count
        return self._end() if self._discarded > self._limits.drain_bytes_max else ()

    # --- writing

    @property
    def _comment_interval_ms(self) -> int:
        """Once the client's bytes have ended, only the fate of what we write tells whether it is still there."""
        return self._limits.eof_comment_interval_ms if self._eof else self._limits.comment_interval_ms

    def _comment(self, now_ms: int) -> None:
        assert self._answer is not None
        self._deadline = now_ms + self._comment_interval_ms
        self._answer.comment()

    def _closes_after_answer(self) -> bool:
        head = self._head
        return head is None or not head.keep_alive or self._requests >= self._limits.requests_per_connection_max

    def _can_drain(self, head: RequestHead) -> bool:
        """Whether the unread body of a request is known to come, and to be short enough to read and drop."""
        if self._closes_after_answer() or head.expects_continue or head.body_bytes is None:
            return False
        return head.body_bytes <= self._limits.drain_bytes_max

    def _refuse(self, refusal: Refusal, now_ms: int) -> Sequence[HttpServerEvent]:
        """Answer by ourselves: a head that may not be, a body too large, time that has run out."""
        head = self._head
        close = refusal.close or head is None or self._state is not _State.HEAD or not self._can_drain(head)
        with_body = head is None or refusal.close or head.method != "HEAD"
        cancelled = self._cancel()
        self._answer_unread(responses.refusal_response(refusal, close=close, with_body=with_body), close, now_ms)
        return cancelled

    def _answer_unread(self, response: bytes, close: bool, now_ms: int) -> None:
        """Send a response to a request whose body was not read."""
        head = self._head
        self._outgoing.put(response)
        if close:
            self._close(now_ms, linger=True)
            return
        assert head is not None
        assert head.body_bytes is not None
        self._undrained = head.body_bytes
        self._end_exchange()
        if self._undrained:
            self._state = _State.DRAIN
            self._deadline = now_ms + self._limits.body_wait_ms
        else:
            self._finish(close=False, now_ms=now_ms)

    def _finish(self, close: bool, now_ms: int) -> None:
        """An answer is complete: on to the next request, or to the end."""
        self._end_exchange()
        if close:
            self._close(now_ms, linger=self._incoming.bytes_pending > 0)
            return
        self._state = _State.HEAD
        self._deadline = now_ms + self._limits.idle_wait_ms

    def _end_exchange(self) -> None:
        self._exchange = 0
        self._announced = False
        self._head = None
        self._answer = None

    def _close(self, now_ms: int, *, linger: bool) -> None:
        """Send nothing more. To linger is to read what still comes, since unread bytes turn a close into a reset."""
        self._end_exchange()
        self._incoming.clear()
        self._state = _State.CLOSING if linger and not self._eof else _State.CLOSED
        self._deadline = now_ms + self._limits.linger_ms if self._state is _State.CLOSING else None

    def _cancel(self) -> list[HttpServerEvent]:
        events: list[HttpServerEvent] = [ExchangeCancelled(self._exchange)] if self._announced else []
        self._exchange = 0
        self._announced = False
        return events

    def _end(self) -> Sequence[HttpServerEvent]:
        """The connection is over now, whatever was in progress."""
        events = self._cancel()
        self._end_exchange()
        self._incoming.clear()
        self._state = _State.CLOSED
        self._deadline = None  # what was written still has its time to get out
        events += self._tell_closed()
        return events

    def _tell_closed(self) -> Sequence[HttpServerEvent]:
        if self._state is not _State.CLOSED or self._closed_told:
            return ()
        self._closed_told = True
        return (ConnectionClosed(),)

    def _check_unsent(self) -> Sequence[HttpServerEvent]:
        unsent, outgoing = self._limits.unsent_bytes_max, self._outgoing
        if outgoing.bytes_pending > unsent and outgoing.blocked_since is not None:
            return self._give_up_on_slow_reader()
        return self._tell_closed()

    def _give_up_on_slow_reader(self) -> Sequence[HttpServerEvent]:
        unsent = self._outgoing.bytes_pending
        self._outgoing.drop()
        self._outgoing.blocked_since = None
        return [SlowReader(unsent), *self._end()]
