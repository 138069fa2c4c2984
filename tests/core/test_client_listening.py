"""Subscriptions of a client: what it asks for, what it believes, and how it ends them."""

from __future__ import annotations

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
    T2,
    TASKS,
    TOOLS_CHANGED,
    asked,
    assert_over_for_good,
    invalid,
    listen,
    server_cancels,
    shown,
    state,
)
from mcp_tasks_core.capabilities import META_CLIENT_CAPABILITIES, META_SUBSCRIPTION_ID, TASKS_EXTENSION
from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.client.effects import (
    CloseStream,
    ListChangeObserved,
    ListenAcknowledged,
    ResourceUpdateObserved,
)
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ConnectionLost,
    DetachRequested,
    ListenStarted,
    ListKind,
    RequestSubmitted,
)
from mcp_tasks_core.client.outcomes import (
    Answered,
    Cancelled,
    Disconnected,
    InvalidResponse,
    ListenEnded,
    NotAcknowledged,
    TimedOut,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.testing.client import ClientBench, wire_task
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter

# --- what is asked for


@pytest.mark.spec("P10", "S9")
def test_a_listen_with_tasks_declares_the_extension_and_mixes_with_other_kinds() -> None:
    bench = ClientBench()
    listen(bench, "t-1", "t-2", tools=True, prompts=True, resources=True, resource_uris=("file:///a",))
    assert asked(bench) == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["file:///a"],
        "taskIds": ["t-1", "t-2"],
    }
    declared = bench.requests(LISTEN)[-1]["params"]["_meta"][META_CLIENT_CAPABILITIES]
    assert TASKS_EXTENSION in declared["extensions"]


def test_a_listen_without_tasks_declares_no_more_than_the_client_does() -> None:
    bench = ClientBench()
    listen(bench, tools=True)
    assert asked(bench) == {"toolsListChanged": True}
    assert bench.requests(LISTEN)[-1]["params"]["_meta"][META_CLIENT_CAPABILITIES] == {}


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "at least one of"),
        ({"task_ids": ["t-1"]}, "task_ids is a tuple of strings of 1 to 1024 characters"),
        ({"task_ids": (1,)}, "task_ids is a tuple of strings"),
        ({"task_ids": ("",)}, "task_ids is a tuple of strings"),
        ({"task_ids": ("x" * 1_025,)}, "1 to 1024 characters"),
        ({"task_ids": ("a", "a")}, "task_ids holds a name twice"),
        ({"task_ids": tuple(str(i) for i in range(1_001))}, "task_ids holds 1001 names; one subscription takes 1000"),
        ({"resource_uris": ("x" * 2_049,)}, "resource_uris is a tuple of strings of 1 to 2048 characters"),
        ({"tools": True, "timeout_ms": 0}, "timeout_ms is an integer of 1 or more"),
        ({"tools": True, "jitter_permille": 1_001}, "jitter_permille is an integer from 0 to 1,000"),
        ({"task_ids": ("\ud800",)}, "the params of subscriptions/listen cannot be sent"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_changes_nothing(members: dict[str, Any], says: str) -> None:
    bench = ClientBench()
    with pytest.raises(LocalProtocolError, match=says):
        bench.feed(ListenStarted(operation_id=bench.next_operation(), **members))
    assert bench.sent == []
    assert_over_for_good(bench)


def test_as_many_tasks_as_the_limit_allows_can_be_watched() -> None:
    bench = ClientBench()
    listen(bench, *(str(number) for number in range(1_000)))
    assert len(asked(bench)["taskIds"]) == 1_000


# --- acknowledgement and states


@pytest.mark.spec("P6", "S1", "S2")
def test_states_are_shown_as_they_come_up_to_the_last_end() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", "t-2")
    bench.acknowledge()
    agreed = SubscriptionFilter(task_ids=(T1, T2))
    assert bench.seen(ListenAcknowledged) == [ListenAcknowledged(operation_id=operation, agreed=agreed)]
    state(bench)
    state(bench, "input_required", taskId="t-2", updated_s=1, inputRequests={})
    state(bench, "completed", updated_s=2)
    assert bench.outcome(operation) is None
    state(bench, "cancelled", taskId="t-2", updated_s=3)
    assert shown(bench, operation) == [
        ("t-1", "working"),
        ("t-2", "input_required"),
        ("t-1", "completed"),
        ("t-2", "cancelled"),
    ]
    outcome = bench.outcome(operation)
    assert isinstance(outcome, ListenEnded)
    assert [task.task_id for task in outcome.tasks] == ["t-1", "t-2"]


def test_list_changes_and_resource_updates_are_passed_on_and_need_no_end() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", tools=True, resource_uris=("file:///a",))
    bench.acknowledge()
    bench.tell(TOOLS_CHANGED)
    bench.tell(RESOURCE_UPDATED, uri="file:///a")
    bench.tell(RESOURCE_UPDATED, uri="file:///a/part")
    state(bench, "completed")
    bench.tell(TOOLS_CHANGED)
    assert bench.seen(ListChangeObserved) == [ListChangeObserved(operation, ListKind.TOOLS)] * 2
    updated = [update.uri for update in bench.seen(ResourceUpdateObserved)]
    assert updated == ["file:///a", "file:///a/part"]
    assert bench.outcome(operation) is None


@pytest.mark.spec("D44", "P6")
def test_a_state_that_was_shown_is_not_shown_again_and_an_older_one_never() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", tools=True)
    bench.acknowledge()
    state(bench, updated_s=5, statusMessage="new")
    state(bench, updated_s=5, statusMessage="new")
    state(bench, updated_s=4, statusMessage="old")
    state(bench, "completed", updated_s=6)
    state(bench, "completed", updated_s=6)
    state(bench, updated_s=7)
    assert shown(bench, operation) == [("t-1", "working"), ("t-1", "completed")]
    assert bench.outcome(operation) is None
    assert "a sighting older than the newest one was dropped" in bench.reports[-1]


@pytest.mark.spec("P6")
def test_a_task_that_ends_in_two_ways_is_a_fault() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", tools=True)
    bench.acknowledge()
    state(bench, "completed")
    state(bench, "cancelled", updated_s=1)
    assert "was completed at first and is cancelled now" in invalid(bench.outcome(operation))


@pytest.mark.spec("S7")
def test_tasks_that_are_not_agreed_to_are_told_and_are_no_fault() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", "gone", "foreign")
    bench.acknowledge(taskIds=["t-1"])
    [acknowledged] = bench.seen(ListenAcknowledged)
    assert acknowledged.not_agreed == ("gone", "foreign")
    state(bench, "completed")
    outcome = bench.outcome(operation)
    assert isinstance(outcome, ListenEnded)
    assert outcome.not_agreed == ("gone", "foreign")


@pytest.mark.spec("S7", "P6")
@pytest.mark.parametrize("agreed", [{"taskIds": []}, {"toolsListChanged": False}])
def test_an_acknowledgement_of_nothing_ends_it_and_asks_nothing_more(agreed: dict[str, Any]) -> None:
    bench = ClientBench()
    operation = listen(bench, "gone", tools=True)
    bench.acknowledge(**agreed)
    assert bench.outcome(operation) == ListenEnded(tasks=(), not_agreed=(TaskId("gone"),))
    bench.end_listen()
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


# --- what a server may not send


WRONG_IDS: list[Any] = ["1", 1.0, 2, True, [1]]


@pytest.mark.spec("P6", "S1")
@pytest.mark.parametrize("config", [ClientConfig(), HTTP])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        (TASKS, wire_task()),
        (TOOLS_CHANGED, {}),
        (RESOURCE_UPDATED, {"uri": "file:///a"}),
        ("notifications/something", {}),
    ],
)
def test_a_notification_before_the_acknowledgement_is_one_fault(
    config: ClientConfig, method: str, params: dict[str, Any]
) -> None:
    bench = ClientBench(config)
    operation = listen(bench, "t-1", tools=True, resource_uris=("file:///a",))
    bench.tell(method, **params)
    assert invalid(bench.outcome(operation)) == "a notification came before the acknowledgement"
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P6", "S1", "S5")
@pytest.mark.parametrize("config", [ClientConfig(), HTTP])
def test_a_bare_result_without_an_acknowledgement_is_one_fault_and_is_not_retried(config: ClientConfig) -> None:
    bench = ClientBench(config)
    operation = listen(bench, "t-1")
    bench.end_listen()
    assert "before it was acknowledged" in invalid(bench.outcome(operation))
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P6", "S1")
@pytest.mark.parametrize(
    ("agreed", "says"),
    [
        ({"taskIds": ["t-1", "t-9"]}, 'it agrees to "t-9" in taskIds'),
        ({"promptsListChanged": True}, "it agrees to promptsListChanged"),
        ({"resourceSubscriptions": ["file:///b"]}, 'it agrees to "file:///b" in resourceSubscriptions'),
        ({"taskIds": "t-1"}, "taskIds"),
        ({"taskIds": [1]}, "taskIds"),
        ({"toolsListChanged": 1}, "toolsListChanged"),
    ],
)
def test_what_is_agreed_to_is_a_subset_of_what_was_asked_for(agreed: dict[str, Any], says: str) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", tools=True, resource_uris=("file:///a",))
    bench.acknowledge(**agreed)
    assert says in invalid(bench.outcome(operation))
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P6", "S1")
def test_a_second_acknowledgement_is_a_fault() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.acknowledge()
    assert invalid(bench.outcome(operation)) == "the subscription was acknowledged twice"


@pytest.mark.spec("P6", "S1", "S4")
@pytest.mark.parametrize(
    ("method", "params", "says"),
    [
        (TASKS, wire_task(taskId="t-2"), "a state of task 't-2', which was not agreed to"),
        (TASKS, wire_task(status="paused"), "params.status"),
        (TASKS, {"taskId": "t-1"}, "params.status"),
        (TASKS, wire_task(ttlMs=-1), "params.ttlMs"),
        (TASKS, wire_task(status="completed"), "result"),
        (TASKS, {"task": wire_task()}, "params.status"),
        (TOOLS_CHANGED, {}, "a change of the list of tools, which was not agreed to"),
        (RESOURCE_UPDATED, {"uri": "file:///a"}, "an update of a resource, and none was agreed to"),
        (RESOURCE_UPDATED, {"uri": 1}, "params.uri is a string"),
        (ACKNOWLEDGED, {}, "notifications"),
    ],
)
def test_what_was_not_agreed_to_or_makes_no_sense_is_a_fault(method: str, params: JSONObject, says: str) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", "t-2", tools=True)
    bench.acknowledge(taskIds=["t-1"])
    bench.tell(method, **params)
    assert says in invalid(bench.outcome(operation))
    assert shown(bench, operation) == []
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.spec("P6", "S6")
@pytest.mark.parametrize("config", [ClientConfig(), HTTP])
def test_a_server_that_broke_the_protocol_is_told_that_nobody_listens_any_more(config: ClientConfig) -> None:
    bench = ClientBench(config)
    listen(bench, "t-1")
    bench.acknowledge()
    state(bench, taskId="t-9")
    if config.transport is TransportKind.SHARED:
        assert [told["params"]["requestId"] for told in bench.requests(CANCELLED)] == [1]
    else:
        assert bench.seen(CloseStream) == [CloseStream(CallId(1))]


@pytest.mark.spec("P6", "S2")
@pytest.mark.parametrize("wrong", WRONG_IDS)
def test_over_http_every_message_of_the_stream_carries_the_id_in_its_json_type(wrong: Any) -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    state(bench, subscription=wrong)
    assert "where the listen request's id, 1, belongs" in invalid(bench.outcome(operation))


@pytest.mark.spec("P6", "S2")
def test_over_http_a_message_of_the_stream_without_the_id_is_a_fault() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    params = {"notifications": {"taskIds": ["t-1"]}}
    bench.receive({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params}, stream=1)
    assert "is missing" in invalid(bench.outcome(operation))


@pytest.mark.spec("P6", "S2")
@pytest.mark.parametrize("wrong", ["1", 1.0])
def test_on_a_shared_channel_an_id_of_another_json_type_is_a_fault(wrong: Any) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.tell(ACKNOWLEDGED, subscription=wrong, notifications={"taskIds": ["t-1"]})
    assert "where the listen request's id, 1, belongs" in invalid(bench.outcome(operation))


@pytest.mark.spec("P6", "S2")
@pytest.mark.parametrize("meta", [{}, {META_SUBSCRIPTION_ID: "1"}, {META_SUBSCRIPTION_ID: 7}])
def test_the_result_carries_the_id_too(meta: dict[str, Any]) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.answer(LISTEN, {"_meta": meta})
    assert "where the listen request's id, 1, belongs" in invalid(bench.outcome(operation))


def test_a_lenient_client_takes_a_result_without_the_id() -> None:
    bench = ClientBench(ClientConfig(lenient=True))
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.answer(LISTEN, {})
    assert bench.outcome(operation) is None


@pytest.mark.spec("P6")
def test_an_unknown_kind_of_notification_is_ignored_with_a_report() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.tell("notifications/something", more=1)
    assert bench.outcome(operation) is None
    assert "'notifications/something', was ignored" in bench.reports[-1]


# --- several at once


@pytest.mark.spec("S9", "S2")
def test_subscriptions_on_one_channel_are_kept_apart_by_their_ids() -> None:
    bench = ClientBench()
    first, second = listen(bench, "t-1"), listen(bench, "t-1", "t-2")
    bench.tell(ACKNOWLEDGED, subscription=2, notifications={"taskIds": ["t-1", "t-2"]})
    state(bench, subscription=2)
    bench.tell(ACKNOWLEDGED, subscription=1, notifications={"taskIds": ["t-1"]})
    state(bench, subscription=1, updated_s=1)
    state(bench, "completed", subscription=1, updated_s=2)
    assert shown(bench, first) == [("t-1", "working"), ("t-1", "completed")]
    assert shown(bench, second) == [("t-1", "working")]
    assert isinstance(bench.outcome(first), ListenEnded)
    assert bench.outcome(second) is None


@pytest.mark.spec("S9", "P6")
def test_a_fault_on_one_subscription_hurts_no_other() -> None:
    bench = ClientBench()
    first, second = listen(bench, "t-1"), listen(bench, "t-2")
    bench.acknowledge()
    bench.tell(TASKS, subscription=1, **wire_task())
    assert isinstance(bench.outcome(first), InvalidResponse)
    state(bench, "completed", taskId="t-2")
    assert isinstance(bench.outcome(second), ListenEnded)


@pytest.mark.spec("S9")
@pytest.mark.parametrize("subscription", [99, "abc", 3, [1], {"id": 1}, "9" * 30])
def test_messages_for_no_open_subscription_are_ignored_with_a_report(subscription: Any) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    other = bench.next_operation()
    bench.feed(RequestSubmitted(operation_id=other, method="ping"))
    state(bench, subscription=subscription)
    assert (bench.outcome(operation), bench.outcome(other)) == (None, None)
    assert "for no subscription that is open was ignored" in bench.reports[-1]
    bench.answer("ping", {})
    assert isinstance(bench.outcome(other), Answered)


@pytest.mark.spec("S9")
def test_a_notification_without_an_id_is_nobodys_on_a_shared_channel() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.receive({"jsonrpc": "2.0", "method": TASKS, "params": wire_task()})
    assert shown(bench, operation) == []
    assert bench.outcome(operation) is None


def test_over_http_a_message_of_a_subscription_on_another_stream_is_ignored() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.feed(RequestSubmitted(operation_id=bench.next_operation(), method="ping"))
    told = {"_meta": {META_SUBSCRIPTION_ID: 1}, **wire_task()}
    bench.receive({"jsonrpc": "2.0", "method": TASKS, "params": told}, stream=2)
    assert shown(bench, operation) == []
    assert bench.outcome(operation) is None


# --- ends by the caller and by themselves


@pytest.mark.spec("S6")
def test_on_a_shared_channel_a_cancel_names_the_listen_and_nothing_else_is_sent() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.outcome(operation) == Cancelled()
    assert [message["method"] for message in bench.sent] == [LISTEN, CANCELLED]
    assert bench.sent[-1]["params"]["requestId"] == bench.sent[0]["id"]
    state(bench, updated_s=1)
    bench.end_listen()
    assert shown(bench, operation) == []
    assert_over_for_good(bench)


@pytest.mark.spec("S6")
def test_over_http_a_cancel_closes_the_stream_and_sends_nothing() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.feed(CancelRequested(operation_id=operation))
    assert bench.outcome(operation) == Cancelled()
    assert bench.seen(CloseStream) == [CloseStream(CallId(1))]
    assert [message["method"] for message in bench.sent] == [LISTEN]


@pytest.mark.spec("S6", "P5")
def test_a_deadline_of_the_caller_ends_the_listen_and_leaves_the_task_alone() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", timeout_ms=5_000)
    bench.acknowledge()
    state(bench)
    bench.pass_time(5_000)
    assert bench.outcome(operation) == TimedOut(method=LISTEN)
    assert bench.requests("tasks/cancel") == []
    assert len(bench.requests(CANCELLED)) == 1


def test_a_subscription_cannot_be_detached_from() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    with pytest.raises(LocalProtocolError, match="it can be cancelled"):
        bench.feed(DetachRequested(operation))


@pytest.mark.spec("S5", "S6", "D22")
def test_when_all_has_ended_the_server_may_end_it_in_good_order() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    state(bench, "completed")
    assert isinstance(bench.outcome(operation), ListenEnded)
    bench.end_listen()
    server_cancels(bench)
    bench.pass_time(60_000)
    assert bench.requests(CANCELLED) == []
    assert_over_for_good(bench)


@pytest.mark.spec("S6")
@pytest.mark.parametrize("config", [ClientConfig(), HTTP])
def test_when_all_has_ended_and_the_server_goes_on_the_client_ends_it(config: ClientConfig) -> None:
    bench = ClientBench(config)
    listen(bench, "t-1")
    bench.acknowledge()
    state(bench, "completed")
    state(bench, "completed", statusMessage="still here")
    bench.pass_time(LIMITS.listen_end_ms - 1)
    assert (bench.requests(CANCELLED), bench.seen(CloseStream)) == ([], [])
    bench.pass_time(1)
    if config.transport is TransportKind.SHARED:
        assert [told["params"]["requestId"] for told in bench.requests(CANCELLED)] == [1]
    else:
        assert bench.seen(CloseStream) == [CloseStream(CallId(1))]
    assert_over_for_good(bench)


@pytest.mark.spec("I6")
def test_a_lost_connection_ends_it_with_what_is_known() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.feed(ConnectionLost(reason="gone", exit_status=3, stderr_tail="out of cheese"))
    assert bench.outcome(operation) == Disconnected(reason="gone", exit_status=3, stderr_tail="out of cheese")
    late = bench.next_operation()
    bench.feed(ListenStarted(operation_id=late, tools=True))
    assert isinstance(bench.outcome(late), Disconnected)
    assert_over_for_good(bench)


# --- silence


def test_silence_before_the_acknowledgement_ends_it_and_silence_after_it_never_does() -> None:
    bench = ClientBench()
    silent = listen(bench, "t-1")
    bench.pass_time(LIMITS.listen_ack_timeout_ms - 1)
    assert bench.outcome(silent) is None
    bench.pass_time(1)
    assert bench.outcome(silent) == NotAcknowledged(waited_ms=LIMITS.listen_ack_timeout_ms)
    assert len(bench.requests(CANCELLED)) == 1
    patient = listen(bench, "t-1")
    bench.acknowledge()
    state(bench)
    bench.pass_time(24 * 3_600_000)
    assert bench.outcome(patient) is None
    assert len(bench.requests(LISTEN)) == 2
    assert bench.warnings == []


# --- first states


@pytest.mark.spec("P7", "S8")
def test_tasks_of_which_a_server_tells_nothing_at_first_are_read() -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1", "t-2")
    bench.acknowledge()
    state(bench, taskId="t-2")
    bench.pass_time(LIMITS.listen_snapshot_ms - 1)
    assert bench.requests("tasks/get") == []
    bench.pass_time(1)
    assert [read["params"]["taskId"] for read in bench.requests("tasks/get")] == ["t-1"]
    bench.answer("tasks/get", wire_task("completed", result=RESULT))
    assert shown(bench, operation) == [("t-2", "working"), ("t-1", "completed")]


def test_where_every_first_state_came_nothing_is_read() -> None:
    bench = ClientBench()
    listen(bench, "t-1")
    bench.acknowledge()
    state(bench)
    bench.pass_time(LIMITS.listen_reread_ms - 1)
    assert bench.requests("tasks/get") == []
