"""From what a caller wants to an operation that can begin, with everything that the caller wrote checked.

Source: basic, Per-request protocol fields; cancellation, Timeouts.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from mcp_tasks_core.client.calls import LISTEN, TASKS_GET, TOOLS_CALL, CallSettings, check_params
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.events import (
    DiscoverStarted,
    ListenStarted,
    ObservationStarted,
    RequestSubmitted,
    ToolCallStarted,
    ToolsListStarted,
)
from mcp_tasks_core.client.operations import Operation
from mcp_tasks_core.client.scripts import DISCOVER, TOOLS_LIST, call_tool, discover, list_tools, request
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject

StartEvent: TypeAlias = (
    DiscoverStarted | ToolsListStarted | RequestSubmitted | ToolCallStarted | ObservationStarted | ListenStarted
)


def operation_for(event: StartEvent, config: ClientConfig, now_ms: int) -> Operation:
    """The operation that an event begins.

    Raises:
        LocalProtocolError: the event asks for something that cannot be sent.
    """
    match event:
        case DiscoverStarted():
            return _discovery(event, config)
        case ToolsListStarted():
            limits = config.client_limits
            settings = CallSettings(timeout_ms=limits.request_timeout_ms, total_ms=limits.request_total_ms)
            operation = Operation(operation_id=event.operation_id, method=TOOLS_LIST, settings=settings)
            operation.script = list_tools(config)
            return _with_deadline(operation, event.timeout_ms, now_ms)
        case RequestSubmitted():
            return _plain_request(event, config)
        case ToolCallStarted():
            return _tool_call(event, config, now_ms)
        case ObservationStarted():
            return _observation(event, config, now_ms)
        case ListenStarted():
            return _subscription(event, config, now_ms)
        case _:
            assert_never(event)


def _discovery(event: DiscoverStarted, config: ClientConfig) -> Operation:
    timeout_ms = _duration("timeout_ms", event.timeout_ms, config.client_limits.discover_timeout_ms)
    # Whoever asks what the server is says all that this client can, so that nothing is hidden from it.
    settings = CallSettings(timeout_ms=timeout_ms, total_ms=timeout_ms, tasks=True)
    return Operation(operation_id=event.operation_id, method=DISCOVER, settings=settings, script=discover(config))


def _plain_request(event: RequestSubmitted, config: ClientConfig) -> Operation:
    limits = config.client_limits
    check_params(event.method, event.params, event.log_level)
    settings = CallSettings(
        timeout_ms=_duration("timeout_ms", event.timeout_ms, limits.request_timeout_ms),
        total_ms=_duration("total_ms", event.total_ms, limits.request_total_ms),
        tasks=event.tasks,
        progress=event.progress,
        log_level=event.log_level,
    )
    script = request(event.method, event.params, config)
    return Operation(operation_id=event.operation_id, method=event.method, settings=settings, script=script)


def _tool_call(event: ToolCallStarted, config: ClientConfig, now_ms: int) -> Operation:
    limits = config.client_limits
    if type(event.name) is not str:
        raise LocalProtocolError(f"the name of a tool is a string, not {event.name!r}")
    if type(event.arguments) is not dict:
        raise LocalProtocolError(f"the arguments of a tool are a dict, not a {type(event.arguments).__name__}")
    params: JSONObject = {"name": event.name, "arguments": event.arguments, "_meta": event.meta}
    check_params(TOOLS_CALL, params, event.log_level)
    settings = CallSettings(
        timeout_ms=limits.tool_timeout_ms,
        total_ms=limits.tool_total_ms,
        tasks=event.tasks,
        progress=event.progress,
        log_level=event.log_level,
    )
    operation = Operation(operation_id=event.operation_id, method=TOOLS_CALL, settings=settings)
    operation.script = call_tool(params, config)
    operation.on_timeout = event.on_timeout
    return _with_deadline(operation, event.timeout_ms, now_ms)


def _observation(event: ObservationStarted, config: ClientConfig, now_ms: int) -> Operation:
    if type(event.task_id) is not str or not event.task_id:
        raise LocalProtocolError(f"task_id is a string of 1 character or more, not {event.task_id!r}")
    wait_ms = config.client_limits.task_request_timeout_ms
    settings = CallSettings(timeout_ms=wait_ms, total_ms=wait_ms, tasks=True)
    operation = Operation(operation_id=event.operation_id, method=TASKS_GET, settings=settings)
    return _with_deadline(operation, event.timeout_ms, now_ms)


def _subscription(event: ListenStarted, config: ClientConfig, now_ms: int) -> Operation:
    limits = config.limits
    _check_names("task_ids", event.task_ids, limits.subscription_tasks_max, limits.identifier_chars_max)
    _check_names("resource_uris", event.resource_uris, limits.subscription_resources_max, limits.resource_uri_chars_max)
    if not (event.task_ids or event.tools or event.prompts or event.resources or event.resource_uris):
        raise LocalProtocolError("a subscription is to at least one of task_ids, tools, prompts, resources and uris")
    if type(event.jitter_permille) is not int or not 0 <= event.jitter_permille <= 1_000:
        raise LocalProtocolError(f"jitter_permille is an integer from 0 to 1,000, not {event.jitter_permille!r}")
    wait_ms = config.client_limits.listen_ack_timeout_ms
    settings = CallSettings(timeout_ms=wait_ms, total_ms=wait_ms, tasks=bool(event.task_ids))
    operation = Operation(operation_id=event.operation_id, method=LISTEN, settings=settings)
    return _with_deadline(operation, event.timeout_ms, now_ms)


def _check_names(what: str, names: object, names_max: int, chars_max: int) -> None:
    if type(names) is not tuple or not all(type(name) is str and 0 < len(name) <= chars_max for name in names):
        raise LocalProtocolError(f"{what} is a tuple of strings of 1 to {chars_max} characters")
    if len(names) > names_max:
        raise LocalProtocolError(f"{what} holds {len(names)} names; one subscription takes {names_max}")
    if len(set(names)) < len(names):
        raise LocalProtocolError(f"{what} holds a name twice")


def _with_deadline(operation: Operation, timeout_ms: int | None, now_ms: int) -> Operation:
    if timeout_ms is not None:
        operation.deadline_ms = now_ms + _duration("timeout_ms", timeout_ms, 1)
    return operation


def _duration(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise LocalProtocolError(f"{name} is an integer of 1 or more milliseconds, or None, not {value!r}")
    return value
