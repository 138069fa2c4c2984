"""Reading and changing stored tasks: load, apply a pure change, swap, and again when another writer was first."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import attrs

from mcp_tasks_core.access import Access, AccessRule, Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import JSONObject, JSONValue, Revision, TaskId
from mcp_tasks_core.records import UnreadableRecord, due_at_ms
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import Authorize, DeleteTask, LoadTask, PublishChange, Severity, StoreTask
from mcp_tasks_core.server.events import (
    AccessDecided,
    StoreConflicted,
    StoreFailed,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
)
from mcp_tasks_core.server.machine import Expired, Machine, Need
from mcp_tasks_core.server.states import TaskState
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TaskRecord

_T = TypeVar("_T")
Step: TypeAlias = Generator[Need, Any, _T]

LOAD_ANSWERS = (TaskLoaded, StoreFailed)
STORE_ANSWERS = (TaskStored, StoreConflicted, StoreFailed)
StoreAnswer: TypeAlias = TaskStored | StoreConflicted | StoreFailed


class Refusal(Exception):
    """A request that is answered with this error."""

    def __init__(self, error: ErrorObject) -> None:
        super().__init__(error.message)
        self.error = error


class Unstorable(Exception):
    """A record that holds what JSON cannot."""


@attrs.frozen
class Change:
    """What a change made of a task. ``before is after`` when it made nothing of it.

    Args:
        unsure: an earlier attempt may have been stored all the same; ``after`` then shows what came of it.
    """

    before: TaskRecord
    after: TaskRecord
    unsure: bool = False


class Storing:
    """The store as procedures see it. Store trouble is a ``Refusal`` with -32603."""

    def __init__(self, machine: Machine, note_due: Callable[[int | None], None]) -> None:
        self._machine = machine
        self._note_due = note_due
        self.note_state: Callable[[StoredTask], None] = _nobody_watches
        self._wait_ms = machine.limits.answer_wait_ms

    def load(self, task_id: TaskId) -> Step[tuple[StoredTask, TaskState] | None]:
        """The newest row and what is in it.

        Raises:
            Refusal: the store does not answer, or holds what cannot be read.
        """
        row = yield from self.load_row(task_id)
        return None if row is None else (row, self.state_of(row))

    def load_row(self, task_id: TaskId) -> Step[StoredTask | None]:
        """The newest row, not looked into yet.

        Raises:
            Refusal: the store does not answer.
        """
        answer = yield Need(lambda ticket: LoadTask(ticket, task_id), LOAD_ANSWERS, self._wait_ms)
        if type(answer) is not TaskLoaded:
            raise self.trouble(f"reading task {task_id}", answer)
        self._machine.states.note(task_id, answer.row, self._machine.now.monotonic_ms)
        return answer.row

    def is_foreign(self, row: StoredTask, caller: Owner) -> bool:
        """Whether the owner's rule alone keeps this caller out. Told by the row, so that a task of somebody else's
        costs no more work than an unknown one."""
        return self._machine.config.access is AccessRule.OWNER and row.owner != (caller.tenant, caller.subject)

    def state_of(self, row: StoredTask) -> TaskState:
        try:
            return self._machine.states.of(row)
        except UnreadableRecord as problem:
            self._machine.report(Severity.ERROR, f"task {row.task_id}: {problem}")
            raise Refusal(faults.INTERNAL) from problem

    def check_answer(self, key: str, request: JSONObject, answer: JSONValue) -> None:
        """Hold an answer against its question.

        Raises:
            Refusal: it is none (-32602), or the configured check broke on it (-32603).
        """
        try:
            problem = self._machine.config.check_answer(request, answer)
        except Exception as broken:  # The check is not ours, what it looks at is a peer's: neither may end the core.
            self._machine.report(Severity.ERROR, f"check_answer failed on an answer to {key!r}: {broken!r}")
            raise Refusal(faults.INTERNAL) from broken
        if problem is not None:
            raise Refusal(faults.invalid_params(f"params.inputResponses.{key}: {problem}"))

    def trouble(self, doing: str, answer: StoreFailed | Expired) -> Refusal:
        """Store trouble as the caller is told of it; the reason goes to the log."""
        full = False
        if isinstance(answer, StoreFailed):
            reason, full = answer.reason, answer.full
        else:
            reason = f"no answer within {answer.wait_ms} ms"
        self._machine.report(Severity.ERROR, f"the store failed while {doing}: {reason}")
        return Refusal(faults.STORE_FULL if full else faults.STORE_UNAVAILABLE)

    def row(self, record: TaskRecord, revision: Revision) -> StoredTask:
        try:
            return self._machine.states.row(record, revision)
        except (ValueError, TypeError, RecursionError) as problem:
            raise Unstorable(f"task {record.task_id} cannot be stored: {problem}") from problem

    def change(self, task_id: TaskId, decide: Callable[[TaskRecord], TaskRecord]) -> Step[Change | None]:
        """Apply a pure change to the newest state; ``None`` when there is no such task.

        A change to work that runs here starts from the state that this process stored last: the swap fails where
        another writer was there since. But only what was read says that there is nothing to change.

        ``decide`` runs anew on what is read after a conflict or an uncertain outcome, so a change that was made
        after all is found to be made. Whatever it raises ends the change.

        Raises:
            Refusal: the store does not answer, or too many writers were first.
            Unstorable: the changed record cannot be stored.
        """
        unsure = False
        guess = self._machine.states.recent(task_id, self._machine.now.monotonic_ms)
        attempts = self._machine.limits.swap_attempts_max
        while attempts > 0:
            row, guessed = guess, guess is not None
            guess = None
            if row is None:
                attempts -= 1
                row = yield from self.load_row(task_id)
            if row is None:
                return None
            before = self.state_of(row).record
            try:
                after = decide(before)
            except Exception:
                if guessed:
                    continue  # nothing is refused by what may not be so any longer
                raise
            if after is before:
                if guessed:
                    continue
                if unsure:
                    # An earlier attempt may have been made all the same: whoever watches has not heard of it.
                    self.stored(row, after)
                return Change(before, before, unsure)
            swapped = self.row(after, Revision(row.revision + 1))
            answer = yield self.store(swapped)
            if type(answer) is TaskStored:
                self.stored(swapped, after)
                return Change(before, after)
            if type(answer) is StoreFailed and not answer.uncertain:
                raise self.trouble(f"changing task {task_id}", answer)
            if type(answer) is not StoreConflicted:
                self._machine.report(Severity.WARNING, f"whether a change of task {task_id} was stored is unknown yet")
                made = yield from self.was_stored(swapped)
                if made:
                    self.stored(swapped, after)
                    return Change(before, after)
                unsure = True
        self._machine.report(Severity.ERROR, f"task {task_id} was changed by others at every attempt")
        raise Refusal(faults.STORE_UNAVAILABLE)

    def store(self, row: StoredTask) -> Need:
        """The need to store a row."""
        return Need(lambda ticket: StoreTask(ticket, row), STORE_ANSWERS, self._wait_ms)

    def create(self, row: StoredTask, late: Callable[[StoreAnswer], None]) -> Need:
        """The need to store a new row, to be read next; ``late`` gets the answer that comes after nobody waits for it
        any longer."""
        return Need(lambda ticket: StoreTask(ticket, row, True), STORE_ANSWERS, self._wait_ms, late)

    def was_stored(self, row: StoredTask) -> Step[bool]:
        """Whether a write with an uncertain outcome was made: the store then holds the very row.

        Raises:
            Refusal: the store does not answer.
        """
        loaded = yield from self.load(row.task_id)
        return loaded is not None and loaded[0].revision == row.revision and loaded[0].payload == row.payload

    def stored(self, row: StoredTask, record: TaskRecord) -> None:
        """What follows every stored state: ``row`` is the one that holds it."""
        self._note_due(due_at_ms(record, self._machine.limits))
        self._machine.states.note(row.task_id, row, self._machine.now.monotonic_ms)
        self._machine.emit(PublishChange(row.task_id))
        self.note_state(row)

    def delete(self, row: StoredTask) -> Step[None]:
        """Delete a row that nobody changed meanwhile.

        Raises:
            Refusal: the store does not answer.
        """
        answer = yield Need(
            lambda ticket: DeleteTask(ticket, row.task_id, row.revision), (TaskDeleted, StoreFailed), self._wait_ms
        )
        if type(answer) is not TaskDeleted:
            raise self.trouble(f"deleting task {row.task_id}", answer)
        self._machine.states.forget(row.task_id)

    def may_access(self, caller: Owner, access: Access, task_id: TaskId, owner: Owner) -> Step[bool]:
        """Whether the caller may do this with that owner's task. Source: tasks, Security Considerations.

        Raises:
            Refusal: the application does not answer.
        """
        if self._machine.config.access is AccessRule.OWNER:
            return caller == owner
        answer = yield Need(
            lambda ticket: Authorize(ticket, caller, access, task_id, owner), (AccessDecided,), self._wait_ms
        )
        if isinstance(answer, Expired):
            self._machine.report(Severity.ERROR, f"no decision on access to task {task_id} within {answer.wait_ms} ms")
            raise Refusal(faults.INTERNAL)
        allowed: bool = answer.allowed
        return allowed is True


def _nobody_watches(row: StoredTask) -> None:
    """Until somebody wants to know of stored states."""
