"""What the outcome of work makes of its task. Source: tasks, Task Status; tasks, Task Execution Errors."""

from __future__ import annotations

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject, problem_with_error
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.lifecycle import Cancel, Complete, Fail
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import Severity
from mcp_tasks_core.server.events import Raised, Returned, WorkOutcome, WorkStopped
from mcp_tasks_core.server.machine import Machine
from mcp_tasks_core.server.results import UnfitResult, tool_result
from mcp_tasks_core.wire.json import JsonError


def status_message(machine: Machine, message: str | None) -> str | None:
    """A statusMessage no longer than clients are to get."""
    return None if message is None else message[: machine.limits.status_message_chars_max]


def end_of(machine: Machine, task_id: TaskId, outcome: WorkOutcome) -> Complete | Fail | Cancel:
    """The end that an outcome gives a task. What may not be sent becomes a failure that may, and is reported."""
    match outcome:
        case WorkStopped(message):
            return Cancel(status_message(machine, message))
        case Raised(error):
            problem = problem_with_error(error)
            if problem is not None:
                machine.report(Severity.ERROR, f"task {task_id} ended in an unfit error: {problem}")
                error = faults.INTERNAL
            return Fail(error, status_message(machine, error.message))
        case Returned(result):
            return _completion_of(machine, task_id, result)


def _completion_of(machine: Machine, task_id: TaskId, result: object) -> Complete | Fail:
    try:
        fit = tool_result(result)
        size_bytes, limit_bytes = len(machine.codec.encode(fit)), machine.limits.result_bytes_max
    except (UnfitResult, JsonError) as problem:
        machine.report(Severity.ERROR, f"the result of task {task_id} cannot be sent: {problem}")
        return Fail(ErrorObject(INTERNAL_ERROR, "The tool's result could not be sent"))
    if size_bytes > limit_bytes:
        error = faults.result_too_large(size_bytes, limit_bytes)
        machine.report(Severity.ERROR, f"task {task_id}: {error.message}")
        return Fail(error)
    return Complete(fit)
