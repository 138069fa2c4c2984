"""Watching a task: polls, states, questions, answers, cancellation, and every way to end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import AskInput, StateObserved, TaskCreated, WithdrawInput
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ConnectionLost,
    DetachRequested,
    InputAnswered,
    InputUnanswerable,
    ObservationStarted,
    OnTimeout,
    OperationId,
    StreamEnded,
    ToolCallStarted,
)
from mcp_tasks_core.client.outcomes import (
    Cancelled,
    DetachedFromTask,
    Disconnected,
    InputUnhandled,
    InvalidResponse,
    RemoteError,
    TaskCancelled,
    TaskFailed,
    TaskOverdue,
    TaskUnreachable,
    TimedOut,
    ToolResult,
    UnknownOutcome,
    UnsupportedVersion,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.tasks import CancelledTask, FailedTask, TaskStatus
from mcp_tasks_core.testing.client import ClientBench, wire_handle, wire_task

RESULT = {"content": [{"type": "text", "text": "done"}]}
ASKING = ClientConfig(capabilities={"elicitation": {}})


def question(name: str = "quarter") -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": f"Which {name}?", "requestedSchema": schema}}


def accept(**content: object) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def start(bench: ClientBench, handle: dict[str, Any] | None = None, **members: Any) -> OperationId:
    """A call that has become a task."""
    operation = bench.next_operation()
    bench.feed(ToolCallStarted(operation_id=operation, name="report", **members))
    bench.answer("tools/call", wire_handle() if handle is None else handle)
    return operation


def observe(bench: ClientBench, **members: Any) -> OperationId:
    operation = bench.next_operation()
    bench.feed(ObservationStarted(operation_id=operation, task_id=TaskId("t-1"), **members))
    return operation


def poll_answer(bench: ClientBench, status: str = "working", *, wait_ms: int = 1_000, **members: Any) -> None:
    """Let the next poll come and answer it."""
    before = len(bench.requests("tasks/get"))
    bench.pass_time(wait_ms)
    assert len(bench.requests("tasks/get")) == before + 1
    bench.answer("tasks/get", wire_task(status, **members))


def poll_gaps(bench: ClientBench) -> list[int]:
    """Milliseconds from the handle to the first poll, and from each poll to the next."""
    moments = [
        moment
        for message, moment in zip(bench.sent, bench.sent_at_ms, strict=True)
        if message["method"] in ("tools/call", "tasks/get")
    ]
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def keep_answering(bench: ClientBench, duration_ms: int, **members: Any) -> None:
    """Answer each poll at once for so long."""
    until_ms = bench.now_ms + duration_ms
    while (deadline := bench.protocol.deadline) is not None and deadline <= until_ms:
        polls = len(bench.requests("tasks/get"))
        bench.pass_time(deadline - bench.now_ms)
        if len(bench.requests("tasks/get")) > polls:
            bench.answer("tasks/get", wire_task(**members))
    bench.now_ms = until_ms


# --- intervals


@pytest.mark.spec("P1")
def test_each_newest_interval_is_kept_even_before_the_first_poll() -> None:
    bench = ClientBench()
    operation = start(bench, wire_handle(pollIntervalMs=700))
    poll_answer(bench, wait_ms=700, pollIntervalMs=200)
    poll_answer(bench, wait_ms=200, pollIntervalMs=1_500)
    poll_answer(bench, "completed", wait_ms=1_500, result=RESULT)
    assert poll_gaps(bench) == [700, 200, 1_500]
    assert bench.outcome(operation) == ToolResult(RESULT, TaskId("t-1"))
    assert bench.protocol.deadline is None


@pytest.mark.spec("P1")
@pytest.mark.parametrize(
    ("interval", "gap_ms"),
    [
        (-5, 1_000),
        (0, 100),
        (1, 100),
        (0.4, 1_000),
        ("x", 1_000),
        ("500", 1_000),
        (None, 1_000),
        (True, 1_000),
        ([], 1_000),
        (1e18, 60_000),
        (10**18, 60_000),
        (10**400, 60_000),
        (1500.0, 1_500),
    ],
)
def test_no_interval_that_a_server_names_makes_a_hot_loop_or_an_endless_wait(interval: object, gap_ms: int) -> None:
    bench = ClientBench()
    start(bench, wire_handle(pollIntervalMs=interval))
    keep_answering(bench, 3 * gap_ms, pollIntervalMs=interval)
    assert poll_gaps(bench) == [gap_ms] * 3
    if type(interval) is not int or interval < 0:
        assert any("pollIntervalMs" in report for report in bench.reports)


@pytest.mark.spec("P1")
def test_an_absent_interval_is_the_configured_one_and_the_bounds_are_configurable() -> None:
    limits = ClientLimits(poll_interval_ms_default=300, poll_interval_ms_min=250, poll_interval_ms_max=400)
    bench = ClientBench(ClientConfig(client_limits=limits))
    start(bench)
    poll_answer(bench, wait_ms=300, pollIntervalMs=10)
    poll_answer(bench, wait_ms=250, pollIntervalMs=9_000)
    poll_answer(bench, wait_ms=400)
    assert poll_gaps(bench) == [300, 250, 400]


def test_the_interval_counts_from_the_answer_and_one_poll_at_a_time_is_on_its_way() -> None:
    bench = ClientBench()
    start(bench)
    bench.pass_time(5_000)
    assert len(bench.requests("tasks/get")) == 1
    bench.answer("tasks/get", wire_task())
    bench.pass_time(999)
    assert len(bench.requests("tasks/get")) == 1
    bench.pass_time(1)
    assert len(bench.requests("tasks/get")) == 2


def test_integral_floats_are_taken_as_durations_with_one_warning() -> None:
    bench = ClientBench()
    start(bench)
    for _ in range(3):
        poll_answer(bench, ttlMs=3_600_000.0)
    assert sum("ttlMs is 3600000.0" in report for report in bench.reports) == 1


@pytest.mark.parametrize("ttl", [-1, "x", 0.5, True])
def test_a_time_to_live_that_makes_no_sense_is_an_invalid_response(ttl: object) -> None:
    bench = ClientBench()
    operation = start(bench)
    poll_answer(bench, ttlMs=ttl)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert outcome.task_id == "t-1"


# --- ends


def test_a_tools_own_error_is_its_result_and_a_failed_task_is_another_end() -> None:
    bench = ClientBench()
    error_result, failed, cancelled = start(bench), start(bench), start(bench)
    bench.pass_time(1_000)
    states = [
        wire_task("completed", result={**RESULT, "isError": True}),
        wire_task("failed", error={"code": -32603, "message": "lost", "data": {"x": 1}}),
        wire_task("cancelled", statusMessage="by request"),
    ]
    for message, state in zip(bench.requests("tasks/get"), states, strict=True):
        bench.receive({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **state}})
    assert bench.outcome(error_result) == ToolResult({**RESULT, "isError": True}, TaskId("t-1"))
    failure, end = bench.outcome(failed), bench.outcome(cancelled)
    assert isinstance(failure, TaskFailed)
    assert isinstance(failure.task, FailedTask)
    assert failure.task.error == {"code": -32603, "message": "lost", "data": {"x": 1}}
    assert isinstance(end, TaskCancelled)
    assert isinstance(end.task, CancelledTask)
    assert end.task.status_message == "by request"


@pytest.mark.parametrize(
    "state",
    [
        wire_task("completed"),
        wire_task("completed", result={"resultType": "task", **RESULT}),
        wire_task("completed", result={"content": 1}),
        wire_task("failed"),
        wire_task("failed", error={"code": "x", "message": "m"}),
        wire_task("paused"),
        wire_task(taskId="t-2"),
        wire_task(createdAt="now"),
        {"taskId": "t-1", "status": "working"},
        {},
    ],
)
def test_a_state_of_the_wrong_shape_is_an_invalid_response_that_names_the_task(state: dict[str, Any]) -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.pass_time(1_000)
    bench.answer("tasks/get", state)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert (outcome.method, outcome.task_id) == ("tasks/get", "t-1")


def test_the_result_type_of_a_result_inside_a_task_may_be_there_or_absent() -> None:
    bench = ClientBench()
    operation = start(bench)
    result = {"resultType": "complete", **RESULT}
    poll_answer(bench, "completed", result=result)
    assert bench.outcome(operation) == ToolResult(result, TaskId("t-1"))


@pytest.mark.parametrize("lenient", [False, True])
def test_what_old_drafts_send_is_refused_unless_leniency_is_chosen(lenient: bool) -> None:
    bench = ClientBench(ClientConfig(lenient=lenient))
    typed, unknown = start(bench), start(bench)
    bench.pass_time(1_000)
    first, second = bench.requests("tasks/get")
    for message, state in ((first, wire_handle()), (second, {"resultType": "complete", **wire_task("paused")})):
        bench.receive({"jsonrpc": "2.0", "id": message["id"], "result": state})
    ended = [isinstance(bench.outcome(operation), InvalidResponse) for operation in (typed, unknown)]
    assert ended == [not lenient] * 2
    if lenient:
        assert any('"task"' in report for report in bench.reports)
        bench.pass_time(1_000)
        assert len(bench.requests("tasks/get")) == 4


@pytest.mark.spec("B4")
def test_a_poll_without_a_result_type_is_complete_and_an_unknown_one_is_invalid() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.pass_time(1_000)
    bench.receive({"jsonrpc": "2.0", "id": bench.sent[-1]["id"], "result": wire_task()})
    assert bench.outcome(operation) is None
    poll_answer(bench, resultType="partial")
    assert isinstance(bench.outcome(operation), InvalidResponse)


@pytest.mark.spec("N8")
def test_a_version_refused_in_the_middle_of_a_watch_is_retried_once_and_then_ends_it() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.pass_time(1_000)
    data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
    bench.refuse("tasks/get", -32022, "version", data)
    assert len(bench.requests("tasks/get")) == 2
    bench.answer("tasks/get", wire_task())
    bench.pass_time(1_000)
    bench.refuse("tasks/get", -32022, "version", data)
    bench.refuse("tasks/get", -32022, "version", data)
    assert isinstance(bench.outcome(operation), UnsupportedVersion)


# --- states in order


@pytest.mark.spec("P1")
def test_states_are_shown_when_they_change_and_never_go_back() -> None:
    bench = ClientBench()
    operation = start(bench, wire_handle(updated_s=1))
    poll_answer(bench, updated_s=3, statusMessage="3")
    poll_answer(bench, updated_s=3, statusMessage="3")
    poll_answer(bench, updated_s=2, statusMessage="2")
    poll_answer(bench, updated_s=4, statusMessage="4")
    poll_answer(bench, "completed", updated_s=1, result=RESULT)
    shown = [(seen.task.status, seen.task.status_message) for seen in bench.seen(StateObserved)]
    assert shown == [("working", "3"), ("working", "4"), ("completed", None)]
    assert sum("older than the newest" in report for report in bench.reports) == 1
    assert isinstance(bench.outcome(operation), ToolResult)


def test_moments_are_compared_with_their_offsets() -> None:
    bench = ClientBench()
    start(bench, wire_handle(lastUpdatedAt="2026-07-28T12:00:01+02:00"))
    poll_answer(bench, lastUpdatedAt="2026-07-28T10:00:02Z", statusMessage="newer")
    poll_answer(bench, lastUpdatedAt="2026-07-28T11:59:59+02:00", statusMessage="older")
    assert [seen.task.status_message for seen in bench.seen(StateObserved)] == ["newer"]


def test_the_handle_is_told_before_everything_else() -> None:
    bench = ClientBench()
    operation = start(bench, wire_handle("input_required", statusMessage="seed"))
    created = bench.seen(TaskCreated)
    assert [(seen.operation_id, seen.task.task_id, seen.task.status) for seen in created] == [
        (operation, "t-1", TaskStatus.INPUT_REQUIRED)
    ]
    assert bench.requests("tasks/get") == []


def test_a_task_that_was_over_at_its_creation_is_read_once_for_its_result() -> None:
    bench = ClientBench()
    operation = start(bench, wire_handle("completed", updated_s=2))
    poll_answer(bench, updated_s=1)
    assert bench.outcome(operation) is None
    poll_answer(bench, "completed", updated_s=2, result=RESULT)
    assert isinstance(bench.outcome(operation), ToolResult)


def test_a_terminal_status_that_changes_is_an_invalid_response() -> None:
    bench = ClientBench()
    operation = start(bench, wire_handle("completed"))
    poll_answer(bench, "cancelled")
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "was completed at first and is cancelled now" in outcome.reason


# --- failures of polls


@pytest.mark.spec("P9")
def test_a_poll_that_is_lost_is_repeated_and_the_count_of_failures_starts_anew() -> None:
    limits = ClientLimits(task_request_timeout_ms=500, poll_failures_max=2, poll_failing_ms=1_500)
    bench = ClientBench(ClientConfig(client_limits=limits))
    operation = start(bench)
    for _ in range(3):
        bench.pass_time(1_500)
        poll_answer(bench)
    assert bench.outcome(operation) is None
    bench.pass_time(1_500)
    bench.pass_time(1_500)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, TaskUnreachable)
    assert outcome.task_id == "t-1"


def test_an_internal_error_on_a_poll_passes_and_other_errors_end_the_watch() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(poll_failures_max=2, poll_failing_ms=1_000)))
    passing, gone = start(bench), start(bench)
    bench.pass_time(1_000)
    first, second = bench.requests("tasks/get")
    for message, code in ((first, -32603), (second, -32602)):
        error = {"code": code, "message": "Task not found"}
        bench.receive({"jsonrpc": "2.0", "id": message["id"], "error": error})
    assert bench.outcome(passing) is None
    expected = {"message": "Task not found", "data": None, "method": "tasks/get", "task_id": TaskId("t-1")}
    assert bench.outcome(gone) == RemoteError(code=-32602, **expected)  # type: ignore[arg-type]
    bench.pass_time(1_000)
    bench.refuse("tasks/get", -32603, "Task not found")
    assert bench.outcome(passing) == RemoteError(code=-32603, **expected)  # type: ignore[arg-type]


def fail_polls(bench: ClientBench, operation: OperationId, **members: Any) -> list[int]:
    """End every poll at once until the task is given up; the waits between them."""
    waits: list[int] = []
    while True:
        bench.feed(StreamEnded(CallId(bench.requests("tasks/get")[-1]["id"]), "refused", **members))
        if bench.outcome(operation) is not None:
            return waits
        begun_ms, before = bench.now_ms, len(bench.requests("tasks/get"))
        while len(bench.requests("tasks/get")) == before:
            assert bench.protocol.deadline is not None
            bench.pass_time(bench.protocol.deadline - bench.now_ms)
        waits.append(bench.now_ms - begun_ms)


@pytest.mark.spec("P1", "P9")
def test_polls_that_fail_at_once_outlive_a_restart_and_are_not_repeated_for_ever() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = observe(bench)
    assert fail_polls(bench, operation) == [1_000, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
    assert bench.outcome(operation) == TaskUnreachable(task_id=TaskId("t-1"), reason="refused")
    assert bench.warnings == ["task 't-1': cannot be read, retrying: refused"]
    assert bench.protocol.deadline is None


@pytest.mark.spec("P1")
def test_polls_that_fail_keep_to_the_servers_interval_however_long_it_is() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = observe(bench)
    bench.answer("tasks/get", wire_task(pollIntervalMs=40_000))
    bench.pass_time(40_000)
    assert fail_polls(bench, operation) == [40_000] * (ClientLimits().poll_failures_max - 1)


def test_polls_that_the_server_turns_away_are_given_up_by_their_number_alone() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = observe(bench)
    assert len(fail_polls(bench, operation, refused=True)) == ClientLimits().poll_failures_max - 1


def test_a_task_that_can_be_read_again_is_said_to_be_once() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    observe(bench)
    for _ in range(3):
        bench.feed(StreamEnded(CallId(bench.requests("tasks/get")[-1]["id"]), "refused"))
        bench.pass_time(2_000)
    bench.answer("tasks/get", wire_task())
    poll_answer(bench)
    assert bench.warnings == [
        "task 't-1': cannot be read, retrying: refused",
        "task 't-1': can be read again",
    ]
    assert sum("in a row failed" in report for report in bench.reports) == 2


MALFORMED_INSIDE: list[dict[str, Any]] = [
    wire_task("completed", result={"content": 5}),
    wire_task("completed", result={"content": None}),
    wire_task("completed", result={"content": ["text"]}),
    wire_task("input_required", inputRequests={"q": {"method": "elicitation/create", "params": 5}}),
    wire_task("input_required", inputRequests={"q": {"method": "elicitation/create", "params": [1]}}),
    wire_task("input_required", inputRequests={"q": 5}),
]


@pytest.mark.spec("P6")
@pytest.mark.parametrize("told", MALFORMED_INSIDE)
def test_a_state_that_is_malformed_inside_is_never_shown(told: dict[str, Any]) -> None:
    bench = ClientBench(ASKING)
    operation = observe(bench)
    bench.answer("tasks/get", told)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert outcome.task_id == "t-1"
    assert bench.seen(StateObserved) == []


def test_warnings_of_one_task_are_bounded_whatever_its_server_writes() -> None:
    bench = ClientBench()
    observe(bench)
    for number in range(100):
        bench.answer("tasks/get", wire_task(ttlMs=float(1_000_000 + number)))
        bench.pass_time(1_000)
    assert len(bench.warnings) == ClientLimits().state_warnings_max


def test_the_lost_stream_of_a_poll_is_a_failure_in_passing() -> None:
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST))
    operation = start(bench)
    bench.pass_time(1_000)
    bench.feed(StreamEnded(CallId(bench.sent[-1]["id"]), "reset"))
    poll_answer(bench, "completed", result=RESULT)
    assert isinstance(bench.outcome(operation), ToolResult)


@pytest.mark.spec("P5")
def test_a_lost_connection_names_the_task_that_runs_on_and_what_was_answered() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"q": question()})
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q1")))
    bench.feed(ConnectionLost(reason="reset"))
    expected = Disconnected(reason="reset", task_id=TaskId("t-1"), answered=frozenset({InputKey("q")}))
    assert bench.outcome(operation) == expected
    assert bench.requests("tasks/cancel") == []


# --- time to live, deadlines


@pytest.mark.spec("P1")
def test_a_task_that_outlives_its_time_to_live_ends_the_wait_by_our_own_clock() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(ttl_grace_ms=2_000)))
    operation = start(bench, wire_handle(ttlMs=10_000, updated_s=4))
    keep_answering(bench, 7_999, ttlMs=10_000, updated_s=4)
    assert bench.outcome(operation) is None
    keep_answering(bench, 1, ttlMs=10_000)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, TaskOverdue)
    assert outcome.task.task_id == "t-1"
    assert bench.requests("tasks/cancel") == []


@pytest.mark.spec("P1")
def test_a_raised_time_to_live_extends_the_wait_and_none_ends_never() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(ttl_grace_ms=1_000)))
    operation = start(bench, wire_handle(ttlMs=2_000))
    poll_answer(bench, ttlMs=20_000)
    keep_answering(bench, 18_000, ttlMs=20_000)
    assert bench.outcome(operation) is None
    keep_answering(bench, 3_600_000, ttlMs=None)
    assert bench.outcome(operation) is None


@pytest.mark.spec("P5", "P9")
def test_one_deadline_holds_for_the_call_and_all_polls_and_cancels_the_calls_own_task_once() -> None:
    bench = ClientBench()
    operation = start(bench, timeout_ms=3_500)
    keep_answering(bench, 3_500)
    expected = TimedOut(method="tools/call", task_id=TaskId("t-1"), cancel_sent=True)
    assert bench.outcome(operation) == expected
    assert len(bench.requests("tasks/get")) == 3
    assert [message["params"]["taskId"] for message in bench.requests("tasks/cancel")] == ["t-1"]
    bench.answer("tasks/cancel", {})
    bench.pass_time(600_000)
    assert bench.requests("notifications/cancelled") == []
    assert len(bench.requests("tasks/cancel")) == 1


@pytest.mark.spec("P5")
def test_the_deadline_of_an_observer_or_of_a_caller_who_leaves_the_task_cancels_nothing() -> None:
    bench = ClientBench()
    watching = observe(bench, timeout_ms=2_000)
    leaving = start(bench, timeout_ms=2_000, on_timeout=OnTimeout.LEAVE)
    bench.pass_time(2_000)
    assert bench.outcome(watching) == TimedOut(method="tasks/get", task_id=TaskId("t-1"))
    assert bench.outcome(leaving) == TimedOut(method="tools/call", task_id=TaskId("t-1"))
    assert bench.requests("tasks/cancel") == []


def test_a_task_that_stays_at_questions_that_were_answered_is_polled_at_its_pace_until_the_deadline() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench, wire_handle(pollIntervalMs=200), timeout_ms=2_000)
    asking = {"pollIntervalMs": 200, "status": "input_required", "inputRequests": {"q": question()}}
    keep_answering(bench, 200, **asking)
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q1")))
    bench.answer("tasks/update", {})
    keep_answering(bench, 2_000, **asking)
    assert bench.outcome(operation) == TimedOut(method="tools/call", task_id=TaskId("t-1"), cancel_sent=True)
    assert poll_gaps(bench) == [200] * 9
    assert len(bench.seen(AskInput)) == 1
    assert len(bench.requests("tasks/update")) == 1


def test_input_required_without_a_question_counts_as_working_but_not_for_ever() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(stuck_polls_max=3)))
    operation = start(bench)
    for members in ({}, {"inputRequests": {}}):
        poll_answer(bench, "input_required", **members)
    poll_answer(bench, "working", updated_s=1)
    for members in ({}, {"inputRequests": {}}):
        poll_answer(bench, "input_required", updated_s=2, **members)
    assert bench.outcome(operation) is None
    poll_answer(bench, "input_required", updated_s=2)
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert "3 times in a row" in outcome.reason


# --- questions


@pytest.mark.spec("P3")
def test_each_question_is_asked_once_and_answered_once_in_the_tasks_life() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    asking = {"inputRequests": {"q": question()}}
    for _ in range(3):
        poll_answer(bench, "input_required", **asking)
    assert bench.seen(AskInput) == [
        AskInput(operation_id=operation, key=InputKey("q"), request=question(), task_id=TaskId("t-1"))
    ]
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q4")))
    bench.answer("tasks/update", {})
    for _ in range(3):
        poll_answer(bench, "input_required", **asking)
    poll_answer(bench, "completed", updated_s=5, result=RESULT)
    updates = bench.requests("tasks/update")
    assert [(u["params"]["taskId"], u["params"]["inputResponses"]) for u in updates] == [
        ("t-1", {"q": accept(quarter="Q3")})
    ]
    assert len(bench.seen(AskInput)) == 1


@pytest.mark.spec("P3")
def test_answers_that_come_while_an_update_is_on_its_way_go_together_with_the_next() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    questions = {key: question(key) for key in "abc"}
    poll_answer(bench, "input_required", inputRequests=questions)
    for key in "abc":
        bench.feed(InputAnswered(operation, InputKey(key), accept(**{key: "x"})))
    assert [list(u["params"]["inputResponses"]) for u in bench.requests("tasks/update")] == [["a"]]
    bench.answer("tasks/update", {})
    assert [list(u["params"]["inputResponses"]) for u in bench.requests("tasks/update")] == [["a"], ["b", "c"]]


@pytest.mark.spec("P3")
def test_an_observation_does_not_ask_what_was_answered_elsewhere() -> None:
    bench = ClientBench(ASKING)
    observe(bench, answered=frozenset({InputKey("old")}))
    bench.answer("tasks/get", wire_task("input_required", inputRequests={"old": question(), "new": question()}))
    assert [ask.key for ask in bench.seen(AskInput)] == ["new"]


@pytest.mark.spec("P3")
def test_a_key_with_a_second_meaning_is_reported_and_not_asked() -> None:
    bench = ClientBench(ASKING)
    start(bench)
    poll_answer(bench, "input_required", inputRequests={"q": question("a")})
    poll_answer(bench, "input_required", inputRequests={"q": question("b")})
    assert len(bench.seen(AskInput)) == 1
    assert any("second meaning" in report for report in bench.reports)


def test_a_question_that_disappears_is_withdrawn_and_its_late_answer_dropped() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"a": question("a"), "b": question("b")})
    poll_answer(bench, "input_required", updated_s=1, inputRequests={"b": question("b")})
    poll_answer(bench, "working", updated_s=2)
    assert [withdrawn.key for withdrawn in bench.seen(WithdrawInput)] == ["a", "b"]
    bench.feed(InputAnswered(operation, InputKey("a"), accept(a="x")))
    assert bench.requests("tasks/update") == []
    assert "too late" in bench.reports[-1]


@pytest.mark.spec("P11")
def test_a_task_that_asks_what_was_not_declared_ends_the_watch_and_is_not_answered() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"r": {"method": "roots/list"}})
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert (outcome.task_id, bench.seen(AskInput)) == ("t-1", [])
    assert bench.requests("tasks/cancel") == []


@pytest.mark.spec("P4")
def test_without_anybody_to_answer_the_wait_ends_and_nothing_is_done_in_the_persons_name() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    questions = {"a": question("a"), "b": question("b")}
    poll_answer(bench, "input_required", inputRequests=questions)
    bench.feed(InputUnanswerable(operation, InputKey("a")))
    assert bench.outcome(operation) == InputUnhandled(task_id=TaskId("t-1"), requests=questions)
    assert {message["method"] for message in bench.sent} == {"tools/call", "tasks/get"}


def test_an_answer_that_does_not_fit_is_the_handlers_mistake_and_the_question_stays_open() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"q": question()})
    with pytest.raises(LocalProtocolError, match="'q'"):
        bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter=3)))
    assert bench.requests("tasks/update") == []
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q1")))
    assert len(bench.requests("tasks/update")) == 1


def test_a_server_that_never_stops_asking_new_questions_is_stopped() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    number = 0
    while bench.outcome(operation) is None:
        poll_answer(bench, "input_required", updated_s=number, inputRequests={str(number): question()})
        number += 1
    outcome = bench.outcome(operation)
    assert isinstance(outcome, InvalidResponse)
    assert number == ASKING.limits.inputs_per_task_max + 1


@pytest.mark.spec("P3")
@pytest.mark.parametrize("later", ["working", "completed", "other_question"])
def test_after_a_lost_acknowledgement_a_question_that_is_gone_was_answered(later: str) -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    asking = {"inputRequests": {"q": question()}}
    poll_answer(bench, "input_required", **asking)
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    keep_answering(bench, 11_000, status="input_required", **asking)
    assert bench.outcome(operation) is None
    members: dict[str, Any] = {"updated_s": 1}
    if later == "other_question":
        poll_answer(bench, "input_required", inputRequests={"r": question("r")}, **members)
    else:
        poll_answer(bench, later, **members | ({"result": RESULT} if later == "completed" else {}))
    assert not isinstance(bench.outcome(operation), UnknownOutcome)
    assert len(bench.requests("tasks/update")) == 1


@pytest.mark.spec("P3")
def test_after_a_lost_acknowledgement_a_question_that_stays_means_an_unknown_outcome_and_no_second_sending() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    asking = {"inputRequests": {"q": question()}}
    poll_answer(bench, "input_required", **asking)
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    keep_answering(bench, 60_000, status="input_required", **asking)
    expected = UnknownOutcome(task_id=TaskId("t-1"), method="tasks/update", keys=(InputKey("q"),))
    assert bench.outcome(operation) == expected
    assert len(bench.requests("tasks/update")) == 1
    # One that brought the question, nine while the acknowledgement was awaited, three that still showed the question.
    assert len(bench.requests("tasks/get")) == 1 + 9 + 3


def test_an_update_that_the_server_refuses_ends_the_watch_with_its_error() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"q": question()})
    bench.feed(InputAnswered(operation, InputKey("q"), accept(quarter="Q3")))
    bench.refuse("tasks/update", -32602, "quarter")
    outcome = bench.outcome(operation)
    assert isinstance(outcome, RemoteError)
    assert (outcome.method, outcome.task_id) == ("tasks/update", "t-1")


# --- cancel, detach


@pytest.mark.spec("P1")
def test_after_the_handle_a_cancel_is_tasks_cancel_and_watching_ends_at_its_acknowledgement() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.outcome(operation) is None
    bench.answer("tasks/cancel", {})
    assert bench.outcome(operation) == Cancelled(task_id=TaskId("t-1"), acknowledged=True)
    bench.pass_time(60_000)
    assert [message["method"] for message in bench.sent] == ["tools/call", "tasks/cancel"]


@pytest.mark.spec("X4")
def test_by_choice_the_watch_goes_on_to_the_end_which_may_be_another_one() -> None:
    bench = ClientBench()
    operation = start(bench, timeout_ms=60_000)
    bench.feed(CancelRequested(operation_id=operation, wait_for_end=True))
    bench.answer("tasks/cancel", {})
    poll_answer(bench)
    poll_answer(bench, "completed", updated_s=1, result=RESULT)
    assert bench.outcome(operation) == ToolResult(RESULT, TaskId("t-1"))


def test_a_deadline_after_a_cancel_does_not_send_another_one() -> None:
    bench = ClientBench()
    operation = start(bench, timeout_ms=3_000)
    bench.feed(CancelRequested(operation_id=operation, wait_for_end=True))
    keep_answering(bench, 3_000)
    assert bench.outcome(operation) == TimedOut(method="tools/call", task_id=TaskId("t-1"), cancel_sent=True)
    assert len(bench.requests("tasks/cancel")) == 1


def test_a_cancel_withdraws_the_questions_and_asks_no_new_ones() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"a": question("a")})
    bench.feed(CancelRequested(operation_id=operation, wait_for_end=True))
    assert [withdrawn.key for withdrawn in bench.seen(WithdrawInput)] == ["a"]
    poll_answer(bench, "input_required", updated_s=1, inputRequests={"b": question("b")})
    assert [ask.key for ask in bench.seen(AskInput)] == ["a"]


def test_a_poll_that_was_on_its_way_may_still_bring_the_end_before_the_acknowledgement() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.pass_time(1_000)
    bench.feed(CancelRequested(operation_id=operation))
    bench.answer("tasks/get", wire_task("completed", result=RESULT))
    assert isinstance(bench.outcome(operation), ToolResult)
    bench.answer("tasks/cancel", {})
    assert "given up" in bench.reports[-1]


def test_a_lost_acknowledgement_of_a_cancel_is_an_unknown_outcome_and_it_is_not_sent_again() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.pass_time(60_000)
    assert bench.outcome(operation) == UnknownOutcome(task_id=TaskId("t-1"), method="tasks/cancel")
    assert len(bench.requests("tasks/cancel")) == 1


def test_a_refused_cancel_is_the_servers_error() -> None:
    bench = ClientBench()
    operation = start(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.refuse("tasks/cancel", -32602, "Task not found")
    assert isinstance(bench.outcome(operation), RemoteError)


def test_an_observer_may_cancel_by_asking_for_it() -> None:
    bench = ClientBench()
    operation = observe(bench)
    bench.feed(CancelRequested(operation_id=operation))
    bench.answer("tasks/cancel", {})
    assert bench.outcome(operation) == Cancelled(task_id=TaskId("t-1"), acknowledged=True)


@pytest.mark.spec("P5")
def test_detaching_leaves_the_task_alone_and_says_what_was_answered() -> None:
    bench = ClientBench(ASKING)
    operation = start(bench)
    poll_answer(bench, "input_required", inputRequests={"a": question("a"), "b": question("b")})
    bench.feed(InputAnswered(operation, InputKey("a"), accept(a="x")))
    bench.feed(DetachRequested(operation))
    assert bench.outcome(operation) == DetachedFromTask(TaskId("t-1"), frozenset({InputKey("a")}))
    bench.pass_time(60_000)
    assert bench.requests("tasks/cancel") == []
    assert len(bench.requests("tasks/get")) == 1


@pytest.mark.spec("P1")
def test_an_observation_polls_at_once_and_keeps_the_interval_from_then_on() -> None:
    bench = ClientBench()
    operation = observe(bench)
    assert len(bench.requests("tasks/get")) == 1
    bench.answer("tasks/get", wire_task(pollIntervalMs=400))
    poll_answer(bench, "completed", wait_ms=400, result=RESULT)
    assert bench.outcome(operation) == ToolResult(RESULT, TaskId("t-1"))


@pytest.mark.parametrize("task_id", ["", 5, None, "\ud800"])
def test_a_task_id_that_cannot_be_is_a_local_mistake(task_id: Any) -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError):
        bench.feed(ObservationStarted(operation_id=OperationId(1), task_id=task_id))
    assert bench.protocol.open_operations == {}


def test_those_who_debug_see_what_is_waited_for() -> None:
    bench = ClientBench()
    first, second = start(bench), observe(bench)
    assert bench.protocol.open_operations == {first: "task t-1", second: "task t-1"}
