"""Plain requests: what they carry, whose answer is whose, and what an answer may be."""

from __future__ import annotations

import json

import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import (
    CloseConnection,
    CloseStream,
    Frame,
    LogObserved,
    OperationEnded,
    ProgressObserved,
)
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ConnectionLost,
    InputAnswered,
    MessageReceived,
    MessageRefused,
    OperationId,
    RequestSubmitted,
    StreamEnded,
)
from mcp_tasks_core.client.outcomes import (
    Answered,
    Cancelled,
    Disconnected,
    InvalidResponse,
    RemoteError,
    TimedOut,
    UnsupportedVersion,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey
from mcp_tasks_core.testing.client import ClientBench, wire_handle

PREFIX = "io.modelcontextprotocol/"
VERSION = "2026-07-28"


def submit(bench: ClientBench, method: str = "prompts/list", **members: object) -> OperationId:
    operation = bench.next_operation()
    bench.feed(RequestSubmitted(operation_id=operation, method=method, **members))  # type: ignore[arg-type]
    return operation


def test_every_request_says_its_version_its_client_and_its_capabilities() -> None:
    config = ClientConfig(client_info={"name": "c", "version": "1"}, capabilities={"elicitation": {}})
    bench = ClientBench(config)
    submit(bench, params={"cursor": "x", "_meta": {"traceparent": "00-1-2-01"}})
    assert bench.sent[0]["params"] == {
        "cursor": "x",
        "_meta": {
            "traceparent": "00-1-2-01",
            f"{PREFIX}protocolVersion": VERSION,
            f"{PREFIX}clientInfo": {"name": "c", "version": "1"},
            f"{PREFIX}clientCapabilities": {"elicitation": {}},
        },
    }


def test_client_info_can_be_configured_off() -> None:
    bench = ClientBench()
    submit(bench)
    assert f"{PREFIX}clientInfo" not in bench.sent[0]["params"]["_meta"]


@pytest.mark.spec("P10")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_every_tasks_request_declares_the_extension_itself(method: str) -> None:
    bench = ClientBench()
    submit(bench, method, params={"taskId": "t-1", "inputResponses": {}})
    capabilities = bench.sent[0]["params"]["_meta"][f"{PREFIX}clientCapabilities"]
    assert capabilities == {"extensions": {f"{PREFIX}tasks": {}}}
    frame = bench.seen(Frame)[0]
    assert (frame.method, frame.name, frame.version) == (method, "t-1", VERSION)


@pytest.mark.spec("N4")
def test_a_request_declares_tasks_only_where_the_caller_says_so() -> None:
    bench = ClientBench()
    submit(bench, tasks=True)
    submit(bench)
    declared = [message["params"]["_meta"][f"{PREFIX}clientCapabilities"] for message in bench.sent]
    assert declared == [{"extensions": {f"{PREFIX}tasks": {}}}, {}]


@pytest.mark.spec("B2")
def test_ids_are_integers_and_never_used_again() -> None:
    bench = ClientBench()
    for _ in range(3):
        submit(bench)
        bench.answer("prompts/list", {})
    assert [message["id"] for message in bench.sent] == [1, 2, 3]


def test_an_answer_is_the_raw_result_with_its_integers_exact() -> None:
    bench = ClientBench()
    operation = submit(bench)
    result = {"resultType": "complete", "big": 9007199254740993, "text": "\u2028\u2029\u0085 \x0b"}
    bench.answer("prompts/list", result)
    assert bench.outcome(operation) == Answered(result)


@pytest.mark.spec("B4")
def test_an_absent_result_type_counts_as_complete() -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.receive({"jsonrpc": "2.0", "id": 1, "result": {"prompts": []}})
    assert bench.outcome(operation) == Answered({"prompts": []})


@pytest.mark.spec("B4")
@pytest.mark.parametrize("kind", ["partial", "", None, 1, [], {}])
def test_an_unknown_result_type_is_an_invalid_response(kind: object) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.answer("prompts/list", {"resultType": kind})
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "resultType is complete here" in outcome.reason


@pytest.mark.spec("B3")
@pytest.mark.parametrize("wire_id", ["1", 2, 0, -1, "other"])
def test_an_answer_to_another_id_is_ignored_and_the_type_of_an_id_counts(wire_id: object) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.receive({"jsonrpc": "2.0", "id": wire_id, "result": {"wrong": True}})
    assert bench.outcome(operation) is None
    assert "never sent" in bench.reports[-1]
    bench.answer("prompts/list", {"right": True})
    assert bench.outcome(operation) == Answered({"resultType": "complete", "right": True})


def test_a_second_answer_is_ignored_with_a_report() -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.answer("prompts/list", {"n": 1})
    bench.answer("prompts/list", {"n": 2})
    assert bench.outcome(operation) == Answered({"resultType": "complete", "n": 1})
    assert "answered before" in bench.reports[-1]


def test_an_error_keeps_all_members_of_its_data() -> None:
    bench = ClientBench()
    operation = submit(bench)
    data = {"requiredCapabilities": {"sampling": {}}, "vendor": {"hint": 7}}
    bench.refuse("prompts/list", -32021, "missing", data)
    assert bench.outcome(operation) == RemoteError(code=-32021, message="missing", data=data, method="prompts/list")


@pytest.mark.parametrize(
    "message", [{"error": {"code": 1, "message": "m"}}, {"id": None, "error": {"code": 1, "message": "m"}}]
)
def test_an_error_without_an_id_is_reported_and_harms_nobody(message: dict[str, object]) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.receive({"jsonrpc": "2.0", **message})
    assert bench.outcome(operation) is None
    assert "without an id" in bench.reports[-1]


def test_an_error_without_an_id_belongs_to_the_stream_that_it_came_on() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = submit(bench)
    bench.receive({"jsonrpc": "2.0", "error": {"code": -32700, "message": "m"}}, stream=1)
    assert isinstance(bench.outcome(operation), RemoteError)


def test_an_answer_on_the_stream_of_another_request_is_ignored() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    first, second = submit(bench), submit(bench)
    bench.receive({"jsonrpc": "2.0", "id": 1, "result": {}}, stream=2)
    assert bench.outcome(first) is None
    assert bench.outcome(second) is None
    assert "stream of request 2" in bench.reports[-1]


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "result": {}, "error": {"code": 1, "message": "m"}, "jsonrpc": "2.0"},
        {"id": 1, "result": [], "jsonrpc": "2.0"},
        {"id": 1, "result": None, "jsonrpc": "2.0"},
        {"id": 1, "error": "no", "jsonrpc": "2.0"},
        {"id": 1, "error": {"code": "1", "message": "m"}, "jsonrpc": "2.0"},
        {"id": 1, "result": {}, "jsonrpc": "1.0"},
        {"id": 1, "result": {}},
    ],
)
def test_a_malformed_answer_with_our_id_fails_its_request_at_once(message: dict[str, object]) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.receive(message)
    assert isinstance(bench.outcome(operation), InvalidResponse)


def test_an_answer_with_an_integer_of_too_many_digits_fails_its_request() -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.feed(MessageReceived(b'{"jsonrpc":"2.0","id":1,"result":{"n":' + b"9" * 2000 + b"}}"))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "digits" in outcome.reason


JUNK = [
    b"Starting server...",
    b"\x1b[32mready\x1b[0m",
    b"42",
    b"{}",
    b"[]",
    b"null",
    b'"text"',
    b'{"id":1,"level":"info","msg":"started"}',
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\x00",
    b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"}}',
    b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xc0\xaf"}}',
    b'{"jsonrpc":"2.0","id":1,"id":1,"result":{}}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_reported_and_the_answer_behind_it_arrives(junk: bytes) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.feed(MessageReceived(junk))
    assert "no message" in bench.reports[-1]
    bench.answer("prompts/list", {})
    assert isinstance(bench.outcome(operation), Answered)


def test_too_much_junk_in_a_row_ends_the_connection_with_a_reason() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(junk_messages_max=3)))
    operation = submit(bench)
    bench.feed(MessageReceived(b"log"))
    bench.feed(MessageRefused("a line over the limit"))
    bench.answer("prompts/list", {"one": "message between them starts the count anew"})
    other = submit(bench)
    for _ in range(3):
        assert bench.outcome(other) is None
        bench.feed(MessageReceived(b"log"))
    assert isinstance(bench.outcome(operation), Answered)
    outcome = bench.outcome(other)
    assert isinstance(outcome, Disconnected)
    assert "3 messages in a row" in outcome.reason
    assert len(bench.seen(CloseConnection)) == 1


@pytest.mark.parametrize(
    ("beginning", "fails"),
    [
        ('{"jsonrpc":"2.0","id":1,"result":{"te', True),
        ('{ "jsonrpc" : "2.0", "id" : 1, "error" : {"co', True),
        ('{"jsonrpc":"2.0","id":2,"result":{"te', False),
        ('{"jsonrpc":"2.0","id":"1","result":{"te', False),
        ('{"jsonrpc":"2.0","id":1,"method":"x","par', False),
        ('{"result":{"id":1,"result":"x', False),
        ('{"jsonrpc":"2.0","id":' + "1" * 5_000, False),
        ("", False),
    ],
)
def test_an_answer_that_is_too_long_fails_its_request_where_its_beginning_tells_which(
    beginning: str, fails: bool
) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.feed(MessageRefused("it is longer than the limit", None, beginning))
    outcome = bench.outcome(operation)
    assert (outcome == InvalidResponse(reason="it is longer than the limit", method="prompts/list")) == fails
    assert fails or outcome is None


@pytest.mark.spec("B8")
def test_a_request_of_the_server_is_ignored_and_never_answered() -> None:
    bench = ClientBench()
    submit(bench)
    effects = bench.receive({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}})
    assert not any(isinstance(effect, Frame | OperationEnded) for effect in effects)
    assert "may not do" in bench.reports[-1]


@pytest.mark.parametrize("method", ["notifications/unknown", "notifications/cancelled", "notifications/tasks"])
def test_notifications_that_nobody_asked_for_change_nothing(method: str) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.receive({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}})
    assert bench.outcome(operation) is None


@pytest.mark.spec("C8")
@pytest.mark.parametrize("method", ["tasks/get", "tools/list", "server/discover", "prompts/get"])
def test_a_handle_on_a_request_that_cannot_be_a_task_is_an_invalid_response(method: str) -> None:
    bench = ClientBench()
    operation = submit(bench, method, params={"taskId": "t-0", "name": "p"}, tasks=True)
    bench.answer(method, wire_handle())
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert outcome.task_id == "t-1"
    bench.pass_time(100_000)
    assert len(bench.sent) == 1


@pytest.mark.spec("P9")
def test_silence_ends_a_request_and_tells_the_server_once() -> None:
    bench = ClientBench()
    operation = submit(bench, timeout_ms=500)
    bench.pass_time(499)
    assert bench.outcome(operation) is None
    bench.pass_time(1)
    assert bench.outcome(operation) == TimedOut(method="prompts/list")
    bench.pass_time(100_000)
    notices = bench.requests("notifications/cancelled")
    assert [notice["params"]["requestId"] for notice in notices] == [1]
    assert "id" not in notices[0]


@pytest.mark.spec("P9")
def test_progress_gives_a_request_more_time_but_not_for_ever() -> None:
    bench = ClientBench()
    operation = submit(bench, timeout_ms=500, total_ms=1_200, progress=True)
    token = bench.sent[0]["params"]["_meta"]["progressToken"]
    for step in range(1, 4):
        bench.pass_time(399)
        bench.receive(_progress(token, step))
    assert bench.outcome(operation) is None
    bench.pass_time(3)
    assert bench.outcome(operation) == TimedOut(method="prompts/list")
    assert [seen.progress for seen in bench.seen(ProgressObserved)] == [1, 2, 3]


def _progress(token: object, progress: object, **more: object) -> dict[str, object]:
    params = {"progressToken": token, "progress": progress, **more}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


@pytest.mark.spec("L1")
@pytest.mark.parametrize(
    ("token", "progress"),
    [(1, 1), (1, 0.5), ("1", 3), (2, 3), (True, 3), (None, 3), (1, "3"), (1, None), (1, True)],
)
def test_progress_counts_only_with_the_token_of_an_open_request_and_only_upwards(
    token: object, progress: object
) -> None:
    bench = ClientBench()
    submit(bench, progress=True)
    bench.receive(_progress(1, 1.5, total=10, message="half"))
    bench.receive(_progress(token, progress))
    assert [(seen.progress, seen.total, seen.message) for seen in bench.seen(ProgressObserved)] == [(1.5, 10, "half")]
    assert "ignored" in bench.reports[-1]


def test_progress_after_the_answer_or_without_having_been_asked_for_is_ignored() -> None:
    bench = ClientBench()
    submit(bench, progress=True)
    bench.answer("prompts/list", {})
    bench.receive(_progress(1, 1))
    submit(bench)
    bench.receive(_progress(2, 1))
    assert bench.seen(ProgressObserved) == []


def test_an_enormous_progress_value_does_no_harm() -> None:
    bench = ClientBench()
    submit(bench, progress=True)
    bench.receive(_progress(1, 10**400))
    assert bench.seen(ProgressObserved)[0].progress == 10**400


@pytest.mark.spec("L2")
def test_log_messages_reach_the_one_request_that_asked_for_them() -> None:
    bench = ClientBench()
    message = {"level": "info", "logger": "db", "data": {"n": 1}}
    notification = {"jsonrpc": "2.0", "method": "notifications/message", "params": message}
    submit(bench)
    bench.receive(notification)
    assert bench.seen(LogObserved) == []
    asking = submit(bench, log_level="info")
    bench.receive(notification)
    submit(bench, log_level="debug")
    bench.receive(notification)
    expected = [LogObserved(operation_id=o, level="info", logger="db", data={"n": 1}) for o in (asking, None)]
    assert bench.seen(LogObserved) == expected
    assert bench.sent[1]["params"]["_meta"][f"{PREFIX}logLevel"] == "info"


@pytest.mark.parametrize(
    "params", [{"level": "loud", "data": 1}, {"level": "info"}, {"level": "info", "data": 1, "logger": 5}]
)
def test_a_malformed_log_message_is_ignored_with_a_report(params: dict[str, object]) -> None:
    bench = ClientBench()
    submit(bench, log_level="debug")
    bench.receive({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    assert bench.seen(LogObserved) == []
    assert "log message was ignored" in bench.reports[-1]


@pytest.mark.spec("P9")
def test_an_answer_after_the_cancellation_is_ignored() -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.feed(CancelRequested(operation_id=operation, reason="changed my mind \ud800"))
    assert bench.outcome(operation) == Cancelled()
    assert bench.requests("notifications/cancelled")[0]["params"]["reason"] == "changed my mind ?"
    bench.answer("prompts/list", {})
    assert "given up" in bench.reports[-1]
    bench.feed(CancelRequested(operation_id=operation))
    assert len(bench.requests("notifications/cancelled")) == 1


def test_with_a_stream_per_request_closing_it_is_the_cancellation() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = submit(bench)
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.seen(CloseStream) == [CloseStream(CallId(1))]
    assert bench.requests("notifications/cancelled") == []


def test_a_stream_that_ends_without_an_answer_fails_its_request_at_once() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    lost, kept = submit(bench), submit(bench)
    bench.feed(StreamEnded(CallId(1), "the body ended"))
    assert bench.outcome(lost) == Disconnected(reason="the body ended")
    assert bench.outcome(kept) is None


def test_a_lost_connection_fails_everything_at_once_with_what_is_known_of_the_process() -> None:
    bench = ClientBench()
    operations = [submit(bench) for _ in range(3)]
    bench.feed(ConnectionLost(reason="stdout was closed", exit_status=3, stderr_tail="Traceback"))
    late = submit(bench)
    expected = Disconnected(reason="stdout was closed", exit_status=3, stderr_tail="Traceback")
    assert [bench.outcome(operation) for operation in (*operations, late)] == [expected] * 4
    assert bench.protocol.deadline is None
    assert len(bench.sent) == 3


@pytest.mark.spec("N8")
@pytest.mark.parametrize("supported", [[VERSION], ["2099-01-01", VERSION]])
def test_a_refused_version_is_retried_once_with_a_common_one_even_the_same(supported: list[str]) -> None:
    bench = ClientBench()
    operation = submit(bench, params={"cursor": "c"})
    data = {"supported": supported, "requested": VERSION}
    bench.refuse("prompts/list", -32022, "version", data)
    first, second = bench.requests("prompts/list")
    assert first["id"] != second["id"]
    assert first["params"] == second["params"]
    bench.refuse("prompts/list", -32022, "version", data)
    assert bench.outcome(operation) == UnsupportedVersion(supported=tuple(supported), requested=VERSION)
    assert len(bench.sent) == 2


@pytest.mark.spec("N8")
@pytest.mark.parametrize("data", [None, {}, {"supported": []}, {"supported": ["2025-11-25"]}, {"supported": "x"}, [1]])
def test_without_a_common_version_nothing_is_retried(data: object) -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.refuse("prompts/list", -32022, "version", data)
    assert isinstance(bench.outcome(operation), UnsupportedVersion)
    assert len(bench.sent) == 1


@pytest.mark.spec("N8")
def test_a_retry_with_another_version_may_succeed() -> None:
    bench = ClientBench()
    operation = submit(bench)
    bench.refuse("prompts/list", -32022, "version", {"supported": [VERSION], "requested": VERSION})
    bench.answer("prompts/list", {})
    assert isinstance(bench.outcome(operation), Answered)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"method": ""}, "method is a string"),
        ({"method": 5}, "method is a string"),
        ({"params": []}, "params is a dict"),
        ({"params": {"_meta": 1}}, "_meta"),
        ({"params": {"_meta": {f"{PREFIX}protocolVersion": "x"}}}, "writes"),
        ({"params": {"_meta": {"progressToken": "x"}}}, "progressToken"),
        ({"params": {"x": float("nan")}}, "cannot be sent"),
        ({"params": {"x": object()}}, "cannot be sent"),
        ({"params": {"x": "\ud800"}}, "cannot be sent"),
        ({"log_level": "loud"}, "log_level"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": 1.5}, "timeout_ms"),
        ({"total_ms": -1}, "total_ms"),
    ],
)
def test_local_mistakes_are_raised_where_they_are_made_and_change_nothing(
    members: dict[str, object], text: str
) -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError, match=text):
        bench.feed(RequestSubmitted(operation_id=OperationId(1), **({"method": "m"} | members)))  # type: ignore[arg-type]
    assert bench.sent == []
    assert bench.protocol.open_operations == {}
    assert isinstance(bench.outcome(_answered(bench)), Answered)


def _answered(bench: ClientBench) -> OperationId:
    operation = submit(bench)
    bench.answer("prompts/list", {})
    return operation


def test_an_operation_id_is_never_used_again() -> None:
    bench = ClientBench()
    operation = _answered(bench)
    with pytest.raises(LocalProtocolError, match="above the last one"):
        bench.feed(RequestSubmitted(operation_id=operation, method="m"))


def test_an_event_about_an_operation_that_never_was_is_a_local_mistake() -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError, match="never an operation"):
        bench.feed(CancelRequested(operation_id=OperationId(9)))
    operation = submit(bench)
    with pytest.raises(LocalProtocolError, match="never asked"):
        bench.feed(InputAnswered(operation, InputKey("k"), {}))


def test_the_tables_of_a_client_are_bounded() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(operations_max=2, abandoned_max=2)))
    operations = [submit(bench), submit(bench)]
    with pytest.raises(LocalProtocolError, match="2 operations"):
        submit(bench)
    for operation in operations:
        bench.feed(CancelRequested(operation_id=operation))
    third = bench.next_operation()
    bench.feed(RequestSubmitted(operation_id=third, method="m"))
    bench.feed(CancelRequested(operation_id=third))
    bench.receive({"jsonrpc": "2.0", "id": 1, "result": {}})
    assert "answered before" in bench.reports[-1]
    bench.receive({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert "given up" in bench.reports[-1]


@pytest.mark.parametrize(
    "members",
    [
        {"client_info": {"name": "x"}},
        {"client_info": "x"},
        {"capabilities": []},
        {"capabilities": {"elicitation": True}},
        {"versions": ()},
        {"versions": ("2025-11-25",)},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(members: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        ClientConfig(**members)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None])
def test_a_limit_is_an_integer_of_1_or_more(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="request_timeout_ms"):
        ClientLimits(request_timeout_ms=value)  # type: ignore[arg-type]


def test_the_frames_of_a_client_are_single_lines() -> None:
    bench = ClientBench()
    submit(bench, params={"text": "line\nend\u2028"})
    payload = b"".join(bench.seen(Frame)[0].payload)
    assert b"\n" not in payload
    assert json.loads(payload)["params"]["text"] == "line\nend\u2028"
