"""What a task engine of an application's own has to offer."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping
from typing import Protocol

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import JSONObject, TaskId


@attrs.frozen(kw_only=True)
class EngineTask:
    """A task of an application's own engine.

    Args:
        owner: whose it is.
        state: the task as tasks/get shows it: taskId, status, createdAt, lastUpdatedAt, ttlMs and what belongs
            to its status.
    """

    owner: Owner
    state: JSONObject


class TaskBackend(Protocol):
    """An engine of the application's own that holds tasks and runs them. Its methods may be asynchronous."""

    def read(self, task_id: TaskId) -> EngineTask | None | Awaitable[EngineTask | None]:
        """The task now, ``None`` when there is no such task."""

    def answer(self, task_id: TaskId, answers: Mapping[str, JSONObject]) -> bool | Awaitable[bool]:
        """Take answers to outstanding questions, durably; ``False`` when there is no such task."""

    def cancel(self, task_id: TaskId) -> bool | Awaitable[bool]:
        """Take note that the task is to stop; ``False`` when there is no such task."""


class WatchableTaskBackend(TaskBackend, Protocol):
    """An engine that also says when one of its tasks has changed, so that those who listen need not wait."""

    def changes(self) -> AsyncIterable[str] | Iterable[str]:
        """The ids of tasks as they change, for as long as the engine is served; a generator function, as a rule.

        They are hints: the task is read anew at each, so that lost, repeated, reordered and untrue ones do no harm.
        An asynchronous generator runs in the event loop, any other in a thread of its own, which is left to itself
        when the server ends. One that ends or raises is called again after a pause. Every server that serves the
        engine calls it.
        """
