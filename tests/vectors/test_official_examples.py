"""Every official example and every message of the official pages decodes, and re-encodes to an equal value."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.capabilities import ELICITATION, ROOTS, SAMPLING, problem_with_capabilities
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.json import StrictJson
from mcp_tasks_core.wire.jsonrpc import (
    Notification,
    Request,
    Response,
    error_frame,
    notification_frame,
    read_message,
    request_frame,
    result_frame,
)
from mcp_tasks_core.wire.meta import read_request_meta
from mcp_tasks_core.wire.methods import (
    CallToolParams,
    CallToolResult,
    CancelledParams,
    CreateMessageParams,
    CreateMessageResult,
    DiscoverParams,
    DiscoverResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    InputRequiredResult,
    ListRootsResult,
    ListToolsParams,
    ListToolsResult,
    LoggingMessageParams,
    MissingCapabilityData,
    ProgressParams,
    Root,
    SubscriptionsAcknowledgedParams,
    SubscriptionsListenParams,
    SubscriptionsListenResult,
    TaskIdParams,
    TaskNotificationParams,
    Tool,
    UnsupportedVersionData,
    UpdateTaskParams,
    check_content_block,
    check_input_request,
    check_requested_schema,
    decode,
    decode_call_tool_answer,
    decode_get_task_result,
    encode,
)

SPEC = Path(os.environ.get("MCP_SPEC_DIR") or Path(__file__).resolve().parents[3] / "shared" / "spec")
if not SPEC.is_dir():
    pytest.skip("needs the official examples: set MCP_SPEC_DIR", allow_module_level=True)

LIMITS = Limits()
CODEC = StrictJson(LIMITS)
CLASSES: dict[str, type[Any]] = {
    "CallToolRequestParams": CallToolParams,
    "CallToolResult": CallToolResult,
    "CancelledNotificationParams": CancelledParams,
    "CreateMessageRequestParams": CreateMessageParams,
    "CreateMessageResult": CreateMessageResult,
    "DiscoverResult": DiscoverResult,
    "ElicitRequestFormParams": ElicitFormParams,
    "ElicitRequestURLParams": ElicitUrlParams,
    "ElicitResult": ElicitResult,
    "InputRequiredResult": InputRequiredResult,
    "ListRootsResult": ListRootsResult,
    "ListToolsResult": ListToolsResult,
    "LoggingMessageNotificationParams": LoggingMessageParams,
    "PaginatedRequestParams": ListToolsParams,
    "ProgressNotificationParams": ProgressParams,
    "Root": Root,
    "SubscriptionsListenResult": SubscriptionsListenResult,
    "Tool": Tool,
}
"""Types whose examples are whole values of one class of ours."""

PARAMS_BY_METHOD: dict[str, type[Any]] = {
    "server/discover": DiscoverParams,
    "tools/list": ListToolsParams,
    "tools/call": CallToolParams,
    "tasks/get": TaskIdParams,
    "tasks/cancel": TaskIdParams,
    "tasks/update": UpdateTaskParams,
    "subscriptions/listen": SubscriptionsListenParams,
    "notifications/cancelled": CancelledParams,
    "notifications/message": LoggingMessageParams,
    "notifications/progress": ProgressParams,
    "notifications/subscriptions/acknowledged": SubscriptionsAcknowledgedParams,
    "notifications/tasks": TaskNotificationParams,
}
RESULTS_BY_TYPE: dict[str, type[Any]] = {
    "CallToolResultResponse": CallToolResult,
    "DiscoverResultResponse": DiscoverResult,
    "ListToolsResultResponse": ListToolsResult,
    "SubscriptionsListenResultResponse": SubscriptionsListenResult,
}
ERROR_DATA: dict[int, type[Any]] = {-32021: MissingCapabilityData, -32022: UnsupportedVersionData}
MESSAGES = (
    "CallToolRequest",
    "CancelledNotification",
    "DiscoverRequest",
    "HeaderMismatchError",
    "ListToolsRequest",
    "LoggingMessageNotification",
    "MissingRequiredClientCapabilityError",
    "ProgressNotification",
    "SubscriptionsAcknowledgedNotification",
    "SubscriptionsListenRequest",
    "ToolListChangedNotification",
    "UnsupportedProtocolVersionError",
    *RESULTS_BY_TYPE,
)
"""Types whose examples are whole messages."""

ERROR_OBJECTS = ("InternalError", "InvalidParamsError", "MethodNotFoundError", "ParseError")
PROPERTY_SCHEMAS = (
    "BooleanSchema",
    "NumberSchema",
    "StringSchema",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
)
CONTENT = (
    "AudioContent",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
)
INPUT_REQUESTS = ("CreateMessageRequest", "ElicitRequest", "ListRootsRequest")
# Checked as parts of something else, in tests of their own below.
PARTS = ("ClientCapabilities", "InputRequests", "InputResponses", "ModelPreferences", "SamplingMessage")
LEFT_OUT = {
    # What the application serves itself travels through the core as raw values that have no class here.
    **dict.fromkeys(
        (
            "CompleteRequest",
            "CompleteRequestParams",
            "CompleteResult",
            "CompleteResultResponse",
            "GetPromptRequest",
            "GetPromptRequestParams",
            "GetPromptResult",
            "GetPromptResultResponse",
            "ListPromptsRequest",
            "ListPromptsResult",
            "ListPromptsResultResponse",
            "ListResourceTemplatesRequest",
            "ListResourceTemplatesResult",
            "ListResourceTemplatesResultResponse",
            "ListResourcesRequest",
            "ListResourcesResult",
            "ListResourcesResultResponse",
            "ReadResourceRequest",
            "ReadResourceResult",
            "ReadResourceResultResponse",
            "Resource",
        ),
        "prompts, resources and completion are served by the application, raw",
    ),
    **dict.fromkeys(
        (
            "PromptListChangedNotification",
            "ResourceListChangedNotification",
            "ResourceUpdatedNotification",
            "ResourceUpdatedNotificationParams",
        ),
        "notifications of prompts and resources have no class here",
    ),
    **dict.fromkeys(("BlobResourceContents", "TextResourceContents"), "contents of resources stay raw"),
    "ServerCapabilities": "a server's capabilities stay raw",
}


def examples(*types: str) -> list[Any]:
    found = [path for kind in types for path in sorted((SPEC / "examples" / kind).glob("*.json"))]
    return [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in found]


def read(path: Path) -> Any:
    value = CODEC.decode(path.read_bytes())
    assert value == json.loads(path.read_bytes())
    assert CODEC.decode(CODEC.encode(value)) == value
    return value


def same(cls: type[Any], value: dict[str, Any], path: str = "params") -> None:
    """The value decodes, and what is encoded again is equal; absent arguments of a call are written as ``{}``."""
    expected = {"arguments": {}, **value} if cls is CallToolParams else value
    assert encode(decode(cls, value, path)) == expected


def same_message(value: dict[str, Any], result_class: type[Any] | None = None) -> None:
    """A whole message, its envelope and what is inside, survives decoding and encoding."""
    match read_message(value, LIMITS):
        case Request(request_id, method, params):
            frame = request_frame(request_id, method, params, CODEC)
            if method in PARAMS_BY_METHOD:
                same(PARAMS_BY_METHOD[method], params)
        case Notification(method, params):
            frame = notification_frame(method, params, CODEC)
            if method in PARAMS_BY_METHOD:
                same(PARAMS_BY_METHOD[method], params)
        case Response(request_id, result, None) if request_id is not None and result is not None:
            frame = result_frame(request_id, CODEC.encode(result), CODEC)
            same_result(result, result_class)
        case Response(request_id, None, error) if error is not None:
            frame = error_frame(request_id, error, CODEC)
            if error.code in ERROR_DATA:
                assert isinstance(error.data, dict)
                same(ERROR_DATA[error.code], error.data, "error.data")
        case other:
            pytest.fail(f"no message: {other}")
    expected = {"params": {}, **value} if "method" in value else value
    assert CODEC.decode(b"".join(frame)) == expected


def same_result(result: dict[str, Any], result_class: type[Any] | None) -> None:
    kind = result.get("resultType")
    if result_class is not None:
        same(result_class, result, "result")
    elif kind in ("task", "input_required") or "content" in result:
        assert encode(decode_call_tool_answer(result)) == result
    elif "taskId" in result:
        assert encode(decode_get_task_result(result)) == result
    elif "tools" in result:
        same(ListToolsResult, result)
    elif "supportedVersions" in result:
        same(DiscoverResult, result)
    else:
        assert set(result) <= {"resultType", "_meta"}


def test_every_type_with_examples_is_handled_or_left_out_for_a_reason() -> None:
    handled = {*CLASSES, *MESSAGES, *ERROR_OBJECTS, *PROPERTY_SCHEMAS, *CONTENT, *INPUT_REQUESTS, *PARTS}
    assert not handled & set(LEFT_OUT)
    assert {path.name for path in (SPEC / "examples").iterdir()} == handled | set(LEFT_OUT)


@pytest.mark.spec("B1", "B4", "D1", "D12")
@pytest.mark.parametrize("path", examples(*CLASSES))
def test_values_of_our_classes_re_encode_equal(path: Path) -> None:
    same(CLASSES[path.parent.name], read(path))


@pytest.mark.spec("B1", "B3", "N1")
@pytest.mark.parametrize("path", examples(*MESSAGES))
def test_messages_re_encode_equal(path: Path) -> None:
    value = read(path)
    same_message(value, RESULTS_BY_TYPE.get(path.parent.name))
    if path.parent.name.endswith("Request"):
        assert read_request_meta(value["params"]).protocol_version == "2026-07-28"


@pytest.mark.parametrize("path", examples(*ERROR_OBJECTS))
def test_errors_re_encode_equal(path: Path) -> None:
    same_message({"jsonrpc": "2.0", "id": 1, "error": read(path)})


@pytest.mark.parametrize("path", examples(*PROPERTY_SCHEMAS))
def test_schemas_of_form_properties_are_accepted(path: Path) -> None:
    check_requested_schema({"type": "object", "properties": {"it": read(path)}})


@pytest.mark.parametrize("path", examples(*CONTENT))
def test_content_is_accepted(path: Path) -> None:
    check_content_block(read(path))


@pytest.mark.parametrize("path", examples(*INPUT_REQUESTS))
def test_input_requests_are_accepted(path: Path) -> None:
    value = read(path)
    assert check_input_request(value) is None


@pytest.mark.parametrize("path", examples("ClientCapabilities"))
def test_client_capabilities_are_accepted(path: Path) -> None:
    assert problem_with_capabilities(read(path)) is None


@pytest.mark.parametrize("path", examples("InputRequests"))
def test_maps_of_input_requests_are_accepted(path: Path) -> None:
    for value in read(path).values():
        assert check_input_request(value) is None


@pytest.mark.spec("U5")
def test_answers_of_the_examples_fit_their_requests() -> None:
    asked = read(next((SPEC / "examples" / "InputRequests").glob("*.json")))
    answers = read(next((SPEC / "examples" / "InputResponses").glob("*.json")))
    assert asked.keys() == answers.keys()
    for key, answer in answers.items():
        assert check_answer(asked[key], answer) is None


@pytest.mark.parametrize("path", examples("SamplingMessage"))
def test_sampling_messages_are_accepted_in_a_request(path: Path) -> None:
    params = {"messages": [read(path)], "maxTokens": 1}
    assert check_input_request({"method": SAMPLING, "params": params}) is None


@pytest.mark.parametrize("path", examples("ModelPreferences"))
def test_model_preferences_are_accepted_in_a_request(path: Path) -> None:
    params = {"messages": [], "maxTokens": 1, "modelPreferences": read(path)}
    assert check_input_request({"method": SAMPLING, "params": params}) is None


# --- The pages' messages


def vectors() -> list[Any]:
    pages: dict[str, list[Any]] = json.loads((SPEC / "vectors" / "core-2026-07-28-messages.json").read_bytes())
    pages["tasks"] = json.loads((SPEC / "vectors" / "tasks-2026-07-28-messages.json").read_bytes())
    return [
        pytest.param(value, id=f"{page}-{index}")
        for page, values in pages.items()
        for index, value in enumerate(values)
    ]


def is_map_of(value: Any, member: str) -> bool:
    return type(value) is dict and bool(value) and all(type(v) is dict and member in v for v in value.values())


def has(*names: str) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(name in value for name in names)


CONTENT_TYPES = ("text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result")


def is_form_property(value: Any) -> bool:
    return has("type")(value) and value["type"] in ("string", "number", "integer", "boolean", "array")


def check_property(value: Any) -> None:
    check_requested_schema({"type": "object", "properties": {"it": value}})


def accept_request(value: Any) -> None:
    assert check_input_request({"method": value["method"], "params": value.get("params", {})}) is None


def accept_requests(value: Any) -> None:
    for asked in value.values():
        accept_request(asked)


def accept_sampling_message(value: Any) -> None:
    accept_request({"method": SAMPLING, "params": {"messages": [value], "maxTokens": 1}})


FRAGMENTS: list[tuple[str, Callable[[Any], bool], Callable[[Any], object]]] = [
    ("content", lambda v: has("type")(v) and v["type"] in CONTENT_TYPES, check_content_block),
    ("a form's property", is_form_property, check_property),
    ("a message", has("jsonrpc"), same_message),
    ("an input request", lambda v: has("method")(v) and v["method"] in (ELICITATION, SAMPLING, ROOTS), accept_request),
    ("a map of input requests", lambda v: is_map_of(v, "method"), accept_requests),
    ("a tool", has("name", "inputSchema"), lambda v: same(Tool, v)),
    ("an elicitation's answer", has("action"), lambda v: same(ElicitResult, v)),
    ("a sampling's answer", has("role", "model"), lambda v: same(CreateMessageResult, v)),
    ("a sampling message", has("role", "content"), accept_sampling_message),
    ("a roots answer", has("roots"), lambda v: same(ListRootsResult, v)),
    ("a root", has("uri", "name"), lambda v: same(Root, v)),
]
# Parts of messages and schemas that no class of ours reads by themselves.
NOT_OURS = (
    has("params"),
    has("result"),
    has("capabilities"),
    has("_meta"),
    has("type"),
    has("hints"),
    lambda value: is_map_of(value, "action") or any(type(v) is dict and "action" in v for v in value.values()),
)


@pytest.mark.spec("B1", "C4", "G1", "U1")
@pytest.mark.parametrize("value", vectors())
def test_messages_of_the_pages_decode_and_re_encode_equal(value: Any) -> None:
    for _, matches, check in FRAGMENTS:
        if matches(value):
            check(value)
            return
    assert type(value) is list or any(matches(value) for matches in NOT_OURS), f"neither ours nor known: {value}"


def test_the_pages_own_elicitation_answer_is_refused_because_it_answers_another_property() -> None:
    tasks = json.loads((SPEC / "vectors" / "tasks-2026-07-28-messages.json").read_bytes())
    asked = next(m["result"]["inputRequests"] for m in tasks if "inputRequests" in m.get("result", {}))
    answers = next(m["params"]["inputResponses"] for m in tasks if m.get("method") == "tasks/update")
    problem = check_answer(asked["name"], answers["name"])
    assert problem is not None
    assert problem == "content.name: this property is required, and it is missing"
