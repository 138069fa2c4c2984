"""Params and results of the methods: what is required, what is refused, and what stays raw."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mcp_tasks_core.tasks import (
    CancelledTask,
    CompletedTask,
    FailedTask,
    InputRequiredTask,
    TaskStatus,
    WorkingTask,
    timestamp,
)
from mcp_tasks_core.wire import methods
from mcp_tasks_core.wire.methods import (
    ABSENT,
    CallToolParams,
    CallToolResult,
    CancelledParams,
    CreateTaskResult,
    DecodeError,
    DiscoverResult,
    GetTaskResult,
    InputRequiredResult,
    ListToolsParams,
    ListToolsResult,
    LoggingMessageParams,
    MissingCapabilityData,
    ProgressParams,
    SubscriptionsAcknowledgedParams,
    SubscriptionsListenParams,
    SubscriptionsListenResult,
    TaskIdParams,
    TaskNotificationParams,
    UnsupportedVersionData,
    UpdateTaskParams,
    check_content,
    check_input_request,
    decode,
    decode_call_tool_answer,
    decode_create_task_result,
    decode_get_task_result,
    decode_task,
    decode_task_notification,
    encode,
    read_timestamp,
)

TASK: dict[str, Any] = {
    "taskId": "t1",
    "status": "working",
    "createdAt": "2026-07-28T10:00:00.000Z",
    "lastUpdatedAt": "2026-07-28T10:00:01.000Z",
    "ttlMs": 60_000,
}
STATES: dict[str, dict[str, Any]] = {
    "working": {**TASK, "pollIntervalMs": 500, "statusMessage": "at work"},
    "input_required": {**TASK, "status": "input_required", "inputRequests": {"k": {"method": "roots/list"}}},
    "completed": {**TASK, "status": "completed", "ttlMs": None, "result": {"content": [], "more": 1}},
    "failed": {**TASK, "status": "failed", "error": {"code": -32603, "message": "no", "data": [1], "more": 1}},
    "cancelled": {**TASK, "status": "cancelled"},
}
CLASSES = {
    "working": WorkingTask,
    "input_required": InputRequiredTask,
    "completed": CompletedTask,
    "failed": FailedTask,
    "cancelled": CancelledTask,
}


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name not in names}


def fault(read: Any, value: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        read(value)
    return str(caught.value)


def test_every_name_of_the_index_is_where_it_says() -> None:
    for name in methods.__all__:
        assert getattr(methods, name) is not None
    assert set(methods._HOMES) == set(methods.__all__)
    with pytest.raises(AttributeError):
        methods.__getattr__("Nothing")


# --- Tasks


@pytest.mark.spec("C4", "G1", "D1", "D2", "D12")
@pytest.mark.parametrize("status", STATES)
def test_each_state_is_read_by_its_status_and_written_equal(status: str) -> None:
    wire = STATES[status]
    task = decode_task(wire)
    assert type(task) is CLASSES[status]
    assert encode(task) == wire
    result = {"resultType": "complete", **wire, "_meta": {"m": 1}}
    got = decode(GetTaskResult, result, "result")
    assert got == GetTaskResult(task=task, meta={"m": 1})
    assert encode(got) == result
    told = decode_task_notification({**wire, "resultType": "anything"})
    assert told == TaskNotificationParams(task=task)
    assert encode(told) == wire


@pytest.mark.spec("C4")
@pytest.mark.parametrize("status", list(TaskStatus))
def test_a_handle_is_flat_and_its_seed_has_any_status(status: TaskStatus) -> None:
    wire = {"resultType": "task", **TASK, "status": status.value, "ttlMs": None}
    handle = decode_create_task_result(wire)
    assert handle.task.status is status
    assert encode(handle) == wire
    assert decode(CreateTaskResult, wire) == handle


@pytest.mark.spec("C4")
@pytest.mark.parametrize("member", [*TASK, "resultType"])
def test_a_handle_has_all_its_members(member: str) -> None:
    assert f"result.{member}:" in fault(decode_create_task_result, without({"resultType": "task", **TASK}, member))


@pytest.mark.spec("C4")
def test_a_nested_handle_is_refused_with_a_hint() -> None:
    said = fault(decode_create_task_result, {"resultType": "task", "task": TASK})
    assert said == "result.taskId: the members of a handle stand beside resultType, not inside task"


@pytest.mark.spec("D12", "D13", "D14", "D35")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "paused"}, "result.status: one of working, input_required"),
        ({"status": None}, "result.status: one of"),
        ({"status": ["working"]}, "result.status: one of"),
        ({"taskId": 5}, "result.taskId: a string, not 5"),
        ({"ttlMs": 1.0}, "result.ttlMs: an integer or null, not 1.0"),
        ({"ttlMs": "1"}, 'result.ttlMs: an integer or null, not "1"'),
        ({"pollIntervalMs": 500.0}, "result.pollIntervalMs: an integer, not 500.0"),
        ({"pollIntervalMs": None}, "result.pollIntervalMs: an integer, not null"),
        ({"statusMessage": None}, "result.statusMessage: a string, not null"),
        ({"createdAt": "yesterday"}, 'result.createdAt: an RFC 3339 timestamp, not "yesterday"'),
        ({"createdAt": 5}, "result.createdAt: a string, not 5"),
        ({"lastUpdatedAt": "2026-07-28"}, "result.lastUpdatedAt: an RFC 3339 timestamp"),
        ({"_meta": None}, "result._meta: an object, not null"),
        ({"status": "completed"}, "result.result: this member is required, and it is missing"),
        ({"status": "completed", "result": None}, "result.result: an object, not null"),
        ({"status": "failed"}, "result.error: this member is required, and it is missing"),
        ({"status": "failed", "error": {"code": "1", "message": ""}}, "result.error.code: an integer"),
        ({"status": "failed", "error": {"code": 1}}, "result.error.message: a string"),
        ({"status": "input_required", "inputRequests": []}, "result.inputRequests: an object, not an array"),
        ({"status": "input_required", "inputRequests": {"k": 1}}, "result.inputRequests.k: an object, not 1"),
    ],
)
def test_a_state_that_is_not_lawful_is_refused(change: dict[str, Any], said: str) -> None:
    assert fault(decode_get_task_result, {"resultType": "complete", **TASK, **change}).startswith(said)


@pytest.mark.spec("C4", "D12")
def test_ttl_is_always_there_and_may_be_null() -> None:
    assert fault(decode_task, without(TASK, "ttlMs")) == "result.ttlMs: this member is required, and it is missing"
    assert decode_task({**TASK, "ttlMs": None}).ttl_ms is None
    assert encode(decode_task({**TASK, "ttlMs": None}))["ttlMs"] is None


@pytest.mark.spec("D36")
def test_input_required_without_requests_is_read_as_asking_nothing() -> None:
    for wire in ({**TASK, "status": "input_required"}, {**TASK, "status": "input_required", "inputRequests": {}}):
        task = decode_task(wire)
        assert isinstance(task, InputRequiredTask)
        assert task.input_requests == {}


@pytest.mark.spec("D3")
def test_the_result_type_of_a_handle_is_refused_on_tasks_get() -> None:
    assert fault(decode_get_task_result, {"resultType": "task", **TASK}) == 'result.resultType: "complete", not "task"'
    assert "resultType" in fault(decode_get_task_result, {"resultType": None, **TASK})
    assert decode_get_task_result(TASK).task.task_id == "t1"


@pytest.mark.spec("D3", "D12", "D13", "D35")
def test_the_lenient_switch_takes_known_departures_and_tells_each() -> None:
    departures: list[str] = []
    wire = {
        **TASK,
        "resultType": "task",
        "status": "paused",
        "ttlMs": 60_000.0,
        "pollIntervalMs": 500.0,
        "statusMessage": None,
    }
    task = decode_get_task_result(wire, lenient=True, departures=departures).task
    assert task == WorkingTask(
        task_id=task.task_id,
        status=TaskStatus.WORKING,
        created_at=TASK["createdAt"],
        last_updated_at=TASK["lastUpdatedAt"],
        ttl_ms=60_000,
        poll_interval_ms=500,
    )
    assert type(task.ttl_ms) is int
    assert len(departures) == 5
    for name in ("resultType", "status", "ttlMs", "pollIntervalMs", "statusMessage"):
        assert any(f"result.{name} " in sentence for sentence in departures)
    assert wire["ttlMs"] == 60_000.0


@pytest.mark.spec("D13")
@pytest.mark.parametrize("change", [{"ttlMs": 0.5}, {"pollIntervalMs": "500"}, {"ttlMs": True}, {"taskId": None}])
def test_the_lenient_switch_takes_nothing_else(change: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode_task({**TASK, **change}, lenient=True)


@pytest.mark.parametrize("read", [decode_task, decode_get_task_result, decode_create_task_result])
@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_object_is_no_task(read: Any, value: Any) -> None:
    assert fault(read, value).startswith("result: an object, not ")


# --- Calls


@pytest.mark.spec("C2")
def test_a_call_has_a_name_and_raw_arguments() -> None:
    arguments = {"a": 2**64}
    params = decode(CallToolParams, {"name": "t", "arguments": arguments, "task": {"ttl": 5}})
    assert params.arguments is arguments
    assert decode(CallToolParams, {"name": "t"}) == CallToolParams(name="t")


def test_an_explicit_null_request_state_counts_as_absent() -> None:
    params = decode(CallToolParams, {"name": "t", "requestState": None})
    assert params.request_state is None
    assert "requestState" not in encode(params)
    assert decode(CallToolParams, {"name": "t", "requestState": ""}).request_state == ""


@pytest.mark.spec("C11", "U5")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "params.name: a string, not null"),
        ({"arguments": None}, "params.arguments: an object, not null"),
        ({"arguments": []}, "params.arguments: an object, not an array"),
        ({"inputResponses": []}, "params.inputResponses: an object, not an array"),
        ({"inputResponses": "x"}, 'params.inputResponses: an object, not "x"'),
        ({"inputResponses": {"k": 1}}, "params.inputResponses.k: an object, not 1"),
        ({"requestState": 5}, "params.requestState: a string or null, not 5"),
    ],
)
def test_a_malformed_call_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(CallToolParams, {"name": "t", **change})
    assert str(caught.value) == said


@pytest.mark.spec("U5", "D8")
def test_input_responses_of_an_update_are_an_object_of_anything() -> None:
    params = decode(UpdateTaskParams, {"taskId": "t", "inputResponses": {"unknown": 1}})
    assert params.input_responses == {"unknown": 1}
    assert decode(UpdateTaskParams, {"taskId": "t", "inputResponses": {}}).input_responses == {}
    wrong: list[dict[str, Any]] = [{}, {"inputResponses": []}, {"inputResponses": None}, {"inputResponses": "x"}]
    for change in wrong:
        with pytest.raises(DecodeError, match=r"params\.inputResponses"):
            decode(UpdateTaskParams, {"taskId": "t", **change})


@pytest.mark.parametrize("value", [{}, {"taskId": 5}, {"taskId": None}, {"taskId": ["t"]}])
def test_a_task_id_is_a_string(value: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match=r"params\.taskId"):
        decode(TaskIdParams, value)


def test_structured_content_tells_null_from_absent() -> None:
    assert decode(CallToolResult, {"content": []}).structured_content is ABSENT
    assert decode(CallToolResult, {"content": [], "structuredContent": None}).structured_content is None
    assert "structuredContent" not in encode(CallToolResult(content=[]))
    assert encode(CallToolResult(content=[], structured_content=None))["structuredContent"] is None


@pytest.mark.spec("B4")
def test_the_answer_to_a_call_is_read_by_its_result_type() -> None:
    assert decode_call_tool_answer({"content": []}) == CallToolResult(content=[])
    asked = {"resultType": "input_required", "requestState": "s", "inputRequests": {"k": {"method": "roots/list"}}}
    answer = decode_call_tool_answer(asked)
    assert isinstance(answer, InputRequiredResult)
    assert encode(answer) == asked
    assert isinstance(decode_call_tool_answer({"resultType": "task", **TASK}), CreateTaskResult)
    for kind in ("other", None, 5, "", ["task"]):
        assert "result.resultType" in fault(decode_call_tool_answer, {"resultType": kind, "content": []})


@pytest.mark.spec("R1")
def test_a_result_that_asks_for_nothing_is_refused() -> None:
    assert "inputRequests, requestState or both" in fault(decode_call_tool_answer, {"resultType": "input_required"})


@pytest.mark.parametrize(
    ("blocks", "place"),
    [
        ("x", ""),
        ([5], "[0]"),
        ([{}], "[0].type"),
        ([{"type": "text"}], "[0].text"),
        ([{"type": "text", "text": None}], "[0].text"),
        ([{"type": "image", "data": "x"}], "[0].mimeType"),
        ([{"type": "audio", "mimeType": "x"}], "[0].data"),
        ([{"type": "resource_link", "uri": "x"}], "[0].name"),
        ([{"type": "resource", "resource": []}], "[0].resource"),
        ([{"type": "resource", "resource": {"text": ""}}], "[0].resource.uri"),
        ([{"type": "resource", "resource": {"uri": ""}}], "[0].resource"),
        ([{"type": "tool_use", "id": "a", "name": "b"}], "[0].input"),
        ([{"type": "new"}, {"type": "tool_result", "toolUseId": "a", "content": [{}]}], "[1].content[0].type"),
    ],
)
def test_content_of_a_known_type_has_its_members(blocks: Any, place: str) -> None:
    with pytest.raises(DecodeError) as caught:
        check_content(blocks)
    assert caught.value.path == place


def test_content_of_unknown_types_is_accepted_as_it_is() -> None:
    content = [{"type": "hologram", "x": 1}]
    assert decode(CallToolResult, {"content": content}).content is content


# --- Lists, discovery, errors


@pytest.mark.spec("N9")
def test_caching_hints_are_always_written_and_read_with_care() -> None:
    wire = encode(ListToolsResult(tools=(), ttl_ms=5, cache_scope="public"))
    assert wire == {"resultType": "complete", "tools": [], "ttlMs": 5, "cacheScope": "public"}
    read = decode(ListToolsResult, {"tools": [], "ttlMs": -1})
    assert (read.ttl_ms, read.cache_scope) == (0, "private")
    read_too = decode(DiscoverResult, {"supportedVersions": [], "capabilities": {}})
    assert (read_too.ttl_ms, read_too.cache_scope) == (0, "private")
    with pytest.raises(DecodeError):
        decode(ListToolsResult, {"tools": [], "ttlMs": 1.5})


@pytest.mark.spec("N10")
def test_an_empty_cursor_is_a_cursor() -> None:
    assert decode(ListToolsParams, {"cursor": ""}).cursor == ""
    assert decode(ListToolsParams, {}).cursor is None
    assert encode(ListToolsResult(tools=(), next_cursor=""))["nextCursor"] == ""
    with pytest.raises(DecodeError, match=r"params\.cursor: a string, not 5"):
        decode(ListToolsParams, {"cursor": 5})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"inputSchema": {}}, 'tools[0].inputSchema.type: "object", not null'),
        ({"inputSchema": {"type": "array"}}, "tools[0].inputSchema.type"),
        ({"inputSchema": True}, "tools[0].inputSchema: an object"),
        ({"outputSchema": []}, "tools[0].outputSchema: an object"),
        ({"annotations": {"readOnlyHint": "yes"}}, "tools[0].annotations.readOnlyHint: true or false"),
        ({"annotations": {"title": 5}}, "tools[0].annotations.title: a string"),
        ({"icons": [{}]}, "tools[0].icons[0].src"),
        ({"icons": [{"src": "x", "theme": "blue"}]}, 'tools[0].icons[0].theme: one of "light", "dark"'),
        ({"name": 5}, "tools[0].name: a string"),
    ],
)
def test_a_malformed_tool_is_refused_at_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(ListToolsResult, {"tools": [{"name": "t", "inputSchema": {"type": "object"}, **change}]}, "result")
    assert f"result.{said}" in str(caught.value)


@pytest.mark.spec("N2", "N7")
def test_the_data_of_negotiation_errors_keeps_members_that_a_peer_added() -> None:
    missing = {"requiredCapabilities": {"elicitation": {}}, "hint": [1]}
    data = decode(MissingCapabilityData, missing, "error.data")
    assert (data.required_capabilities, data.others) == ({"elicitation": {}}, {"hint": [1]})
    assert encode(data) == missing
    unsupported = {"supported": ["2026-07-28"], "requested": "1900-01-01", "hint": 1}
    version = decode(UnsupportedVersionData, unsupported, "error.data")
    assert (version.supported, version.requested, version.others) == (("2026-07-28",), "1900-01-01", {"hint": 1})
    assert encode(version) == unsupported


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (MissingCapabilityData, None),
        (MissingCapabilityData, {}),
        (MissingCapabilityData, {"requiredCapabilities": []}),
        (UnsupportedVersionData, {"requested": "x"}),
        (UnsupportedVersionData, {"supported": [5], "requested": "x"}),
        (UnsupportedVersionData, {"supported": []}),
    ],
)
def test_malformed_error_data_is_refused(cls: type[Any], value: Any) -> None:
    with pytest.raises(DecodeError):
        decode(cls, value, "error.data")


# --- Subscriptions and notifications


def test_subscriptions_carry_their_filter_and_their_id() -> None:
    asked = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a"], "taskIds": ["t1", "t2"]}}
    params = decode(SubscriptionsListenParams, asked)
    assert params.notifications.task_ids == ("t1", "t2")
    assert encode(params) == asked
    meta = {"io.modelcontextprotocol/subscriptionId": 1}
    for cls, wire in (
        (SubscriptionsAcknowledgedParams, {**asked, "_meta": meta}),
        (SubscriptionsListenResult, {"resultType": "complete", "_meta": meta}),
    ):
        assert encode(decode(cls, wire)) == wire
        with pytest.raises(DecodeError, match="subscriptionId"):
            decode(cls, {**wire, "_meta": {}})
        with pytest.raises(DecodeError, match="_meta"):
            decode(cls, without(wire, "_meta"))


@pytest.mark.parametrize("task_ids", ["abc", [5], None, {}])
def test_task_ids_of_a_filter_are_an_array_of_strings(task_ids: Any) -> None:
    with pytest.raises(DecodeError, match=r"params\.notifications\.taskIds"):
        decode(SubscriptionsListenParams, {"notifications": {"taskIds": task_ids}})


@pytest.mark.spec("I2")
@pytest.mark.parametrize("request_id", [None, True, 1.0, {}, []])
def test_a_cancellation_names_a_string_or_an_integer(request_id: Any) -> None:
    with pytest.raises(DecodeError, match=r"params\.requestId"):
        decode(CancelledParams, {"requestId": request_id})
    assert decode(CancelledParams, {"requestId": 0}).request_id == 0


@pytest.mark.spec("L1", "L2", "D13")
def test_progress_and_log_messages_are_read() -> None:
    progress = {"progressToken": 0, "progress": 0.5, "total": 2, "message": "m"}
    assert encode(decode(ProgressParams, progress)) == progress
    for bad in ({**progress, "progress": "1"}, {**progress, "progressToken": 1.5}, {**progress, "total": None}):
        with pytest.raises(DecodeError):
            decode(ProgressParams, bad)
    log = {"level": "error", "data": None}
    assert encode(decode(LoggingMessageParams, log)) == log
    for wrong in ({"level": "loud", "data": 1}, {"level": "error"}, {"level": "error", "data": 1, "logger": 5}):
        with pytest.raises(DecodeError):
            decode(LoggingMessageParams, wrong)


# --- Timestamps


@pytest.mark.spec("D14", "T3")
@pytest.mark.parametrize(
    ("text", "wall_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01 00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1970-01-01T00:00:00.123456789012Z", 123),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1998-12-31T23:59:60Z", 915_148_800_000),
        ("9999-12-31T23:59:59.999+00:00", 253_402_300_799_999),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_timestamps_with_any_offset_are_read(text: str, wall_ms: int) -> None:
    assert read_timestamp(text) == wall_ms


@pytest.mark.spec("D14")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-07-28",
        "2026-07-28T10:00:00",
        "2026-07-28T10:00Z",
        "20260728T100000Z",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-07-28T24:00:00Z",
        "2026-07-28T10:60:00Z",
        "2026-07-28T10:00:61Z",
        "2026-07-28T10:00:00.Z",
        "2026-07-28T10:00:00+1:00",
        "2026-07-28T10:00:00+0100",
        "2026-07-28T10:00:00+25:00",
        "2026-07-28T10:00:00Z ",
        "\u0662026-07-28T10:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-07-28X10:00:00Z",
    ],
)
def test_other_texts_are_no_timestamps(text: str) -> None:
    with pytest.raises(ValueError, match=r"timestamp|offset|range|must be|out of"):
        read_timestamp(text)


@pytest.mark.parametrize("wall_ms", [0, 1, 999, 1_785_232_800_123, 253_402_300_799_999])
def test_what_this_side_writes_it_reads(wall_ms: int) -> None:
    assert read_timestamp(timestamp(wall_ms)) == wall_ms


# --- Input requests


def form(schema: Any, **params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema, **params}}


def one(property_schema: Any) -> dict[str, Any]:
    return form({"type": "object", "properties": {"p": property_schema}})


SAMPLE: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
    "maxTokens": 10,
}


@pytest.mark.parametrize(
    "request_value",
    [
        form({"type": "object", "properties": {}}),
        form({"type": "object", "properties": {}}, mode="form", more=1),
        one({"type": "string", "format": "date", "minLength": 0, "maxLength": 5, "default": "x", "title": "T"}),
        one({"type": "string", "enum": ["a"], "enumNames": ["A"]}),
        one({"type": "number", "minimum": 0.5, "maximum": 2, "default": 1}),
        one({"type": "boolean", "default": False}),
        one({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}, "default": ["a"]}),
        {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example/x?y#z"}},
        {"method": "roots/list"},
        {"method": "roots/list", "params": {}},
        {"method": "sampling/createMessage", "params": SAMPLE},
        {
            "method": "sampling/createMessage",
            "params": {
                **SAMPLE,
                "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
                "toolChoice": {"mode": "auto"},
                "temperature": 1,
                "includeContext": "none",
                "stopSequences": ["x"],
                "modelPreferences": {"hints": [{}], "costPriority": 1},
            },
        },
    ],
)
def test_well_formed_input_requests_are_accepted(request_value: dict[str, Any]) -> None:
    assert check_input_request(request_value) is None


@pytest.mark.parametrize(
    ("request_value", "said"),
    [
        ([], "an input request is an object"),
        ({}, "method: one of elicitation/create, sampling/createMessage, roots/list, not null"),
        ({"method": "tools/call", "params": {}}, "method: one of"),
        ({"method": ["roots/list"]}, "method: one of"),
        ({"method": "roots/list", "params": []}, "params: an object"),
        ({"method": "elicitation/create"}, "params: this member is required"),
        ({"method": "elicitation/create", "params": []}, "params: an object"),
        (form({"type": "object", "properties": {}}, mode="voice"), 'params.mode: "form", "url" or absent'),
        (form({"type": "object", "properties": {}}, mode=None), "params.mode"),
        (form({"type": "object", "properties": {}}, message=5), "params.message: a string, not 5"),
        (form(None), "params.requestedSchema: an object, not null"),
        (form({"properties": {}}), 'params.requestedSchema.type: "object"'),
        (form({"type": "object"}), "params.requestedSchema.properties: an object"),
        (form({"type": "object", "properties": {}, "required": ["x"]}), "params.requestedSchema.required: names of"),
        (form({"type": "object", "properties": {}, "required": "x"}), "params.requestedSchema.required: an array"),
        (one(True), "params.requestedSchema.properties.p: an object, not true"),
        (one({"type": "object"}), "params.requestedSchema.properties.p.type"),
        (one({}), "params.requestedSchema.properties.p.type"),
        (one({"type": ["string"]}), "params.requestedSchema.properties.p.type"),
        (one({"type": "string", "title": 5}), "params.requestedSchema.properties.p.title: a string"),
        (one({"type": "string", "minLength": -1}), "params.requestedSchema.properties.p.minLength: an integer of 0"),
        (one({"type": "string", "format": "ipv4"}), "params.requestedSchema.properties.p.format: one of email, uri"),
        (one({"type": "string", "format": []}), "params.requestedSchema.properties.p.format"),
        (one({"type": "string", "enum": []}), "params.requestedSchema.properties.p.enum: an array of one string"),
        (one({"type": "string", "oneOf": [{"const": "a"}]}), "params.requestedSchema.properties.p.oneOf[0]"),
        (one({"type": "string", "default": 5}), "params.requestedSchema.properties.p.default: a string"),
        (one({"type": "number", "minimum": "0"}), "params.requestedSchema.properties.p.minimum: a number"),
        (one({"type": "integer", "maximum": True}), "params.requestedSchema.properties.p.maximum: a number"),
        (one({"type": "boolean", "default": "no"}), "params.requestedSchema.properties.p.default: true or false"),
        (one({"type": "array"}), "params.requestedSchema.properties.p.items"),
        (one({"type": "array", "items": {"type": "string"}}), "params.requestedSchema.properties.p.items"),
        (one({"type": "array", "items": {"enum": [5]}}), "params.requestedSchema.properties.p.items.enum"),
        (one({"type": "array", "items": {"anyOf": "x"}}), "params.requestedSchema.properties.p.items.anyOf"),
        ({"method": "elicitation/create", "params": {"mode": "url", "message": "m"}}, "params.url: this member"),
        (
            {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "not a url"}},
            "params.url: an absolute URL",
        ),
        ({"method": "sampling/createMessage", "params": {}}, "params.messages: this member is required"),
        ({"method": "sampling/createMessage", "params": {**SAMPLE, "maxTokens": 1.5}}, "params.maxTokens: an integer"),
        ({"method": "sampling/createMessage", "params": {**SAMPLE, "messages": [5]}}, "params.messages[0]: an object"),
        (
            {"method": "sampling/createMessage", "params": {**SAMPLE, "messages": [{"role": "system", "content": []}]}},
            'params.messages[0].role: one of "user", "assistant"',
        ),
        (
            {"method": "sampling/createMessage", "params": {**SAMPLE, "messages": [{"role": "user", "content": "x"}]}},
            "params.messages[0].content: a content block is an object",
        ),
        ({"method": "sampling/createMessage", "params": {**SAMPLE, "tools": [{}]}}, "params.tools[0].name"),
        (
            {"method": "sampling/createMessage", "params": {**SAMPLE, "toolChoice": {"mode": "any"}}},
            "params.toolChoice.mode",
        ),
        (
            {"method": "sampling/createMessage", "params": {**SAMPLE, "modelPreferences": {"costPriority": 2}}},
            "params.modelPreferences.costPriority: a number from 0 to 1",
        ),
        (
            {"method": "sampling/createMessage", "params": {**SAMPLE, "modelPreferences": {"hints": [5]}}},
            "params.modelPreferences.hints",
        ),
    ],
)
def test_malformed_input_requests_are_refused_at_their_place(request_value: Any, said: str) -> None:
    problem = check_input_request(request_value)
    assert problem is not None
    assert problem.startswith(said)


def test_every_class_says_where_it_comes_from_or_what_it_is() -> None:
    for name in methods.__all__:
        value = getattr(methods, name)
        if isinstance(value, type) and attrs.has(value):
            assert value.__doc__
