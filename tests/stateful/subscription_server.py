"""One server of a storm of subscriptions: its core, its streams, and what it has asked for and was not told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import Instant, RequestId, StreamId, TaskId, Ticket
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.effects import (
    AdoptWork,
    AskSource,
    Authorize,
    CutStream,
    DeleteTask,
    Frame,
    HoldLease,
    InvokeTool,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    PublishChange,
    ServerEffect,
    StartWork,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    ChangesListed,
    ListChanged,
    MessageReceived,
    ResourceUpdated,
    ServerEvent,
    ShutdownBegan,
    SourceAnswered,
    SourceAnswerKind,
    StoreFailed,
    StreamBlocked,
    StreamClosed,
    StreamEnding,
    StreamUnblocked,
    TaskChanged,
    Ticked,
)
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_core.testing.messages import as_bytes, request_message, request_meta
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_core import Pending
from stateful.subscription_answers import event_of, outcome_of
from stateful.subscription_listen import Listen, Stream
from stateful.subscription_tasks import BASE_MS, PREFIX

if TYPE_CHECKING:
    from stateful.subscription_setting import SubscriptionSetting

_TICKS_MAX = 10_000


class Server:
    """A core and everything around it. ``prompt``: whatever it asks is answered at once, and it is told of the time.

    ``quiet_ms`` is since when nothing that it asked is late, ``None`` while something may be.
    """

    def __init__(self, name: str, world: SubscriptionSetting, config: ServerConfig) -> None:
        self.name = name
        self.world = world
        self.config = config
        self.protocol = ServerProtocol(config)
        self.streams: dict[StreamId, Stream] = {}
        self.listens: list[Listen] = []
        self.pending: dict[Ticket, Pending] = {}
        self.calls: list[InvokeTool] = []
        self.live: list[TaskId] = []
        self.answers: dict[tuple[int, str], dict[str, Any]] = {}
        self.log: list[tuple[ServerEvent, Instant, tuple[ServerEffect, ...]]] = []
        self.prompt = True
        self.quiet_ms: int | None = world.now_ms
        self.shutting_down = False
        self.hinted: dict[str, int] = {}
        self._requests: set[tuple[int, str]] = set()
        self._busy = False
        self._waits_until_ms = -1
        self._overdue: set[Ticket] = set()
        self._never_decided: list[tuple[Authorize, int]] = []
        self._written: set[StreamId] = set()

    @property
    def now(self) -> Instant:
        return Instant(wall_ms=BASE_MS + self.world.now_ms, monotonic_ms=self.world.now_ms + 17)

    @property
    def is_quiet(self) -> bool:
        return self.quiet_ms is not None and self.quiet_ms <= self.world.now_ms

    @property
    def open_listens(self) -> list[Listen]:
        return [listen for listen in self.listens if listen.open and listen.expected is None]

    def listens_on(self, stream: Stream) -> list[Listen]:
        return [listen for listen in self.open_listens if listen.stream is stream]

    # --- events

    def feed(self, event: ServerEvent) -> None:
        """Hand in an event; a prompt server does all that follows from it."""
        self._handle(event)
        if self.prompt and not self._busy:
            self.catch_up()

    def catch_up(self, but: tuple[Ticket, ...] = ()) -> None:
        """Answer everything that was asked, and tick as long as the core wants it now."""
        self._busy = True
        for _ in range(_TICKS_MAX):
            wanted = next((ticket for ticket in self.pending if ticket not in but), None)
            if wanted is not None:
                self.answer(wanted)
            elif self._wants_tick():
                self._handle(Ticked())
            else:
                break
        else:
            raise AssertionError("DESIGN 3: the core asks for ticks without end")
        self._busy = False

    def _wants_tick(self) -> bool:
        deadline = self.protocol.deadline
        return self.prompt and deadline is not None and deadline <= self.now.monotonic_ms

    def _handle(self, event: ServerEvent) -> None:
        try:
            effects = tuple(self.protocol.handle(event, self.now))
        except Exception as problem:
            raise AssertionError(f"DESIGN 3: {event!r} made handle raise {problem!r}") from problem
        self.log.append((event, self.now, effects))
        self._note_hints(event)
        for effect in effects:
            self._take(effect)
        self._check_shape()
        self._tell_of_blocked()

    def _note_hints(self, event: ServerEvent) -> None:
        """What the core was told of is looked at at once, unless the store then fails."""
        count, limits = self.world.timelines.count, self.world.limits
        match event:
            case TaskChanged(task_id=task_id):
                self.hinted[task_id] = count
            case ChangesListed(ticket=ticket, task_ids=task_ids) if ticket not in self._overdue:
                self.hinted.update(dict.fromkeys(task_ids, count))
            case StoreFailed() | SourceAnswered(kind=SourceAnswerKind.FAILED):
                self.hinted.clear()
            case Ticked():
                since_ms = self.world.now_ms - limits.answer_wait_ms
                overdue = {ticket for ticket, pending in self.pending.items() if pending.issued_ms <= since_ms}
                self._overdue |= overdue
                if overdue:
                    self.hinted.clear()
            case _:
                pass

    def _tell_of_blocked(self) -> None:
        """As a runner does: once more when something was added to what a reader does not take."""
        written, self._written = self._written, set()
        for stream_id in sorted(written):
            stream = self.streams[stream_id]
            if stream.blocked and not stream.closed and not stream.over:
                self.block(stream)

    def _take(self, effect: ServerEffect) -> None:
        match effect:
            case Frame():
                self._on_frame(effect)
            case CutStream():
                stream = self.streams[effect.stream_id]
                for listen in self.listens_on(stream):
                    listen.take_cut()
                prove(not stream.over and not stream.closed, "S5", f"{stream} was cut after its end")
                stream.over = True
            case InvokeTool():
                self.calls.append(effect)
            case StartWork() | AdoptWork():
                self.live.append(effect.task_id)
            case PublishChange():
                self.world.published.append(effect.task_id)
            case (LoadTask() | StoreTask() | ListDue() | DeleteTask() | HoldLease() | ListOrphans() | ListChanges()) | (
                Authorize() | AskSource()
            ):
                self.pending[effect.ticket] = Pending(effect, self.world.now_ms)  # type: ignore[arg-type]
            case _:
                pass

    def _on_frame(self, frame: Frame) -> None:
        stream = self.streams[frame.stream_id]
        wire = json.loads(b"".join(frame.payload))
        prove(not stream.closed, "S6", f"{wire} on a closed stream")
        prove(not stream.over, "S5", f"{wire} after the end of its stream")
        self._written.add(stream.id)
        if "method" not in wire:
            key = (stream.id, json.dumps(wire["id"]))
            stream.over = stream.own
            if key in self._requests:
                self._requests.discard(key)
                self.answers[key] = wire
                return
        else:
            meta = wire["params"]["_meta"]
            key = (stream.id, json.dumps(meta["io.modelcontextprotocol/subscriptionId"]))
        listen = next((listen for listen in reversed(self.listens) if listen.key == key), None)
        prove(listen is not None, "S2", f"{wire} belongs to no subscription")
        assert listen is not None
        listen.take(wire, frame.final)

    # --- what must hold after every event

    def _check_shape(self) -> None:
        protocol, held = self.protocol, self.open_listens
        for listen in self.listens:
            ended = listen.judge.result is not None and not listen.stream.own
            prove(not ended or listen.judge.cancelled, "D22", f"{listen.judge.asked} ended without a cancellation")
        self.listens = [x for x in self.listens if x.open or x in self.listens[-40:]]
        for stream in {listen.stream.id: listen.stream for listen in self.listens}.values():
            if stream.told_ms is not None and not self.listens_on(stream):
                stream.told_ms = None  # the core forgets streams on which nothing is open
        prove(protocol.open_subscriptions == len(held), "B3", f"{protocol.open_subscriptions} for {len(held)}")
        core = {(e.stream_id, json.dumps(e.request_id)) for e in protocol.open_exchanges if e.method.endswith("listen")}
        prove(core == {listen.key for listen in held}, "B3", f"{core} are open")
        subscriptions: Any = protocol._subscriptions
        for channel in subscriptions._channels.values():
            for subscription in channel.subscriptions.values():
                uris, lists = subscription.agreement.uris or (), subscription.agreement.lists
                subjects = {*subscription.tasks, *uris, *lists}
                prove(set(subscription.waiting) <= subjects, "D44", f"{set(subscription.waiting)} of {subjects}")
                waits = subscription.open and channel.flowing and subscription.waiting
                prove(not waits, "D44", "something waits though there is room")

    def paces(self, stream: Stream) -> bool:
        """Whether the core has sent a burst, and goes on a moment later."""
        subscriptions: Any = self.protocol._subscriptions
        channel = subscriptions._channels.get(stream.id)
        at_ms = subscriptions._paced_ms.get(channel, 0) - self.now.monotonic_ms
        prove(at_ms <= 1, "S8", f"a stream that had its burst goes on after {at_ms} ms")
        return bool(at_ms == 1)

    def check(self) -> None:
        """What must hold when a prompt server has done everything."""
        if self.prompt:
            for listen in self.listens:
                listen.check()
        if self.prompt and self.is_quiet:
            held = self.open_listens
            watched = {(t, x.stream.owner if t.startswith(PREFIX) else None) for x in held for t in x.agreed_ids}
            prove(self.protocol.watched_tasks <= len(watched), "S11", f"{self.protocol.watched_tasks} for {watched}")

    # --- what clients do

    def stream(self, owner: Owner, *, own: bool) -> Stream:
        self.world.streams += 1
        stream = Stream(StreamId(self.world.streams), owner, own)
        self.streams[stream.id] = stream
        return stream

    def receive(self, stream: Stream, message: dict[str, Any]) -> None:
        self.feed(MessageReceived(stream.id, as_bytes(message), stream.owner, own_stream=stream.own))

    def request(self, owner: Owner, method: str, **params: Any) -> dict[str, Any] | None:
        """An ordinary request on a stream of its own; its answer, if it has come."""
        stream = self.stream(owner, own=True)
        key = (stream.id, "1")
        self._requests.add(key)
        self.receive(stream, request_message(1, method, {"_meta": request_meta(), **params}))
        return self.answers.get(key)

    def listen(
        self, stream: Stream, request_id: RequestId, params: dict[str, Any], expected: int | None, declares: bool
    ) -> Listen:
        asked = params.get("notifications")
        listen = Listen(self, stream, request_id, asked if isinstance(asked, dict) else {}, expected)
        taken = any(other.key == listen.key for other in self.open_listens)
        message = request_message(request_id, "subscriptions/listen", {"_meta": request_meta(tasks=declares), **params})
        if taken:
            self._requests.add(listen.key)
            self.receive(stream, message)
            error = self.answers.pop(listen.key)["error"]
            prove(error["code"] == -32600, "D41", f"{error} for an id that is in use")
            return listen
        self.listens.append(listen)
        self.receive(stream, message)
        if expected is not None:
            error = listen.judge.error or {}
            prove(error.get("code") == expected, "S11", f"{listen.judge.messages} to {params}, not {expected}")
            prove(bool(error["message"]), "S11", "an error that says nothing")
        return listen

    def cancel(self, stream: Stream, request_id: Any) -> None:
        """A client wants to hear no more of a listen, if it has one under this very id."""
        for listen in self.listens_on(stream):
            if listen.key == (stream.id, json.dumps(request_id)):
                listen.left = True
        params = {"requestId": request_id, "reason": "enough"}
        self.receive(stream, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def close(self, stream: Stream) -> None:
        for listen in self.listens_on(stream):
            listen.left = True
        stream.closed = True
        self.feed(StreamClosed(stream.id))

    def block(self, stream: Stream) -> None:
        stream.blocked = True
        if self.listens_on(stream) and stream.told_ms is None:
            stream.told_ms = self.world.now_ms
        self.feed(StreamBlocked(stream.id))

    def unblock(self, stream: Stream) -> None:
        stream.blocked, stream.told_ms = False, None
        self.feed(StreamUnblocked(stream.id))

    # --- what the application does

    def announce(self, event: ListChanged | ResourceUpdated) -> None:
        """Something changed that others listen to; whoever may know is to be told once."""
        if isinstance(event, ListChanged):
            name, subject = f"{event.kind.value}ListChanged", f"notifications/{event.kind.value}/list_changed"
        else:
            name, subject = "resourceSubscriptions", event.uri
        for listen in self.open_listens:
            agreed = (listen.judge.agreed or {}).get(name)
            if agreed and (agreed is True or subject in agreed) and event.owner in (None, listen.stream.owner):
                listen.due.add(subject)
        self.feed(event)

    def end_stream(self, stream: Stream) -> None:
        for listen in self.listens_on(stream):
            listen.ending = True
        self.feed(StreamEnding(stream.id))

    def shut_down(self) -> None:
        self.shutting_down = True
        self.feed(ShutdownBegan())

    # --- the store, the engine and the rights

    def become(self, *, prompt: bool) -> None:
        """Whether what is asked from now on is answered at once."""
        waited = not self.prompt
        self.prompt = prompt
        (self.world.ledger.prompt.add if prompt else self.world.ledger.prompt.discard)(self.name)
        if not prompt:
            self.quiet_ms = None
        elif waited:
            self.catch_up()
            self.quiet_ms = max(self.world.now_ms, self._waits_until_ms + 1)

    def do(self, pending: Pending) -> None:
        """Carry out what was asked; the answer may come later."""
        if not pending.done:
            pending.done = True
            pending.outcome = outcome_of(self.world, self.name, pending.effect)

    def answer(self, ticket: Ticket) -> None:
        """Do what was asked, if that is still to be done, and say how it went."""
        pending = self.pending.pop(ticket)
        self.do(pending)
        self.feed(event_of(pending.effect, pending.outcome))

    def fail(self, ticket: Ticket, pick: Pick) -> None:
        """What was asked fails, or was done all the same, or nobody ever hears of it."""
        pending = self.pending.pop(ticket)
        if pick.number(0, 1):
            self.do(pending)
        if isinstance(pending.effect, Authorize):
            self._note_undecided(pending.effect)
            self._never_decided.append((pending.effect, self.world.now_ms + self.world.limits.answer_wait_ms))
        if isinstance(pending.effect, Authorize) or pick.number(0, 2) == 0:
            self.hinted.clear()
            self._waits_until_ms = self.world.now_ms + self.world.limits.answer_wait_ms
        elif isinstance(pending.effect, AskSource):
            self.feed(SourceAnswered(ticket=ticket, kind=SourceAnswerKind.FAILED, reason="engine trouble"))
        else:
            self.feed(StoreFailed(ticket, "disk trouble", uncertain=pending.done))

    def doubts(self, owner: Owner, task_id: str) -> bool:
        """Whether it waits for a decision on this owner and this task: until then it tells nothing of the one to the
        other."""
        asked = [pending.effect for pending in self.pending.values() if isinstance(pending.effect, Authorize)]
        asked += [ask for ask, until_ms in self._never_decided if self.world.now_ms <= until_ms]
        return any((ask.caller, ask.task_id) == (owner, task_id) for ask in asked)

    def _note_undecided(self, ask: Authorize) -> None:
        """Nobody ever says whether a caller may still see a task: where one listener alone can be meant, it is lost."""
        meant = [x for x in self.listens if x.open or x.judge.agreed is None]
        mine = [x for x in meant if x.stream.owner == ask.caller and ask.task_id in x.task_ids]
        others = any(
            key[0] in self.streams and self.streams[StreamId(key[0])].owner == ask.caller for key in self._requests
        )
        if len(mine) == 1 and not others and ask.task_id in mine[0].agreed_ids:
            mine[0].undecided.add(ask.task_id)

    # --- in the end

    def replay(self) -> None:
        """The same events have the same effects in a fresh core."""
        again = ServerProtocol(self.config)
        for event, now, effects in self.log:
            prove(tuple(again.handle(event, now)) == effects, "DESIGN 3", f"{event!r} had other effects")

    def check_empty(self) -> None:
        """Nothing is kept of subscriptions that have ended."""
        protocol: Any = self.protocol
        subscriptions = protocol._subscriptions
        prove(protocol.open_subscriptions == 0 and protocol.watched_tasks == 0, "S11", "subscriptions are left")
        prove(not protocol.open_exchanges, "S11", f"left open: {protocol.open_exchanges}")
        prove(subscriptions.deadline_ms is None, "S11", "a moment of a subscription that has ended is waited for")
        for part in (subscriptions, subscriptions.tasks, subscriptions._room):
            for name, table in vars(part).items():
                kept = table.values() if name == "_of_list" else [table]
                prove(not any(len(x) for x in kept if isinstance(x, dict | list | set)), "S11", f"{name}: {table}")
