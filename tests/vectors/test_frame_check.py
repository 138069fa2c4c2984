"""The check of every emitted frame finds what it is there to find."""

from __future__ import annotations

import json
from typing import Any

import pytest

schema_frames = pytest.importorskip("schema_frames", reason="needs jsonschema")
if schema_frames.spec_directory() is None:
    pytest.skip("needs the official schemas: set MCP_SPEC_DIR", allow_module_level=True)

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
HANDLE = {
    "resultType": "task",
    "taskId": "t1",
    "status": "working",
    "createdAt": "2026-07-28T10:00:00.000Z",
    "lastUpdatedAt": "2026-07-28T10:00:00.000Z",
    "ttlMs": None,
}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}


def answer(result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def refusal(code: int, **data: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no", "data": data}}).encode()


CALL = request("tools/call", name="slow")
GET = request("tasks/get", taskId="t1")


@pytest.mark.parametrize(
    ("raw", "asked"),
    [
        (answer(HANDLE), CALL),
        (answer({**HANDLE, "resultType": "complete"}), GET),
        (answer({"resultType": "complete"}), request("tasks/cancel", taskId="t1")),
        (answer({"resultType": "input_required", "requestState": "s"}), CALL),
        (refusal(-32021, requiredCapabilities={"elicitation": {}}), CALL),
        (refusal(-32602), GET),
        (refusal(1), CALL),
        (b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}', None),
    ],
)
def test_lawful_server_frames_pass(raw: bytes, asked: dict[str, Any] | None) -> None:
    schema_frames.validate_server_frame(raw, asked)


@pytest.mark.parametrize(
    ("raw", "asked"),
    [
        (answer(HANDLE), GET),
        (answer(HANDLE), {**CALL, "params": {"name": "slow"}}),
        (answer({**HANDLE, "result": {}}), CALL),
        (answer({**HANDLE, "ttlMs": 1.0}), CALL),
        (answer({name: value for name, value in HANDLE.items() if name != "ttlMs"}), CALL),
        (answer({**HANDLE, "resultType": "complete", "status": "completed"}), GET),
        (answer({**HANDLE, "resultType": "complete", "statusMessage": None}), GET),
        (answer({"resultType": "complete"}), CALL),
        (answer({"content": []}), CALL),
        (answer({"resultType": "input_required", "requestState": "s"}), GET),
        (answer({"resultType": "input_required"}), CALL),
        (answer({"resultType": "complete", "tools": []}), request("tools/list")),
        (refusal(-32021), CALL),
        (refusal(-32022, supported=[]), CALL),
        (refusal(-32002), CALL),
        (refusal(-32001), CALL),
        (refusal(-32042), CALL),
        (b'{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"no"}}', CALL),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1"}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":NaN}}', None),
        (b'{"jsonrpc":"2.0",\n"method":"notifications/x"}', None),
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0","method":"notifications/x"}', None),
        (b"[]", None),
    ],
)
def test_unlawful_server_frames_are_found(raw: bytes, asked: dict[str, Any] | None) -> None:
    with pytest.raises(schema_frames.FrameViolation):
        schema_frames.validate_server_frame(raw, asked)


def test_lawful_client_frames_pass() -> None:
    schema_frames.validate_client_frame(json.dumps(GET).encode())
    answers = {"k": {"action": "accept", "content": {"share": 0.5}}}
    schema_frames.validate_client_frame(
        json.dumps(request("tasks/update", taskId="t1", inputResponses=answers)).encode()
    )
    schema_frames.validate_client_frame(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    )


@pytest.mark.parametrize(
    "frame",
    [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
        {"jsonrpc": "2.0", "id": None, "method": "tools/list", "params": {"_meta": META}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"_meta": META}},
        {**GET, "params": {"taskId": "t1", "_meta": {**META, "io.modelcontextprotocol/clientCapabilities": {}}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
    ],
)
def test_unlawful_client_frames_are_found(frame: dict[str, Any]) -> None:
    with pytest.raises(schema_frames.FrameViolation):
        schema_frames.validate_client_frame(json.dumps(frame).encode())


def test_a_refused_duplicate_does_not_hide_which_request_a_result_answers() -> None:
    asked = schema_frames._Asked()
    asked.note(1, json.dumps(CALL).encode())
    asked.note(1, json.dumps(GET).encode())
    asked.check(1, refusal(-32600), True)
    asked.check(1, answer(HANDLE), True)
