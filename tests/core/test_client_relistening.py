"""Subscriptions of a client whose streams end too early: what it reads, when it listens again, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client_listens import (
    ACKNOWLEDGED,
    CANCELLED,
    HTTP,
    LIMITS,
    LISTEN,
    RESOURCE_UPDATED,
    RESULT,
    T1,
    TOOLS_CHANGED,
    asked,
    assert_over_for_good,
    cut,
    listen,
    server_cancels,
    shown,
    state,
)
from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import (
    ListChangeObserved,
    ListenAcknowledged,
    OperationEnded,
    ResourceUpdateObserved,
    TaskDropped,
)
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ConnectionLost,
    ListKind,
    OperationId,
    RequestSubmitted,
    StreamEnded,
)
from mcp_tasks_core.client.outcomes import (
    Answered,
    Cancelled,
    Disconnected,
    InvalidResponse,
    ListenEnded,
    NoSubscriptions,
    RemoteError,
    UnsupportedVersion,
)
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.testing.client import ClientBench, wire_task

# --- ends by the server and by accident


@pytest.mark.spec("P7", "D22", "I6")
@pytest.mark.parametrize("how", ["cancelled", "cut", "result", "result and cancelled"])
def test_after_any_end_that_comes_too_early_tasks_are_read_and_listened_to_again_under_a_new_id(how: str) -> None:
    bench = ClientBench(HTTP if how == "cut" else None)
    operation = listen(bench, "t-1", "t-2", tools=True)
    bench.acknowledge()
    state(bench)
    state(bench, "completed", taskId="t-2")
    if how.startswith("result"):
        bench.end_listen()
    if how.endswith("cancelled"):
        server_cancels(bench)
    if how == "cut":
        cut(bench)
    assert [read["params"]["taskId"] for read in bench.requests("tasks/get")] == ["t-1"]
    bench.answer("tasks/get", wire_task(updated_s=1))
    bench.pass_time(LIMITS.listen_backoff_ms - 1)
    assert len(bench.requests(LISTEN)) == 1
    bench.pass_time(1)
    first, second = bench.requests(LISTEN)
    assert second["id"] != first["id"]
    assert asked(bench) == {"toolsListChanged": True, "taskIds": ["t-1"]}
    bench.acknowledge()
    assert bench.seen(ListChangeObserved) == [ListChangeObserved(operation, ListKind.TOOLS)]
    state(bench, "completed", updated_s=2)
    assert shown(bench, operation)[-1] == ("t-1", "completed")
    assert bench.outcome(operation) is None


@pytest.mark.spec("P7")
def test_an_end_that_happened_while_the_stream_was_cut_is_not_missed() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    cut(bench)
    bench.answer("tasks/get", wire_task("completed", result=RESULT))
    assert shown(bench, operation) == [("t-1", "completed")]
    assert isinstance(bench.outcome(operation), ListenEnded)
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P7")
def test_what_may_have_changed_while_nobody_listened_is_told() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, prompts=True, resource_uris=("file:///a", "file:///b"))
    bench.acknowledge(promptsListChanged=True, resourceSubscriptions=["file:///b"])
    assert bench.seen(ListChangeObserved) == []
    cut(bench)
    bench.pass_time(LIMITS.listen_backoff_ms)
    bench.acknowledge(promptsListChanged=True, resourceSubscriptions=["file:///b"])
    assert bench.seen(ListChangeObserved) == [ListChangeObserved(operation, ListKind.PROMPTS)]
    assert bench.seen(ResourceUpdateObserved) == [ResourceUpdateObserved(operation, "file:///b")]


@pytest.mark.spec("P7")
def test_a_task_that_is_gone_when_it_is_listened_to_again_is_told_by_the_acknowledgement() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    cut(bench)
    bench.refuse("tasks/get", -32603, "busy")
    assert bench.outcome(operation) is None
    bench.pass_time(LIMITS.listen_backoff_ms)
    bench.acknowledge(taskIds=[])
    assert bench.seen(ListenAcknowledged)[-1].not_agreed == ("t-1",)
    assert bench.seen(TaskDropped) == [TaskDropped(operation, T1)]
    assert bench.outcome(operation) == ListenEnded(tasks=(), not_agreed=(T1,))


def next_listen(bench: ClientBench) -> int:
    """Let time pass up to the next listen; how long that took."""
    before, begun_ms = len(bench.requests(LISTEN)), bench.now_ms
    while len(bench.requests(LISTEN)) == before:
        assert bench.protocol.deadline is not None
        bench.pass_time(bench.protocol.deadline - bench.now_ms)
    return bench.now_ms - begun_ms


def fail_listens(bench: ClientBench, operation: OperationId, fail: Callable[[ClientBench], object] = cut) -> list[int]:
    """End every listen at once until it is given up; the waits between them."""
    waits: list[int] = []
    while True:
        fail(bench)
        if bench.outcome(operation) is not None:
            return waits
        waits.append(next_listen(bench))


@pytest.mark.spec("P7")
def test_listens_that_bring_nothing_are_repeated_ever_more_slowly_and_not_for_ever() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, tools=True)
    waits = fail_listens(bench, operation)
    assert waits == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max
    assert bench.outcome(operation) == Disconnected(reason="the connection ended")
    assert_over_for_good(bench)


@pytest.mark.spec("P7")
def test_random_numbers_of_the_caller_take_up_to_half_of_each_wait() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, tools=True, jitter_permille=1_000)
    assert fail_listens(bench, operation)[:3] == [250, 500, 1_000]


@pytest.mark.spec("P7")
def test_a_listen_that_brought_a_new_state_is_no_failure_and_yet_short_streams_are_asked_for_ever_more_slowly() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    gaps = []
    for second in range(LIMITS.listen_failures_max * 3):
        bench.acknowledge()
        state(bench, updated_s=second)
        cut(bench)
        bench.answer("tasks/get", wire_task(updated_s=second))
        gaps.append(next_listen(bench))
    assert bench.outcome(operation) is None
    assert gaps[:8] == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


@pytest.mark.spec("P7")
@pytest.mark.parametrize("how", ["cut", "result"])
def test_what_is_told_of_no_task_does_not_start_the_budget_anew(how: str) -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, tools=True, resource_uris=("file:///a",))

    def tell_and_end(bench: ClientBench) -> None:
        bench.acknowledge()
        bench.tell(TOOLS_CHANGED)
        bench.tell(RESOURCE_UPDATED, uri="file:///a")
        if how == "cut":
            cut(bench)
        else:
            bench.end_listen()

    assert fail_listens(bench, operation, tell_and_end) == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
    assert_over_for_good(bench)


@pytest.mark.spec("P7", "D22")
def test_short_streams_that_end_in_good_order_are_no_failure_while_the_tasks_can_be_read() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    gaps = []
    for _ in range(LIMITS.listen_failures_max * 3):
        bench.acknowledge()
        bench.end_listen()
        bench.answer("tasks/get", wire_task(pollIntervalMs=3_000))
        gaps.append(next_listen(bench))
    assert bench.outcome(operation) is None
    assert gaps == [500] + [3_000] * (len(gaps) - 1)
    assert bench.warnings == []


@pytest.mark.spec("P7", "D22")
def test_short_streams_that_end_in_good_order_are_failures_when_no_task_can_be_read_either() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")

    def end_at_once(bench: ClientBench) -> None:
        bench.acknowledge()
        bench.end_listen()
        if bench.outcome(operation) is None:
            bench.refuse("tasks/get", -32603, "no")

    fail_listens(bench, operation, end_at_once)
    assert bench.outcome(operation) == Disconnected(reason="the server ended the subscription")
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max


def test_a_loss_is_told_once_however_many_attempts_it_takes_and_so_is_its_end() -> None:
    bench = ClientBench(HTTP)
    listen(bench, "t-1")
    bench.acknowledge()
    state(bench)
    cut(bench)
    for _ in range(3):
        bench.feed(StreamEnded(CallId(bench.requests("tasks/get")[-1]["id"]), "no route"))
        next_listen(bench)
        cut(bench)
    assert bench.warnings == ["lost the subscription, retrying: the connection ended"]
    assert len(bench.reports) > 6
    bench.feed(StreamEnded(CallId(bench.requests("tasks/get")[-1]["id"]), "no route"))
    next_listen(bench)
    bench.acknowledge()
    assert bench.warnings[1:] == ["listening again"]
    cut(bench)
    bench.answer("tasks/get", wire_task())
    next_listen(bench)
    bench.acknowledge()
    assert len(bench.warnings) == 2, "what does not last is not told time and again"
    bench.pass_time(LIMITS.listen_steady_ms)
    cut(bench)
    assert bench.warnings[2:] == ["lost the subscription, retrying: the connection ended"]


@pytest.mark.spec("P7")
def test_an_acknowledgement_alone_does_not_start_the_budget_anew() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, tools=True)
    for wait_ms in (500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000):
        bench.acknowledge()
        cut(bench)
        bench.pass_time(wait_ms)
    bench.acknowledge()
    cut(bench)
    assert isinstance(bench.outcome(operation), Disconnected)
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max


@pytest.mark.spec("P7", "D22")
def test_a_server_that_limits_how_long_a_subscription_lasts_is_listened_to_for_ever() -> None:
    bench = ClientBench()
    operation = listen(bench, tools=True)
    for _ in range(LIMITS.listen_failures_max * 3):
        bench.acknowledge()
        bench.pass_time(LIMITS.listen_steady_ms)
        bench.end_listen()
        bench.pass_time(LIMITS.listen_backoff_ms)
    assert bench.outcome(operation) is None
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max * 3 + 1
    assert bench.warnings == []


def test_a_server_that_ends_every_subscription_at_once_is_given_up() -> None:
    bench = ClientBench()
    operation = listen(bench, tools=True)

    def end_at_once(bench: ClientBench) -> None:
        bench.acknowledge()
        bench.end_listen()

    fail_listens(bench, operation, end_at_once)
    assert bench.warnings[0] == "lost the subscription, retrying: the server ended the subscription"
    assert bench.outcome(operation) == Disconnected(reason="the server ended the subscription")
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max


def test_a_listen_that_is_not_acknowledged_in_time_after_others_were_is_repeated() -> None:
    bench = ClientBench()
    operation = listen(bench, tools=True)
    bench.acknowledge()
    server_cancels(bench)
    bench.pass_time(LIMITS.listen_backoff_ms + LIMITS.listen_ack_timeout_ms)
    assert bench.outcome(operation) is None
    bench.pass_time(2 * LIMITS.listen_backoff_ms)
    assert len(bench.requests(LISTEN)) == 3


def test_a_cancel_while_it_waits_to_listen_again_ends_it() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    cut(bench)
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.outcome(operation) == Cancelled()
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("I2")
@pytest.mark.parametrize("request_id", [99, "1", None, 1.0, [1], True, {}])
def test_a_cancelled_notification_that_names_no_subscription_is_ignored(request_id: Any) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.receive({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": request_id}})
    assert bench.outcome(operation) is None
    assert bench.requests("tasks/get") == []


@pytest.mark.spec("I2")
def test_a_server_cannot_cancel_anything_but_a_subscription() -> None:
    bench = ClientBench()
    operation = bench.next_operation()
    bench.feed(RequestSubmitted(operation_id=operation, method="ping"))
    bench.receive({"jsonrpc": "2.0", "method": CANCELLED, "params": {"requestId": 1}})
    bench.answer("ping", {})
    assert isinstance(bench.outcome(operation), Answered)


@pytest.mark.spec("D22")
def test_a_result_that_comes_behind_the_cancelled_notification_is_ignored() -> None:
    bench = ClientBench()
    operation = listen(bench, tools=True)
    bench.acknowledge()
    server_cancels(bench)
    bench.end_listen()
    assert bench.outcome(operation) is None
    bench.pass_time(LIMITS.listen_backoff_ms)
    bench.acknowledge()
    assert len(bench.seen(ListenAcknowledged)) == 2


# --- reads


@pytest.mark.spec("P7")
def test_reads_are_bounded_and_the_next_listen_waits_for_them() -> None:
    bench = ClientBench(ClientConfig(client_limits=ClientLimits(listen_reads_max=2)))
    names = [f"t-{number}" for number in range(5)]
    operation = listen(bench, *names)
    bench.acknowledge()
    server_cancels(bench)
    bench.pass_time(5_000)
    assert len(bench.requests(LISTEN)) == 1
    for _ in range(10):
        for read in bench.requests("tasks/get"):
            result = {"resultType": "complete", **wire_task(taskId=read["params"]["taskId"])}
            bench.receive({"jsonrpc": "2.0", "id": read["id"], "result": result})
    assert [read["params"]["taskId"] for read in bench.requests("tasks/get")] == names
    assert len(bench.requests(LISTEN)) == 2
    assert len(shown(bench, operation)) == 5


@pytest.mark.spec("P7")
@pytest.mark.parametrize("how", ["silence", "cut"])
def test_when_a_read_gets_no_answer_the_others_are_left_to_the_next_listen(how: str) -> None:
    limits = ClientLimits(listen_reads_max=1)
    bench = ClientBench(ClientConfig(transport=TransportKind.PER_REQUEST, client_limits=limits))
    operation = listen(bench, "t-1", "t-2", "t-3")
    bench.acknowledge()
    cut(bench)
    if how == "silence":
        bench.pass_time(limits.task_request_timeout_ms)
    else:
        bench.feed(StreamEnded(CallId(bench.requests("tasks/get")[-1]["id"]), "no route"))
        bench.pass_time(limits.listen_backoff_ms)
    assert len(bench.requests("tasks/get")) == 1
    assert len(bench.requests(LISTEN)) == 2
    assert bench.outcome(operation) is None


@pytest.mark.spec("P6")
@pytest.mark.parametrize("result", [wire_task(taskId="t-9"), {"taskId": "t-1"}, wire_task(ttlMs="x")])
def test_a_read_that_makes_no_sense_is_a_fault(result: JSONObject) -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    cut(bench)
    bench.answer("tasks/get", result)
    assert isinstance(bench.outcome(operation), InvalidResponse)
    assert_over_for_good(bench)


def test_a_read_that_is_older_than_what_was_pushed_meanwhile_is_dropped() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1", tools=True)
    bench.acknowledge()
    bench.pass_time(LIMITS.listen_snapshot_ms)
    state(bench, "completed", updated_s=9)
    bench.answer("tasks/get", wire_task(updated_s=1))
    assert shown(bench, operation) == [("t-1", "completed")]


# --- refusals


@pytest.mark.spec("P6")
def test_a_server_without_subscriptions_is_told_from_every_other_refusal() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.refuse(LISTEN, -32601, "Method not found")
    assert bench.outcome(operation) == NoSubscriptions(message="Method not found")
    assert_over_for_good(bench)


@pytest.mark.spec("P6")
@pytest.mark.parametrize("data", [None, {"retryable": False}, {"retryable": "true"}, ["retryable"]])
def test_an_error_is_not_retried(data: Any) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.refuse(LISTEN, -32603, "no", data)
    assert bench.outcome(operation) == RemoteError(code=-32603, message="no", data=data, method=LISTEN)
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P7")
def test_an_error_that_says_so_is_retried_within_the_budget() -> None:
    bench = ClientBench()
    operation = listen(bench, tools=True)
    fail_listens(bench, operation, lambda bench: bench.refuse(LISTEN, -32603, "busy", {"retryable": True}))
    assert isinstance(bench.outcome(operation), RemoteError)
    assert len(bench.requests(LISTEN)) == LIMITS.listen_failures_max


@pytest.mark.spec("P7")
def test_an_internal_error_is_retried_within_the_budget_where_the_server_had_agreed_before() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, tools=True)
    bench.acknowledge()
    cut(bench)
    next_listen(bench)
    bench.refuse(LISTEN, -32603, "starting")
    assert bench.outcome(operation) is None
    next_listen(bench)
    bench.acknowledge()
    bench.pass_time(LIMITS.listen_steady_ms)
    cut(bench)
    next_listen(bench)
    fail_listens(bench, operation, lambda bench: bench.refuse(LISTEN, -32603, "starting"))
    assert isinstance(bench.outcome(operation), RemoteError)
    assert_over_for_good(bench)


def test_an_error_after_the_acknowledgement_is_not_taken_for_a_server_without_subscriptions() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.refuse(LISTEN, -32601, "no")
    assert isinstance(bench.outcome(operation), RemoteError)


def test_a_stream_that_was_refused_is_not_asked_for_again() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    cut(bench, refused=True, cause="401")
    assert bench.outcome(operation) == Disconnected(reason="the connection ended", cause="401")
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


def test_an_unreadable_answer_is_a_fault() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.receive({"jsonrpc": "2.0", "id": 1, "result": []})
    assert isinstance(bench.outcome(operation), InvalidResponse)


def test_another_version_is_tried_once_and_the_subscription_goes_by_the_newer_id() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    version = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
    bench.refuse(LISTEN, -32022, "version", version)
    assert len(bench.requests(LISTEN)) == 2
    bench.acknowledge()
    state(bench, "completed")
    assert isinstance(bench.outcome(operation), ListenEnded)
    other = listen(bench, "t-1")
    for _ in range(2):
        bench.refuse(LISTEN, -32022, "version", version)
    assert isinstance(bench.outcome(other), UnsupportedVersion)


def test_every_subscription_ends_exactly_once() -> None:
    bench = ClientBench()
    operations = [listen(bench, "t-1"), listen(bench, "t-1"), listen(bench, tools=True)]
    for subscription in (1, 2, 3):
        agreed = {"toolsListChanged": True} if subscription == 3 else {"taskIds": ["t-1"]}
        bench.tell(ACKNOWLEDGED, subscription=subscription, notifications=agreed)
    state(bench, "completed", subscription=1)
    bench.feed(CancelRequested(operation_id=operations[1]))
    state(bench, "completed", subscription=2)
    bench.feed(ConnectionLost(reason="gone"))
    ends = [end.operation_id for end in bench.seen(OperationEnded)]
    assert sorted(ends) == sorted(operations)
