"""What comes in as bytes, and what is answered before any method looks at its params."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from mcp_tasks_core.capabilities import META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, META_SERVER_INFO
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import JSONObject, StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import CancelCall, InvokeTool, Report
from mcp_tasks_core.server.events import MessageRefused, Returned, ToolAnswered
from mcp_tasks_core.testing.harness import HELD, STREAM, Defer, ServerHarness
from mcp_tasks_core.testing.messages import as_bytes, request_message, request_meta, text_result

OTHER = StreamId(2)


def server(**config: Any) -> ServerHarness:
    tools = {
        "greet": lambda call: text_result(),
        "wait": lambda call: HELD,
        "slow": lambda call: Defer(),
        "echo": lambda call: {"content": [], "structuredContent": call.arguments},
    }
    if not config:
        return ServerHarness(tools=tools)
    entries = [ToolEntry(definition={"name": name, "inputSchema": {"type": "object"}}) for name in tools]
    return ServerHarness(ServerConfig(**{"tools": entries, **config}), tools=tools)


def message(**changes: Any) -> JSONObject:
    whole = request_message(1, "server/discover", {"_meta": request_meta()})
    whole.update(changes)
    return {name: value for name, value in whole.items() if value is not ...}


def only(frames: list[JSONObject]) -> JSONObject:
    assert len(frames) == 1, frames
    return frames[0]


# --- one JSON object


@pytest.mark.spec("B7", "B10", "D43")
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", -32700),
        (b"garbage", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":', -32700),
        (b"\xff\xfe", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"s":"\xff"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"s":"\\ud800"}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":NaN}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":Infinity}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"n":-Infinity}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}', -32700),
        (b"[" * 200 + b"]" * 200, -32600),
        (b"null", -32600),
        (b"5", -32600),
        (b'"text"', -32600),
        (b"{}", -32600),
        (b"[]", -32600),
    ],
)
def test_what_is_no_message_gets_an_error_without_an_id(raw: bytes, code: int) -> None:
    frame = only(server().send(raw))
    assert frame["error"]["code"] == code
    assert "id" not in frame
    assert frame["error"]["message"]


@pytest.mark.spec("B1")
def test_a_batch_is_refused_as_a_whole_and_nothing_of_it_runs() -> None:
    bench = server()
    call = request_message(1, "tools/call", {"_meta": request_meta(), "name": "greet", "arguments": {}})
    frame = only(bench.send(as_bytes([call, call])))
    assert (frame["error"]["code"], "id" in frame) == (-32600, False)
    assert "batch" in frame["error"]["message"]
    assert not bench.calls


@pytest.mark.spec("B2", "B3", "D42")
@pytest.mark.parametrize("request_id", [None, True, False, 1.0, 3100.0, 1.5, {}, [], [1], "x" * 1025])
def test_an_id_that_is_none_is_refused_and_the_request_is_not_run(request_id: Any) -> None:
    bench = server()
    call = request_message(request_id, "tools/call", {"_meta": request_meta(), "name": "greet", "arguments": {}})
    frame = only(bench.send(as_bytes(call)))
    assert (frame["error"]["code"], "id" in frame) == (-32600, False)
    assert not bench.calls


@pytest.mark.spec("B2", "B3")
@pytest.mark.parametrize(
    "request_id", [0, -1, 1, "", "0", "1", " ", 'ω\n"\\', "x" * 1024, 2**53 + 1, 2**63 - 1, 2**64, -(10**400)]
)
def test_every_legal_id_comes_back_as_it_was(request_id: Any) -> None:
    frame = only(server().send(as_bytes(message(id=request_id))))
    assert (type(frame["id"]), frame["id"]) == (type(request_id), request_id)


@pytest.mark.spec("B2", "B10")
def test_an_integer_with_too_many_digits_is_refused_under_the_id_of_its_request() -> None:
    bench = server()
    fits, too_long = int("9" * 1_000), int("9" * 999) * 10**2
    for number in (2**63 - 1, 2**64, fits):
        answer = bench.request("tools/call", name="echo", arguments={"n": number})
        assert answer["result"]["structuredContent"] == {"n": number}
    bench.forget()
    bench.calls.clear()
    call = request_message("big", "tools/call", {"_meta": request_meta(), "name": "echo", "arguments": {"n": too_long}})
    frame = only(bench.send(as_bytes(call)))
    assert (frame["id"], frame["error"]["code"]) == ("big", -32602)
    assert "1001 digits; at most 1000" in frame["error"]["message"]
    assert not bench.calls


@pytest.mark.spec("B7", "D24")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"jsonrpc": ...}, -32600),
        ({"jsonrpc": "1.0"}, -32600),
        ({"jsonrpc": 2}, -32600),
        ({"jsonrpc": 2.0}, -32600),
        ({"jsonrpc": None}, -32600),
        ({"method": 5}, -32600),
        ({"method": None}, -32600),
        ({"method": ["server/discover"]}, -32600),
        ({"method": "x" * 1025}, -32600),
        ({"method": "x" * 1024}, -32601),
        ({"method": ""}, -32601),
        ({"params": []}, -32602),
        ({"params": None}, -32602),
        ({"params": "x"}, -32602),
        ({"params": ...}, -32602),
    ],
)
def test_a_malformed_request_is_refused_under_its_own_id(changes: dict[str, Any], code: int) -> None:
    frame = only(server().send(as_bytes(message(**changes))))
    assert (frame["id"], frame["error"]["code"]) == (1, code)


def test_unknown_members_are_accepted_everywhere() -> None:
    whole = message(extra=1, trace=None)
    whole["params"]["extra"] = {"a": []}
    whole["params"]["_meta"]["vendor/x"] = 5
    assert "result" in only(server().send(as_bytes(whole)))


@pytest.mark.spec("B6")
@pytest.mark.parametrize(
    "notification",
    [
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"_meta": request_meta(), "name": "greet"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": []},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {"taskId": "t"}},
        {"jsonrpc": "1.0", "method": "notifications/initialized"},
        {"method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": 5},
        {"jsonrpc": "2.0", "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "x", "params": {"n": int("9" * 1_001)}},
    ],
)
def test_a_notification_is_never_answered_and_never_runs_anything(notification: JSONObject) -> None:
    bench = server()
    assert bench.send(as_bytes(notification)) == []
    assert not bench.calls


@pytest.mark.spec("B8")
@pytest.mark.parametrize(
    "response",
    [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "result": 5},
        {"jsonrpc": "2.0", "id": [], "error": "x"},
    ],
)
def test_responses_of_a_client_are_ignored_and_noted_for_the_operator(response: JSONObject) -> None:
    bench = server()
    request_id = bench.begin("tools/call", id=1, name="wait", arguments={})
    assert bench.send(as_bytes(response)) == []
    assert len(bench.effects_of(Report)) == 1
    assert bench.answers_to(request_id) == []
    assert len(bench.protocol.open_exchanges) == 1


@pytest.mark.spec("B8")
def test_the_server_sends_no_request_of_its_own() -> None:
    bench = server()
    bench.request("tools/call", name="slow", arguments={})
    bench.advance(10_000_000)
    assert not [frame for frame in bench.frames if "method" in frame and "id" in frame]


# --- ids that are open


@pytest.mark.spec("B9", "D41")
def test_an_id_that_is_open_is_refused_and_the_first_request_is_unharmed() -> None:
    bench = server()
    bench.begin("tools/call", id="a", name="wait", arguments={})
    second = bench.request("tools/call", id="a", name="greet", arguments={})
    assert second["error"]["code"] == -32600
    assert len(bench.calls) == 1
    answer = only(bench.answer(bench.calls[0], text_result("first")))
    assert (answer["id"], answer["result"]["content"][0]["text"]) == ("a", "first")


@pytest.mark.spec("B9", "B3")
def test_the_number_1_and_the_text_1_are_two_ids() -> None:
    bench = server()
    bench.begin("tools/call", id=1, name="wait", arguments={})
    bench.begin("tools/call", id="1", name="wait", arguments={})
    assert len(bench.calls) == 2
    assert only(bench.answer(bench.calls[1], text_result()))["id"] == "1"
    assert only(bench.answer(bench.calls[0], text_result()))["id"] == 1


@pytest.mark.spec("B9", "D41")
def test_ids_are_never_compared_across_streams() -> None:
    bench = server()
    for stream in (STREAM, OTHER):
        bench.begin("tools/call", id=7, stream=stream, name="wait", arguments={})
    bench.answer(bench.calls[1], text_result("second"))
    assert bench.answers_to(7) == []
    assert only(bench.answers_to(7, stream=OTHER))["result"]["content"][0]["text"] == "second"


@pytest.mark.spec("B9")
def test_an_id_may_be_used_again_after_its_answer_or_its_cancellation() -> None:
    bench = server()
    for _ in range(3):
        assert "result" in bench.request("tools/call", id=1, name="greet", arguments={})
    bench.begin("tools/call", id=1, name="wait", arguments={})
    bench.cancel_request(1)
    assert "result" in bench.request("tools/call", id=1, name="greet", arguments={})


def test_one_request_more_than_a_stream_may_have_open_is_refused_and_the_others_live() -> None:
    bench = server(limits=Limits(open_exchanges_per_stream_max=3))
    for request_id in range(3):
        bench.begin("tools/call", id=request_id, name="wait", arguments={})
    refused = bench.request("server/discover", id="more")
    assert (refused["error"]["code"], refused["error"]["data"]["reason"]) == (-32603, "busy")
    assert "result" in bench.request("server/discover", id="more", stream=OTHER)
    bench.answer(bench.calls[0], text_result())
    assert "result" in bench.request("server/discover", id="more")
    assert len(bench.protocol.open_exchanges) == 2


def test_what_a_transport_refused_is_answered_as_it_says() -> None:
    bench = server()
    bench.feed(MessageRefused(STREAM, ErrorObject(-32600, "a line has at most 5 bytes")))
    frame = only(bench.frames)
    assert (frame["error"], "id" in frame) == ({"code": -32600, "message": "a line has at most 5 bytes"}, False)
    assert bench.sent[0].code == -32600


def test_a_message_may_have_just_as_many_bytes_as_allowed() -> None:
    raw = as_bytes(message())
    assert "result" in only(server(limits=Limits(frame_bytes_max=len(raw))).send(raw))
    assert only(server(limits=Limits(frame_bytes_max=len(raw) - 1)).send(raw))["error"]["code"] == -32600


# --- the order of checks

ORDER = ["envelope", "meta", "version", "method", "capability", "params", "lookup"]
CODES = {
    "envelope": -32600,
    "meta": -32602,
    "version": -32022,
    "method": -32601,
    "capability": -32021,
    "params": -32602,
    "lookup": -32602,
}


def faulty(*faults: str) -> JSONObject:
    """A request with exactly these faults."""
    meta = request_meta(tasks="capability" not in faults)
    if "version" in faults:
        meta[META_PROTOCOL_VERSION] = "1900-01-01"
    if "meta" in faults:
        del meta[META_CLIENT_CAPABILITIES]
    params: JSONObject = {"_meta": meta, "taskId": 5 if "params" in faults else "unknown"}
    whole = request_message(1, "tasks/nothing" if "method" in faults else "tasks/get", params)
    if "envelope" in faults:
        whole["jsonrpc"] = "1.0"
    return whole


@pytest.mark.spec("D24", "B7", "N1", "N2", "G4")
@pytest.mark.parametrize("faults", list(itertools.combinations(ORDER[:-1], 2)) + [(name,) for name in ORDER])
def test_of_several_faults_the_first_in_order_is_answered(faults: tuple[str, ...]) -> None:
    frame = only(server().send(as_bytes(faulty(*faults))))
    assert frame["error"]["code"] == CODES[faults[0]]
    words = {"meta": "clientCapabilities", "params": "taskId", "lookup": "Task not found"}
    assert words.get(faults[0], "") in frame["error"]["message"]


@pytest.mark.spec("N1", "B7")
@pytest.mark.parametrize(
    "meta",
    [
        ...,
        None,
        [],
        "x",
        {},
        {META_PROTOCOL_VERSION: "2026-07-28"},
        {META_CLIENT_CAPABILITIES: {}},
        {META_PROTOCOL_VERSION: None, META_CLIENT_CAPABILITIES: {}},
        {META_PROTOCOL_VERSION: 20260728, META_CLIENT_CAPABILITIES: {}},
        {META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: None},
        {META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: []},
        {META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: {"extensions": []}},
        {**request_meta(), "progressToken": 1.5},
        {**request_meta(), "progressToken": None},
        {**request_meta(), "io.modelcontextprotocol/clientInfo": {"name": "x"}},
    ],
)
def test_meta_that_is_missing_or_of_the_wrong_type_is_bad_params(meta: Any) -> None:
    params = {} if meta is ... else {"_meta": meta}
    frame = only(server().send(as_bytes(message(params=params))))
    assert frame["error"]["code"] == -32602
    assert "_meta" in frame["error"]["message"]


@pytest.mark.spec("N1", "B11")
def test_a_request_without_client_info_is_served_and_one_with_it_no_otherwise() -> None:
    bench = server()
    info = {"io.modelcontextprotocol/clientInfo": {"name": "any", "version": "0"}}
    first, second = bench.request("server/discover", id=1), bench.request("server/discover", id=1, meta=info)
    assert first == second


@pytest.mark.spec("N2")
@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "2026-07-29", "", "2026-07-28 ", "DRAFT"])
def test_another_version_is_refused_with_what_is_supported_and_what_was_asked(version: str) -> None:
    error = server().request("server/discover", meta={META_PROTOCOL_VERSION: version})["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": version}


# --- initialize


def initialize(**changes: Any) -> JSONObject:
    return {**request_message(1, "initialize", {"_meta": request_meta()}), **changes}


@pytest.mark.spec("N6", "D45")
@pytest.mark.parametrize(
    ("whole", "code"),
    [
        (initialize(), -32601),
        (initialize(params={"protocolVersion": "2025-11-25", "capabilities": {}}), -32602),
        (initialize(params={"_meta": {**request_meta(), META_PROTOCOL_VERSION: "2025-11-25"}}), -32022),
        (initialize(params=[]), -32602),
        (initialize(jsonrpc="1.0"), -32600),
        (initialize(id=None), -32600),
        (initialize(params={"n": int("9" * 1_001)}), -32602),
        (initialize(id=1.5, params={"n": int("9" * 1_001)}), -32600),
    ],
)
def test_any_error_to_initialize_names_the_versions_that_would_work(whole: JSONObject, code: int) -> None:
    error = only(server().send(as_bytes(whole)))["error"]
    assert error["code"] == code
    assert error["data"]["supported"] == ["2026-07-28"]
    assert "2026-07-28" in error["message"]


@pytest.mark.spec("N6", "B9")
def test_a_refused_duplicate_of_initialize_names_the_versions_too() -> None:
    bench = server()
    bench.begin("tools/call", id=1, name="wait", arguments={})
    error = only(bench.send(as_bytes(initialize())))["error"]
    assert (error["code"], error["data"]) == (-32600, {"supported": ["2026-07-28"]})


@pytest.mark.spec("N6")
def test_other_requests_are_not_told_versions_that_they_did_not_ask_about() -> None:
    assert "data" not in server().request("unknown/method")["error"]


# --- what every result carries


@pytest.mark.spec("B4", "B11", "D17", "D18")
def test_every_result_has_a_result_type_and_server_info_unless_that_is_configured_off() -> None:
    info = {"name": "s", "version": "9"}
    for configured in (info, None):
        bench = server(server_info=configured)
        handle = bench.request("tools/call", name="slow", arguments={})
        task_id = handle["result"]["taskId"]
        answers = [
            handle,
            bench.request("server/discover"),
            bench.request("tools/list"),
            bench.request("tools/call", name="greet", arguments={}),
            bench.request("tasks/get", taskId=task_id),
            bench.request("tasks/update", taskId=task_id, inputResponses={}),
            bench.request("tasks/cancel", taskId=task_id),
        ]
        kinds = [answer["result"]["resultType"] for answer in answers]
        assert kinds == ["task", *["complete"] * 6]
        for answer in answers:
            meta = answer["result"].get("_meta")
            assert meta == (None if configured is None else {META_SERVER_INFO: info})
        for acknowledgement in answers[-2:]:
            assert set(acknowledgement["result"]) == {"resultType"} | ({"_meta"} if configured else set())


@pytest.mark.spec("B11", "T2", "D17")
def test_server_info_stands_beside_what_the_application_put_into_meta_and_not_inside_a_task() -> None:
    bench = server(server_info={"name": "s", "version": "9"})
    bench.tools["greet"] = lambda call: {**text_result(), "_meta": {"own": 1}}
    plain = bench.request("tools/call", name="greet", arguments={})["result"]
    assert plain["_meta"] == {"own": 1, META_SERVER_INFO: {"name": "s", "version": "9"}}
    task_id = bench.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    bench.complete(task_id, {**text_result(), "_meta": {"own": 1}})
    inner = bench.request("tasks/get", taskId=task_id)["result"]["result"]
    assert inner == {**plain, "_meta": {"own": 1}}


@pytest.mark.spec("B12")
def test_trace_context_reaches_the_application_untouched() -> None:
    bench = server()
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1,b=2"}
    bench.request("tools/call", name="greet", arguments={}, meta={**trace, "baggage": "k=v", "vendor/x": [1]})
    meta = bench.calls[0].context.meta
    assert {name: meta[name] for name in ("traceparent", "tracestate", "baggage", "vendor/x")} == {
        **trace,
        "baggage": "k=v",
        "vendor/x": [1],
    }


# --- cancellation of requests


@pytest.mark.spec("I2", "B6")
def test_a_cancelled_call_is_stopped_and_never_answered() -> None:
    bench = server()
    bench.begin("tools/call", id="a", name="wait", arguments={})
    assert bench.cancel_request("a") == []
    (stopped,) = bench.effects_of(CancelCall)
    assert stopped.ticket == bench.calls[0].ticket
    assert bench.answer(bench.calls[0], text_result()) == []
    assert bench.answer(bench.calls[0], text_result()) == []
    assert (bench.protocol.open_tickets, bench.frames) == (0, [])
    assert "result" in bench.request("server/discover")


@pytest.mark.spec("I2", "B3")
@pytest.mark.parametrize("request_id", [True, "1", 1.0, None, [1], {}, 2, "", 2**64])
def test_a_cancellation_that_names_no_open_request_changes_nothing(request_id: Any) -> None:
    bench = server()
    bench.begin("tools/call", id=1, name="wait", arguments={})
    assert bench.cancel_request(request_id) == []
    assert not bench.effects_of(CancelCall)
    assert only(bench.answer(bench.calls[0], text_result()))["id"] == 1


@pytest.mark.spec("I2")
def test_cancelling_twice_or_after_the_answer_is_as_if_it_had_not_been_said() -> None:
    bench = server()
    bench.begin("tools/call", id=1, name="wait", arguments={})
    bench.answer(bench.calls[0], text_result())
    bench.begin("tools/call", id=2, name="wait", arguments={})
    for request_id in (1, 2, 2, 1):
        assert bench.cancel_request(request_id) == []
    assert len(bench.effects_of(CancelCall)) == 1
    assert len(bench.frames) == 1


@pytest.mark.spec("I2")
def test_a_cancellation_of_another_stream_does_not_reach_a_request() -> None:
    bench = server()
    bench.begin("tools/call", id=1, name="wait", arguments={})
    bench.cancel_request(1, stream=OTHER)
    assert not bench.effects_of(CancelCall)


def test_closing_a_stream_stops_its_calls_and_no_others() -> None:
    bench = server()
    for request_id in (1, 2):
        bench.begin("tools/call", id=request_id, name="wait", arguments={})
    bench.begin("tools/call", id=1, stream=OTHER, name="wait", arguments={})
    bench.close_stream(STREAM)
    bench.close_stream(STREAM)
    assert [effect.ticket for effect in bench.effects_of(CancelCall)] == [call.ticket for call in bench.calls[:2]]
    assert [exchange.stream_id for exchange in bench.protocol.open_exchanges] == [OTHER]
    assert "result" in only(bench.answer(bench.calls[2], text_result()))


@pytest.mark.spec("I2", "X3")
def test_a_thousand_racing_cancellations_leave_at_most_one_answer_each_and_a_living_channel() -> None:
    bench = server()
    for round_ in range(1_000):
        bench.begin("tools/call", id=round_, name="wait", arguments={})
        steps = [
            lambda r=round_: bench.cancel_request(r),
            lambda: bench.answer(bench.calls[-1], text_result()),
            lambda r=round_: bench.cancel_request(r),
        ]
        for step in steps if round_ % 2 else steps[1:]:
            step()
    answered = [frame["id"] for frame in bench.frames]
    assert answered == list(range(0, 1_000, 2))
    assert "result" in bench.request("tools/call", id="last", name="greet", arguments={})
    assert (bench.protocol.open_tickets, list(bench.protocol.open_exchanges)) == (0, [])


# --- a call that takes too long


def test_a_call_over_its_limit_is_stopped_and_answered_and_its_late_answer_ignored() -> None:
    bench = server(call_limit_ms=1_000)
    request_id = bench.begin("tools/call", name="wait", arguments={})
    bench.advance(999)
    assert bench.answers_to(request_id) == []
    bench.advance(1)
    error = only(bench.answers_to(request_id))["error"]
    assert (error["code"], error["data"]) == (-32603, {"reason": "timeout"})
    assert [effect.ticket for effect in bench.effects_of(CancelCall)] == [bench.calls[0].ticket]
    assert bench.answer(bench.calls[0], text_result()) == []
    assert bench.answer(bench.calls[0], Defer()) == []
    bench.advance(100_000)
    assert len(bench.frames) == 1


def test_without_a_limit_a_call_may_take_as_long_as_it_likes() -> None:
    bench = server()
    bench.begin("tools/call", name="wait", arguments={})
    bench.advance(86_400_000)
    assert "result" in only(bench.answer(bench.calls[0], text_result()))


def test_an_open_request_says_what_it_waits_for() -> None:
    bench = server()
    bench.begin("tools/call", id="a", name="wait", arguments={})
    (exchange,) = bench.protocol.open_exchanges
    assert (exchange.request_id, exchange.method, exchange.ticket) == ("a", "tools/call", bench.calls[0].ticket)
    assert exchange.waits_for == ("ToolAnswered", "ToolDeferred")


def test_frames_are_cut_into_parts_and_say_whether_they_are_the_last() -> None:
    bench = server()
    bench.request("server/discover")
    (frame,) = bench.sent
    assert all(type(part) is bytes for part in frame.payload)
    assert (frame.final, frame.code, json.loads(b"".join(frame.payload))["id"]) == (True, None, 1)
    bench.request("unknown")
    assert (bench.sent[1].final, bench.sent[1].code) == (True, -32601)


@pytest.mark.spec("I4")
def test_a_slow_call_holds_up_no_other_answer() -> None:
    bench = server()
    bench.begin("tools/call", id="slow", name="wait", arguments={})
    for request_id in range(50):
        assert "result" in bench.request("tools/call", id=request_id, name="greet", arguments={})
    assert len(bench.effects_of(InvokeTool)) == 51
    bench.feed(ToolAnswered(bench.calls[0].ticket, Returned(text_result())))
    assert only(bench.answers_to("slow"))
