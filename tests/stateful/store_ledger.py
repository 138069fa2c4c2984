"""A store that remembers every row it ever held, and judges each change by rules of its own.

Nothing here asks the lifecycle module: a row's payload is read as the JSON that it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import MemoryTaskStore, StoredTask
from stateful.proving import prove
from stateful.server_questions import fits

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_OPEN: Final = frozenset({"working", "input_required"})
_CONSTANT: Final = ("id", "owner", "created", "method", "capabilities", "v")
_KIND_CAPABILITY: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


@attrs.frozen
class Version:
    """One durable state of a task, and the moment (a count of changes) since when it stood."""

    since: int
    row: StoredTask
    state: dict[str, Any]
    writer: str

    @property
    def outstanding(self) -> dict[str, Any]:
        return {key: asked for key, asked, answer, gone in self.state["inputs"] if answer is None and not gone}

    @property
    def answers(self) -> dict[str, Any]:
        return {key: answer for key, _, answer, _ in self.state["inputs"] if answer is not None}

    @property
    def ended(self) -> bool:
        return self.state["status"] in ENDED

    @property
    def visible(self) -> dict[str, Any]:
        """What a client can see, but for the timestamps."""
        seen = {name: self.state[name] for name in ("status", "ttl", "poll", "message", "result", "error", "expired")}
        return {**seen, "outstanding": self.outstanding}


class Life:
    """A task from its creation to its removal."""

    def __init__(self, first: Version) -> None:
        self.versions = [first]
        self.until: int | None = None
        self.announced = False
        self.works = 0
        self.resumed: set[int] = set()

    @property
    def last(self) -> Version:
        return self.versions[-1]

    @property
    def owner(self) -> tuple[str, str]:
        tenant, subject = self.last.state["owner"]
        return tenant, subject

    def standing(self, since: int) -> Iterator[Version]:
        """The versions that stood at some moment since then."""
        for version, follower in zip(self.versions, [*self.versions[1:], None], strict=True):
            end = self.until if follower is None else follower.since
            if end is None or end > since:
                yield version


class LedgerStore:
    """``MemoryTaskStore`` with a memory."""

    def __init__(self) -> None:
        self._store = MemoryTaskStore()
        self.lives: dict[TaskId, list[Life]] = {}
        self.changes = 0
        self.leases: dict[str, int] = {}
        self._hints: list[TaskId] = []
        self.fresh: list[tuple[Life, Version]] = []

    def __len__(self) -> int:
        return len(self._store)

    def current(self, task_id: TaskId) -> Life | None:
        lives = self.lives.get(task_id)
        return lives[-1] if lives and lives[-1].until is None else None

    def since(self, task_id: TaskId, moment: int) -> list[Life]:
        """The lives of this id that were there at some moment since then."""
        return [life for life in self.lives.get(task_id, []) if life.until is None or life.until > moment]

    def all_current(self) -> list[Life]:
        return [lives[-1] for lives in self.lives.values() if lives[-1].until is None]

    def create(self, row: StoredTask, writer: str) -> bool:
        prove(row.revision == 1, "T1", f"a row is created at revision {row.revision}")
        if not self._store.create(row):
            return False
        life = Life(self._version(row, writer))
        prove(row.status not in ENDED, "C4", "a task of ours begins unfinished")
        self.lives.setdefault(row.task_id, []).append(life)
        self.fresh.append((life, life.last))
        return True

    def swap(self, row: StoredTask, writer: str) -> bool:
        if not self._store.swap(row):
            return False
        life = self.current(row.task_id)
        assert life is not None
        version = self._version(row, writer)
        _judge(life.last, version)
        life.versions.append(version)
        self.fresh.append((life, version))
        return True

    def load(self, task_id: TaskId) -> StoredTask | None:
        return self._store.load(task_id)

    def list_due(self, until_ms: int, limit: int) -> list[StoredTask]:
        return self._store.list_due(until_ms, limit)

    def hold_lease(self, executor: str, until_ms: int) -> None:
        self.leases[executor] = max(until_ms, self.leases.get(executor, until_ms))

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        rows = [life.last.row for life in self.all_current()]
        dead = [row for row in rows if row.executor is not None and self.leases.get(row.executor, now_ms) <= now_ms]
        return dead[:limit]

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        if after < 0:
            return len(self._hints), []
        return min(len(self._hints), after + limit), self._hints[after : after + limit]

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        if not self._store.delete(task_id, revision):
            return False
        life = self.current(task_id)
        assert life is not None
        prove(life.last.state["expired"], "T5", f"the task {task_id} was removed without a tombstone")
        self.changes += 1
        life.until = self.changes
        return True

    def _version(self, row: StoredTask, writer: str) -> Version:
        self.changes += 1
        state = json.loads(row.payload)
        prove(state["status"] == row.status, "T1", "a row's status is that of its record")
        self._hints.append(row.task_id)
        version = Version(self.changes, row, state, writer)
        waits = bool(version.outstanding)
        prove(
            waits == (row.status == "input_required"), "G2", f"{row.status} with {len(version.outstanding)} questions"
        )
        return version


def _judge(old: Version, new: Version) -> None:
    """Refuse a change that no task may go through."""
    was, now = old.state, new.state
    prove(new.row.revision == old.row.revision + 1, "T1", "revisions count up one by one")
    for name in _CONSTANT:
        prove(was[name] == now[name], "T1", f"{name} of a task changed from {was[name]!r} to {now[name]!r}")
    prove(was["updated"] <= now["updated"], "T3", "lastUpdatedAt went back")
    if was["status"] in ENDED:
        buried = {**was, "expired": True, "request": {}, "inputs": [], "result": None, "error": None, "message": None}
        prove(now == buried and not was["expired"], "T1", f"a {was['status']} task changed to {now}")
        return
    prove(not now["expired"], "T5", "an unfinished task became a tombstone")
    if old.visible == new.visible:
        adopted = (was["executor"], was["attempts"]) != (now["executor"], now["attempts"])
        prove(adopted, "T3", "a change that nobody can see was stored")
        prove(now["updated"] == was["updated"], "T3", "lastUpdatedAt moved, and nothing can be seen to have changed")
    else:
        prove(now["updated"] > was["updated"], "T3", "lastUpdatedAt stood still while the state changed")
        prove(now["executor"] == was["executor"], "T1", "the executor changed with the state")
    _judge_inputs(old, new)


def _judge_inputs(old: Version, new: Version) -> None:
    after = {key: (asked, answer, gone) for key, asked, answer, gone in new.state["inputs"]}
    for key, asked, answer, gone in old.state["inputs"]:
        prove(key in after, "U2", f"the question {key!r} was forgotten")
        prove(after[key][0] == asked, "U2", f"the key {key!r} got a second meaning")
        if answer is not None or gone:
            prove(after[key][1:] == (answer, gone), "U6", f"the settled question {key!r} changed")
        prove(not (after[key][1] is not None and after[key][2]), "U6", f"{key!r} is answered and withdrawn")
    settled = old.answers
    for key, (asked, answer, _) in after.items():
        prove(
            answer is None or key in settled or fits(asked, answer),
            "U5",
            f"{answer} was taken for an answer to {key!r}",
        )
        needed = _KIND_CAPABILITY[asked["method"]]
        prove(needed in new.state["capabilities"], "U7", f"{key!r} asks {needed}, which the creator did not declare")
