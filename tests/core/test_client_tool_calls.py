"""Tool calls up to their result or their handle: rounds of questions, cancellation, deadlines."""

from __future__ import annotations

import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import AskInput, CloseStream, Frame, TaskCreated
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    DetachRequested,
    InputAnswered,
    InputUnanswerable,
    OnTimeout,
    OperationId,
    RequestSubmitted,
    StreamEnded,
    ToolCallStarted,
)
from mcp_tasks_core.client.outcomes import (
    Answered,
    Cancelled,
    Disconnected,
    InputUnhandled,
    InvalidResponse,
    RemoteError,
    TimedOut,
    ToolResult,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey
from mcp_tasks_core.testing.client import ClientBench, wire_handle

RESULT = {"content": [{"type": "text", "text": "done"}], "isError": False}
COMPLETE = {"resultType": "complete", **RESULT}
ASKING = ClientConfig(capabilities={"elicitation": {}})


def question(name: str = "quarter") -> dict[str, object]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": f"Which {name}?", "requestedSchema": schema}}


def accept(**content: object) -> dict[str, object]:
    return {"action": "accept", "content": content}


def call(bench: ClientBench, **members: object) -> OperationId:
    operation = bench.next_operation()
    arguments = {"topic": "sales"}
    bench.feed(ToolCallStarted(operation_id=operation, name="report", arguments=arguments, **members))  # type: ignore[arg-type]
    return operation


def asked(**members: object) -> dict[str, object]:
    return {"resultType": "input_required", **members}


def test_an_ordinary_result_is_the_outcome_and_an_error_of_the_tool_is_a_result() -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.answer("tools/call", {**RESULT, "isError": True})
    assert bench.outcome(operation) == ToolResult({**COMPLETE, "isError": True})


def test_a_call_declares_tasks_or_not_and_is_named_for_routing() -> None:
    bench = ClientBench()
    call(bench)
    call(bench, tasks=False)
    declared = [m["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] for m in bench.sent]
    assert declared == [{"extensions": {"io.modelcontextprotocol/tasks": {}}}, {}]
    assert [frame.name for frame in bench.seen(Frame)] == ["report", "report"]


@pytest.mark.parametrize("bad", [{}, {"content": "x"}, {"content": [5]}, {"content": [], "isError": "no"}])
def test_a_result_that_is_no_tool_result_is_an_invalid_response(bad: dict[str, object]) -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.answer("tools/call", bad)
    assert isinstance(bench.outcome(operation), InvalidResponse)


def test_an_error_is_the_outcome() -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.refuse("tools/call", -32602, "unknown tool")
    assert bench.outcome(operation) == RemoteError(code=-32602, message="unknown tool", data=None, method="tools/call")


STATES = ["", "x" * 100_000, '"quoted\\"', "\u2028\u2029\U0001f600é", '{"looks":"like JSON"}', " pad ", "\x00\x1f"]


@pytest.mark.spec("P8")
@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
def test_request_state_is_echoed_code_point_for_code_point_on_the_retry_and_nowhere_else(state: str) -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    bench.answer("tools/call", asked(requestState=state, inputRequests={"q": question()}))
    call(bench)
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    first, parallel, retry = bench.requests("tools/call")
    assert len({first["id"], parallel["id"], retry["id"]}) == 3
    assert retry["params"]["requestState"] == state
    assert retry["params"]["inputResponses"] == {"q": accept(quarter="Q3")}
    assert (retry["params"]["name"], retry["params"]["arguments"]) == ("report", {"topic": "sales"})
    for other in (first, parallel):
        assert not {"requestState", "inputResponses"} & other["params"].keys()
    bench.answer("tools/call", RESULT)
    assert bench.outcome(operation) == ToolResult(COMPLETE)


@pytest.mark.spec("P8")
def test_without_a_request_state_the_retry_has_none_though_an_earlier_round_had_one() -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    bench.answer("tools/call", asked(requestState="first"))
    bench.answer("tools/call", asked(inputRequests={"q": question()}))
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    _, second, third = bench.requests("tools/call")
    assert (second["params"]["requestState"], "inputResponses" in second["params"]) == ("first", False)
    assert "requestState" not in third["params"]


@pytest.mark.spec("P8")
def test_the_retry_waits_for_the_answers_to_all_questions() -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    bench.answer("tools/call", asked(inputRequests={"a": question("a"), "b": question("b")}))
    asks = bench.seen(AskInput)
    assert [(ask.key, ask.task_id) for ask in asks] == [("a", None), ("b", None)]
    bench.feed(InputAnswered(operation, InputKey("b"), {"action": "decline"}))
    assert len(bench.requests("tools/call")) == 1
    bench.feed(InputAnswered(operation, InputKey("b"), accept(b="late")))
    bench.feed(InputAnswered(operation, InputKey("a"), accept(a="x")))
    answers = bench.requests("tools/call")[1]["params"]["inputResponses"]
    assert answers == {"a": accept(a="x"), "b": {"action": "decline"}}
    bench.feed(InputAnswered(operation, InputKey("a"), accept(a="too late")))
    assert "too late" in bench.reports[-1]


@pytest.mark.spec("P8")
def test_a_server_that_never_stops_asking_is_stopped() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(rounds_max=3)))
    operation = call(bench)
    for _ in range(3):
        bench.answer("tools/call", asked(requestState="again"))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "3 times in a row" in outcome.reason
    assert len(bench.sent) == 3


@pytest.mark.parametrize(
    "bad",
    [
        asked(),
        asked(requestState=5),
        asked(inputRequests=[]),
        asked(inputRequests={"q": "x"}),
        asked(inputRequests={"q": {"method": "tools/call", "params": {}}}),
        asked(inputRequests={"q": {"method": "elicitation/create"}}),
        asked(inputRequests={"q": {"method": "elicitation/create", "params": {"message": "m"}}}),
        asked(inputRequests={str(n): question() for n in range(33)}),
        asked(inputRequests={"k" * 300: question()}),
    ],
)
def test_malformed_questions_are_an_invalid_response(bad: dict[str, object]) -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    bench.answer("tools/call", bad)
    assert isinstance(bench.outcome(operation), InvalidResponse)
    assert bench.seen(AskInput) == []


SAMPLING = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
URL = {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://example.com/x"}}


@pytest.mark.spec("P11")
@pytest.mark.parametrize(
    ("capabilities", "request_"),
    [
        ({}, question()),
        ({"elicitation": {}}, URL),
        ({"elicitation": {"url": {}}}, question()),
        ({"elicitation": {}}, SAMPLING),
        ({"sampling": {}}, {**SAMPLING, "params": {**SAMPLING["params"], "tools": []}}),  # type: ignore[dict-item]
        ({"sampling": {}}, {"method": "roots/list"}),
    ],
)
def test_a_question_of_a_kind_that_was_not_declared_is_an_invalid_response(
    capabilities: dict[str, object], request_: dict[str, object]
) -> None:
    bench = ClientBench(ClientConfig(capabilities=capabilities))
    operation = call(bench)
    bench.answer("tools/call", asked(inputRequests={"q": request_}))
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "not declared" in outcome.reason
    assert bench.seen(AskInput) == []


@pytest.mark.spec("P4")
@pytest.mark.parametrize(
    ("capabilities", "request_", "answer"),
    [
        ({"elicitation": {"url": {}}}, URL, {"action": "accept"}),
        ({"sampling": {}}, SAMPLING, {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
        ({"roots": {}}, {"method": "roots/list"}, {"roots": [{"uri": "file:///work"}]}),
    ],
)
def test_declared_kinds_are_asked_and_answered_as_they_are(
    capabilities: dict[str, object], request_: dict[str, object], answer: dict[str, object]
) -> None:
    bench = ClientBench(ClientConfig(capabilities=capabilities))
    operation = call(bench)
    bench.answer("tools/call", asked(inputRequests={"q": request_}))
    assert bench.seen(AskInput)[0].request == request_
    bench.feed(InputAnswered(operation, InputKey("q"), answer))
    assert bench.requests("tools/call")[1]["params"]["inputResponses"] == {"q": answer}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "yes",
        {"action": "maybe"},
        {"action": "accept"},
        accept(quarter=3),
        accept(other="x"),
        {"action": "accept", "content": {"quarter": float("nan")}},
    ],
)
def test_an_answer_that_does_not_fit_its_question_is_the_handlers_mistake(answer: object) -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    bench.answer("tools/call", asked(inputRequests={"q": question()}))
    with pytest.raises(LocalProtocolError, match="'q'"):
        bench.feed(InputAnswered(operation, InputKey("q"), answer))  # type: ignore[arg-type]
    assert len(bench.sent) == 1
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q1")))
    assert len(bench.requests("tools/call")) == 2


def test_questions_that_nobody_can_answer_end_the_wait_and_are_in_the_outcome() -> None:
    bench = ClientBench(ASKING)
    operation = call(bench)
    questions = {"a": question("a"), "b": question("b")}
    bench.answer("tools/call", asked(inputRequests=questions))
    bench.feed(InputAnswered(operation, InputKey("a"), accept(a="x")))
    bench.feed(InputUnanswerable(operation, InputKey("b")))
    assert bench.outcome(operation) == InputUnhandled(task_id=None, requests={"b": questions["b"]})
    bench.feed(InputUnanswerable(operation, InputKey("b")))
    assert len(bench.sent) == 1


def test_other_methods_that_may_ask_have_rounds_too_and_the_rest_have_not() -> None:
    bench = ClientBench(ASKING)
    prompt, listing = bench.next_operation(), bench.next_operation()
    bench.feed(RequestSubmitted(operation_id=prompt, method="prompts/get", params={"name": "p"}))
    bench.answer("prompts/get", asked(requestState="s"))
    bench.answer("prompts/get", {"messages": []})
    assert bench.outcome(prompt) == Answered({"resultType": "complete", "messages": []})
    bench.feed(RequestSubmitted(operation_id=listing, method="prompts/list"))
    bench.answer("prompts/list", asked(requestState="s"))
    assert isinstance(bench.outcome(listing), InvalidResponse)


@pytest.mark.spec("P8")
def test_a_round_that_the_caller_began_with_a_state_of_its_own_hands_it_to_no_later_round() -> None:
    bench = ClientBench(ASKING)
    operation = bench.next_operation()
    resumed = {"name": "p", "requestState": "kept", "inputResponses": {"old": accept(old="x")}}
    bench.feed(RequestSubmitted(operation_id=operation, method="prompts/get", params=resumed))
    bench.answer("prompts/get", asked(inputRequests={"q": question()}))
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    bench.answer("prompts/get", asked(requestState="next"))
    first, second, third = (message["params"] for message in bench.requests("prompts/get"))
    assert (first["requestState"], first["inputResponses"]) == ("kept", {"old": accept(old="x")})
    assert ("requestState" in second, second["inputResponses"]) == (False, {"q": accept(quarter="Q3")})
    assert (third["requestState"], "inputResponses" in third) == ("next", False)


@pytest.mark.spec("C8")
@pytest.mark.parametrize("cancels", [False, True])
def test_a_handle_that_nobody_asked_for_is_invalid_and_its_id_is_not_lost(cancels: bool) -> None:
    bench = ClientBench(ClientConfig(cancel_unasked_tasks=cancels))
    operation = call(bench, tasks=False)
    bench.answer("tools/call", wire_handle())
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert outcome.task_id == "t-1"
    assert bench.seen(TaskCreated) == []
    assert [m["params"]["taskId"] for m in bench.requests("tasks/cancel")] == (["t-1"] if cancels else [])
    bench.pass_time(60_000)
    assert bench.requests("tasks/get") == []


@pytest.mark.spec("C8")
def test_a_nested_handle_is_refused_with_the_id_that_it_holds() -> None:
    bench = ClientBench()
    operation = call(bench)
    nested = {"resultType": "task", "task": {k: v for k, v in wire_handle().items() if k != "resultType"}}
    bench.answer("tools/call", nested)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert outcome.task_id == "t-1"


@pytest.mark.spec("C8")
@pytest.mark.parametrize(
    "change",
    [
        {"taskId": 5},
        {"taskId": ""},
        {"taskId": "t" * 1_025},
        {"status": "paused"},
        {"createdAt": "yesterday"},
        {"ttlMs": "1"},
        {"lastUpdatedAt": None},
    ],
)
def test_a_handle_of_the_wrong_shape_is_an_invalid_response(change: dict[str, object]) -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.answer("tools/call", wire_handle(**change))
    assert isinstance(bench.outcome(operation), InvalidResponse)


@pytest.mark.spec("P9")
def test_a_call_in_flight_is_cancelled_by_notification_and_never_by_tasks_cancel() -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.outcome(operation) == Cancelled()
    assert [m["params"]["requestId"] for m in bench.requests("notifications/cancelled")] == [1]
    assert bench.requests("tasks/cancel") == []


def test_a_handle_that_crosses_the_cancellation_is_cancelled_as_soon_as_its_id_is_known() -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.answer("tools/call", wire_handle())
    bench.answer("tools/call", wire_handle())
    assert [m["params"]["taskId"] for m in bench.requests("tasks/cancel")] == ["t-1"]
    bench.answer("tasks/cancel", {})
    bench.pass_time(60_000)
    assert bench.requests("tasks/get") == []
    assert bench.protocol.deadline is None


def test_a_late_answer_that_is_no_handle_is_dropped() -> None:
    bench = ClientBench()
    operation = call(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.answer("tools/call", RESULT)
    assert bench.requests("tasks/cancel") == []
    assert "given up" in bench.reports[-1]


def test_with_a_stream_per_request_a_call_in_flight_is_cancelled_by_closing_it() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = call(bench)
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.seen(CloseStream) == [CloseStream(CallId(1))]
    assert [message["method"] for message in bench.sent] == ["tools/call"]


def test_a_call_whose_own_stream_ends_fails_and_is_never_sent_again() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = call(bench)
    bench.feed(StreamEnded(CallId(1), "end of body"))
    assert bench.outcome(operation) == Disconnected(reason="end of body")
    bench.pass_time(600_000)
    assert len(bench.sent) == 1


@pytest.mark.spec("P9")
@pytest.mark.parametrize("policy", list(OnTimeout))
def test_a_deadline_before_the_handle_cancels_the_request_and_perhaps_a_task_that_comes_late(policy: OnTimeout) -> None:
    bench = ClientBench()
    operation = call(bench, timeout_ms=1_000, on_timeout=policy)
    bench.pass_time(1_000)
    assert bench.outcome(operation) == TimedOut(method="tools/call")
    assert len(bench.requests("notifications/cancelled")) == 1
    bench.answer("tools/call", wire_handle())
    assert len(bench.requests("tasks/cancel")) == (1 if policy is OnTimeout.CANCEL else 0)


@pytest.mark.spec("P9")
def test_a_deadline_holds_while_a_person_thinks() -> None:
    bench = ClientBench(ASKING)
    operation = call(bench, timeout_ms=1_000)
    bench.answer("tools/call", asked(inputRequests={"q": question()}))
    bench.pass_time(1_000)
    assert bench.outcome(operation) == TimedOut(method="tools/call")
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q1")))
    assert len(bench.requests("tools/call")) == 1


@pytest.mark.spec("P9")
@pytest.mark.parametrize("policy", list(OnTimeout))
def test_an_inline_call_has_a_limit_of_its_own_without_any_deadline(policy: OnTimeout) -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(tool_timeout_ms=5_000)))
    operation = call(bench, on_timeout=policy)
    bench.pass_time(5_000)
    assert bench.outcome(operation) == TimedOut(method="tools/call")
    bench.answer("tools/call", wire_handle())
    assert len(bench.requests("tasks/cancel")) == (1 if policy is OnTimeout.CANCEL else 0)


def test_there_is_nothing_to_detach_from_before_the_handle() -> None:
    bench = ClientBench()
    operation = call(bench)
    with pytest.raises(LocalProtocolError, match="no task yet"):
        bench.feed(DetachRequested(operation))
    assert bench.outcome(operation) is None


@pytest.mark.parametrize(
    "members",
    [{"name": 5}, {"arguments": []}, {"arguments": {"x": {1, 2}}}, {"meta": 1}, {"timeout_ms": 0}, {"log_level": "x"}],
)
def test_a_call_that_cannot_be_sent_is_a_local_mistake(members: dict[str, object]) -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError):
        bench.feed(ToolCallStarted(operation_id=OperationId(1), **({"name": "t"} | members)))  # type: ignore[arg-type]
    assert bench.protocol.open_operations == {}
