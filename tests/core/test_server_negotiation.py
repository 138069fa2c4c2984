"""Discovery, lists, what a request declares, and the methods that an application serves itself."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.capabilities import TASKS_EXTENSION, advertise_tasks
from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry, method_is_reserved
from mcp_tasks_core.server.effects import CallMethod, Report
from mcp_tasks_core.server.events import Asked, Raised, Returned, ToolsReplaced
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import as_bytes, form_question, request_message, request_meta, text_result


def tool(name: str, **members: Any) -> ToolEntry:
    return ToolEntry(definition={"name": name, "inputSchema": {"type": "object"}}, **members)


def bench(methods: dict[str, Any] | None = None, **config: Any) -> ServerHarness:
    tools = {name: (lambda call: text_result()) for name in ("greet", "must")}
    tools["slow"] = lambda call: Defer()
    config.setdefault("tools", [tool("greet"), tool("slow"), tool("must", requires_task=True)])
    config = {"methods": frozenset(methods or {}), **config}
    return ServerHarness(ServerConfig(**config), tools=tools, methods=methods)


# --- discover


@pytest.mark.spec("N3", "N9")
def test_discover_tells_versions_capabilities_and_how_long_it_may_be_kept() -> None:
    result = bench(instructions="Be kind", capabilities={"prompts": {}}).request("server/discover")["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["capabilities"] == {
        "prompts": {},
        "tools": {"listChanged": True},
        "extensions": {TASKS_EXTENSION: {}},
    }
    assert (result["instructions"], result["ttlMs"], result["cacheScope"]) == ("Be kind", 60_000, "private")


@pytest.mark.spec("N3", "N9")
def test_discover_shows_only_what_is_there() -> None:
    result = bench(tools=None, tasks=False, list_ttl_ms=0, list_cache_scope="public").request("server/discover")
    assert result["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "public",
    }


@pytest.mark.spec("N3")
@pytest.mark.parametrize(
    "method", ["tools/list", "tools/call", "prompts/list", "prompts/get", "resources/read", "completion/complete", "x"]
)
def test_families_that_are_not_there_do_not_exist(method: str) -> None:
    error = bench(tools=None).request(method, name="greet")["error"]
    assert (error["code"], method in error["message"]) == (-32601, True)


@pytest.mark.spec("N3")
def test_discover_is_served_whatever_the_client_declares() -> None:
    for declared in ({}, {"roots": {}}, advertise_tasks({})):
        assert "result" in bench().request("server/discover", capabilities=declared, declare_tasks=False)


# --- the tasks extension


@pytest.mark.spec("C10", "D25", "N3")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("declare", [True, False])
def test_without_tasks_the_methods_of_the_extension_do_not_exist(method: str, declare: bool) -> None:
    server = bench(tasks=False, tools=[tool("greet")])
    for params in ({}, {"taskId": "t", "inputResponses": {}}, {"taskId": 5}):
        assert server.request(method, params, declare_tasks=declare)["error"]["code"] == -32601


@pytest.mark.spec("G4", "N7", "N5")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("params", [{}, {"taskId": 5}, {"taskId": "t", "inputResponses": []}, {"taskId": "t"}])
@pytest.mark.parametrize("declared", [{}, {"tasks": {"requests": {"tools": {"call": {}}}}}])
def test_an_undeclared_client_is_told_what_to_declare_before_anything_is_looked_at(
    method: str, params: JSONObject, declared: JSONObject
) -> None:
    server = bench()
    error = server.request(method, params, capabilities=declared, declare_tasks=False)["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
    assert server.effects == [*server.sent]


@pytest.mark.spec("N4", "G4")
def test_a_declaration_on_another_request_grants_nothing() -> None:
    server = bench()
    task_id = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    assert "result" in server.request("tasks/get", taskId=task_id)
    assert server.request("tasks/get", taskId=task_id, declare_tasks=False)["error"]["code"] == -32021
    assert "result" in server.request("tasks/get", taskId=task_id)


@pytest.mark.spec("G5", "C10")
@pytest.mark.parametrize("method", ["tasks/result", "tasks/list", "tasks/", "tasks/delete", "notifications/tasks"])
def test_methods_that_former_revisions_had_do_not_exist(method: str) -> None:
    assert bench().request(method, taskId="t")["error"]["code"] == -32601


@pytest.mark.spec("C10")
@pytest.mark.parametrize(
    "method",
    [
        "tasks/list",
        "tasks/anything",
        "notifications/tasks",
        "notifications/x",
        "server/discover",
        "initialize",
        "tools/call",
        "tools/list",
        "subscriptions/listen",
    ],
)
def test_an_application_cannot_serve_what_is_the_cores_or_the_extensions(method: str) -> None:
    assert method_is_reserved(method)
    with pytest.raises(LocalProtocolError, match="not an application's to serve"):
        ServerConfig(methods=frozenset({method}))


@pytest.mark.spec("N3", "S3")
def test_switched_off_subscriptions_do_not_exist_and_discover_says_so() -> None:
    families = {"prompts": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}}
    server = bench(subscriptions=False, capabilities=families)
    error = server.request("subscriptions/listen", notifications={"taskIds": ["t"]})["error"]
    assert error["code"] == -32601
    shown = server.request("server/discover")["result"]["capabilities"]
    assert shown == {"prompts": {}, "resources": {}, "tools": {}, "extensions": {TASKS_EXTENSION: {}}}


# --- tools that can run as a task only


@pytest.mark.spec("C3", "N7", "D46")
def test_a_tool_that_needs_a_task_refuses_callers_who_did_not_declare_tasks() -> None:
    server = bench()
    for arguments in ({}, 5):
        error = server.request("tools/call", name="must", arguments=arguments, declare_tasks=False)["error"]
        assert error["code"] == -32021
        assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS_EXTENSION: {}}}
    assert not server.calls
    assert server.request("tools/call", name="must", arguments=5)["error"]["code"] == -32602
    assert "result" in server.request("tools/call", name="must", arguments={})


@pytest.mark.spec("D25")
def test_a_tool_that_needs_a_task_is_refused_where_there_are_no_tasks() -> None:
    with pytest.raises(LocalProtocolError, match="'must' requires a task, and tasks are not configured"):
        ServerConfig(tasks=False, tools=[tool("must", requires_task=True)])
    with pytest.raises(LocalProtocolError, match="requires a task"):
        bench(tasks=False, tools=[]).feed(ToolsReplaced([tool("must", requires_task=True)]))


# --- tools/call before it reaches a tool


@pytest.mark.spec("C11", "B7")
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "params.name"),
        ({"name": None}, "params.name"),
        ({"name": 5}, "params.name"),
        ({"name": ["greet"]}, "params.name"),
        ({"name": ""}, "Unknown tool"),
        ({"name": "nobody"}, "Unknown tool: nobody"),
        ({"name": "Greet"}, "Unknown tool: Greet"),
        ({"name": "greet", "arguments": []}, "params.arguments"),
        ({"name": "greet", "arguments": None}, "params.arguments"),
        ({"name": "greet", "arguments": "x"}, "params.arguments"),
        ({"name": "greet", "inputResponses": []}, "params.inputResponses"),
        ({"name": "greet", "inputResponses": None}, "params.inputResponses"),
        ({"name": "greet", "inputResponses": {"k": 5}}, "params.inputResponses.k"),
        ({"name": "greet", "requestState": 5}, "params.requestState"),
    ],
)
def test_a_malformed_call_is_bad_params_and_reaches_no_tool(params: JSONObject, words: str) -> None:
    server = bench()
    error = server.request("tools/call", params)["error"]
    assert (error["code"], words in error["message"]) == (-32602, True)
    assert not server.calls


def test_absent_arguments_are_an_empty_object() -> None:
    server = bench()
    server.request("tools/call", name="greet")
    assert server.calls[0].arguments == {}  # type: ignore[union-attr]


# --- tools/list


def pages(server: ServerHarness) -> list[list[str]]:
    found, cursor = [], {}
    while True:
        result = server.request("tools/list", cursor)["result"]
        found.append([entry["name"] for entry in result["tools"]])
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}
        assert type(result["nextCursor"]) is str


@pytest.mark.spec("N10", "N9")
@pytest.mark.parametrize(
    ("per_page", "expected"),
    [
        (1, [["c"], ["a"], ["ω"], ["b"]]),
        (2, [["c", "a"], ["ω", "b"]]),
        (3, [["c", "a", "ω"], ["b"]]),
        (4, [["c", "a", "ω", "b"]]),
        (5, [["c", "a", "ω", "b"]]),
    ],
)
def test_tools_come_in_their_order_page_by_page(per_page: int, expected: list[list[str]]) -> None:
    names = ["c", "a", "ω", "b"]
    server = bench(tools=[tool(name) for name in names], limits=Limits(tools_per_page=per_page))
    assert pages(server) == pages(server) == expected


@pytest.mark.spec("N9")
def test_every_page_says_how_long_it_may_be_kept() -> None:
    server = bench(list_ttl_ms=5, list_cache_scope="public", limits=Limits(tools_per_page=1))
    first = server.request("tools/list")["result"]
    for result in (first, server.request("tools/list", cursor=first["nextCursor"])["result"]):
        assert (result["ttlMs"], result["cacheScope"]) == (5, "public")


@pytest.mark.spec("N10")
def test_an_empty_catalogue_is_one_empty_page() -> None:
    assert pages(bench(tools=[])) == [[]]


@pytest.mark.spec("N10", "B7")
@pytest.mark.parametrize(
    "cursor", ["", "unknown", "ω", "====", "Z3JlZXQ", "bm9ib2R5", None, 5, [], "\x00", "A" * 5_000]
)
def test_a_cursor_that_was_never_given_out_is_bad_params(cursor: Any) -> None:
    error = bench().request("tools/list", cursor=cursor)["error"]
    assert (error["code"], "params.cursor" in error["message"]) == (-32602, True)


@pytest.mark.spec("N10")
def test_a_cursor_holds_while_tools_come_and_go_and_ends_with_its_tool() -> None:
    server = bench(tools=[tool("a"), tool("b"), tool("c")], limits=Limits(tools_per_page=1))
    cursor = server.request("tools/list")["result"]["nextCursor"]
    server.feed(ToolsReplaced([tool("new"), tool("a"), tool("c")]))
    assert [t["name"] for t in server.request("tools/list", cursor=cursor)["result"]["tools"]] == ["c"]
    server.feed(ToolsReplaced([tool("c")]))
    assert server.request("tools/list", cursor=cursor)["error"]["code"] == -32602
    assert pages(server) == [["c"]]


def test_a_replaced_catalogue_is_the_one_that_is_called() -> None:
    server = bench()
    server.feed(ToolsReplaced([tool("greet")]))
    assert server.request("tools/call", name="slow", arguments={})["error"]["message"] == "Unknown tool: slow"
    assert "result" in server.request("tools/call", name="greet", arguments={})


@pytest.mark.spec("N10")
def test_lists_do_not_differ_by_caller() -> None:
    server = bench()
    seen = [
        server.request("tools/list", id=1, declare_tasks=declare, stream=stream)
        for declare in (True, False)
        for stream in (1, 2)
    ]
    assert all(answer == seen[0] for answer in seen)


def test_a_definition_that_is_not_json_does_not_end_the_server() -> None:
    entry = ToolEntry(definition={"name": "odd", "inputSchema": {"type": "object"}, "x": float("nan")})
    server = bench(tools=[entry])
    assert server.request("tools/list")["error"]["code"] == -32603
    assert "result" in server.request("server/discover")


# --- methods of the application


@pytest.mark.spec("N9")
@pytest.mark.parametrize(
    ("method", "member", "ttl", "scope"),
    [
        ("prompts/list", "prompts", 60_000, "private"),
        ("resources/list", "resources", 60_000, "private"),
        ("resources/templates/list", "resourceTemplates", 60_000, "private"),
        ("resources/read", "contents", 0, "private"),
    ],
)
def test_lists_of_the_application_get_the_caching_members_that_they_lack(
    method: str, member: str, ttl: int, scope: str
) -> None:
    server = bench({method: lambda call: {member: []}})
    result = server.request(method, uri="x:y")["result"]
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", ttl, scope)
    server = bench({method: lambda call: {member: [], "ttlMs": 7, "cacheScope": "public"}})
    result = server.request(method, uri="x:y")["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (7, "public")


@pytest.mark.spec("N9")
@pytest.mark.parametrize("caching", [{"ttlMs": -1}, {"ttlMs": 1.5}, {"ttlMs": None}, {"cacheScope": "all"}])
def test_caching_members_that_are_wrong_are_the_applications_fault(caching: JSONObject) -> None:
    server = bench({"prompts/list": lambda call: {"prompts": [], **caching}})
    assert server.request("prompts/list")["error"]["code"] == -32603
    assert len(server.effects_of(Report)) == 1


def test_a_method_of_the_application_gets_its_params_as_they_were_sent() -> None:
    server = bench({"vendor/method": lambda call: {"own": 1}})
    result = server.request("vendor/method", {"a": [1], "inputResponses": {"x": 1}, "requestState": "s"})["result"]
    assert result == {"own": 1, "resultType": "complete"}
    (call,) = server.effects_of(CallMethod)
    assert call.params == {"a": [1], "inputResponses": {"x": 1}, "requestState": "s"}
    assert not call.context.may_defer


def test_the_members_of_a_round_are_taken_out_where_a_method_may_ask() -> None:
    server = bench({"prompts/get": lambda call: {"messages": []}})
    server.request("prompts/get", {"name": "p", "inputResponses": {"x": {}}, "_meta": request_meta()})
    (call,) = server.effects_of(CallMethod)
    assert (call.params, call.context.answers) == ({"name": "p"}, {"x": {}})


@pytest.mark.spec("C1", "C9", "R1", "B4")
@pytest.mark.parametrize(
    "reply",
    [
        {"resultType": "task", "taskId": "t"},
        {"resultType": "input_required", "inputRequests": {"q": form_question()}},
        Asked({"q": form_question()}),  # type: ignore[dict-item]
        {"resultType": "novel"},
        {"resultType": None},
        {"_meta": 5},
        [],
        None,
        "text",
        {"x": float("nan")},
        {"x": "\ud800"},
        {5: "x"},
        {"x": {1, 2}},
    ],
)
@pytest.mark.parametrize("method", ["vendor/method", "completion/complete"])
def test_what_a_method_may_not_return_is_an_internal_error_and_a_line_in_the_log(method: str, reply: Any) -> None:
    outcome = reply if isinstance(reply, Asked) else Returned(reply)
    server = bench({method: lambda call: outcome})
    error = server.request(method)["error"]
    assert error == {"code": -32603, "message": "Internal error"}
    assert len(server.effects_of(Report)) == 1


@pytest.mark.spec("C9", "B10")
@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task", "taskId": "t"},
        {"resultType": "novel", "content": []},
        {},
        {"content": None},
        {"content": {}},
        {"content": [5]},
        {"content": [{}]},
        {"content": [{"type": 5}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": 5}]},
        {"content": [{"type": "image", "data": "x"}]},
        {"content": [], "isError": "yes"},
        {"content": [], "isError": 1},
        {"content": [], "_meta": []},
        {"content": [], "structuredContent": float("nan")},
        {"content": [], "structuredContent": float("-inf")},
        {"content": [{"type": "text", "text": "\udc00"}]},
        None,
    ],
)
def test_what_a_tool_may_not_return_is_an_internal_error_and_a_line_in_the_log(result: Any) -> None:
    server = bench()
    server.tools["greet"] = lambda call: Returned(result)
    assert server.request("tools/call", name="greet", arguments={})["error"]["code"] == -32603
    assert len(server.effects_of(Report)) == 1


@pytest.mark.spec("B4", "T2")
def test_a_tools_result_goes_out_as_it_is_with_its_result_type() -> None:
    server = bench()
    given = {
        "content": [{"type": "text", "text": "ω\u0000", "annotations": {}}],
        "structuredContent": [None, 2**64, 1.0],
        "isError": True,
        "vendor": {"x": None},
    }
    server.tools["greet"] = lambda call: given
    result = server.request("tools/call", name="greet", arguments={}, declare_tasks=False)["result"]
    assert result == {**given, "resultType": "complete"}
    assert "resultType" not in given


@pytest.mark.spec("B5")
@pytest.mark.parametrize(
    ("code", "sent"),
    [(5, 5), (-1, -1), (-31999, -31999), (-32769, -32769), (-32602, -32602), (-32601, -32601)]
    + [(code, -32603) for code in (-32000, -32002, -32019, -32023, -32042, -32099, -32500, -32768, True, 1.0, "x")],
)
def test_an_application_may_raise_only_codes_that_may_be_sent(code: Any, sent: int) -> None:
    for server, ask in (
        (bench(), lambda s: s.request("tools/call", name="greet", arguments={})),
        (bench({"vendor/m": lambda call: Raised(ErrorObject(code, "why"))}), lambda s: s.request("vendor/m")),
    ):
        server.tools["greet"] = lambda call: Raised(ErrorObject(code, "why", {"a": 1}))
        assert ask(server)["error"]["code"] == sent
        assert server.sent[-1].code == sent
        assert len(server.effects_of(Report)) == (0 if code == sent and type(code) is int else 1)


@pytest.mark.spec("N7", "B5")
def test_a_raised_capability_error_keeps_its_data_and_one_without_it_is_not_sent() -> None:
    server = bench()
    server.tools["greet"] = lambda call: Raised(
        ErrorObject(-32021, "m", {"requiredCapabilities": {"roots": {}}, "more": 1})
    )
    error = server.request("tools/call", name="greet", arguments={})["error"]
    assert error["data"] == {"requiredCapabilities": {"roots": {}}, "more": 1}
    server.tools["greet"] = lambda call: Raised(ErrorObject(-32021, "m", {"private": 1}))
    assert server.request("tools/call", name="greet", arguments={})["error"]["code"] == -32603


@pytest.mark.spec("B10")
def test_error_data_that_is_not_json_is_left_out_with_the_whole_error() -> None:
    server = bench()
    server.tools["greet"] = lambda call: Raised(ErrorObject(5, "m", {"x": float("nan")}))
    error = server.request("tools/call", name="greet", arguments={})["error"]
    assert error == {"code": -32603, "message": "Internal error"}
    assert server.sent[-1].code == -32603


# --- what a configuration may be


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"tools": [tool("a"), tool("a")]}, "two tools are named 'a'"),
        ({"tools": ["a"]}, "ToolEntry values"),
        ({"list_ttl_ms": -1}, "list_ttl_ms is an integer of 0 or more"),
        ({"list_ttl_ms": True}, "list_ttl_ms is an integer"),
        ({"list_ttl_ms": 1.5}, "list_ttl_ms is an integer"),
        ({"list_cache_scope": "all"}, '"public" or "private"'),
        ({"call_limit_ms": 0}, "call_limit_ms is None or an integer of 1 or more"),
        ({"call_limit_ms": -5}, "call_limit_ms is None"),
        ({"call_limit_ms": 0.5}, "call_limit_ms is None"),
        ({"input_extension_ms": 0}, "input_extension_ms is None"),
        ({"server_info": {"name": "x"}}, "name and version are strings"),
        ({"server_info": {"name": "x", "version": 1}}, "name and version are strings"),
        ({"server_info": "x"}, "name and version are strings"),
    ],
)
def test_a_configuration_that_could_not_work_is_refused_where_it_is_made(members: Any, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        ServerConfig(**members)


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"name": ""},
        {"name": 5},
        {"name": "x"},
        {"name": "x", "inputSchema": {}},
        {"name": "x", "inputSchema": {"type": "array"}},
        {"name": "x", "inputSchema": "object"},
    ],
)
def test_a_tool_needs_a_name_and_a_schema_of_an_object(definition: JSONObject) -> None:
    with pytest.raises(LocalProtocolError):
        ToolEntry(definition=definition)


def test_a_server_without_tools_has_none_to_replace() -> None:
    with pytest.raises(LocalProtocolError, match="without tools"):
        bench(tools=None).feed(ToolsReplaced([tool("a")]))


@pytest.mark.parametrize("tools", [[tool("a"), tool("a")], ["a"]])
def test_a_catalogue_that_makes_no_sense_replaces_nothing(tools: Any) -> None:
    server = bench()
    with pytest.raises(LocalProtocolError):
        server.feed(ToolsReplaced(tools))
    assert pages(server) == [["greet", "slow", "must"]]


@pytest.mark.spec("C2", "C3", "D45")
@pytest.mark.parametrize("declare", [True, False])
@pytest.mark.parametrize("hint", [{"ttl": 1_000}, {}, None, "x", []])
def test_a_legacy_task_param_changes_nothing(declare: bool, hint: Any) -> None:
    server = bench()
    plain = server.request("tools/call", name="greet", arguments={}, task=hint, declare_tasks=declare)
    assert plain["result"]["resultType"] == "complete"
    server.tools["slow"] = lambda call: Defer() if call.context.may_defer else text_result()
    slow = server.request("tools/call", name="slow", arguments={}, task=hint, declare_tasks=declare)
    assert slow["result"]["resultType"] == ("task" if declare else "complete")


def test_a_call_that_is_held_can_be_answered_by_a_method_of_the_application_too() -> None:
    server = bench({"vendor/m": lambda call: HELD})
    server.send(as_bytes(request_message(1, "vendor/m", {"_meta": request_meta()})))
    assert server.frames == []
    server.answer(server.calls[0], {"own": 1})
    assert server.frames[0]["result"]["own"] == 1
