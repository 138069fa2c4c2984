"""What a task is: its states on the wire, and the record that a server keeps of it.

Source: tasks, Tasks and Task Status.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId


class TaskStatus(enum.StrEnum):
    """The five statuses. Source: tasks, Task Status."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})
"""Statuses that a task never leaves."""


@attrs.frozen(kw_only=True)
class Task:
    """What every state of a task shows, and the whole of a task's handle.

    Args:
        created_at: RFC 3339, as it stands on the wire.
        last_updated_at: RFC 3339; moves with each observable change and with nothing else.
        ttl_ms: milliseconds from creation, ``None`` for unlimited.
        poll_interval_ms: milliseconds, ``None`` where the server suggests nothing.
    """

    task_id: TaskId
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    status_message: str | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL


@attrs.frozen(kw_only=True)
class WorkingTask(Task):
    """A task whose work goes on."""


@attrs.frozen(kw_only=True)
class InputRequiredTask(Task):
    """A task that waits for answers. ``input_requests`` holds every outstanding question, raw, by its key."""

    input_requests: Mapping[InputKey, JSONObject]


@attrs.frozen(kw_only=True)
class CompletedTask(Task):
    """A task that has its result: what the plain call would have returned, ``isError`` included."""

    result: JSONObject


@attrs.frozen(kw_only=True)
class FailedTask(Task):
    """A task that ended in a JSON-RPC error, and in nothing else."""

    error: JSONObject


@attrs.frozen(kw_only=True)
class CancelledTask(Task):
    """A task that was cancelled before it had an outcome."""


DetailedTask: TypeAlias = WorkingTask | InputRequiredTask | CompletedTask | FailedTask | CancelledTask


@attrs.frozen(kw_only=True, slots=True)
class InputEntry:
    """One question of a task, kept for the task's whole life so that its key is never given a second meaning.

    Args:
        request: the input request, raw: ``method`` and ``params``.
        answer: the client's answer, raw; ``None`` while it is outstanding or when it was withdrawn.
        withdrawn: the question no longer stands, and no answer to it will count.
    """

    request: JSONObject
    answer: JSONObject | None = None
    withdrawn: bool = False

    @property
    def outstanding(self) -> bool:
        return self.answer is None and not self.withdrawn


@attrs.frozen(kw_only=True, slots=True)
class TaskRecord:
    """Everything a server keeps of one task. Changed by ``lifecycle`` alone, stored as a whole.

    Args:
        method: the request that became a task, ``tools/call``.
        request: that request's params, raw; what a re-entrant tool is called again with.
        capabilities: what that request declared: it bounds the questions that may be asked.
        created_at_ms: wall-clock milliseconds, as are the other moments.
        ttl_ms: from creation; ``None`` for unlimited.
        inputs: every question ever asked, by key, in the order of asking.
        cancel_requested_at_ms: when a cancel was accepted, ``None`` before.
        executor: names the process that runs the work, where stores are shared.
        attempts: how many processes have run the work.
        restarts: the work was started by the call's own arguments, so that another process could start it anew.
        answered: questions that were answered before the call became a task, by key.
        result: what a completed task holds, raw.
        error: what a failed task holds.
        expired: a tombstone: its time is over, its payload gone, and its owner is told so for a while.
    """

    task_id: TaskId
    owner: Owner
    status: TaskStatus
    created_at_ms: int
    last_updated_at_ms: int
    ttl_ms: int | None
    method: str = "tools/call"
    request: JSONObject = attrs.field(factory=dict)
    capabilities: ClientCapabilities
    poll_interval_ms: int | None = None
    status_message: str | None = None
    inputs: Mapping[InputKey, InputEntry] = attrs.field(factory=dict)
    cancel_requested_at_ms: int | None = None
    executor: str | None = None
    attempts: int = 1
    restarts: bool = True
    answered: Mapping[InputKey, InputEntry] = attrs.field(factory=dict)
    result: JSONObject | None = None
    error: ErrorObject | None = None
    expired: bool = False

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def outstanding(self) -> Mapping[InputKey, InputEntry]:
        """The questions that stand open, by key, in the order of asking."""
        return {key: entry for key, entry in self.inputs.items() if entry.outstanding}


def timestamp(wall_ms: int) -> str:
    """Wall-clock milliseconds as RFC 3339, UTC, with milliseconds: ``2026-07-28T10:00:00.000Z``."""
    seconds, milliseconds = divmod(wall_ms, 1000)  # no float: it would round some milliseconds down
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03d}Z"


def handle_to_wire(record: TaskRecord) -> JSONObject:
    """The members of a ``Task``: what a handle holds, without the payload of its status."""
    wire: JSONObject = {
        "taskId": record.task_id,
        "status": record.status.value,
        "createdAt": timestamp(record.created_at_ms),
        "lastUpdatedAt": timestamp(record.last_updated_at_ms),
        "ttlMs": record.ttl_ms,
    }
    if record.poll_interval_ms is not None:
        wire["pollIntervalMs"] = record.poll_interval_ms
    if record.status_message is not None:
        wire["statusMessage"] = record.status_message
    return wire


def state_to_wire(record: TaskRecord) -> JSONObject:
    """The members of a ``DetailedTask``: the handle and the payload of the current status, of no other."""
    wire = handle_to_wire(record)
    if record.status is TaskStatus.INPUT_REQUIRED:
        wire["inputRequests"] = {key: entry.request for key, entry in record.outstanding.items()}
    elif record.status is TaskStatus.COMPLETED:
        wire["result"] = record.result
    elif record.status is TaskStatus.FAILED:
        assert record.error is not None
        wire["error"] = record.error.to_wire()
    return wire
