"""Routing headers against the message that came with them, in the one order of checks."""

from __future__ import annotations

import base64
from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, StreamId
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Acknowledge, InvokeTool, LoadTask
from mcp_tasks_core.server.events import MessageReceived
from mcp_tasks_core.testing.harness import HELD, ServerHarness
from mcp_tasks_core.testing.messages import as_bytes, request_message, request_meta, text_result
from mcp_tasks_core.wire.headers import RoutingHeaders

STREAM = StreamId(7)
SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
    },
}
TOOLS = [
    ToolEntry(definition={"name": "plain", "inputSchema": {"type": "object"}}),
    ToolEntry(definition={"name": "routed", "inputSchema": SCHEMA}),
    ToolEntry(definition={"name": "long", "inputSchema": {"type": "object"}}, requires_task=True),
]


@pytest.fixture
def server() -> ServerHarness:
    return ServerHarness(ServerConfig(tools=TOOLS), tools={tool.name: lambda call: HELD for tool in TOOLS})


def headers(**changes: Any) -> RoutingHeaders:
    return attrs.evolve(RoutingHeaders(protocol_version="2026-07-28", method="tools/list", name=None), **changes)


def send(server: ServerHarness, method: str, params: JSONObject, sent: RoutingHeaders) -> JSONObject:
    """The one answer to a message that came with these headers."""
    message = as_bytes(request_message(1, method, params))
    before = len(server.frames)
    server.feed(MessageReceived(STREAM, message, LOCAL_OWNER, sent))
    (answer,) = server.frames[before:]
    return answer


def code(answer: JSONObject) -> int | None:
    return answer["error"]["code"] if "error" in answer else None


def meta(**changes: Any) -> JSONObject:
    return {"_meta": {**request_meta(), **changes}}


VERSION = "io.modelcontextprotocol/protocolVersion"


@pytest.mark.spec("H5", "N1", "N2")
@pytest.mark.parametrize(
    ("method", "params", "sent", "expected"),
    [
        ("tools/list", meta(), headers(), None),
        ("tools/list", {}, headers(protocol_version=None), -32020),
        ("tools/list", {}, headers(), -32602),
        ("tools/list", meta(), headers(protocol_version="1900-01-01"), -32020),
        ("tools/list", meta(**{VERSION: "1900-01-01"}), headers(), -32020),
        ("tools/list", meta(**{VERSION: "1900-01-01"}), headers(protocol_version="1900-01-01", method=None), -32022),
        ("tools/list", meta(), headers(method=None), -32020),
        ("tools/list", meta(), headers(method="prompts/list"), -32020),
        ("tools/list", meta(), headers(method="TOOLS/LIST"), -32020),
        ("tasks/result", meta(), headers(method="tasks/list"), -32020),
        ("tasks/result", meta(), headers(method="tasks/result"), -32601),
    ],
)
def test_headers_are_checked_in_the_order_of_the_decisions(
    server: ServerHarness, method: str, params: JSONObject, sent: RoutingHeaders, expected: int | None
) -> None:
    assert code(send(server, method, params, sent)) == expected


@pytest.mark.spec("H6")
def test_the_sentinel_means_nothing_on_the_version_and_the_method(server: ServerHarness) -> None:
    def wrapped(text: str) -> str:
        return f"=?base64?{base64.b64encode(text.encode()).decode()}?="

    assert code(send(server, "tools/list", meta(), headers(method=wrapped("tools/list")))) == -32020
    assert code(send(server, "tools/list", meta(), headers(protocol_version=wrapped("2026-07-28")))) == -32020


NAMES = [
    ("plain", None),
    ("=?base64?cGxhaW4=?=", None),
    (None, -32020),
    ("other", -32020),
    ("Plain", -32020),
    ("=?base64?cGxhaW4?=", -32020),
    ("=?base64?b3RoZXI=?=", -32020),
    ("=?BASE64?cGxhaW4=?=", -32020),
    ("pla\x01in", -32020),
    ("caf\xe9", -32020),
]


@pytest.mark.spec("H5", "H6")
@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_the_name_header_says_what_the_message_is_about(
    server: ServerHarness, name: str | None, expected: int | None
) -> None:
    params = {**meta(), "name": "plain"}
    server.feed(
        MessageReceived(
            STREAM,
            as_bytes(request_message(1, "tools/call", params)),
            LOCAL_OWNER,
            headers(method="tools/call", name=name),
        )
    )
    calls = server.effects_of(InvokeTool)
    if expected is None:
        assert [call.name for call in calls] == ["plain"]
    else:
        assert calls == []
        assert [code(frame) for frame in server.frames] == [expected]


@pytest.mark.spec("H5")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/update"])
@pytest.mark.parametrize("name", [None, "other", "T1"])
def test_task_methods_without_their_id_in_a_header_are_refused_before_the_task_is_looked_for(
    server: ServerHarness, method: str, name: str | None
) -> None:
    params = {**meta(), "taskId": "t1", "inputResponses": {}}
    assert code(send(server, method, params, headers(method=method, name=name))) == -32020
    assert server.effects_of(LoadTask) == []


def test_a_server_may_let_task_methods_come_without_a_name_but_never_with_another() -> None:
    server = ServerHarness(ServerConfig(tools=TOOLS, task_name_required=False))
    params = {**meta(), "taskId": "t1"}
    assert code(send(server, "tasks/get", params, headers(method="tasks/get"))) == -32602
    assert code(send(server, "tasks/get", params, headers(method="tasks/get", name="t2"))) == -32020
    assert code(send(server, "tools/call", {**meta(), "name": "plain"}, headers(method="tools/call"))) == -32020


@pytest.mark.spec("H6")
def test_a_task_id_beyond_ascii_is_found_by_its_encoded_header(server: ServerHarness) -> None:
    encoded = f"=?base64?{base64.b64encode('tâche'.encode()).decode()}?="
    answer = send(server, "tasks/get", {**meta(), "taskId": "tâche"}, headers(method="tasks/get", name=encoded))
    assert code(answer) == -32602
    assert [load.task_id for load in server.effects_of(LoadTask)] == ["tâche"]


def test_a_message_without_the_name_is_at_fault_itself(server: ServerHarness) -> None:
    assert code(send(server, "tools/call", meta(), headers(method="tools/call", name="plain"))) == -32602
    assert code(send(server, "tools/call", {**meta(), "name": 5}, headers(method="tools/call"))) == -32602


PARAMETERS: list[tuple[JSONObject, dict[str, str], int | None]] = [
    ({"region": "Hello"}, {"region": "Hello"}, None),
    ({"region": "Hello"}, {"region": "=?base64?SGVsbG8=?="}, None),
    ({"region": "SGVsbG8="}, {"region": "SGVsbG8="}, None),
    ({"region": ""}, {"region": ""}, None),
    ({"count": 42}, {"count": "42.0"}, None),
    ({}, {"unknown": "x"}, None),
    ({"region": None}, {}, None),
    ({"region": "Hello"}, {}, -32020),
    ({"region": "Hello"}, {"region": "hello"}, -32020),
    ({"region": "Hello"}, {"region": "=?base64?SGVsbG8?="}, -32020),
    ({"region": "Hello"}, {"region": "=?base64?SGVs!!!bG8=?="}, -32020),
    ({"region": ""}, {}, -32020),
    ({"count": 42}, {"count": "43"}, -32020),
    ({"count": 42}, {"count": "many"}, -32020),
    ({}, {"region": "Hello"}, -32020),
    ({"region": None}, {"region": "null"}, -32020),
]


@pytest.mark.spec("H10")
@pytest.mark.parametrize(("arguments", "sent", "expected"), PARAMETERS)
def test_annotated_arguments_are_checked_against_their_headers(
    server: ServerHarness, arguments: JSONObject, sent: dict[str, str], expected: int | None
) -> None:
    params = {**meta(), "name": "routed", "arguments": arguments}
    message = as_bytes(request_message(1, "tools/call", params))
    server.feed(MessageReceived(STREAM, message, LOCAL_OWNER, headers(method="tools/call", name="routed", params=sent)))
    assert [code(frame) for frame in server.frames] == ([] if expected is None else [expected])
    assert len(server.effects_of(InvokeTool)) == (expected is None)


@pytest.mark.spec("H5", "G4")
def test_a_wrong_name_is_told_before_a_missing_capability(server: ServerHarness) -> None:
    params = {"_meta": request_meta(tasks=False), "name": "long"}
    assert code(send(server, "tools/call", params, headers(method="tools/call", name="wrong"))) == -32020
    assert code(send(server, "tools/call", params, headers(method="tools/call", name="long"))) == -32021


@pytest.mark.spec("H4", "B6")
def test_a_message_that_wants_no_answer_is_acknowledged(server: ServerHarness) -> None:
    def acknowledged(message: JSONObject) -> list[bool]:
        server.forget()
        server.feed(MessageReceived(STREAM, as_bytes(message), LOCAL_OWNER, headers()))
        assert server.frames == []
        return [effect.accepted for effect in server.effects_of(Acknowledge)]

    assert acknowledged({"jsonrpc": "2.0", "method": "notifications/whatever"}) == [True]
    assert acknowledged({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}) == [True]
    assert acknowledged({"jsonrpc": "2.0", "id": 1, "result": text_result()}) == [False]
    assert acknowledged({"jsonrpc": "2.0", "method": 5}) == [False]


@pytest.mark.spec("H12")
def test_a_tool_with_an_annotation_against_the_rules_is_refused_where_it_is_declared() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
    with pytest.raises(LocalProtocolError, match="the tool 'broken': n has an x-mcp-header"):
        ToolEntry(definition={"name": "broken", "inputSchema": schema})
