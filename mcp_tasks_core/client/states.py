"""Reads what servers say about tasks: handles, states, and the results inside them.

Source: tasks, Task Creation and Task Polling; tools, Tool Result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import attrs

from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.client.calls import task_id_of
from mcp_tasks_core.client.inputs import problem_with_requests
from mcp_tasks_core.client.polling import with_exact_durations
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.tasks import CompletedTask, DetailedTask, InputRequiredTask, Task
from mcp_tasks_core.wire.converter import DecodeError, decode
from mcp_tasks_core.wire.tasks import decode_create_task_result, decode_get_task_result, decode_task_notification
from mcp_tasks_core.wire.tools import CallToolResult

T = TypeVar("T", bound=Task)


@attrs.frozen(slots=True)
class Handle:
    """A handle, read, and what was forgiven in it."""

    task: Task
    warnings: list[str]


@attrs.frozen(slots=True)
class State:
    """A state, read, and what was forgiven in it."""

    task: DetailedTask
    warnings: list[str]


@attrs.frozen(slots=True)
class StateProblem:
    """Neither: what is wrong with it, and the task it was about where that can be read."""

    reason: str
    task_id: TaskId | None


def read_handle(raw: JSONObject, lenient: bool, task_id_chars_max: int) -> Handle | StateProblem:
    """The handle in a result whose resultType is ``task``.

    Args:
        task_id_chars_max: a longer id is refused: it would go out again with every poll.
    """
    members, warnings = with_exact_durations(raw)
    try:
        task = decode_create_task_result(members, lenient=lenient, departures=warnings).task
        if not 0 < len(task.task_id) <= task_id_chars_max:
            raise DecodeError("result.taskId", f"a string of 1 to {task_id_chars_max} characters")
        return Handle(_with_possible_ttl(task), warnings)
    except DecodeError as error:
        return StateProblem(str(error), task_id_of(raw))


def read_state(raw: JSONObject, lenient: bool) -> State | StateProblem:
    """The state in a result of tasks/get."""
    members, warnings = with_exact_durations(raw)
    try:
        task = decode_get_task_result(members, lenient=lenient, departures=warnings).task
        return State(_with_possible_ttl(task), warnings)
    except DecodeError as error:
        return StateProblem(str(error), task_id_of(raw))


def read_pushed_state(raw: JSONObject, lenient: bool) -> State | StateProblem:
    """The state in the params of ``notifications/tasks``."""
    members, warnings = with_exact_durations(raw)
    try:
        task = decode_task_notification(members, lenient=lenient, departures=warnings).task
        return State(_with_possible_ttl(task, "params"), warnings)
    except DecodeError as error:
        return StateProblem(str(error), task_id_of(raw))


def _with_possible_ttl(task: T, path: str = "result") -> T:
    if task.ttl_ms is not None and task.ttl_ms < 0:
        raise DecodeError(f"{path}.ttlMs", f"an integer of 0 or more, or null, not {task.ttl_ms}")
    return task


def problem_with_tool_result(result: JSONObject) -> str | None:
    """What is wrong with a ``CallToolResult``; ``None`` if nothing is."""
    try:
        decode(CallToolResult, result, "result")
    except DecodeError as error:
        return str(error)
    return None


def problem_with_contents(task: DetailedTask, capabilities: ClientCapabilities | None, limits: Limits) -> str | None:
    """What is wrong inside a state that can be read: its result, or its questions; ``None`` if nothing is.

    Args:
        capabilities: ``None`` where questions of any kind are taken, for nobody here answers them.
    """
    match task:
        case CompletedTask(result=result):
            problem = problem_with_tool_result(result)
            return None if problem is None else f"the result of the task: {problem}"
        case InputRequiredTask(input_requests=requests):
            return problem_with_requests(dict(requests), capabilities, limits)
        case _:
            return None


class WarnedOnce:
    """Picks out the warnings that were not given yet, up to a number: a server's values may stand in them.

    Args:
        warnings_max: how many are kept and given at most.
    """

    def __init__(self, warnings_max: int) -> None:
        self._warnings_max = warnings_max
        self._given: set[str] = set()

    def new(self, warnings: Iterable[str]) -> list[str]:
        new = []
        for text in warnings:
            if text not in self._given and len(self._given) < self._warnings_max:
                self._given.add(text)
                new.append(text)
        return new
