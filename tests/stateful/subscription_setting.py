"""Where a storm of subscriptions takes place: servers that share a store and an engine, one clock, and the calm."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable

import attrs

from mcp_tasks_core.access import AccessRule, Owner
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.lifecycle import TaskInput, apply
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.events import (
    Deferral,
    TaskChanged,
    Ticked,
    ToolDeferred,
)
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_peer import OWNERS
from stateful.store_ledger import ENDED
from stateful.subscription_asking import LIMITS
from stateful.subscription_listen import Listen
from stateful.subscription_server import Server
from stateful.subscription_tasks import BASE_MS, PREFIX, Engine, Rights, TimedLedger, Timelines

ALICE, BOB = OWNERS[0], OWNERS[1]


class SubscriptionSetting:
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

    def call(self, server: Server, owner: Owner, pick: Pick, *, claims: bool | None = None) -> None:
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

    def promptly(self, server: Server, act: Callable[[], None]) -> None:
        """Whatever is asked because of this is answered at once."""
        slow = tuple(server.pending)
        act()
        if not server.prompt:
            server.catch_up(but=slow)

    def a_live_task(self, pick: Pick, but: str = "\0") -> str | None:
        live = [task_id for task_id in self.timelines.live() if not task_id.startswith(but)]
        return pick.of(live) if live else None

    def change(self, task_id: str, task_input: TaskInput) -> None:
        row = self.ledger.load(TaskId(task_id))
        if row is None or row.status in ENDED:
            return
        record = decode_record(row.payload)
        changed = apply(record, task_input, BASE_MS + self.now_ms)
        if changed is not record:
            self.ledger.swap(row_of(changed, Revision(row.revision + 1), self.limits), "elsewhere")

    def compare(self, server: Server, listen: Listen, task_id: str) -> None:
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

    def sees(self, caller: Owner, task_id: str) -> bool:
        """Whether tasks/get would show the task to this caller now."""
        now = self.timelines.newest(task_id)
        return now is not None and self.rights.allows(caller, now.owner)

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
            if server.prompt:
                server.catch_up()
            server.check()

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
                    self.compare(server, listen, task_id)
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
