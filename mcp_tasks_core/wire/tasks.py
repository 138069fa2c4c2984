"""Tasks as they travel: handles, states, and the params that name a task.

Source: tasks, Task Creation; Task Polling; Task Update Requests; Task Cancellation; Task Notifications.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.tasks import (
    CancelledTask,
    CompletedTask,
    DetailedTask,
    FailedTask,
    InputRequiredTask,
    Task,
    TaskStatus,
    WorkingTask,
)
from mcp_tasks_core.wire.converter import DecodeError, decode, encode, register, shown
from mcp_tasks_core.wire.timestamps import check_timestamp


@attrs.frozen(kw_only=True)
class TaskIdParams:
    """Params of ``tasks/get`` and ``tasks/cancel``."""

    task_id: TaskId
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class UpdateTaskParams:
    """Params of ``tasks/update``.

    Args:
        input_responses: raw, its values too: those under keys that are not outstanding are never looked at.

    Source: tasks, Task Update Requests.
    """

    task_id: TaskId
    input_responses: JSONObject
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class CreateTaskResult:
    """A handle: the answer to a request that became a task. On the wire the task's members stand in the result itself.

    Source: tasks, Task Creation.
    """

    task: Task
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class GetTaskResult:
    """Result of ``tasks/get``: the task's present state. Source: tasks, Task Polling."""

    task: DetailedTask
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class TaskNotificationParams:
    """Params of ``notifications/tasks``: what ``tasks/get`` would return at that moment, without a resultType.

    Source: tasks, Task Notifications; DECISIONS D2.
    """

    task: DetailedTask
    meta: JSONObject | None = None


_CLASSES: Final[dict[str, type[DetailedTask]]] = {
    TaskStatus.WORKING: WorkingTask,
    TaskStatus.INPUT_REQUIRED: InputRequiredTask,
    TaskStatus.COMPLETED: CompletedTask,
    TaskStatus.FAILED: FailedTask,
    TaskStatus.CANCELLED: CancelledTask,
}


def decode_task(
    value: Any, path: str = "result", *, lenient: bool = False, departures: list[str] | None = None
) -> DetailedTask:
    """The state of a task.

    An input_required task may come without requests; it then waits for nothing that a client could give.

    Args:
        lenient: takes integral floats for the two durations, ``null`` for other optional members, and an unknown
            status, which then counts as working and never as terminal.
        departures: gets a sentence for each departure from the specification that was taken.

    Raises:
        DecodeError: the value is no such state.

    Source: tasks, Task Status; DECISIONS D12, D13, D35 and D36.
    """
    if type(value) is not dict:
        raise DecodeError(path, f"an object, not {shown(value)}")
    if lenient:
        value = _forgiven(value, path, [] if departures is None else departures)
    status = value.get("status")
    cls = _CLASSES.get(status) if type(status) is str else None
    if cls is None:
        names = ", ".join(status.value for status in TaskStatus)
        found = f"not {shown(status)}" if "status" in value else "and it is missing"
        raise DecodeError(f"{path}.status", f"one of {names}, {found}")
    if cls is InputRequiredTask and "inputRequests" not in value:
        value = {**value, "inputRequests": {}}
    task = decode(cls, value, path)
    _check_timestamps(task, path)
    if isinstance(task, FailedTask):
        _check_error(task.error, f"{path}.error")
    return task


def decode_create_task_result(
    value: Any, path: str = "result", *, lenient: bool = False, departures: list[str] | None = None
) -> CreateTaskResult:
    """A task's handle. Arguments as for ``decode_task``.

    Raises:
        DecodeError: the value is no handle.

    Source: tasks, Task Creation; DECISIONS D3.
    """
    if type(value) is not dict:
        raise DecodeError(path, f"an object, not {shown(value)}")
    if value.get("resultType") != "task":
        raise DecodeError(f"{path}.resultType", f'"task", not {shown(value.get("resultType"))}')
    if "taskId" not in value and type(value.get("task")) is dict:
        raise DecodeError(f"{path}.taskId", "the members of a handle stand beside resultType, not inside task")
    if lenient:
        value = _forgiven(value, path, [] if departures is None else departures)
    task = decode(Task, value, path)
    _check_timestamps(task, path)
    return CreateTaskResult(task=task, meta=_meta(value, path))


def decode_get_task_result(
    value: Any, path: str = "result", *, lenient: bool = False, departures: list[str] | None = None
) -> GetTaskResult:
    """The answer to ``tasks/get``. Arguments as for ``decode_task``; ``lenient`` also takes resultType ``task``.

    Raises:
        DecodeError: the value is no such result.

    Source: tasks, Task Polling; DECISIONS D3.
    """
    if type(value) is not dict:
        raise DecodeError(path, f"an object, not {shown(value)}")
    kind = value.get("resultType", "complete")
    if kind == "task" and lenient:
        if departures is not None:
            departures.append(f'{path}.resultType is "task" where "complete" belongs')
    elif kind != "complete":
        raise DecodeError(f"{path}.resultType", f'"complete", not {shown(kind)}')
    task = decode_task(value, path, lenient=lenient, departures=departures)
    return GetTaskResult(task=task, meta=_meta(value, path))


def decode_task_notification(
    value: Any, path: str = "params", *, lenient: bool = False, departures: list[str] | None = None
) -> TaskNotificationParams:
    """The params of ``notifications/tasks``. Arguments as for ``decode_task``.

    Raises:
        DecodeError: the value is no such state.
    """
    task = decode_task(value, path, lenient=lenient, departures=departures)
    return TaskNotificationParams(task=task, meta=_meta(value, path))


def _forgiven(value: JSONObject, path: str, departures: list[str]) -> JSONObject:
    """The value as the specification would have it, where it departs in a way that does no harm."""
    forgiven = dict(value)
    for name in ("ttlMs", "pollIntervalMs"):
        number = value.get(name)
        if type(number) is float and number.is_integer():
            forgiven[name] = int(number)
            departures.append(f"{path}.{name} is the float {number} where an integer belongs")
    for name in ("pollIntervalMs", "statusMessage"):
        if name in value and value[name] is None:
            del forgiven[name]
            departures.append(f"{path}.{name} is null where it belongs left out")
    status = value.get("status")
    if type(status) is str and status not in _CLASSES:
        forgiven["status"] = TaskStatus.WORKING.value
        departures.append(f"{path}.status is {shown(status)}, which is unknown and counts as working")
    return forgiven


def _check_timestamps(task: Task, path: str) -> None:
    check_timestamp(task.created_at, f"{path}.createdAt")
    check_timestamp(task.last_updated_at, f"{path}.lastUpdatedAt")


def _check_error(error: JSONObject, path: str) -> None:
    if type(error.get("code")) is not int:
        raise DecodeError(f"{path}.code", f"an integer, not {shown(error.get('code'))}")
    if type(error.get("message")) is not str:
        raise DecodeError(f"{path}.message", f"a string, not {shown(error.get('message'))}")


def _meta(value: JSONObject, path: str) -> JSONObject | None:
    meta = value.get("_meta")
    if type(meta) is not dict and "_meta" in value:
        raise DecodeError(f"{path}._meta", f"an object, not {shown(meta)}")
    return meta


def _with_meta(wire: JSONObject, meta: JSONObject | None) -> JSONObject:
    return wire if meta is None else {**wire, "_meta": meta}


register(
    CreateTaskResult,
    lambda value: decode_create_task_result(value, ""),
    lambda result: _with_meta({"resultType": "task", **encode(result.task)}, result.meta),
)
register(
    GetTaskResult,
    lambda value: decode_get_task_result(value, ""),
    lambda result: _with_meta({"resultType": "complete", **encode(result.task)}, result.meta),
)
register(
    TaskNotificationParams,
    lambda value: decode_task_notification(value, ""),
    lambda params: _with_meta(encode(params.task), params.meta),
)
