"""The params and results of every method that is served or spoken here, under one roof.

Each lives with its subject, and its module is imported when one of its names is first asked for: a server that
never samples does not pay for the classes of sampling when it starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mcp_tasks_core.wire.calls import CallToolAnswer, decode_call_tool_answer
    from mcp_tasks_core.wire.content import check_content, check_content_block
    from mcp_tasks_core.wire.converter import ABSENT, Absent, DecodeError, decode, encode
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

_NAMES_BY_MODULE: Final = {
    "calls": "CallToolAnswer decode_call_tool_answer",
    "content": "check_content check_content_block",
    "converter": "ABSENT Absent DecodeError decode encode",
    "discovery": "DiscoverParams DiscoverResult EmptyResult MissingCapabilityData UnsupportedVersionData",
    "inputs": (
        "CreateMessageParams CreateMessageResult ElicitFormParams ElicitParams ElicitResult ElicitUrlParams "
        "ListRootsParams ListRootsResult Root check_input_request decode_elicit_params"
    ),
    "requested_schema": "check_requested_schema",
    "subscriptions": (
        "CancelledParams LoggingMessageParams ProgressParams SubscriptionFilter SubscriptionsAcknowledgedParams "
        "SubscriptionsListenParams SubscriptionsListenResult"
    ),
    "tasks": (
        "CreateTaskResult GetTaskResult TaskIdParams TaskNotificationParams UpdateTaskParams decode_create_task_result "
        "decode_get_task_result decode_task decode_task_notification"
    ),
    "timestamps": "read_timestamp",
    "tools": (
        "CallToolParams CallToolResult Icon Implementation InputRequiredResult "
        "ListToolsParams ListToolsResult Tool check_object_schema"
    ),
}
_HOMES: Final = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"mcp_tasks_core.wire.{home}"), name)
    globals()[name] = value
    return value


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
