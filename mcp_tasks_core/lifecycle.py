"""The rules of a task's life, in one table. No other module changes a task.

Every change is a pure function of a record, an input and the moment; a (status, input) pair that the
table does not hold is forbidden. A terminal status admits ``Answer`` and ``RequestCancel``, which change nothing
because their senders could not know better, and ``Bury`` once its time is over.

Source: tasks, Task Status; tasks, Task Update Requests; tasks, Task Cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject
from mcp_tasks_core.tasks import TERMINAL, InputEntry, TaskRecord, TaskStatus


@attrs.frozen
class Advance:
    """The work says how far it is. ``message`` becomes the statusMessage."""

    message: str | None


@attrs.frozen
class Ask:
    """The work asks a question under a key of its own."""

    key: InputKey
    request: JSONObject


@attrs.frozen
class Withdraw:
    """The work no longer needs an answer to this question."""

    key: InputKey


@attrs.frozen
class Answer:
    """The client answers some of the outstanding questions; every key is outstanding, every answer checked."""

    answers: Mapping[InputKey, JSONObject]


@attrs.frozen
class RequestCancel:
    """The client wants the task cancelled: intent, not yet the end."""


@attrs.frozen
class Complete:
    """The work has a result."""

    result: JSONObject
    message: str | None = None


@attrs.frozen
class Fail:
    """The work, or what it stood on, ended in a JSON-RPC error."""

    error: ErrorObject
    message: str | None = None


@attrs.frozen
class Cancel:
    """The work has stopped because it was told to, or its grace is over."""

    message: str | None = None


@attrs.frozen
class Retime:
    """The operator or the work changes how long the task is kept, or how often to poll."""

    ttl_ms: int | None
    poll_interval_ms: int | None


@attrs.frozen
class Bury:
    """The task's time and its grace are over: only a tombstone stays."""


@attrs.frozen
class Adopt:
    """Another process runs the work from now on, under this name; ``None``: no process does."""

    executor: str | None


TaskInput: TypeAlias = (
    Advance | Ask | Withdraw | Answer | RequestCancel | Complete | Fail | Cancel | Retime | Adopt | Bury
)


class ForbiddenTransition(LocalProtocolError):
    """An input that the task's status does not admit. The record is unchanged."""

    def __init__(self, status: TaskStatus, task_input: TaskInput) -> None:
        super().__init__(f"a task that is {status.value} does not admit {type(task_input).__name__}")
        self.status = status
        self.task_input = task_input


def _evolve(record: TaskRecord, now_ms: int, **changes: Any) -> TaskRecord:
    """The record with changes that a client can see: lastUpdatedAt moves, strictly upwards."""
    moved_at_ms = max(now_ms, record.last_updated_at_ms + 1)
    return attrs.evolve(record, last_updated_at_ms=moved_at_ms, **changes)


def _unchanged(record: TaskRecord, task_input: TaskInput, now_ms: int) -> TaskRecord:
    return record


def _advance(record: TaskRecord, task_input: Advance, now_ms: int) -> TaskRecord:
    if task_input.message == record.status_message or record.cancel_requested_at_ms is not None:
        return record
    return _evolve(record, now_ms, status_message=task_input.message)


def _ask(record: TaskRecord, task_input: Ask, now_ms: int) -> TaskRecord:
    known = record.inputs.get(task_input.key)
    if known is not None:
        if known.request != task_input.request:
            raise LocalProtocolError(f"the key {task_input.key!r} already names another question of this task")
        if known.withdrawn:
            raise LocalProtocolError(f"the question {task_input.key!r} was withdrawn; ask again under another key")
        return record
    inputs = {**record.inputs, task_input.key: InputEntry(request=task_input.request)}
    return _evolve(record, now_ms, status=TaskStatus.INPUT_REQUIRED, inputs=inputs)


def _settled(inputs: Mapping[InputKey, InputEntry]) -> TaskStatus:
    return TaskStatus.INPUT_REQUIRED if any(e.outstanding for e in inputs.values()) else TaskStatus.WORKING


def _withdraw(record: TaskRecord, task_input: Withdraw, now_ms: int) -> TaskRecord:
    known = record.inputs.get(task_input.key)
    if known is None:
        raise LocalProtocolError(f"the task never asked {task_input.key!r}")
    if not known.outstanding:
        return record
    inputs = {**record.inputs, task_input.key: attrs.evolve(known, withdrawn=True)}
    return _evolve(record, now_ms, status=_settled(inputs), inputs=inputs)


def _answer(record: TaskRecord, task_input: Answer, now_ms: int) -> TaskRecord:
    inputs = dict(record.inputs)
    for key, answer in task_input.answers.items():
        entry = inputs.get(key)
        if entry is not None and entry.outstanding:
            inputs[key] = attrs.evolve(entry, answer=answer)
    if inputs == record.inputs:
        return record
    return _evolve(record, now_ms, status=_settled(inputs), inputs=inputs)


def _request_cancel(record: TaskRecord, task_input: RequestCancel, now_ms: int) -> TaskRecord:
    if record.cancel_requested_at_ms is not None:
        return record
    return _evolve(record, now_ms, cancel_requested_at_ms=now_ms, status_message="Cancellation requested")


def _withdraw_all(record: TaskRecord) -> Mapping[InputKey, InputEntry]:
    return {k: attrs.evolve(e, withdrawn=True) if e.outstanding else e for k, e in record.inputs.items()}


def _complete(record: TaskRecord, task_input: Complete, now_ms: int) -> TaskRecord:
    return _evolve(
        record,
        now_ms,
        status=TaskStatus.COMPLETED,
        result=task_input.result,
        status_message=task_input.message,
        inputs=_withdraw_all(record),
    )


def _fail(record: TaskRecord, task_input: Fail, now_ms: int) -> TaskRecord:
    return _evolve(
        record,
        now_ms,
        status=TaskStatus.FAILED,
        error=task_input.error,
        status_message=task_input.message or task_input.error.message,
        inputs=_withdraw_all(record),
    )


def _cancel(record: TaskRecord, task_input: Cancel, now_ms: int) -> TaskRecord:
    return _evolve(
        record,
        now_ms,
        status=TaskStatus.CANCELLED,
        status_message=task_input.message or "Cancelled",
        inputs=_withdraw_all(record),
    )


def _retime(record: TaskRecord, task_input: Retime, now_ms: int) -> TaskRecord:
    if (task_input.ttl_ms, task_input.poll_interval_ms) == (record.ttl_ms, record.poll_interval_ms):
        return record
    return _evolve(record, now_ms, ttl_ms=task_input.ttl_ms, poll_interval_ms=task_input.poll_interval_ms)


def _adopt(record: TaskRecord, task_input: Adopt, now_ms: int) -> TaskRecord:
    """No change that a client could see: lastUpdatedAt stays."""
    return attrs.evolve(record, executor=task_input.executor, attempts=record.attempts + 1)


def _bury(record: TaskRecord, task_input: Bury, now_ms: int) -> TaskRecord:
    return attrs.evolve(
        record, expired=True, request={}, inputs={}, answered={}, result=None, error=None, status_message=None
    )


_Row: TypeAlias = Callable[[TaskRecord, Any, int], TaskRecord]

_OPEN: Final[Mapping[type, _Row]] = {
    Advance: _advance,
    Ask: _ask,
    Withdraw: _withdraw,
    Answer: _answer,
    RequestCancel: _request_cancel,
    Complete: _complete,
    Fail: _fail,
    Cancel: _cancel,
    Retime: _retime,
    Adopt: _adopt,
}

_ENDED: Final[Mapping[type, _Row]] = {
    Answer: _unchanged,
    RequestCancel: _unchanged,
    Bury: _bury,
}

TRANSITIONS: Final[Mapping[tuple[TaskStatus, type], _Row]] = {
    (status, task_input): row
    for status in TaskStatus
    for task_input, row in (_ENDED if status in TERMINAL else _OPEN).items()
}
"""Every admitted pair of a status and an input, and what it does."""


def apply(record: TaskRecord, task_input: TaskInput, now_ms: int) -> TaskRecord:
    """The record after the input; the same object when nothing changed.

    Args:
        now_ms: wall-clock milliseconds.

    Raises:
        ForbiddenTransition: the status does not admit the input.
        LocalProtocolError: the input contradicts the record, such as a key with a second meaning.
    """
    row = TRANSITIONS.get((record.status, type(task_input)))
    if row is None:
        raise ForbiddenTransition(record.status, task_input)
    return row(record, task_input, now_ms)
