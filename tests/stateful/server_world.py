"""A storm around one or two cores that share a store: every step does one thing that can happen, and checks all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import attrs

from mcp_tasks_core.access import AccessRule, Owner
from mcp_tasks_core.identifiers import StreamId, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.config import Recovery, ServerConfig, ToolEntry
from mcp_tasks_core.server.events import Ticked
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_answers import SERVER_INFO
from stateful.server_application import Application
from stateful.server_core import BASE_MS, Core
from stateful.server_peer import AUDITOR, OWNERS, TOOLS, SealedState, Sent, compose, owners_message, retry, welcome_call
from stateful.server_storage import Storage
from stateful.store_ledger import LedgerStore, Life, Version

LIMITS: Final = Limits(
    open_exchanges_per_stream_max=6,
    answer_wait_ms=1_000,
    swap_attempts_max=4,
    inputs_per_task_max=4,
    inputs_outstanding_max=2,
    progress_interval_ms=100,
    cancel_grace_ms=500,
    settle_retry_ms=100,
    settle_attempts_max=100_000,
    expiry_grace_ms=1_000,
    tombstone_ms=2_000,
    sweep_interval_ms=5_000,
    sweep_rows_max=2,
    request_state_ttl_ms=10_000,
    cached_states_max=2,
    lease_ms=6_000,
    lease_renewal_ms=1_500,
    hint_interval_ms=2_000,
    hints_max=4,
)
TTL_MAX_MS: Final = 20_000
SKEWS_MS: Final = {"a": 0, "b": -700}
"""How far the wall clock of each process is off."""


class World:
    """Cores, their clients, their store, their application and the clock."""

    def __init__(
        self,
        *,
        cores: int = 2,
        named: bool = True,
        access: AccessRule = AccessRule.OWNER,
        call_limit_ms: int | None = None,
        input_extension_ms: int | None = None,
    ) -> None:
        self.limits = LIMITS
        self.now_ms = 0
        self.faults = 0
        self.ledger = LedgerStore()
        self.sealed: dict[str, SealedState] = {}
        self.left: set[TaskId] = set()
        self.orphaned: set[TaskId] = set()
        self.asked: set[tuple[TaskId, str]] = set()
        self.offers: dict[TaskId, list[tuple[str, Any]]] = {}
        self.progressing: Sent | None = None
        self.cancelled_at: dict[int, int] = {}
        self._entropy = 0
        self._streams = 0
        tool = {"inputSchema": {"type": "object"}}
        self._config = ServerConfig(
            server_info=SERVER_INFO,
            tools=[
                ToolEntry(definition={"name": name, **tool}, requires_task=name == "only", recovery=recovery)
                for name, recovery in zip(TOOLS, Recovery, strict=True)
            ],
            methods=frozenset({"prompts/get", "shop/echo"}),
            capabilities={"prompts": {}},
            subscriptions=False,
            access=access,
            request_state_keys=[RequestStateKey("k1", b"k" * 32)],
            call_limit_ms=call_limit_ms,
            input_extension_ms=input_extension_ms,
            limits=LIMITS,
        )
        self._named = named or cores > 1
        self._processes = 0
        self.past: list[Core] = []
        self.cores = [self._process(name) for name in list(SKEWS_MS)[:cores]]
        self.storage = Storage(self)
        self.application = Application(self)

    def entropy(self) -> bytes:
        self._entropy += 1
        return hashlib.sha256(b"entropy %d" % self._entropy).digest()

    def _process(self, name: str) -> Core:
        self._processes += 1
        executor = f"{name} {self._processes}" if self._named else None
        return Core(name, self, attrs.evolve(self._config, executor=executor), SKEWS_MS[name])

    # --- steps

    def message(self, pick: Pick) -> None:
        """A client opens a stream or uses one, and sends something."""
        core = pick.of(self.cores)
        while len(core.streams) > 6:
            core.close(next(iter(core.streams)))
        if not core.streams or (len(core.streams) < 4 and pick.number(0, 3) == 0):
            self._streams += 1
            core.streams[StreamId(self._streams)] = pick.of([*OWNERS[:1] * 4, *OWNERS, AUDITOR])
        stream_id = pick.of(list(core.streams))
        core.receive(stream_id, compose(pick, core, stream_id))
        self.settle()

    def birth(self, pick: Pick) -> None:
        """A call becomes a task, and everybody is prompt about it."""
        core = pick.of(self.cores)
        if len(core.live) > 3:
            return
        self._streams += 1
        stream_id = StreamId(self._streams)
        core.streams[stream_id] = pick.of(OWNERS)
        core.receive(stream_id, welcome_call(core, stream_id, pick.of(TOOLS)))
        self.application.promptly_defer(core, pick)
        whim = pick.number(0, 9)
        if whim == 9:
            core.close(stream_id)
        elif whim == 8:
            self._wait_in_vain(core)
        elif whim == 7:
            self.storage.race(core, pick)
        if whim != 8:
            self.storage.honest(core)
        if whim in (0, 1, 2):
            core.close(stream_id)
        self.settle()

    def _wait_in_vain(self, core: Core) -> None:
        """What was asked of the store takes too long; what is asked after that is answered."""
        slow = set(core.pending)
        self.now_ms += self.limits.answer_wait_ms
        self.tick(core)
        self.storage.honest(core, but=slow)

    def round(self, pick: Pick) -> None:
        """A client goes on with a request that was asked something, now and then once too often."""
        core = pick.of(self.cores)
        if not self.sealed:
            return
        text = pick.of(list(self.sealed)[-3:])
        self._streams += 1
        stream_id = StreamId(self._streams)
        core.streams[stream_id] = self.sealed[text].owner
        core.receive(stream_id, retry(pick, core, stream_id, text))
        self.settle()

    def finish(self, pick: Pick) -> None:
        """Live work ends, while the store has its moods."""
        core = pick.of(self.cores)
        if core.live:
            self.application.complete(core, pick.of(list(core.live)), pick)
            whim = pick.number(0, 3)
            if whim == 1:
                self.storage.reach_write(core)
                self.storage.race(core, pick)
            elif whim == 2:
                self._wait_in_vain(core)
            elif whim == 3:
                self.storage.refuse(core, pick)
        self.settle()

    def question(self, pick: Pick) -> None:
        """Live work asks something, and it is stored at once."""
        core = pick.of(self.cores)
        if core.live:
            self.application.ask(core, pick.of(list(core.live)), pick)
            self.storage.honest(core)
        self.settle()

    def owner(self, pick: Pick) -> None:
        """The owner of a task answers its questions or cancels it; the change gets as far as the store."""
        core = pick.of(self.cores)
        lives = [life for life in self.ledger.all_current() if not life.last.ended]
        if lives:
            life = pick.of(lives)
            self._streams += 1
            stream_id = StreamId(self._streams)
            core.streams[stream_id] = Owner(*life.owner)
            core.receive(stream_id, owners_message(pick, core, stream_id, life))
            self.storage.reach_write(core)
        self.settle()

    def race(self, pick: Pick) -> None:
        """While a core changes a task, somebody else is first, or the store does not know what it did."""
        core = pick.of(self.cores)
        self.storage.race(core, pick)
        self.settle()

    def close(self, pick: Pick) -> None:
        """A stream ends."""
        core = pick.of(self.cores)
        if core.streams:
            core.close(pick.of(list(core.streams)))
        self.settle()

    def store(self, pick: Pick) -> None:
        """The store does something, answers something, or fails to."""
        self.storage.step(pick)
        self.settle()

    def prompt(self, pick: Pick) -> None:
        """The store answers everything, for once."""
        self.storage.honest(pick.of(self.cores))
        self.settle()

    def call(self, pick: Pick) -> None:
        """The application says something about a call, or answers it."""
        self.application.call(pick)
        self.settle()

    def work(self, pick: Pick) -> None:
        """The work behind some task says something."""
        self.application.work(pick)
        self.settle()

    def outsider(self, pick: Pick) -> None:
        """Another process changes a task."""
        self.storage.outsider(pick)
        self.settle()

    def blunder(self, pick: Pick) -> None:
        """The runner or the application breaks a rule."""
        self.application.blunder(pick)
        self.settle()

    def crash(self, pick: Pick) -> None:
        """A process dies and another takes its place; what it asked of the store may be done all the same."""
        if not self._named:
            return
        place = pick.number(0, len(self.cores) - 1)
        core = self.cores[place]
        for pending in core.pending.values():
            if pick.number(0, 1):
                self.storage.do(core, pending)
        self.past.append(core)
        self.cores[place] = self._process(core.name)
        self.settle()

    def time(self, pick: Pick) -> None:
        """Time passes; whether the cores are told is another matter."""
        spans = [0, 1, 50, 100, 499, 500, 999, 1_000, 1_001, 4_000, TTL_MAX_MS, 3 * TTL_MAX_MS]
        core = pick.of(self.cores)
        deadline = core.protocol.deadline
        if deadline is not None and pick.number(0, 1):
            self.now_ms = max(self.now_ms, deadline - core.now.monotonic_ms + self.now_ms - pick.number(0, 1))
        else:
            self.now_ms += pick.of(spans)
        if pick.number(0, 3):
            self.tick(core)
        self.settle()

    def tick(self, core: Core) -> None:
        waits = [self.now_ms - pending.issued_ms for pending in core.pending.values()]
        if any(waited >= self.limits.answer_wait_ms for waited in waits):
            self.faults += 1
        core.feed(Ticked())

    # --- what must hold after every step

    def settle(self) -> None:
        for life, version in self.ledger.fresh:
            self._judge_version(life, version)
        self.ledger.fresh.clear()
        for core in self.cores:
            deadline = core.protocol.deadline
            prove(deadline is None or type(deadline) is int, "DESIGN 3", f"deadline is {deadline!r}")

    def _judge_version(self, life: Life, version: Version) -> None:
        """A task ends as its work, its client or its time says, and never before."""
        state = version.state
        if state["cancel"] is not None and id(life) not in self.cancelled_at:
            self.cancelled_at[id(life)] = self.now_ms
        wall_ms = BASE_MS + self.now_ms + SKEWS_MS.get(version.writer, 0)
        age_ms = wall_ms - state["created"]
        if state["expired"]:
            prove(state["ttl"] is not None and age_ms >= state["ttl"] + self.limits.expiry_grace_ms, "T4", f"{state}")
            return
        if not version.ended:
            return
        offers = self.offers.get(version.row.task_id, [])
        if state["status"] == "completed":
            prove(("completed", state["result"]) in offers, "T2", f"nobody returned {state['result']}")
        elif state["status"] == "cancelled":
            waited_ms = self.now_ms - self.cancelled_at.get(id(life), self.now_ms)
            unrun = (self._named and state["executor"] is None) or version.row.task_id in self.orphaned | self.left
            told = ("cancelled", None) in offers or not life.announced or unrun
            prove(told or waited_ms >= self.limits.cancel_grace_ms, "D28", f"cancelled after {waited_ms} ms: {state}")
        else:
            self._judge_failure(life, state, offers, age_ms)

    def _judge_failure(self, life: Life, state: Any, offers: list[tuple[str, Any]], age_ms: int) -> None:
        error = state["error"]
        if ("failed", error["code"]) in offers:
            return
        reason = error.get("data", {}).get("reason")
        if reason == "expired":
            prove(state["ttl"] is not None and age_ms >= state["ttl"], "D10", f"failed before its time: {state}")
        elif reason == "worker_lost":
            prove(life.last.row.task_id in self.orphaned, "D31", f"work was lost that nobody found lost: {state}")
        else:
            unannounced = reason == "store_unavailable" and not life.announced
            prove(unannounced, "T1", f"an announced task failed, and nobody said so: {state}")


STEPS: Final[dict[str, Callable[[World, Pick], None]]] = {
    "message": World.message,
    "birth": World.birth,
    "question": World.question,
    "owner": World.owner,
    "race": World.race,
    "round": World.round,
    "finish": World.finish,
    "store": World.store,
    "call": World.call,
    "work": World.work,
    "prompt": World.prompt,
    "time": World.time,
    "close": World.close,
    "outsider": World.outsider,
    "crash": World.crash,
    "blunder": World.blunder,
}
