"""The params and results of every method that is served or spoken here, under one roof.

Each class lives with its subject: ``tools``, ``discovery``, ``tasks``, ``subscriptions``, ``inputs``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from mcp_tasks_core.wire.content import check_content, check_content_block
from mcp_tasks_core.wire.converter import ABSENT, Absent, DecodeError, decode, encode, shown
from mcp_tasks_core.wire.discovery import (
    DiscoverParams,
    DiscoverResult,
    EmptyResult,
    MissingCapabilityData,
    UnsupportedVersionData,
)
from mcp_tasks_core.wire.inputs import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitParams,
    ElicitResult,
    ElicitUrlParams,
    ListRootsParams,
    ListRootsResult,
    Root,
    check_input_request,
    decode_elicit_params,
)
from mcp_tasks_core.wire.requested_schema import check_requested_schema
from mcp_tasks_core.wire.subscriptions import (
    CancelledParams,
    LoggingMessageParams,
    ProgressParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedParams,
    SubscriptionsListenParams,
    SubscriptionsListenResult,
)
from mcp_tasks_core.wire.tasks import (
    CreateTaskResult,
    GetTaskResult,
    TaskIdParams,
    TaskNotificationParams,
    UpdateTaskParams,
    decode_create_task_result,
    decode_get_task_result,
    decode_task,
    decode_task_notification,
)
from mcp_tasks_core.wire.timestamps import read_timestamp
from mcp_tasks_core.wire.tools import (
    CallToolParams,
    CallToolResult,
    Icon,
    Implementation,
    InputRequiredResult,
    ListToolsParams,
    ListToolsResult,
    Tool,
    check_object_schema,
)

CallToolAnswer: TypeAlias = CallToolResult | InputRequiredResult | CreateTaskResult
"""What a server may answer to ``tools/call``. Source: tools, Calling Tools; mrtr; tasks, Polymorphic Results."""


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


__all__ = [
    "ABSENT",
    "Absent",
    "CallToolAnswer",
    "CallToolParams",
    "CallToolResult",
    "CancelledParams",
    "CreateMessageParams",
    "CreateMessageResult",
    "CreateTaskResult",
    "DecodeError",
    "DiscoverParams",
    "DiscoverResult",
    "ElicitFormParams",
    "ElicitParams",
    "ElicitResult",
    "ElicitUrlParams",
    "EmptyResult",
    "GetTaskResult",
    "Icon",
    "Implementation",
    "InputRequiredResult",
    "ListRootsParams",
    "ListRootsResult",
    "ListToolsParams",
    "ListToolsResult",
    "LoggingMessageParams",
    "MissingCapabilityData",
    "ProgressParams",
    "Root",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedParams",
    "SubscriptionsListenParams",
    "SubscriptionsListenResult",
    "TaskIdParams",
    "TaskNotificationParams",
    "Tool",
    "UnsupportedVersionData",
    "UpdateTaskParams",
    "check_content",
    "check_content_block",
    "check_input_request",
    "check_object_schema",
    "check_requested_schema",
    "decode",
    "decode_call_tool_answer",
    "decode_create_task_result",
    "decode_elicit_params",
    "decode_get_task_result",
    "decode_task",
    "decode_task_notification",
    "encode",
    "read_timestamp",
]
