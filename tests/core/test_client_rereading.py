"""Tasks that are listened to and read all the same: those that vanish, those that end unheard, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest

from core.client_listens import (
    HTTP,
    LIMITS,
    LISTEN,
    RESULT,
    T1,
    T2,
    TASKS,
    assert_over_for_good,
    invalid,
    listen,
    shown,
    state,
)
from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.client.effects import StateObserved, TaskDropped
from mcp_tasks_core.client.events import CallId, StreamEnded
from mcp_tasks_core.client.outcomes import ListenEnded
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.testing.client import ClientBench, wire_task

MINUTE_MS = LIMITS.listen_reread_ms


def reads(bench: ClientBench) -> list[str]:
    return [read["params"]["taskId"] for read in bench.requests("tasks/get")]


def read_moments(bench: ClientBench) -> list[int]:
    """When tasks were read, from the beginning of the bench."""
    moments = zip(bench.sent, bench.sent_at_ms, strict=True)
    return [moment - bench.sent_at_ms[0] for message, moment in moments if message["method"] == "tasks/get"]


@pytest.mark.spec("P1", "P7")
def test_a_task_whose_end_is_told_by_nobody_is_read_after_a_minute_of_silence() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    state(bench)
    bench.pass_time(MINUTE_MS - 1)
    assert reads(bench) == []
    bench.pass_time(1)
    assert reads(bench) == ["t-1"]
    bench.answer("tasks/get", wire_task("completed", result=RESULT))
    assert shown(bench, operation) == [("t-1", "working"), ("t-1", "completed")]
    assert isinstance(bench.outcome(operation), ListenEnded)
    assert_over_for_good(bench)


def test_each_sighting_puts_the_next_read_off_and_no_server_is_read_more_than_once_a_minute() -> None:
    bench = ClientBench(HTTP)
    listen(bench, "t-1")
    bench.acknowledge()
    for second in range(10):
        state(bench, updated_s=second)
        bench.pass_time(MINUTE_MS - 1)
    assert reads(bench) == []
    for _ in range(3):
        bench.pass_time(1)
        bench.answer("tasks/get", wire_task(updated_s=10))
        bench.pass_time(MINUTE_MS - 1)
    assert len(reads(bench)) == 3


@pytest.mark.spec("P1")
def test_a_longer_interval_of_the_server_is_kept() -> None:
    limits = ClientLimits(listen_reread_ms=5_000)
    bench = ClientBench(ClientConfig(client_limits=limits))
    listen(bench, "t-1")
    bench.acknowledge()
    state(bench, pollIntervalMs=20_000)
    bench.pass_time(19_999)
    assert reads(bench) == []
    bench.pass_time(1)
    assert reads(bench) == ["t-1"]


@pytest.mark.spec("P1")
def test_a_task_is_read_when_its_time_to_live_and_a_grace_are_over() -> None:
    limits = ClientLimits(ttl_grace_ms=5_000)
    bench = ClientBench(ClientConfig(client_limits=limits))
    operation = listen(bench, "t-1")
    bench.acknowledge()
    state(bench, ttlMs=20_000)
    bench.pass_time(24_999)
    assert reads(bench) == []
    bench.pass_time(1)
    bench.refuse("tasks/get", -32602, "Task has expired")
    assert bench.seen(TaskDropped) == [TaskDropped(operation, T1)]
    assert bench.outcome(operation) == ListenEnded(tasks=(), not_agreed=(T1,))


@pytest.mark.spec("P7")
def test_a_task_that_is_gone_is_told_at_once_while_others_are_still_listened_to() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1", "t-2")
    bench.acknowledge()
    state(bench, taskId="t-2")
    bench.pass_time(LIMITS.listen_snapshot_ms)
    bench.refuse("tasks/get", -32602, "Task not found")
    assert bench.seen(TaskDropped) == [TaskDropped(operation, T1)]
    assert bench.outcome(operation) is None
    state(bench)
    assert shown(bench, operation) == [("t-2", "working")], "nothing more comes about a task that is gone"
    state(bench, "completed", taskId="t-2", updated_s=1)
    ended = bench.outcome(operation)
    assert isinstance(ended, ListenEnded)
    assert ended.not_agreed == (T1,)
    assert [task.task_id for task in ended.tasks] == [T2]


@pytest.mark.spec("P7")
def test_when_every_task_is_gone_after_a_cut_nothing_is_listened_to_again() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    bench.feed(StreamEnded(CallId(bench.requests(LISTEN)[-1]["id"]), "cut"))
    bench.refuse("tasks/get", -32602, "Task not found")
    assert bench.outcome(operation) == ListenEnded(tasks=(), not_agreed=(T1,))
    assert_over_for_good(bench)
    assert len(bench.requests(LISTEN)) == 1


@pytest.mark.parametrize("code", [-32603, -32600])
def test_reads_that_fail_are_repeated_ever_more_slowly_up_to_once_a_minute(code: int) -> None:
    bench = ClientBench()
    operation = listen(bench, "t-1")
    bench.acknowledge()
    for _ in range(8):
        assert bench.protocol.deadline is not None
        bench.pass_time(bench.protocol.deadline - bench.now_ms)
        bench.refuse("tasks/get", code, "busy")
    assert read_moments(bench) == [2_000, 6_000, 14_000, 30_000, 62_000, 122_000, 182_000, 242_000]
    assert bench.outcome(operation) is None
    assert bench.warnings == []
    assert bench.seen(TaskDropped) == []


def test_reads_that_get_no_answer_put_all_others_off_and_lose_none() -> None:
    limits = ClientLimits(listen_reads_max=1)
    bench = ClientBench(ClientConfig(client_limits=limits))
    listen(bench, "t-1", "t-2", "t-3")
    bench.acknowledge()
    bench.pass_time(limits.listen_snapshot_ms + limits.task_request_timeout_ms)
    assert reads(bench) == ["t-1"]
    for _ in range(3):
        bench.pass_time(4_000)
        name = reads(bench)[-1]
        bench.answer("tasks/get", wire_task(taskId=name))
    assert sorted({str(seen.task.task_id) for seen in bench.seen(StateObserved)}) == ["t-1", "t-2", "t-3"]


def test_a_thousand_silent_tasks_are_read_a_few_at_a_time() -> None:
    bench = ClientBench()
    names = [f"t-{number}" for number in range(1_000)]
    listen(bench, *names)
    bench.acknowledge()
    bench.pass_time(LIMITS.listen_snapshot_ms)
    answered = 0
    while answered < len(reads(bench)):
        assert len(reads(bench)) - answered <= LIMITS.listen_reads_max
        read = bench.requests("tasks/get")[answered]
        result = {"resultType": "complete", **wire_task(taskId=read["params"]["taskId"])}
        bench.receive({"jsonrpc": "2.0", "id": read["id"], "result": result})
        answered += 1
    assert reads(bench) == names


# --- states that can be read and hold what nobody can use


MALFORMED_INSIDE: list[JSONObject] = [
    wire_task("completed", result={"content": 5}),
    wire_task("completed", result={"content": None}),
    wire_task("completed", result={"content": ["text"]}),
    wire_task("input_required", inputRequests={"q": {"method": "elicitation/create", "params": 5}}),
    wire_task("input_required", inputRequests={"q": {"method": "elicitation/create", "params": [1]}}),
]


@pytest.mark.spec("P6")
@pytest.mark.parametrize("how", ["pushed", "read"])
@pytest.mark.parametrize("told", MALFORMED_INSIDE)
def test_a_state_that_is_malformed_inside_is_a_fault_and_is_never_shown(told: JSONObject, how: str) -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1", tools=True)
    bench.acknowledge()
    if how == "pushed":
        bench.tell(TASKS, **told)
    else:
        bench.pass_time(LIMITS.listen_snapshot_ms)
        bench.answer("tasks/get", told)
    assert "task 't-1'" in invalid(bench.outcome(operation))
    assert shown(bench, operation) == []
    assert_over_for_good(bench)


def test_a_question_of_a_kind_that_the_listener_did_not_declare_is_shown() -> None:
    bench = ClientBench(HTTP)
    operation = listen(bench, "t-1")
    bench.acknowledge()
    request: dict[str, Any] = {"method": "roots/list", "params": {}}
    state(bench, "input_required", inputRequests={"q": request})
    assert shown(bench, operation) == [("t-1", "input_required")]


def test_warnings_of_one_subscription_are_bounded_whatever_its_server_writes() -> None:
    bench = ClientBench(HTTP)
    listen(bench, "t-1")
    bench.acknowledge()
    for number in range(100):
        state(bench, updated_s=number, ttlMs=float(1_000_000 + number))
    assert len(bench.warnings) == LIMITS.state_warnings_max
