"""The store of a storm: it does what it was asked at any moment, and says so at another, truly or not."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mcp_tasks_core.access import Access
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import Revision, Ticket
from mcp_tasks_core.lifecycle import Advance, Answer, Cancel, Complete, Fail, RequestCancel, Retime, TaskInput, apply
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.effects import (
    Authorize,
    DeleteTask,
    HoldLease,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    AccessDecided,
    ChangesListed,
    DueListed,
    LeaseHeld,
    OrphansListed,
    ServerEvent,
    StoreConflicted,
    StoreFailed,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
)
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_core import BASE_MS, Core, Pending
from stateful.server_peer import AUDITOR
from stateful.server_questions import ANSWERS, fits

if TYPE_CHECKING:
    from stateful.server_world import World
    from stateful.store_ledger import Life


class Storage:
    """Does and answers the open effects of all cores."""

    def __init__(self, world: World) -> None:
        self._world = world

    def step(self, pick: Pick) -> None:
        """One effect is done, or answered: honestly, with a failure, or after a failure that was none."""
        core = pick.of(self._world.cores)
        if not core.pending:
            return
        ticket = pick.of(list(core.pending))
        pending = core.pending[ticket]
        whim = pick.number(0, 9)
        if whim < 6:
            self._answer(core, ticket)
        elif whim < 8:
            self.do(core, pending)
        else:
            self._fail(core, ticket, pick)

    def honest(self, core: Core, but: Collection[Ticket] = ()) -> None:
        """Do and answer everything that is open, the oldest first, until nothing is."""
        while wanted := [ticket for ticket in core.pending if ticket not in but]:
            self._answer(core, wanted[0])

    def refuse(self, core: Core, pick: Pick) -> None:
        """Fail everything that is open now."""
        for ticket in list(core.pending):
            self._fail(core, ticket, pick)

    def reach_write(self, core: Core) -> None:
        """Answer everything honestly but writes."""
        while readers := [t for t, p in core.pending.items() if not isinstance(p.effect, StoreTask | DeleteTask)]:
            self._answer(core, readers[0])

    def race(self, core: Core, pick: Pick) -> None:
        """Let another writer be first at what a core is writing, or leave in doubt whether it was written."""
        writes = [t for t, p in core.pending.items() if isinstance(p.effect, StoreTask) and not p.done]
        if not writes:
            return
        ticket = pick.of(writes)
        effect = core.pending[ticket].effect
        life = self._world.ledger.current(effect.row.task_id) if isinstance(effect, StoreTask) else None
        whim = pick.number(0, 2)
        if whim == 0 and life is not None and not life.last.ended:
            self._write(life, pick)
            self._answer(core, ticket)
        elif whim == 1:
            self._fail(core, ticket, pick)
        else:
            del core.pending[ticket]
            core.used.append(ticket)
            self._world.faults += 1
            core.feed(StoreFailed(ticket, "no word from the disk", uncertain=True))

    def do(self, core: Core, pending: Pending) -> None:
        if pending.done:
            return
        ledger = self._world.ledger
        pending.done, pending.done_at = True, ledger.changes
        match pending.effect:
            case LoadTask(task_id=task_id):
                pending.outcome = ledger.load(task_id)
            case StoreTask(row=row):
                self._check_age(core, row.task_id, None)
                write = ledger.create if row.revision == 1 else ledger.swap
                pending.outcome = write(row, core.name)
            case ListDue(until_ms=until_ms, limit=limit):
                pending.outcome = ledger.list_due(until_ms, limit)
            case DeleteTask(task_id=task_id, revision=revision):
                self._check_age(core, task_id, revision)
                pending.outcome = ledger.delete(task_id, revision)
            case HoldLease(executor=executor, until_ms=until_ms):
                ledger.hold_lease(executor, until_ms)
            case ListOrphans(now_ms=now_ms, limit=limit):
                pending.outcome = ledger.list_orphans(now_ms, limit)
                self._world.orphaned.update(row.task_id for row in pending.outcome)
            case ListChanges(after=after, limit=limit):
                pending.outcome = ledger.list_changes(after, limit)
            case Authorize(caller=caller, access=access, owner=owner):
                pending.outcome = caller == owner or (caller == AUDITOR and access is Access.READ)

    def _check_age(self, core: Core, task_id: Any, revision: Revision | None) -> None:
        life = self._world.ledger.current(task_id)
        if revision is None or life is None or life.last.row.revision != revision:
            return
        state, limits = life.last.state, self._world.limits
        over_ms = BASE_MS + self._world.now_ms + core.skew_ms - state["created"] - limits.expiry_grace_ms
        prove(
            state["ttl"] is not None and over_ms >= state["ttl"] + limits.tombstone_ms, "T4", f"removed early: {state}"
        )

    def _answer(self, core: Core, ticket: Ticket) -> None:
        pending = core.pending.pop(ticket)
        self.do(core, pending)
        core.used.append(ticket)
        outcome = pending.outcome
        match pending.effect:
            case LoadTask(task_id=task_id):
                if outcome is not None:
                    core.reads[task_id] = max(core.reads.get(task_id, 0), pending.done_at)
                core.feed(TaskLoaded(ticket, outcome))
            case StoreTask():
                if not outcome:
                    self._world.faults += 1
                core.feed(TaskStored(ticket) if outcome else StoreConflicted(ticket))
            case ListDue():
                core.feed(DueListed(ticket, outcome))
            case DeleteTask():
                core.feed(TaskDeleted(ticket))
            case HoldLease():
                core.feed(LeaseHeld(ticket))
            case ListOrphans():
                core.feed(OrphansListed(ticket, outcome))
            case ListChanges():
                core.feed(ChangesListed(ticket, *outcome))
            case Authorize():
                core.feed(AccessDecided(ticket, outcome))

    def _fail(self, core: Core, ticket: Ticket, pick: Pick) -> None:
        pending = core.pending[ticket]
        if isinstance(pending.effect, Authorize):
            return  # an application that cannot decide says nothing, and is waited for only so long
        uncertain = False
        if isinstance(pending.effect, StoreTask | DeleteTask):
            if pick.number(0, 1):
                self.do(core, pending)
            uncertain = pending.done or pick.number(0, 1) == 1
        del core.pending[ticket]
        core.used.append(ticket)
        self._world.faults += 1
        core.feed(StoreFailed(ticket, "disk trouble", uncertain, full=not uncertain and pick.number(0, 3) == 0))

    # --- other writers

    def outsider(self, pick: Pick) -> None:
        """A process that is not under test changes a task, by the same rules."""
        world = self._world
        lives = [life for life in world.ledger.all_current() if not life.last.ended]
        if not lives:
            return
        self._write(pick.of(lives), pick)

    def _write(self, life: Life, pick: Pick) -> None:
        world = self._world
        record = decode_record(life.last.row.payload)
        task_input = self._input(pick, record.outstanding)
        now_ms = BASE_MS + world.now_ms + pick.of([0, -3_000, 3_000])
        changed = apply(record, task_input, now_ms)
        if changed is record:
            return
        row = row_of(changed, Revision(life.last.row.revision + 1), world.limits)
        offer: tuple[str, Any] | None = None
        match task_input:
            case Complete(result=result):
                offer = ("completed", result)
            case Fail(error=error):
                offer = ("failed", error.code)
            case Cancel():
                offer = ("cancelled", None)
        if offer is not None:
            world.offers.setdefault(row.task_id, []).append(offer)
        world.ledger.swap(row, "outsider")

    def _input(self, pick: Pick, outstanding: Any) -> TaskInput:
        answers = {
            key: pick.of([answer for answer in ANSWERS if fits(entry.request, answer)])
            for key, entry in outstanding.items()
        }
        inputs: list[TaskInput] = [
            Advance(f"elsewhere {pick.number(0, 3)}"),
            Answer(answers),
            RequestCancel(),
            Retime(pick.of([5_000, 20_000]), 50),
            Complete({"content": [], "resultType": "complete", "by": "outsider"}),
            Fail(ErrorObject(11, "Elsewhere")),
            Cancel("elsewhere"),
        ]
        return pick.of(inputs)


def repeated(core: Core, ticket: Ticket, pick: Pick) -> ServerEvent:
    """Any answer to a ticket that was answered before."""
    answers: list[ServerEvent] = [
        TaskStored(ticket),
        TaskLoaded(ticket, None),
        StoreFailed(ticket, "late"),
        TaskDeleted(ticket),
    ]
    return pick.of(answers)
