"""A storm of subscriptions: servers that share a store and an engine, and everything that can happen to listeners."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import attrs

from mcp_tasks_core.access import AccessRule, Owner
from mcp_tasks_core.identifiers import InputKey, Revision, TaskId
from mcp_tasks_core.lifecycle import Advance, Answer, Cancel, Complete, RequestCancel, Retime, TaskInput, apply
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import AskSource, Authorize, LoadTask
from mcp_tasks_core.server.events import (
    Deferral,
    InputNeeded,
    ListChanged,
    ListKind,
    ResourceUpdated,
    TaskChanged,
    Ticked,
    ToolDeferred,
    WorkCompleted,
    WorkProgressed,
)
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_peer import AUDITOR, OWNERS
from stateful.server_questions import ANSWERS, ENDS, QUESTIONS, fits
from stateful.store_ledger import ENDED
from stateful.subscription_listen import LISTS, Listen, Stream
from stateful.subscription_server import Server
from stateful.subscription_tasks import BASE_MS, PREFIX, Engine, Rights, TimedLedger, Timelines

ALICE, BOB = OWNERS[0], OWNERS[1]
_URIS: Final = ("file:///a", "file:///é", "file:///b")
_LONG: Final = "x" * 2_000

LIMITS: Final = Limits(
    answer_wait_ms=1_000,
    progress_interval_ms=100,
    cancel_grace_ms=500,
    settle_retry_ms=100,
    expiry_grace_ms=1_000,
    tombstone_ms=1_500,
    sweep_interval_ms=5_000,
    cached_states_max=2,
    lease_ms=100_000_000,
    lease_renewal_ms=10_000_000,
    hint_interval_ms=500,
    hints_max=3,
    subscription_tasks_max=6,
    subscription_resources_max=2,
    resource_uri_chars_max=20,
    subscriptions_per_stream_max=3,
    subscriptions_per_owner_max=5,
    subscribed_tasks_per_owner_max=12,
    subscription_duration_ms=15_000,
    reconcile_interval_ms=2_000,
    slow_reader_ms=4_000,
)


class SubscriptionWorld:
    """Servers, their listeners, and the tasks that these listen to.

    Args:
        burst_bytes: what one stream gets in one go.
    """

    def __init__(
        self, *, servers: int = 2, named: bool = True, access: AccessRule = AccessRule.OWNER, burst_bytes: int = 500
    ) -> None:
        self.limits = attrs.evolve(LIMITS, subscription_burst_bytes_max=burst_bytes)
        self.now_ms = 0
        self.streams = 0
        self.published: list[str] = []
        self.counts: Counter[str] = Counter()
        self.timelines = Timelines(lambda: self.now_ms)
        self.ledger = TimedLedger(self.timelines)
        self.engine = Engine(self.timelines, lambda: self.now_ms)
        self.rights = Rights(access, self.timelines, lambda: self.now_ms)
        self._entropy = 0
        self._ids = 0
        config = ServerConfig(
            server_info={"name": "storm", "version": "1"},
            tools=[ToolEntry(definition={"name": "work", "inputSchema": {"type": "object"}})],
            capabilities={"prompts": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}},
            access=access,
            sources={PREFIX: "engine"},
            limits=self.limits,
        )
        self.servers: list[Server] = []
        for name in ("a", "b")[:servers]:
            executor = name if named or servers > 1 else None
            self.servers.append(Server(name, self, attrs.evolve(config, executor=executor)))
            self.ledger.prompt.add(name)
        for server in self.servers:
            server.catch_up()

    # --- what happens to tasks

    def birth(self, pick: Pick) -> None:
        """A call becomes a task, or the engine begins one."""
        server = pick.of(self.servers)
        owner = pick.of([ALICE, ALICE, BOB])
        self.live(1)  # no two tasks with one id are of the same moment
        if len(self.timelines.live()) > 7:
            return
        if pick.number(0, 3) == 0:
            self.engine.begin(owner)
            return
        self._promptly(server, lambda: self._call(server, owner, pick))

    def _call(self, server: Server, owner: Owner, pick: Pick, *, claims: bool | None = None) -> None:
        before = len(server.calls)
        server.request(owner, "tools/call", name="work", arguments={})
        if len(server.calls) == before:
            return
        claims = pick.number(0, 3) == 0 if claims is None else claims
        self._entropy += 1
        entropy = hashlib.sha256(b"entropy %d" % self._entropy).digest()
        deferred = ToolDeferred(
            ticket=server.calls[-1].ticket,
            deferral=Deferral.CLAIM if claims else Deferral.START,
            entropy=b"" if claims else entropy,
            task_id=TaskId("claim-1") if claims else None,
            ttl_ms=pick.of([None, None, None, 20_000, 5_000, 1_000]),
        )
        server.feed(deferred)

    def _promptly(self, server: Server, act: Callable[[], None]) -> None:
        """Whatever is asked because of this is answered at once."""
        slow = tuple(server.pending)
        act()
        if not server.prompt:
            server.catch_up(but=slow)

    def work(self, pick: Pick) -> None:
        """The work behind a task goes on."""
        server = pick.of(self.servers)
        if not server.live:
            return
        task_id = pick.of(server.live)
        whim = pick.number(0, 3)
        if whim == 0:
            server.feed(WorkProgressed(task_id=task_id, message=f"step {pick.number(0, 9)}"))
        elif whim < 3:
            key = InputKey(pick.of(["first", "second", "third"]))
            server.feed(InputNeeded(task_id, key, pick.of(QUESTIONS[:2])))
        else:
            self.finish(pick)

    def finish(self, pick: Pick) -> None:
        """The work behind a task ends."""
        server = pick.of(self.servers)
        if server.live:
            task_id = pick.of(server.live)
            server.live.remove(task_id)
            server.feed(WorkCompleted(task_id, pick.of(ENDS)[0]))

    def owner(self, pick: Pick) -> None:
        """The owner of a task answers its questions, or cancels it."""
        server = pick.of(self.servers)
        task_id = self._live(pick, PREFIX)
        now = None if task_id is None else self.timelines.newest(task_id)
        if now is None or now.state is None or task_id is None:
            return
        asked = now.state.get("inputRequests")
        if asked and pick.number(0, 2):
            answers = {key: pick.of([x for x in ANSWERS if fits(asked[key], x)]) for key in asked}
            server.request(now.owner, "tasks/update", taskId=task_id, inputResponses=answers)
        else:
            server.request(now.owner, "tasks/cancel", taskId=task_id)

    def _live(self, pick: Pick, but: str = "\0") -> str | None:
        live = [task_id for task_id in self.timelines.live() if not task_id.startswith(but)]
        return pick.of(live) if live else None

    def elsewhere(self, pick: Pick) -> None:
        """A process that is not under test changes a task; whether there is a hint is another matter."""
        task_id = self._live(pick, PREFIX)
        if task_id is None:
            return
        row = self.ledger.load(TaskId(task_id))
        assert row is not None
        record = decode_record(row.payload)
        self.ledger.loses_hints = pick.of([True, False])
        inputs: list[TaskInput] = [
            Advance(f"elsewhere {pick.number(0, 9)}"),
            Answer({k: pick.of([x for x in ANSWERS if fits(e.request, x)]) for k, e in record.outstanding.items()}),
            Complete({"content": [], "resultType": "complete"}),
            Cancel("elsewhere"),
            RequestCancel(),
            Retime(pick.of([3_000, 20_000]), 50),
        ]
        self._change(task_id, pick.of(inputs))
        self.ledger.loses_hints = False

    def _change(self, task_id: str, task_input: TaskInput) -> None:
        row = self.ledger.load(TaskId(task_id))
        if row is None or row.status in ENDED:
            return
        record = decode_record(row.payload)
        changed = apply(record, task_input, BASE_MS + self.now_ms)
        if changed is not record:
            self.ledger.swap(row_of(changed, Revision(row.revision + 1), self.limits), "elsewhere")

    def engine_goes_on(self, pick: Pick) -> None:
        """Something happens to a task of the engine; it may tell."""
        live = [task_id for task_id in self.timelines.live() if task_id.startswith(PREFIX)]
        if live:
            task_id = pick.of(live)
            self.engine.step(task_id, pick)
            if pick.number(0, 2):
                pick.of(self.servers).feed(TaskChanged(TaskId(task_id)))

    def overtake(self, pick: Pick) -> None:
        """While the answer of a look is on its way, the task changes: here, or elsewhere with one more hint."""
        server = pick.of(self.servers)
        watched = {task_id for listen in server.open_listens for task_id in listen.agreed_ids}
        live = [task_id for task_id in self.timelines.live() if task_id in watched and not task_id.startswith(PREFIX)]
        if not live:
            return
        task_id, prompt = TaskId(pick.of(live)), server.prompt
        server.become(prompt=False)
        server.feed(TaskChanged(task_id))
        for pending in server.pending.values():
            server.do(pending)
        self.now_ms += 1
        if task_id in server.live and pick.number(0, 1):
            question = InputNeeded(task_id, InputKey(f"at {self.now_ms}"), QUESTIONS[0])
            self._promptly(server, lambda: server.feed(question))
        else:
            self._change(task_id, Advance(f"overtaken {self.now_ms}"))
            server.feed(TaskChanged(task_id))
        server.become(prompt=prompt)

    def purge(self, pick: Pick) -> None:
        """An operator deletes a row by hand; another task may take its id."""
        rows = [life.last.row.task_id for life in self.ledger.all_current()]
        claimed = TaskId("claim-1") in rows
        if claimed and pick.number(0, 1):
            self.ledger.purge(TaskId("claim-1"))
            self.live(1)
            server, owner = pick.of(self.servers), pick.of([ALICE, BOB])
            self._promptly(server, lambda: self._call(server, owner, pick, claims=True))
        elif rows and pick.number(0, 1):
            self.ledger.purge(pick.of(rows))

    def bustle(self, pick: Pick) -> None:
        """A task changes all the time, and every server is told."""
        task_id = self._live(pick, PREFIX)
        for _ in range(pick.number(3, 7)):
            if task_id is None or task_id not in self.timelines.live():
                return
            self.live(pick.of([400, 900]))
            self._change(task_id, Advance(f"bustle {self.now_ms}"))
            for server in self.servers:
                server.feed(TaskChanged(TaskId(task_id)))
            self.settle()

    def hint(self, pick: Pick) -> None:
        """A hint comes: true or not, once more, late, or about nothing. Then a prompt server has told the newest."""
        server = pick.of(self.servers)
        task_id = pick.of([*self.published[-6:], *list(self.timelines.of)[-6:], "unknown"])
        for _ in range(pick.number(1, 2)):
            server.feed(TaskChanged(TaskId(task_id)))
        if server.is_quiet and server.prompt:
            for listen in server.open_listens:
                self._compare(server, listen, task_id)

    def _compare(self, server: Server, listen: Listen, task_id: str) -> None:
        """A listener that takes what it gets holds the very state that it would get if it asked."""
        states = listen.judge.states_of(task_id)
        if listen.stream.blocked or task_id not in listen.agreed_ids or not listen.open or not states:
            return
        if server.paces(listen.stream):
            return
        answer = server.request(listen.stream.owner, "tasks/get", taskId=task_id)
        assert answer is not None
        if "result" in answer:
            shown = {name: value for name, value in answer["result"].items() if name not in ("resultType", "_meta")}
            again = states[-1]["createdAt"] != shown["createdAt"]
            ended = states[-1]["status"] in ("completed", "failed", "cancelled")
            parted = any(m.state is None for m in self.timelines.of[task_id][listen.last[task_id] :])
            prove(parted or again or states[-1] == shown, "S4", f"{states[-1]} and {shown}")
            prove(not ended or states[-1] == shown or again or parted, "S8", f"{states[-1]} and {shown}")
            self.counts["compared"] += 1

    # --- what clients do

    def listen(self, pick: Pick) -> None:
        """A client begins to listen."""
        server = pick.of(self.servers)
        shared = [s for s in server.streams.values() if not s.own and not s.closed]
        whim = pick.number(0, 3)
        if whim == 0 or (whim == 1 and not shared):
            stream = server.stream(pick.of([ALICE, ALICE, BOB, AUDITOR]), own=True)
        elif whim == 1 or len(shared) > 2:
            stream = pick.of(shared)
        else:
            stream = server.stream(pick.of([ALICE, ALICE, BOB, AUDITOR]), own=False)
        self._ids += 1
        request_id = pick.of([self._ids, f"id {self._ids}", str(self._ids - 1), self._ids - 1])
        params, expected, declares = self._filter(pick, server, stream)
        listen = server.listen(stream, request_id, params, expected, declares)
        self.counts[f"answered with {expected}" if expected else "opened"] += 1
        if expected is None and server.prompt and server.is_quiet and listen.judge.agreed is not None:
            may = {t for t in listen.task_ids if self._visible(t, stream.owner)}
            wanted = [t for t in listen.task_ids if t in may]
            prove(listen.agreed_ids == wanted, "S7", f"{listen.agreed_ids} in place of {wanted}")
            self.counts["left out"] += len(listen.task_ids) - len(wanted)
            for task_id in listen.agreed_ids:
                self._compare(server, listen, task_id)

    def _visible(self, task_id: str, caller: Owner) -> bool:
        now = self.timelines.newest(task_id)
        return now is not None and self.rights.allows(caller, now.owner)

    def _filter(self, pick: Pick, server: Server, stream: Stream) -> tuple[dict[str, Any], int | None, bool]:
        """Params, the error that answers them, and whether tasks are declared."""
        if pick.number(0, 19) == 0:
            bad: list[Any] = [None, [], {"taskIds": "x"}, {"taskIds": [5]}, {"toolsListChanged": "yes"}]
            return {"notifications": pick.of(bad)}, -32602, True
        live = self.timelines.live()
        mine = [t for t in live if self._visible(t, stream.owner)]
        some = [*mine * 3, *live, *list(self.timelines.of)[-5:], "unknown", f"{PREFIX}99", _LONG]
        notifications: dict[str, Any] = {}
        if pick.number(0, 7):
            notifications["taskIds"] = [pick.of(some) for _ in range(pick.of([1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 0, 7]))]
        if pick.number(0, 2) == 0:
            for kind in LISTS:
                if pick.number(0, 1):
                    notifications[f"{kind}ListChanged"] = pick.of([True, True, False])
        if pick.number(0, 3) == 0:
            uris = [*_URIS * 4, "file:///" + "y" * 20]
            notifications["resourceSubscriptions"] = [pick.of(uris) for _ in range(pick.of([1, 1, 2, 2, 2, 0, 3]))]
        declares = bool(pick.number(0, 19))
        return {"notifications": notifications}, self._refusal(server, stream, notifications, declares), declares

    def _refusal(self, server: Server, stream: Stream, asked: dict[str, Any], declares: bool) -> int | None:
        limits = self.limits
        ids, uris = asked.get("taskIds"), asked.get("resourceSubscriptions", [])
        if ids is not None and not declares:
            return -32021
        if len(ids or ()) > limits.subscription_tasks_max or len(uris) > limits.subscription_resources_max:
            return -32602
        if any(len(uri) > limits.resource_uri_chars_max for uri in uris):
            return -32602
        if len(server.listens_on(stream)) >= limits.subscriptions_per_stream_max:
            return -32603
        mine = [listen for listen in server.open_listens if listen.stream.owner == stream.owner]
        watched = sum(len(listen.task_ids) for listen in mine)
        if len(mine) >= limits.subscriptions_per_owner_max:
            return -32603
        more = len(set(ids or ()))
        return -32603 if more and watched + more > limits.subscribed_tasks_per_owner_max else None

    def leave(self, pick: Pick) -> None:
        """A client cancels its listen, or something that looks like it, or closes the stream."""
        server = pick.of(self.servers)
        streams = [stream for stream in server.streams.values() if server.listens_on(stream)]
        if not streams:
            return
        stream = pick.of(streams)
        whim = pick.number(0, 3)
        if whim == 0:
            server.close(stream)
        else:
            request_id = pick.of(server.listens_on(stream)).judge.request_id
            other = str(request_id) if type(request_id) is int else 0
            server.cancel(stream, request_id if whim == 1 else pick.of([other, None, 1.5, [request_id]]))

    def reader(self, pick: Pick) -> None:
        """A reader takes nothing more, or takes everything again."""
        server = pick.of(self.servers)
        streams = [s for s in server.streams.values() if server.listens_on(s) or (s.blocked and not s.closed)]
        if streams:
            stream = pick.of(streams)
            (server.unblock if stream.blocked else server.block)(stream)

    # --- what the application does

    def news(self, pick: Pick) -> None:
        """A list changed, or a resource, for everybody or for one owner."""
        owner = pick.of([None, None, ALICE, BOB])
        kind: ListChanged | ResourceUpdated = ListChanged(pick.of(list(ListKind)), owner)
        if pick.number(0, 1):
            kind = ResourceUpdated(pick.of(_URIS), owner)
        pick.of(self.servers).announce(kind)

    def right(self, pick: Pick) -> None:
        """A right is taken, or given back."""
        if self.rights.rule is AccessRule.ASK and pick.number(0, 1):
            self.rights.turn(pick.of([AUDITOR, AUDITOR, ALICE]))
        elif self.rights.rule is AccessRule.ASK:
            self._silence(pick)

    def _silence(self, pick: Pick) -> None:
        """Nobody says whether a listener may still see its task."""
        server = pick.of(self.servers)
        prompt = server.prompt
        server.become(prompt=False)
        self.live(self.limits.reconcile_interval_ms)
        for ticket in [t for t, p in server.pending.items() if isinstance(p.effect, LoadTask | AskSource)]:
            server.answer(ticket)
        asked = [ticket for ticket, p in server.pending.items() if isinstance(p.effect, Authorize)]
        if asked:
            server.fail(pick.of(asked), pick)
        server.become(prompt=prompt)

    def shutdown(self, pick: Pick) -> None:
        """A stream is about to end, or now and then a whole server."""
        server = pick.of(self.servers)
        streams = [stream for stream in server.streams.values() if server.listens_on(stream)]
        if pick.number(0, 29) == 0:
            server.shut_down()
        elif streams and pick.number(0, 1):
            server.end_stream(pick.of(streams))

    # --- the store and the clock

    def mood(self, pick: Pick) -> None:
        """A store that answers at once begins to take its time, or the other way round."""
        server = pick.of(self.servers)
        if server.prompt:
            server.become(prompt=False)
        elif pick.number(0, 2):
            server.become(prompt=True)

    def store(self, pick: Pick) -> None:
        """A slow store does something, answers something, fails, or never says."""
        for server in self.servers:
            if server.pending:
                ticket = pick.of(list(server.pending))
                whim = pick.number(0, 9)
                if whim < 5:
                    server.answer(ticket)
                elif whim < 8:
                    server.do(server.pending[ticket])
                else:
                    server.fail(ticket, pick)

    def time(self, pick: Pick) -> None:
        """Time passes, and prompt servers are told of every moment that they wait for."""
        self.live(pick.of([1, 50, 100, 500, 999, 1_000, 2_000, 500, 50, 3_999, 4_000, 7_000]))

    def late(self, pick: Pick) -> None:
        """A machine was busy: time has passed, and nobody was told."""
        self.now_ms += pick.of([10, 100, 1_500, 100, 1_500, 5_000, 20_000])
        for server in self.servers:
            server.quiet_ms = None if server.quiet_ms is None else max(server.quiet_ms, self.now_ms + 1)
            server.feed(Ticked())

    def live(self, span_ms: int) -> None:
        until_ms = self.now_ms + span_ms
        while True:
            prompt = [server for server in self.servers if server.prompt]
            due = [max(self.now_ms, d - 17) for s in prompt if (d := s.protocol.deadline) is not None]
            if not due or min(due) > until_ms:
                break
            self.now_ms = min(due)
            for server in prompt:
                server.feed(Ticked())
        self.now_ms = until_ms
        for server in self.servers:
            if not server.prompt:
                server.feed(Ticked())

    def settle(self) -> None:
        """What must hold after every step."""
        for server in self.servers:
            server.check()

    # --- in the end

    def calm(self) -> None:
        """No more hints, faults and blocked readers: within an interval everybody knows everything; then nothing is
        left."""
        self.ledger.loses_hints = True
        for server in self.servers:
            server.become(prompt=True)
        for server in self.servers:
            for stream in server.streams.values():
                if stream.blocked and not stream.closed and not stream.over:
                    server.unblock(stream)
        self.live(self.limits.answer_wait_ms + 2 * self.limits.reconcile_interval_ms)
        self.settle()
        for server in self.servers:
            for listen in server.open_listens:
                self.counts["open in the calm"] += 1
                for task_id in listen.agreed_ids:
                    server.feed(TaskChanged(TaskId(task_id)))
                    self._compare(server, listen, task_id)
        for server in self.servers:
            for listen in server.listens:
                self.counts["states"] += sum(map(len, map(listen.judge.states_of, listen.agreed_ids)))
            for stream in list(server.streams.values()):
                if not stream.closed:
                    server.close(stream)
            server.catch_up()
            server.check_empty()
        self.live(self.limits.answer_wait_ms)
        for server in self.servers:
            prove(server.protocol.open_tickets == 0, "DESIGN 3", f"{server.protocol.open_tickets} tickets are open")
            server.check_empty()
            server.replay()


STEPS: Final[dict[str, Callable[[SubscriptionWorld, Pick], None]]] = {
    "birth": SubscriptionWorld.birth,
    "listen": SubscriptionWorld.listen,
    "work": SubscriptionWorld.work,
    "finish": SubscriptionWorld.finish,
    "owner": SubscriptionWorld.owner,
    "elsewhere": SubscriptionWorld.elsewhere,
    "engine": SubscriptionWorld.engine_goes_on,
    "hint": SubscriptionWorld.hint,
    "reader": SubscriptionWorld.reader,
    "news": SubscriptionWorld.news,
    "time": SubscriptionWorld.time,
    "mood": SubscriptionWorld.mood,
    "store": SubscriptionWorld.store,
    "leave": SubscriptionWorld.leave,
    "right": SubscriptionWorld.right,
    "late": SubscriptionWorld.late,
    "bustle": SubscriptionWorld.bustle,
    "overtake": SubscriptionWorld.overtake,
    "purge": SubscriptionWorld.purge,
    "shutdown": SubscriptionWorld.shutdown,
}
