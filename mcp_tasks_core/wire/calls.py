"""What a server may answer to ``tools/call``.

Source: tools, Calling Tools; mrtr, InputRequiredResult; tasks, Polymorphic Results.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp_tasks_core.wire.converter import DecodeError, decode, shown
from mcp_tasks_core.wire.tasks import CreateTaskResult, decode_create_task_result
from mcp_tasks_core.wire.tools import CallToolResult, InputRequiredResult

CallToolAnswer: TypeAlias = CallToolResult | InputRequiredResult | CreateTaskResult
"""The three results, told apart by their resultType."""


def decode_call_tool_answer(
    value: Any, path: str = "result", *, lenient: bool = False, departures: list[str] | None = None
) -> CallToolAnswer:
    """The result of ``tools/call`` by its resultType, absent for ``complete``. Arguments as for ``decode_task``.

    Raises:
        DecodeError: the value is none of the results that there are, or its resultType is unknown.
    """
    kind = value.get("resultType", "complete") if type(value) is dict else "complete"
    if kind == "task":
        return decode_create_task_result(value, path, lenient=lenient, departures=departures)
    if kind == "input_required":
        result = decode(InputRequiredResult, value, path)
        if result.input_requests is None and result.request_state is None:
            raise DecodeError(path, "inputRequests, requestState or both, and there is neither")
        return result
    if kind != "complete":
        raise DecodeError(f"{path}.resultType", f'"complete", "input_required" or "task", not {shown(kind)}')
    return decode(CallToolResult, value, path)
