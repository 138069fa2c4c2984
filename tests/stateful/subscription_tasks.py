"""The tasks that a storm listens to: every state that each was ever in, and who was allowed to see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from mcp_tasks_core.access import Access, AccessRule, Owner
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.server.effects import AskSource, SourceOperation
from mcp_tasks_core.server.events import SourceAnswered, SourceAnswerKind
from mcp_tasks_core.store import StoredTask
from stateful.picking import Pick
from stateful.server_answers import shown, wall_moment
from stateful.server_peer import AUDITOR
from stateful.server_questions import QUESTIONS
from stateful.store_ledger import ENDED, LedgerStore, Version

BASE_MS: Final = 1_785_232_800_000
PREFIX: Final = "engine-"
SHOWN_TO: Final = "shownTo"
"""A member of the engine's states, which it makes for each caller."""


@attrs.define(eq=False)
class Moment:
    """What tasks/get shows from a count of changes on: a state, or ``None`` where there is no such task.

    Args:
        known_to: the server that has itself stored this state, and knows it.
    """

    count: int
    at_ms: int
    owner: Owner
    state: dict[str, Any] | None
    known_to: str | None
    until: int | None = None
    until_ms: int | None = None

    @property
    def ended(self) -> bool:
        return self.state is not None and self.state["status"] in ENDED


class Timelines:
    """The moments of every task in their order."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.count = 0
        self.of: dict[str, list[Moment]] = {}
        self._clock = clock

    def add(self, task_id: str, owner: Owner, state: dict[str, Any] | None, known_to: str | None = None) -> None:
        self.count += 1
        moments = self.of.setdefault(task_id, [])
        if moments:
            moments[-1].until, moments[-1].until_ms = self.count, self._clock()
        moments.append(Moment(self.count, self._clock(), owner, state, known_to))

    def newest(self, task_id: str) -> Moment | None:
        """What stands now, where that is a state."""
        moments = self.of.get(task_id)
        return moments[-1] if moments and moments[-1].state is not None else None

    def live(self) -> list[str]:
        """The tasks that have not ended."""
        return [task_id for task_id in self.of if (now := self.newest(task_id)) is not None and not now.ended]


class TimedLedger(LedgerStore):
    """A store that writes down when a task was in which state, and may lose hints."""

    def __init__(self, timelines: Timelines) -> None:
        super().__init__()
        self._timelines = timelines
        self.prompt: set[str] = set()
        self.loses_hints = False

    def create(self, row: StoredTask, writer: str) -> bool:
        return self._noted(row, writer, super().create(row, writer))

    def swap(self, row: StoredTask, writer: str) -> bool:
        """Never over a later task with the same id: only a hand that deletes and claims at once brings that about."""
        life = self.current(row.task_id)
        if life is not None and life.last.state["created"] != json.loads(row.payload)["created"]:
            return False
        return self._noted(row, writer, super().swap(row, writer))

    def _noted(self, row: StoredTask, writer: str, done: bool) -> bool:
        if done:
            life = self.current(row.task_id)
            assert life is not None
            state = None if life.last.state["expired"] else shown(life.last, payload=True)
            known_to = writer if writer in self.prompt else None
            self._timelines.add(row.task_id, Owner(*row.owner), state, known_to)
        return done

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        row = self.load(task_id)
        done = super().delete(task_id, revision)
        if done and row is not None:
            self._timelines.add(task_id, Owner(*row.owner), None)
        return done

    def purge(self, task_id: TaskId) -> None:
        """Somebody deletes a row by hand, whatever its state."""
        life = self.current(task_id)
        assert life is not None
        row = life.last.row
        assert self._store.delete(task_id, row.revision)
        self.changes += 1
        life.until = self.changes
        self._timelines.add(task_id, Owner(*row.owner), None)

    def _version(self, row: StoredTask, writer: str) -> Version:
        version = super()._version(row, writer)
        if self.loses_hints:
            self._hints.pop()
        return version


class Engine:
    """An engine of the application's own: its tasks are in no store."""

    def __init__(self, timelines: Timelines, clock: Callable[[], int]) -> None:
        self._timelines = timelines
        self._clock = clock
        self._stamp_ms = 0

    def begin(self, owner: Owner) -> str:
        task_id = f"{PREFIX}{sum(name.startswith(PREFIX) for name in self._timelines.of)}"
        self._note(task_id, owner, {"status": "working"}, self._stamp())
        return task_id

    def step(self, task_id: str, pick: Pick) -> None:
        """Something happens to a task: now and then nobody knows it any more."""
        now = self._timelines.newest(task_id)
        if now is None or now.state is None or now.ended:
            return
        question = pick.of(QUESTIONS[:2])
        steps: list[dict[str, Any] | None] = [
            {"status": "working", "statusMessage": f"step {pick.number(0, 3)}"},
            {"status": "input_required", "inputRequests": {"first": question}},
            {"status": "completed", "result": {"content": [], "resultType": "complete"}},
            {"status": "failed", "error": {"code": 7, "message": "As it should"}},
            {"status": "cancelled"},
            None,
        ]
        self._note(task_id, now.owner, pick.of(steps), now.state["createdAt"])

    def _note(self, task_id: str, owner: Owner, members: dict[str, Any] | None, created: str) -> None:
        head = {"taskId": task_id, "createdAt": created, "lastUpdatedAt": self._stamp(), "ttlMs": None}
        self._timelines.add(task_id, owner, None if members is None else {**head, **members})

    def _stamp(self) -> str:
        """A timestamp that was never used before."""
        self._stamp_ms = max(self._stamp_ms + 1, BASE_MS + self._clock())
        return wall_moment(self._stamp_ms)

    def answer(self, ask: AskSource) -> SourceAnswered:
        now = self._timelines.newest(ask.task_id)
        if now is None:
            return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.UNKNOWN)
        assert ask.operation is SourceOperation.READ
        assert now.state is not None
        state = {**now.state, SHOWN_TO: ask.caller.subject}
        return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.STATE, owner=now.owner, state=state)


class Rights:
    """Who may see what: each owner its own tasks, the auditor all of them, and nobody from whom that was taken.

    Args:
        rule: where it is ``OWNER``, nothing can be taken.
    """

    def __init__(self, rule: AccessRule, timelines: Timelines, clock: Callable[[], int]) -> None:
        self.rule = rule
        self._timelines = timelines
        self._clock = clock
        self.taken_ms: dict[Owner, int] = {}
        self._taken_at: dict[Owner, int] = {}

    def turn(self, caller: Owner) -> None:
        """Take the right from somebody, or give it back."""
        self._timelines.count += 1
        self._taken_at[caller] = self._timelines.count
        if self.taken_ms.pop(caller, None) is None:
            self.taken_ms[caller] = self._clock()

    def allows(self, caller: Owner, owner: Owner, access: Access = Access.READ) -> bool:
        if self.rule is AccessRule.OWNER:
            return caller == owner
        seen = caller == owner or (caller == AUDITOR and access is Access.READ)
        return seen and caller not in self.taken_ms

    def might_ever(self, caller: Owner, owner: Owner) -> bool:
        return caller == owner or (caller == AUDITOR and self.rule is AccessRule.ASK)

    def changed_since(self, caller: Owner, count: int) -> bool:
        return self._taken_at.get(caller, 0) > count

    def ever_changed(self, caller: Owner) -> bool:
        return caller in self._taken_at
