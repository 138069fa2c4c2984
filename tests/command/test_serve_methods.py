"""A raw conversation with ``mcp-tasks serve``: every method, and every refusal, as bytes of a child process."""

from __future__ import annotations

from typing import Any

import pytest

TASKS = "io.modelcontextprotocol/tasks"
SERVER_INFO = {"io.modelcontextprotocol/serverInfo": {"name": "sample", "version": "1.0"}}
HANDLE_KEYS = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta"}


@pytest.mark.spec("N3", "N9", "B4", "B11")
def test_discover_advertises_what_is_there(server: Any) -> None:
    result = server.result("server/discover")
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["capabilities"]["extensions"] == {TASKS: {}}
    assert "tools" in result["capabilities"]
    assert result["resultType"] == "complete"
    assert type(result["ttlMs"]) is int
    assert result["cacheScope"] in ("public", "private")
    assert result["_meta"] == SERVER_INFO


def test_subscriptions_can_be_turned_off_where_no_stream_can_be_held_open(start_server: Any) -> None:
    listen = {"notifications": {"toolsListChanged": True}}
    server = start_server("sample_app:app", "--no-subscriptions")
    assert server.result("server/discover")["capabilities"]["tools"] == {}
    assert server.error("subscriptions/listen", listen)["code"] == -32601
    open_to_all = start_server("sample_app:app")
    assert open_to_all.result("server/discover")["capabilities"]["tools"] == {"listChanged": True}


@pytest.mark.spec("N10", "B4")
def test_tools_are_listed_in_their_order_whatever_is_declared(server: Any) -> None:
    with_tasks, without = server.result("tools/list"), server.result("tools/list", tasks=False)
    assert with_tasks == without
    assert [tool["name"] for tool in with_tasks["tools"]][:3] == ["greet", "echo", "check_mark"]
    assert with_tasks["resultType"] == "complete"


@pytest.mark.parametrize("cursor", ["no such page", 5, {}])
@pytest.mark.spec("N10")
def test_bad_cursor_is_invalid_params(server: Any, cursor: Any) -> None:
    assert server.error("tools/list", {"cursor": cursor})["code"] == -32602


@pytest.mark.spec("B4", "T2")
def test_every_result_names_its_type(server: Any) -> None:
    handle = server.tool("finish")
    task = {"taskId": handle["taskId"]}
    server.ended_state(task["taskId"])
    results = {
        "server/discover": server.result("server/discover"),
        "tools/list": server.result("tools/list"),
        "tools/call": server.tool("greet", {"name": "Ada"}),
        "a tool that fails": server.tool("refuse"),
        "tasks/get": server.result("tasks/get", task),
        "tasks/update": server.result("tasks/update", {**task, "inputResponses": {}}),
        "tasks/cancel": server.result("tasks/cancel", task),
    }
    assert {what: result["resultType"] for what, result in results.items()} == dict.fromkeys(results, "complete")
    assert handle["resultType"] == "task"
    assert results["a tool that fails"]["isError"] is True


@pytest.mark.spec("C4", "C7")
def test_handle_is_flat_and_holds_nothing_else(server: Any) -> None:
    handle = server.tool("work")
    assert set(handle) == HANDLE_KEYS
    assert len(handle["taskId"]) >= 32
    assert handle["status"] == "working"
    assert type(handle["ttlMs"]) is int
    server.result("tasks/cancel", {"taskId": handle["taskId"]})


@pytest.mark.spec("C3", "N5", "N4")
def test_no_task_is_made_for_a_request_that_does_not_declare_tasks(server: Any) -> None:
    legacy = {"tasks": {"requests": {"tools": {"call": {}}}}}
    for capabilities in ({}, legacy):
        result = server.tool("finish", tasks=False, capabilities=capabilities)
        assert result["resultType"] == "complete"
        assert result["content"][0]["text"] == "done"


@pytest.mark.spec("C2")
@pytest.mark.parametrize("tasks", [True, False])
def test_legacy_task_parameter_is_ignored(server: Any, tasks: bool) -> None:
    hint = {"task": {"ttl": 1000}}
    ordinary = server.result("tools/call", {"name": "greet", "arguments": {"name": "Ada"}, **hint}, tasks=tasks)
    assert ordinary["resultType"] == "complete"
    deferred = server.result("tools/call", {"name": "finish", "arguments": {}, **hint}, tasks=tasks)
    assert deferred["resultType"] == ("task" if tasks else "complete")
    if tasks:
        assert deferred["ttlMs"] != 1000


@pytest.mark.spec("C3", "N7", "G4")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", {"taskId": "nobody's"}),
        ("tasks/update", {"taskId": "nobody's", "inputResponses": {}}),
        ("tasks/cancel", {"taskId": "nobody's"}),
        ("tools/call", {"name": "only_as_task", "arguments": {}}),
    ],
)
def test_missing_declaration_is_refused_with_what_is_required(server: Any, method: str, params: Any) -> None:
    error = server.error(method, params, tasks=False)
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}


@pytest.mark.spec("G5", "B7")
@pytest.mark.parametrize(
    "method",
    ["tasks/list", "tasks/result", "tasks/nonsense", "resources/subscribe", "prompts/list", "resources/read", "ping"],
)
@pytest.mark.parametrize("tasks", [True, False])
def test_method_that_is_not_there_is_not_found(server: Any, method: str, tasks: bool) -> None:
    assert server.error(method, {"taskId": "x"}, tasks=tasks)["code"] == -32601


@pytest.mark.spec("N3")
def test_server_without_tasks_has_no_task_methods(start_server: Any) -> None:
    server = start_server("sample_app:no_tasks")
    assert "extensions" not in server.result("server/discover")["capabilities"]
    for tasks in (True, False):
        assert server.error("tasks/get", {"taskId": "x"}, tasks=tasks)["code"] == -32601


@pytest.mark.spec("N1", "B7")
def test_missing_meta_is_invalid_params_where_the_method_exists(server: Any, make_request: Any) -> None:
    version, capabilities = (
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
    )
    meta = make_request("server/discover")["params"]["_meta"]
    incomplete: list[Any] = [
        {},
        {"_meta": {}},
        {"_meta": {version: meta[version]}},
        {"_meta": {capabilities: {}}},
        {"_meta": {**meta, version: 20260728}},
        {"_meta": {**meta, capabilities: []}},
        {"_meta": None},
    ]
    for number, params in enumerate(incomplete):
        message = {"jsonrpc": "2.0", "id": f"bad {number}", "method": "server/discover", "params": params}
        assert server.answer_to(message)["error"]["code"] == -32602, params
    without_params = {"jsonrpc": "2.0", "id": "none", "method": "server/discover"}
    assert server.answer_to(without_params)["error"]["code"] == -32602
    assert server.error("server/nonsense")["code"] == -32601


@pytest.mark.spec("N2")
def test_unsupported_version_names_those_that_are(server: Any) -> None:
    error = server.error("tools/list", version="1900-01-01")
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


@pytest.mark.spec("N6")
def test_refused_initialize_names_the_supported_versions(server: Any) -> None:
    legacy = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": legacy}
    assert server.answer_to(message)["error"]["data"]["supported"] == ["2026-07-28"]
    assert server.error("initialize", legacy)["data"]["supported"] == ["2026-07-28"]


@pytest.mark.spec("G1", "T2")
def test_completed_task_holds_what_the_plain_call_returns(server: Any) -> None:
    plain = server.tool("finish", {"text": "so be it"}, tasks=False)
    state = server.ended_state(server.tool("finish", {"text": "so be it"})["taskId"])
    assert state["status"] == "completed"
    assert state["result"] == {name: value for name, value in plain.items() if name != "_meta"}
    assert not {"error", "inputRequests"} & set(state)


@pytest.mark.spec("T2")
def test_failed_is_for_protocol_errors_alone(server: Any) -> None:
    failed = server.ended_state(server.tool("fail")["taskId"])
    assert (failed["status"], failed["error"]["code"]) == ("failed", 7)
    assert failed["statusMessage"]
    refused = server.ended_state(server.tool("fail_as_tool")["taskId"])
    assert (refused["status"], refused["result"]["isError"]) == ("completed", True)


@pytest.mark.spec("X2", "U4", "T1")
@pytest.mark.parametrize("tool", ["finish", "fail", "work"])
def test_terminal_state_is_final(server: Any, tool: str) -> None:
    task = {"taskId": server.tool(tool)["taskId"]}
    if tool == "work":
        server.result("tasks/cancel", task)
    before = server.ended_state(task["taskId"])
    acknowledgement = {"resultType": "complete", "_meta": SERVER_INFO}
    assert server.result("tasks/cancel", task) == acknowledgement
    assert server.result("tasks/cancel", task) == acknowledgement
    assert server.result("tasks/update", {**task, "inputResponses": {"old": {"action": "accept"}}}) == acknowledgement
    assert server.state(task["taskId"]) == before


@pytest.mark.spec("G3", "X2", "U4")
def test_unknown_task_looks_the_same_to_every_method(server: Any) -> None:
    task = {"taskId": "nobody's"}
    errors = [
        server.error("tasks/get", task),
        server.error("tasks/update", {**task, "inputResponses": {}}),
        server.error("tasks/cancel", task),
    ]
    assert errors == [errors[0]] * 3
    assert errors[0]["code"] == -32602


@pytest.mark.spec("G2", "U1", "U2", "U3", "U5")
def test_questions_stand_until_each_is_answered(server: Any) -> None:
    task_id = server.tool("ask_two")["taskId"]
    asking = server.state_when(task_id, lambda state: len(state.get("inputRequests", ())) == 2)
    assert set(asking["inputRequests"]) == {"first", "second"}
    assert server.state(task_id)["inputRequests"] == asking["inputRequests"]

    def update(**answers: Any) -> dict[str, Any]:
        return {"taskId": task_id, "inputResponses": answers}

    good, bad = ({"action": "accept", "content": {"value": value}} for value in (3, 0))
    assert server.error("tasks/update", update(first=good, second=bad))["code"] == -32602
    assert set(server.state(task_id)["inputRequests"]) == {"first", "second"}
    server.result("tasks/update", update(first=good, nobody=bad))
    assert set(server.state(task_id)["inputRequests"]) == {"second"}
    server.result("tasks/update", update(first=bad, second=good))
    ended = server.ended_state(task_id)
    assert ended["result"]["content"][0]["text"] == "3 and 3"


@pytest.mark.spec("U5")
@pytest.mark.parametrize("answers", [None, [], "first", 5])
def test_answers_are_an_object(server: Any, answers: Any) -> None:
    task = {"taskId": server.tool("finish")["taskId"]}
    server.ended_state(task["taskId"])
    assert server.error("tasks/update", {**task, "inputResponses": answers})["code"] == -32602
    assert server.error("tasks/update", task)["code"] == -32602


@pytest.mark.spec("X1", "T3")
def test_cancelled_task_says_so_and_its_time_moves(server: Any) -> None:
    handle = server.tool("work")
    server.result("tasks/cancel", {"taskId": handle["taskId"]})
    ended = server.ended_state(handle["taskId"])
    assert ended["status"] == "cancelled"
    assert ended["lastUpdatedAt"] > handle["lastUpdatedAt"] >= handle["createdAt"]


@pytest.mark.spec("R1", "R6", "P8")
def test_ordinary_tool_asks_and_is_called_again_with_the_answer(server: Any) -> None:
    call = {"name": "ask_inline", "arguments": {}}
    asked = server.result("tools/call", call, tasks=False)
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["colour"]["method"] == "elicitation/create"
    state = {"requestState": asked["requestState"]} if "requestState" in asked else {}
    answers = {"colour": {"action": "accept", "content": {"colour": "red"}}}
    result = server.result("tools/call", {**call, **state, "inputResponses": answers}, tasks=False)
    assert result["content"][0]["text"] == "accept: {'colour': 'red'}"


@pytest.mark.spec("R4", "U7")
def test_question_that_the_client_did_not_declare_is_not_asked(server: Any) -> None:
    call = {"name": "ask_inline", "arguments": {}}
    error = server.error("tools/call", call, tasks=False, capabilities={})
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


@pytest.mark.spec("C11")
@pytest.mark.parametrize("tool", ["greet", "work"])
@pytest.mark.parametrize("arguments", [{"name": 5, "message": 5}, {"name": None, "message": None}])
def test_fault_in_the_arguments_is_an_error_result_before_any_task(server: Any, tool: str, arguments: Any) -> None:
    result = server.tool(tool, arguments)
    assert (result["resultType"], result["isError"]) == ("complete", True)


@pytest.mark.spec("C11")
@pytest.mark.parametrize(
    "params",
    [{"name": "nobody"}, {}, {"name": 5}, {"name": "greet", "arguments": []}, {"name": "greet", "arguments": 5}],
)
def test_malformed_call_is_invalid_params(server: Any, params: Any) -> None:
    assert server.error("tools/call", params)["code"] == -32602


@pytest.mark.spec("B5")
def test_error_of_the_application_keeps_its_code_and_data(server: Any) -> None:
    error = server.error("tools/call", {"name": "boom", "arguments": {}})
    assert error == {"code": 7, "message": "the printer is on fire", "data": {"floor": 3}}


@pytest.mark.spec("B10")
def test_number_that_json_does_not_have_never_reaches_the_wire(server: Any) -> None:
    answer = server.call("tools/call", {"name": "infinite", "arguments": {}})
    assert "error" in answer or answer["result"]["isError"] is True


@pytest.mark.spec("L1", "L2")
def test_progress_and_logs_come_where_they_were_asked_for(server: Any, make_request: Any) -> None:
    call = {"name": "complain", "arguments": {}}
    wanted = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "info"}
    server.send(make_request("tools/call", call, request_id="loud", **wanted))
    log, progress, answer = server.read(), server.read(), server.read()
    assert log["method"] == "notifications/message"
    assert log["params"]["data"] == "the paper is low"
    assert progress["method"] == "notifications/progress"
    assert progress["params"]["progressToken"] == "p"
    assert answer["id"] == "loud"
    assert server.result("tools/call", call)["resultType"] == "complete"  # the very next frame: nothing unasked
