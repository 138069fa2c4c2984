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


class Received:
    def __init__(self, payload: bytes) -> None:
        self.stream_id = 1
        self.payload = payload


Received.__name__ = "MessageReceived"


class Frame:
    """Looks like the effect of either core."""

    stream_id = 1
    final = True

    def __init__(self, *payload: bytes) -> None:
        self.payload = payload


class Parrot:
    """Looks like a core; says what it was told to say."""

    def __init__(self, *payload: bytes) -> None:
        self.says = Frame(*payload)

    def handle(self, event: Any, now: Any) -> list[Frame]:
        return [self.says]


def violations_of(watch: Any, *payload: bytes) -> list[str]:
    watched = type("Watched", (Parrot,), {"handle": Parrot.handle})
    watch(watched)
    watched(*payload).handle(Received(json.dumps(GET).encode()), None)
    found = [str(violation) for violation in schema_frames._violations]
    schema_frames._violations.clear()
    return found


def test_frames_of_a_watched_server_are_held_against_the_request_that_they_answer() -> None:
    state = answer({**HANDLE, "resultType": "complete"})
    assert violations_of(schema_frames._watch_server, state[:20], state[20:]) == []
    assert "tasks/get cannot become a task" in violations_of(schema_frames._watch_server, answer(HANDLE))[0]


def test_frames_of_a_watched_client_are_held_against_the_schemas() -> None:
    assert violations_of(schema_frames._watch_client, json.dumps(GET).encode()) == []
    assert "a client sends no responses" in violations_of(schema_frames._watch_client, answer(HANDLE))[0]


def test_both_cores_are_watched_in_this_run() -> None:
    from mcp_tasks_core.client.protocol import ClientProtocol
    from mcp_tasks_core.server.protocol import ServerProtocol

    assert hasattr(ServerProtocol.handle, "__wrapped__")
    assert hasattr(ClientProtocol.handle, "__wrapped__")
