"""One core under test: its events go in here, and every effect is judged as it comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Instant, StreamId, TaskId, Ticket
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.effects import (
    AbandonWork,
    Acknowledge,
    AdoptWork,
    Authorize,
    CallMethod,
    CancelCall,
    DeleteTask,
    DeliverInput,
    Frame,
    HoldLease,
    InvokeTool,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    OrphanLeft,
    PublishChange,
    RefuseInput,
    Report,
    ResumeWork,
    ServerEffect,
    StartWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import Deferral, MessageReceived, ServerEvent, StreamClosed, ToolDeferred
from mcp_tasks_core.server.protocol import ServerProtocol
from stateful.proving import prove
from stateful.server_answers import judge_final, judge_notice
from stateful.server_peer import Message, SealedState, Sent, refusal_of

if TYPE_CHECKING:
    from stateful.server_world import World

StoreEffect: TypeAlias = LoadTask | StoreTask | ListDue | DeleteTask | HoldLease | ListOrphans | ListChanges | Authorize
BASE_MS = 1_785_232_800_000


@attrs.define(eq=False)
class Pending:
    """An effect on the store that has not been answered. ``done`` once the store did it: ``outcome`` then says how."""

    effect: StoreEffect
    issued_ms: int
    done: bool = False
    done_at: int = 0
    outcome: Any = None


@attrs.define(eq=False)
class Call:
    """A call that the application was asked to answer."""

    effect: InvokeTool | CallMethod
    sent: Sent
    answered: bool = False
    cancelled: bool = False
    deferred: ToolDeferred | None = None
    end: str | None = None


class Core:
    """A ``ServerProtocol``, the streams that lead to it, and what it still owes."""

    def __init__(self, name: str, world: World, config: ServerConfig, skew_ms: int) -> None:
        self.name = name
        self.world = world
        self.config = config
        self.protocol = ServerProtocol(config)
        self.skew_ms = skew_ms
        self.streams: dict[StreamId, Owner] = {}
        self.open: dict[tuple[int, str], Sent] = {}
        self.pending: dict[Ticket, Pending] = {}
        self.calls: dict[Ticket, Call] = {}
        self.used: list[Ticket] = []
        self.reads: dict[TaskId, int] = {}
        self.live: dict[TaskId, Ticket] = {}
        self.waiting: dict[tuple[TaskId, str], int] = {}
        self.spent: set[str] = set()
        self.log: list[tuple[ServerEvent, Instant, tuple[ServerEffect, ...]]] = []
        self.ids = 100
        self.frames: list[tuple[Frame, dict[str, Any]]] = []
        self.arriving: Sent | None = None

    @property
    def now(self) -> Instant:
        return Instant(wall_ms=BASE_MS + self.world.now_ms + self.skew_ms, monotonic_ms=self.world.now_ms + 17)

    def open_on(self, stream_id: StreamId) -> int:
        return sum(sent.stream_id == stream_id for sent in self.open.values())

    # --- events

    def feed(self, event: ServerEvent) -> tuple[ServerEffect, ...]:
        """Hand in an event that breaks no rule of the interface."""
        try:
            effects = tuple(self.protocol.handle(event, self.now))
        except Exception as problem:
            raise AssertionError(f"DESIGN 3: {event!r} made handle raise {problem!r}") from problem
        self.log.append((event, self.now, effects))
        self.frames = []
        for effect in effects:
            self._judge(effect)
        self._compare()
        return effects

    def blunder(self, event: Any) -> None:
        """Hand in an event that the runner or the application may not send: it raises, and changes nothing."""
        before = self._face()
        try:
            self.protocol.handle(event, self.now)
        except LocalProtocolError:
            prove(self._face() == before, "DESIGN 3", f"the refused {event!r} changed something")
        else:
            raise AssertionError(f"DESIGN 3: {event!r} breaks the rules and was not refused")

    def replay(self) -> None:
        """The same events, without the refused ones, have the same effects in a fresh core."""
        again = ServerProtocol(self.config)
        for event, now, effects in self.log:
            repeated = tuple(again.handle(event, now))
            prove(repeated == effects, "DESIGN 3", f"{event!r} had the effects {repeated} in place of {effects}")

    def _face(self) -> Any:
        protocol = self.protocol
        return (protocol.open_exchanges, protocol.open_tickets, protocol.deadline, protocol.ignored_answers)

    def receive(self, stream_id: StreamId, message: Message) -> None:
        """Hand in what a peer sent."""
        event = MessageReceived(stream_id, message.payload, self.streams[stream_id])
        if message.sent is not None:
            self._receive_request(event, message.sent)
        elif message.anything:
            self._receive_anything(event)
        else:
            before = dict(self.open)
            self.feed(event)
            self._check_errors(message)
            if message.errors:
                prove(self.open == before, "B9", "a message that is no request touched an open one")

    def _receive_request(self, event: MessageReceived, sent: Sent) -> None:
        sent.moment, sent.faults = self.world.ledger.changes, self.world.faults
        if sent.key in self.open:
            first = self.open[sent.key]
            self.feed(event)
            self._check_errors(Message(b"", errors=(-32600,), id=sent.id))
            prove(self.open.get(sent.key) is first, "B9", "a duplicate id touched the first request")
            return
        refused = refusal_of(sent, self)
        self.open[sent.key] = self.arriving = sent
        self.feed(event)
        self.arriving = None
        if refused is None:
            prove(not sent.answered or self.frames[-1][0].code is None, "B7", f"refused: {self.frames} to {sent}")
            if sent.expected is not None:
                prove(sent.called, "R6", "a round that counts did not reach the application")
            return
        prove(sent.answered and not sent.called, "B7", f"{sent} is to be refused with {refused} at once")
        found = self.frames[-1][0].code
        prove(found == refused, "B7", f"{sent.method} {sent.params} was refused with {found}, not with {refused}")

    def _receive_anything(self, event: MessageReceived) -> None:
        """A message altered at random may be anything; what it became is learned from the core."""
        known = set(self.open)
        self.arriving = Sent(event.stream_id, None, "", {}, event.owner, self.world.ledger.changes, 0, judged=False)
        self.feed(event)
        prove(len(self.frames) <= 1, "B7", "one message got several answers")
        self.arriving = None
        for key in known - set(self.open):
            prove(b"notifications/cancelled" in event.payload, "B9", f"altered bytes ended the request {key}")

    def _check_errors(self, message: Message) -> None:
        prove(len(self.frames) == bool(message.errors), "B6", f"{message} was answered by {self.frames}")
        for frame, wire in self.frames:
            prove(frame.code in message.errors, "B7", f"{message} was answered with {frame.code}")
            held = wire.get("id", "absent")
            wanted = "absent" if message.id is None else message.id
            prove(type(held) is type(wanted) and held == wanted, "B3", f"{message} was answered under {held!r}")

    def close(self, stream_id: StreamId) -> None:
        """A stream ends."""
        del self.streams[stream_id]
        for key, sent in list(self.open.items()):
            if sent.stream_id == stream_id:
                sent.gone = True
                del self.open[key]
        self.feed(StreamClosed(stream_id))

    def _compare(self) -> None:
        """Bring the two views of what is open together: they differ only by what the last event explains."""
        held = {(e.stream_id, json.dumps(e.request_id)): e for e in self.protocol.open_exchanges}
        for key in set(self.open) - set(held):
            last = self.log[-1][0]
            explained = isinstance(last, MessageReceived) and b"notifications/cancelled" in last.payload
            prove(explained, "B3", f"{self.open[key]} was closed without an answer")
            self.open.pop(key).gone = True
        for key in set(held) - set(self.open):
            prove(self.arriving is not None and not self.arriving.judged, "B9", f"{held[key]} was opened by nobody")
            exchange = held[key]
            assert self.arriving is not None
            self.arriving.id, self.arriving.method = exchange.request_id, exchange.method
            self.open[key] = self.arriving
        for call in self.calls.values():
            prove(not (call.sent.gone and not call.answered and not call.cancelled), "I2", f"{call} was not stopped")

    # --- effects

    def _judge(self, effect: ServerEffect) -> None:
        judges: dict[type, Callable[[Any], None]] = {
            Frame: self._on_frame,
            InvokeTool: self._on_call,
            CallMethod: self._on_call,
            CancelCall: self._on_cancel_call,
            StartWork: self._on_work,
            AdoptWork: self._on_work,
            AbandonWork: self._on_abandon,
            DeliverInput: self._on_deliver,
            RefuseInput: self._on_refuse,
            PublishChange: self._on_publish,
            ResumeWork: self._on_resume,
            OrphanLeft: self._on_resume,
        }
        judge = judges.get(type(effect))
        if judge is not None:
            judge(effect)
        elif isinstance(effect, StoreEffect):
            prove(effect.ticket not in self.pending and effect.ticket not in self.calls, "DESIGN 3", "a ticket twice")
            self.pending[effect.ticket] = Pending(effect, self.world.now_ms)
        else:
            prove(
                isinstance(effect, StopWork | Acknowledge | Report), "DESIGN 3", f"what is to be done about {effect}?"
            )

    def _on_frame(self, frame: Frame) -> None:
        prove(frame.stream_id in self.streams, "I2", f"a frame for the closed stream {frame.stream_id}")
        wire = json.loads(b"".join(frame.payload), parse_constant=_no_constant)
        prove(wire.get("jsonrpc") == "2.0", "B1", f"{wire} is no JSON-RPC message")
        self.frames.append((frame, wire))
        if "method" in wire:
            prove(not frame.final and "id" not in wire, "B8", f"a server sent the request {wire}")
            judge_notice(self, frame, wire)
            return
        prove(frame.final and ("result" in wire) != ("error" in wire), "B3", f"{wire} is no answer")
        prove(
            frame.code == wire.get("error", {}).get("code"),
            "D26",
            f"the frame's code {frame.code} is not that of {wire}",
        )
        sent = self.open.get((frame.stream_id, json.dumps(wire.get("id"))))
        arriving = isinstance(self._event_being_handled, MessageReceived)
        if arriving and (sent is None or sent is not self.arriving):
            return  # judged where the message was received
        prove(sent is not None, "B3", f"{wire} answers nothing that is open")
        assert sent is not None
        sent.answered = True
        del self.open[sent.key]
        judge_final(self, sent, frame, wire)

    @property
    def _event_being_handled(self) -> ServerEvent:
        return self.log[-1][0]

    def _on_call(self, effect: InvokeTool | CallMethod) -> None:
        context = effect.context
        sent = self.open.get((context.stream_id, json.dumps(context.request_id)), self.arriving)
        assert sent is not None
        prove(not sent.called, "C5", f"{sent} was handed out twice")
        sent.called = True
        self.calls[effect.ticket] = Call(effect, sent)
        prove(context.owner == self.streams[context.stream_id], "A1", "the owner is not the transport's")
        if not sent.judged:
            return
        prove(context.meta == sent.meta, "B12", f"_meta changed on its way: {context.meta}")
        wanted = sent.method == "tools/call" and sent.declares_tasks
        prove(context.may_defer == wanted, "C3", f"may_defer is {context.may_defer} for {sent.params}")
        if sent.expected is not None:
            prove((dict(context.answers), context.state) == sent.expected, "R5", f"{context} for {sent.expected}")

    def _on_cancel_call(self, effect: CancelCall) -> None:
        call = self.calls[effect.ticket]
        prove(not call.answered and not call.cancelled, "I2", f"{effect} names a call that is over")
        call.cancelled = True

    def _deferred(self, effect: StartWork | AdoptWork | AbandonWork) -> Call:
        call = self.calls[effect.ticket]
        prove(call.deferred is not None and call.end is None, "C5", f"{effect} for {call}")
        call.end = type(effect).__name__
        return call

    def _on_work(self, effect: StartWork | AdoptWork) -> None:
        call = self._deferred(effect)
        assert call.deferred is not None
        starts = call.deferred.deferral is Deferral.START
        prove(starts == isinstance(effect, StartWork), "C5", f"{effect} after a deferral of {call.deferred.deferral}")
        lives = self.world.ledger.since(effect.task_id, call.sent.moment)
        prove(bool(lives), "C5", f"work starts for a task that is nowhere: {effect}")
        life = lives[-1]
        seen = life.announced or (call.deferred.detach_on_disconnect and not call.sent.answered)
        prove(seen, "C5", f"work starts before anybody has its handle: {effect}")
        prove(effect.task_id in self.reads, "C5", f"work starts though the task was never read: {effect}")
        life.works += 1
        prove(life.works == 1, "C5", f"the work of {effect.task_id} started {life.works} times")
        self.live[effect.task_id] = effect.ticket

    def _on_resume(self, effect: ResumeWork | OrphanLeft) -> None:
        prove(effect.task_id in self.world.orphaned, "D31", f"{effect} though its process lives")
        life = self.world.ledger.lives[effect.task_id][-1]
        versions = [v for v in life.versions if v.state["attempts"] == effect.attempt]
        prove(bool(versions) and versions[0].writer == self.name, "C5", f"{effect} though it was not taken over")
        prove(effect.attempt not in life.resumed, "C5", f"the work of {effect.task_id} was resumed twice: {effect}")
        life.resumed.add(effect.attempt)
        self.live[effect.task_id] = Ticket(0)

    def _on_abandon(self, effect: AbandonWork) -> None:
        self._deferred(effect)

    def _on_deliver(self, effect: DeliverInput) -> None:
        key = (effect.task_id, effect.key)
        prove(key in self.waiting, "U6", f"an answer that nobody waits for was delivered: {effect}")
        del self.waiting[key]
        lives = self.world.ledger.lives.get(effect.task_id, [])
        stored = any(
            life.last.answers.get(effect.key) == effect.answer for life in lives if not life.last.state["expired"]
        )
        buried = any(life.last.state["expired"] for life in lives)
        prove(stored or buried, "U1", f"the delivered answer is not what is stored: {effect}")

    def _on_refuse(self, effect: RefuseInput) -> None:
        prove((effect.task_id, effect.key) in self.world.asked, "U7", f"nobody asked this: {effect}")
        self.waiting.pop((effect.task_id, effect.key), None)

    def _on_publish(self, effect: PublishChange) -> None:
        prove(effect.task_id in self.world.ledger.lives, "S8", f"a change of a task that is not stored: {effect}")

    def register_state(self, sent: Sent, text: str, asked: Any) -> None:
        """A requestState was given out."""
        answers = {} if sent.expected is None else sent.expected[0]
        self.world.sealed[text] = SealedState(
            owner=sent.owner,
            method=sent.method,
            params={k: v for k, v in sent.params.items() if k not in ("_meta", "inputResponses", "requestState")},
            asked=dict(asked.requests),
            answers=dict(answers),
            state=asked.state,
            single_use=asked.single_use,
            expires_ms=self.now.wall_ms + self.world.limits.request_state_ttl_ms,
        )


def _no_constant(name: str) -> Any:
    raise AssertionError(f"B10: a frame holds {name}")
