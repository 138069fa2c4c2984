"""What a peer may throw at ``mcp-tasks serve`` line by line: it answers as JSON-RPC says, and lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest


def _line(make_request: Any, **changes: Any) -> dict[str, Any]:
    message = make_request("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}, request_id="x")
    message.update(changes)
    return {name: value for name, value in message.items() if value is not ...}


@pytest.mark.spec("B7", "B3")
@pytest.mark.parametrize(
    "line",
    [
        b"garbage",
        b"{",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"\xc0\xaf"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"\xed\xa0\x80"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"value":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"value":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}',
        b"\x00",
        b'{"jsonrpc":"2.0","id":1,"method":"x"} trailing',
    ],
    ids=lambda line: repr(line[:50]),
)
def test_line_that_is_no_json_is_a_parse_error_without_id(server: Any, line: bytes) -> None:
    server.send_bytes(line + b"\n")
    answer = server.read()
    assert answer["error"]["code"] == -32700
    assert "id" not in answer
    assert server.is_alive()


@pytest.mark.spec("B1", "B7")
@pytest.mark.parametrize("value", [[], [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}], 5, "text", None, True])
def test_line_that_is_no_object_is_an_invalid_request(server: Any, value: Any) -> None:
    server.send_bytes(json.dumps(value).encode() + b"\n")
    answer = server.read()
    assert answer["error"]["code"] == -32600
    assert "id" not in answer
    assert server.is_alive()


@pytest.mark.spec("B2", "B3")
@pytest.mark.parametrize("request_id", [None, True, {}, [], 1.5, 3100.0])
def test_id_of_another_kind_is_an_invalid_request_and_nothing_runs(
    server: Any, make_request: Any, request_id: Any
) -> None:
    server.send(_line(make_request, id=request_id))
    answer = server.read()
    assert answer["error"]["code"] == -32600
    assert "id" not in answer
    assert server.is_alive()


@pytest.mark.spec("B2", "B3")
@pytest.mark.parametrize("request_id", ["", 0, -1, "0", 9007199254740993, -(2**63), "é✓", "x" * 1000])
def test_any_string_or_integer_is_an_id_and_comes_back_as_it_was(
    server: Any, make_request: Any, request_id: Any
) -> None:
    answer = server.answer_to(_line(make_request, id=request_id))
    assert type(answer["id"]) is type(request_id)
    assert answer["id"] == request_id
    assert "result" in answer


@pytest.mark.spec("B6")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "greet", "arguments": {"name": "Ada"}}},
        {"jsonrpc": "2.0", "method": "notifications/nonsense"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody's"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ],
    ids=lambda message: json.dumps(message)[18:70],
)
def test_notification_gets_no_answer(server: Any, message: Any) -> None:
    server.send(message)
    assert server.is_alive()  # the very next frame is the answer to this


@pytest.mark.spec("B7")
@pytest.mark.parametrize(
    "changes",
    [{"jsonrpc": ...}, {"jsonrpc": "1.0"}, {"jsonrpc": 2}, {"jsonrpc": None}, {"method": 5}, {"method": None}],
    ids=str,
)
def test_wrong_envelope_is_an_invalid_request(server: Any, make_request: Any, changes: Any) -> None:
    server.send(_line(make_request, **changes))
    assert server.read()["error"]["code"] == -32600
    assert server.is_alive()


@pytest.mark.spec("B7")
@pytest.mark.parametrize("params", [[], "text", 5, None])
def test_params_are_an_object(server: Any, make_request: Any, params: Any) -> None:
    server.send(_line(make_request, params=params))
    assert server.read()["error"]["code"] in (-32600, -32602)
    assert server.is_alive()


@pytest.mark.spec("B7")
def test_unknown_members_are_ignored(server: Any, make_request: Any) -> None:
    assert "result" in server.answer_to(_line(make_request, extra={"any": "thing"}))


@pytest.mark.spec("B8")
def test_response_of_a_client_is_ignored(server: Any) -> None:
    server.send_bytes(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    server.send_bytes(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}\n')
    assert server.is_alive()


@pytest.mark.spec("I1", "B10")
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1024 * 1024, 10 * 1024 * 1024])
def test_message_of_many_bytes_is_served_whole(server: Any, make_request: Any, size: int) -> None:
    message = make_request("tools/call", {"name": "echo", "arguments": {"text": ""}}, request_id="big")
    text = "a" * (size - len(json.dumps(message)))
    message["params"]["arguments"]["text"] = text
    assert len(json.dumps(message)) == size
    assert server.answer_to(message)["result"]["structuredContent"] == {"text": text}


@pytest.mark.spec("I5", "B10")
def test_line_over_the_limit_is_refused_and_skipped(server: Any) -> None:
    for _ in range(17):
        server.send_bytes(b"x" * 1024 * 1024)
    server.send_bytes(b"\n")
    answer = server.read()
    assert answer["error"]["code"] == -32600
    assert "16777216" in answer["error"]["message"]
    assert server.is_alive()


@pytest.mark.spec("B10")
def test_nesting_beyond_the_limit_is_refused(server: Any) -> None:
    for depth in (129, 100_000):
        server.send_bytes(b"[" * depth + b"]" * depth + b"\n")
        assert server.read()["error"]["code"] == -32600
    assert server.is_alive()


@pytest.mark.spec("I1")
def test_line_may_end_with_crlf_and_none_of_ours_does(server: Any, make_request: Any) -> None:
    server.send_bytes(json.dumps(_line(make_request)).encode() + b"\r\n")
    line = server.read_line()
    assert line.endswith(b"}\n")
    assert json.loads(line)["id"] == "x"


@pytest.mark.spec("I1")
def test_message_may_come_byte_by_byte(server: Any, make_request: Any) -> None:
    arguments = {"text": "é✓🎉"}
    message = make_request("tools/call", {"name": "echo", "arguments": arguments}, request_id="cut")
    for byte in json.dumps(message, ensure_ascii=False).encode() + b"\n":
        server.send_bytes(bytes([byte]))
    assert json.loads(server.read_line())["result"]["structuredContent"] == arguments


@pytest.mark.spec("B10")
def test_ten_thousand_lines_of_garbage_end_nothing(start_server: Any) -> None:
    server = start_server("sample_app:app", "--log-level", "error")
    for _ in range(100):
        server.send_bytes(b"garbage\n" * 100)
        for _ in range(100):
            assert server.read()["error"]["code"] == -32700
    assert server.is_alive()


@pytest.mark.spec("B10")
@pytest.mark.parametrize("value", [2**53 + 1, 2**63 - 1, 2**64, 10**400, -(10**400)])
def test_large_integers_are_not_rounded(server: Any, value: int) -> None:
    arguments = {"value": value}
    assert server.tool("echo", arguments)["structuredContent"] == arguments


@pytest.mark.spec("B10")
def test_integer_of_more_digits_than_allowed_is_refused(server: Any, make_request: Any) -> None:
    message = make_request("tools/call", {"name": "echo", "arguments": {"value": 0}}, request_id="digits")
    server.send_bytes(json.dumps(message).replace('"value": 0', '"value": 1' + "0" * 5000).encode() + b"\n")
    assert server.read()["error"]["code"] in (-32700, -32602)
    assert server.is_alive()


@pytest.mark.spec("B9")
def test_id_that_is_open_already_is_refused_and_the_first_is_unharmed(server: Any, make_request: Any) -> None:
    server.send(make_request("tools/call", {"name": "wait_for_ever", "arguments": {}}, request_id="twice"))
    again = make_request("server/discover", request_id="twice")
    assert server.answer_to(again)["error"]["code"] == -32600
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "twice"}})
    assert "result" in server.answer_to(make_request("server/discover", request_id="twice"))


@pytest.mark.spec("I4")
def test_slow_request_holds_up_no_other(server: Any, make_request: Any) -> None:
    server.send(make_request("tools/call", {"name": "wait_for_ever", "arguments": {}}, request_id="slow"))
    assert server.is_alive()
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}})


@pytest.mark.spec("I2", "X3")
def test_cancelled_request_gets_no_answer_and_cancels_no_task(server: Any, make_request: Any) -> None:
    task_id = server.tool("work")["taskId"]
    server.send(make_request("tools/call", {"name": "wait_for_ever", "arguments": {}}, request_id=9007199254740993))
    for request_id in (9007199254740993, 9007199254740993, "9007199254740993", "unknown", task_id):
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
    assert server.state(task_id)["status"] == "working"
    server.result("tasks/cancel", {"taskId": task_id})


@pytest.mark.spec("I2", "B3")
def test_racing_cancels_leave_one_answer_or_none(server: Any, make_request: Any) -> None:
    for number in range(1000):
        call = make_request("tools/call", {"name": "check_mark", "arguments": {}}, request_id=f"race {number}")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"race {number}"}}
        server.send_bytes(json.dumps(call).encode() + b"\n" + json.dumps(cancel).encode() + b"\n")
    server.send(make_request("server/discover", request_id="last"))
    answered: list[str] = []
    while not answered or answered[-1] != "last":
        answered.append(server.read()["id"])
    assert len(answered) == len(set(answered))
    assert server.is_alive()
