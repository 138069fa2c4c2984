"""A call becomes a task: stored, read back, and only then announced; and whatever may go wrong on the way."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import StreamId, TaskId
from mcp_tasks_core.lifecycle import Complete
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import decode_record
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import (
    AbandonWork,
    AdoptWork,
    Frame,
    InvokeTool,
    LoadTask,
    PublishChange,
    Report,
    StartWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import Deferral, ToolDeferred
from mcp_tasks_core.store import MemoryTaskStore
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import text_result

WAIT_MS = Limits().answer_wait_ms
ORDER = (InvokeTool, StoreTask, LoadTask, Frame, StartWork, AdoptWork, AbandonWork)


def bench(store: MemoryTaskStore | None = None, defer: Defer | None = None, **config: Any) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    tools = {"slow": lambda call: defer or Defer()}
    return ServerHarness(ServerConfig(tools=[entry], **config), tools=tools, store=store)


def call(server: ServerHarness, **options: Any) -> Any:
    return server.request("tools/call", name="slow", arguments={"n": 1}, **options)


def order(server: ServerHarness) -> list[str]:
    return [type(effect).__name__ for effect in server.effects if isinstance(effect, ORDER)]


def invoked(defer: Defer) -> list[str]:
    """What comes before the create: an id that the application chose is looked for first."""
    return ["InvokeTool", "LoadTask"] if defer.deferral is Deferral.CLAIM else ["InvokeTool"]


def rows(server: ServerHarness) -> list[Any]:
    store = server.store
    assert isinstance(store, MemoryTaskStore)
    return [decode_record(row.payload) for row in store._rows.values()]


# --- the way it goes


@pytest.mark.spec("C5")
def test_handle_is_withheld_until_the_task_is_stored_and_read_back_and_work_starts_after_it() -> None:
    server = bench()
    answer = call(server)
    assert order(server) == ["InvokeTool", "StoreTask", "LoadTask", "Frame", "StartWork"]
    (start,) = server.effects_of(StartWork)
    assert (start.task_id, start.ticket) == (answer["result"]["taskId"], server.calls[0].ticket)


@pytest.mark.spec("C5")
def test_nothing_is_sent_or_started_while_the_store_or_the_read_is_on_its_way() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.SLOW)
    server.script(LoadTask, StoreFault.SLOW)
    server.begin("tools/call", id=1, name="slow", arguments={})
    assert order(server) == ["InvokeTool", "StoreTask"]
    assert server.release() == []
    assert order(server) == ["InvokeTool", "StoreTask", "LoadTask"]
    assert len(server.release()) == 1
    assert order(server)[-2:] == ["Frame", "StartWork"]


@pytest.mark.spec("C4", "C2", "D12", "T3", "B4")
def test_a_handle_is_flat_and_complete_and_carries_no_payload() -> None:
    server = bench(defer=Defer(ttl_ms=5_000, poll_interval_ms=250, status_message="queued"))
    result = call(server)["result"]
    assert set(result) == {
        "resultType",
        "taskId",
        "status",
        "createdAt",
        "lastUpdatedAt",
        "ttlMs",
        "pollIntervalMs",
        "statusMessage",
    }
    assert (result["resultType"], result["status"], result["ttlMs"]) == ("task", "working", 5_000)
    assert result["createdAt"] == result["lastUpdatedAt"] == "2026-07-28T10:00:00.000Z"
    assert (result["pollIntervalMs"], result["statusMessage"]) == (250, "queued")


@pytest.mark.spec("C4", "D12")
def test_an_unlimited_task_says_null_and_what_is_not_there_is_left_out() -> None:
    result = call(bench(defer=Defer(ttl_ms=None)))["result"]
    assert result["ttlMs"] is None
    assert "pollIntervalMs" not in result
    assert "statusMessage" not in result


@pytest.mark.spec("C4", "G1")
def test_a_handle_and_the_first_poll_show_one_state() -> None:
    server = bench()
    handle = call(server)["result"]
    state = server.request("tasks/get", taskId=handle["taskId"])["result"]
    assert {**state, "resultType": "task"} == handle


@pytest.mark.spec("A1", "D27", "B12")
def test_a_record_keeps_its_owner_and_what_its_request_said() -> None:
    server = bench(executor=None)
    owner = Owner("t", "s")
    meta = {"traceparent": "00-1-2-01"}
    handle = call(server, owner=owner, meta=meta, capabilities={"roots": {}})["result"]
    record = server.record(handle["taskId"])
    assert record.owner == owner
    assert record.capabilities.missing_for({"method": "roots/list"}) is None
    assert record.request["arguments"] == {"n": 1}
    assert record.request["_meta"]["traceparent"] == "00-1-2-01"


@pytest.mark.spec("C3")
def test_a_call_that_did_not_declare_tasks_may_not_be_deferred() -> None:
    server = bench()
    server.tools["slow"] = lambda call: HELD
    server.begin("tools/call", id=1, name="slow", arguments={}, declare_tasks=False)
    (invoked,) = server.effects_of(InvokeTool)
    assert invoked.context.may_defer is False
    with pytest.raises(LocalProtocolError, match="may_defer is false"):
        server.feed(ToolDeferred(ticket=invoked.ticket, entropy=bytes(24), ttl_ms=1))
    (frame,) = server.answer(invoked, text_result())
    assert frame["result"]["resultType"] == "complete"


@pytest.mark.spec("D25", "C3")
def test_without_tasks_no_call_may_be_deferred_whatever_it_declares() -> None:
    server = bench(tasks=False)
    server.tools["slow"] = lambda call: HELD
    server.begin("tools/call", id=1, name="slow", arguments={})
    assert server.effects_of(InvokeTool)[0].context.may_defer is False
    with pytest.raises(LocalProtocolError, match="may_defer is false"):
        server.answer(server.calls[0], Defer())


# --- ids


@pytest.mark.spec("C7")
def test_an_id_is_made_of_all_the_entropy_and_needs_no_escape() -> None:
    seen = set()
    for entropy in (bytes(24), bytes(23) + b"\x01", b"\xff" * 24, b"\xff" * 32, bytes(range(48))):
        server = bench()
        server.tools["slow"] = lambda call: HELD
        server.begin("tools/call", id=1, name="slow", arguments={})
        server.feed(ToolDeferred(ticket=server.calls[0].ticket, entropy=entropy, ttl_ms=1_000))
        task_id = server.frames[0]["result"]["taskId"]
        assert len(task_id) * 6 >= len(entropy) * 8
        assert set(task_id) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        seen.add(task_id)
    assert len(seen) == 5


@pytest.mark.spec("C7")
def test_a_minted_id_never_falls_to_a_native_source() -> None:
    """One-letter prefixes that cover all but a few first letters of what random bytes may encode to."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    server = bench(sources=dict.fromkeys(alphabet[:48], "engine"))
    for _ in range(50):
        task_id = call(server)["result"]["taskId"]
        assert task_id[0] in alphabet[48:]
        assert "result" in server.request("tasks/get", taskId=task_id)


def test_where_prefixes_leave_no_id_at_all_the_call_is_refused_and_nothing_starts() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    server = bench(sources=dict.fromkeys(alphabet, "engine"))
    assert call(server)["error"]["code"] == -32603
    assert order(server) == ["InvokeTool", "AbandonWork", "Frame"]


@pytest.mark.spec("C7", "C5")
def test_an_id_that_is_taken_is_not_given_again_and_the_first_task_is_unharmed() -> None:
    server = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="mine"))
    assert call(server)["result"]["taskId"] == "mine"
    before = server.record("mine")
    server.forget()
    other = call(server, owner=Owner("other", "owner"))
    assert other["error"] == {"code": -32603, "message": "Internal error"}
    assert order(server) == ["InvokeTool", "LoadTask", "AbandonWork", "Frame"]
    assert server.record("mine") == before


@pytest.mark.spec("C5")
def test_two_claims_of_one_id_at_the_same_time_make_one_task() -> None:
    server = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="mine"))
    server.script(StoreTask, StoreFault.SLOW)
    server.begin("tools/call", id=1, name="slow", arguments={})
    assert call(server, id=2)["error"]["code"] == -32603
    (frame,) = server.release()
    assert (frame["id"], frame["result"]["taskId"]) == (1, "mine")
    assert len(rows(server)) == 1


# --- what may go wrong


@pytest.mark.spec("C5", "D38")
@pytest.mark.parametrize(("fault", "reason"), [(StoreFault.FAIL, "store_unavailable"), (StoreFault.FULL, "capacity")])
def test_a_store_that_cannot_keep_the_task_is_an_error_and_nothing_starts(fault: StoreFault, reason: str) -> None:
    server = bench()
    server.script(StoreTask, fault)
    error = call(server)["error"]
    assert (error["code"], error["data"]) == (-32603, {"reason": reason, "retryable": True})
    assert order(server) == ["InvokeTool", "StoreTask", "AbandonWork", "Frame"]
    assert server.effects_of(AbandonWork)[0].ticket == server.calls[0].ticket
    assert not rows(server)


@pytest.mark.spec("D38")
def test_a_store_at_its_capacity_refuses_the_task_and_takes_one_again_when_there_is_room() -> None:
    server = bench(MemoryTaskStore(capacity=1), defer=Defer(ttl_ms=1_000))
    assert "result" in call(server)
    assert call(server)["error"]["data"]["reason"] == "capacity"
    server.advance(10_000_000)
    assert "result" in call(server)


@pytest.mark.spec("C5")
def test_a_conflict_on_a_new_id_is_an_error_and_nothing_starts() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.CONFLICT)
    assert call(server)["error"]["code"] == -32603
    assert order(server) == ["InvokeTool", "StoreTask", "AbandonWork", "Frame"]


@pytest.mark.spec("C5")
def test_an_uncertain_create_that_is_found_is_announced() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.UNCERTAIN_MADE)
    assert call(server)["result"]["resultType"] == "task"
    assert order(server) == ["InvokeTool", "StoreTask", "LoadTask", "Frame", "StartWork"]


@pytest.mark.spec("C5")
def test_an_uncertain_create_that_is_not_found_is_an_error_and_never_repeated() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.UNCERTAIN_LOST)
    assert call(server)["error"]["data"]["reason"] == "store_unavailable"
    assert order(server) == ["InvokeTool", "StoreTask", "LoadTask", "AbandonWork", "Frame"]


@pytest.mark.spec("C5")
def test_a_create_that_is_not_answered_in_time_is_looked_for_and_announced_if_it_is_there() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.DROPPED_MADE)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.advance(WAIT_MS - 1)
    assert server.frames == []
    server.advance(1)
    assert server.frames[0]["result"]["resultType"] == "task"
    assert order(server)[-2:] == ["Frame", "StartWork"]


@pytest.mark.spec("C5", "T1")
def test_the_late_answer_to_a_create_that_was_found_and_announced_harms_nothing() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.LATE)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.advance(WAIT_MS)
    task_id = server.frames[0]["result"]["taskId"]
    assert server.release() == []
    server.advance(10_000)
    assert server.record(task_id).status is TaskStatus.WORKING
    server.complete(task_id, text_result())
    assert server.record(task_id).status is TaskStatus.COMPLETED


@pytest.mark.spec("C5")
@pytest.mark.parametrize("fault", [StoreFault.SLOW, StoreFault.SLOW_UNCERTAIN])
def test_a_create_that_succeeds_after_its_caller_was_told_otherwise_is_settled_as_failed(fault: StoreFault) -> None:
    server = bench()
    server.script(StoreTask, fault)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.advance(WAIT_MS)
    assert server.frames[0]["error"]["data"]["reason"] == "store_unavailable"
    assert order(server)[-2:] == ["AbandonWork", "Frame"]
    server.release()
    (record,) = rows(server)
    assert (record.status, record.error.code) == (TaskStatus.FAILED, -32603)
    assert not server.effects_of(StartWork)
    assert len(server.frames) == 1


@pytest.mark.spec("C5")
def test_a_create_that_fails_late_changes_nothing() -> None:
    server = bench()
    server.script(StoreTask, StoreFault.DROPPED_LOST)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.advance(WAIT_MS * 3)
    assert (len(server.frames), rows(server), server.protocol.open_tickets) == (1, [], 0)


@pytest.mark.spec("C5")
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.DROPPED_LOST])
def test_a_read_back_that_fails_is_an_error_and_the_record_never_stays_working(fault: StoreFault) -> None:
    server = bench()
    server.script(LoadTask, fault)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.advance(WAIT_MS)
    assert server.frames[0]["error"]["code"] == -32603
    assert not server.effects_of(StartWork)
    assert server.effects_of(AbandonWork)
    (record,) = rows(server)
    assert record.status is TaskStatus.FAILED


@pytest.mark.spec("C5")
def test_a_record_that_was_stored_and_cannot_be_found_is_an_error_and_settled_once_it_is() -> None:
    server = bench()
    server.script(LoadTask, StoreFault.BLIND)
    assert call(server)["error"]["data"]["reason"] == "store_unavailable"
    assert not server.effects_of(StartWork)
    (record,) = rows(server)
    assert record.status is TaskStatus.FAILED


@pytest.mark.spec("C5")
def test_a_record_that_another_writer_put_in_its_place_is_not_announced() -> None:
    server = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="mine"))
    other = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="mine"))
    call(other, owner=Owner("other", "owner"))
    theirs = other.store.load(TaskId("mine"))
    assert theirs is not None
    server.script(StoreTask, StoreFault.UNCERTAIN_LOST)
    server.before_store = lambda effect: server.store.create(theirs) if isinstance(effect, LoadTask) else None
    assert call(server)["error"]["code"] == -32603
    assert not server.effects_of(AdoptWork)
    assert server.store.load(TaskId("mine")) == theirs


@pytest.mark.spec("C5", "D31")
def test_while_the_store_is_down_the_end_of_an_unannounced_task_is_tried_again_until_it_is_stored() -> None:
    server = bench()
    server.script(LoadTask, StoreFault.FAIL, StoreFault.FAIL, StoreFault.FAIL)
    assert "error" in call(server)
    (record,) = rows(server)
    assert record.status is TaskStatus.WORKING
    server.advance(2_000)
    (record,) = rows(server)
    assert record.status is TaskStatus.FAILED


@pytest.mark.spec("B10", "C5")
def test_a_message_that_cannot_be_stored_is_an_error_and_nothing_starts() -> None:
    server = bench(defer=Defer(status_message="\ud800"))
    assert call(server)["error"]["code"] == -32603
    assert order(server) == ["InvokeTool", "AbandonWork", "Frame"]
    assert len(server.effects_of(Report)) == 1


def test_a_status_message_is_cut_to_its_limit() -> None:
    for length, kept in ((1_000, 1_000), (1_001, 1_000)):
        assert len(call(bench(defer=Defer(status_message="x" * length)))["result"]["statusMessage"]) == kept


# --- who runs the work


@pytest.mark.spec("C5")
@pytest.mark.parametrize("defer", [Defer(deferral=Deferral.PROMOTE), Defer(deferral=Deferral.CLAIM, task_id="mine")])
def test_work_that_runs_already_is_adopted_after_the_handle(defer: Defer) -> None:
    server = bench(defer=defer)
    task_id = call(server)["result"]["taskId"]
    assert order(server) == [*invoked(defer), "StoreTask", "LoadTask", "Frame", "AdoptWork"]
    assert server.effects_of(AdoptWork)[0].task_id == task_id
    assert (task_id == "mine") is (defer.deferral is Deferral.CLAIM)


@pytest.mark.spec("C5")
@pytest.mark.parametrize("defer", [Defer(deferral=Deferral.PROMOTE), Defer(deferral=Deferral.CLAIM, task_id="mine")])
def test_work_that_runs_already_is_told_to_stop_when_its_task_cannot_be_stored(defer: Defer) -> None:
    server = bench(defer=defer)
    server.script(StoreTask, StoreFault.FAIL)
    assert "error" in call(server)
    assert order(server) == [*invoked(defer), "StoreTask", "AbandonWork", "Frame"]


# --- the caller goes away


GONE_AT = ["before the store", "at the store", "at the read"]


def leave(server: ServerHarness, step: str, how: str) -> None:
    """The caller of request 1 goes away at that step; then everything that was held comes."""
    if step == "before the store":
        server.tools["slow"] = lambda call: HELD
    elif step == "at the store":
        server.script(StoreTask, StoreFault.SLOW)
    else:
        server.script(LoadTask, StoreFault.SLOW)
    server.begin("tools/call", id=1, name="slow", arguments={})
    if how == "closed":
        server.close_stream()
    else:
        server.cancel_request(1)
    while server.held:
        server.release()


@pytest.mark.spec("D39", "X3", "H8")
@pytest.mark.parametrize("how", ["closed", "cancelled"])
@pytest.mark.parametrize("step", GONE_AT)
def test_a_caller_that_is_gone_before_its_handle_gets_no_work_started(step: str, how: str) -> None:
    server = bench()
    leave(server, step, how)
    assert server.frames == []
    assert not server.effects_of(StartWork)
    if step == "before the store":
        assert server.answer(server.calls[0], Defer()) == []
        assert rows(server) == []
    else:
        (record,) = rows(server)
        assert record.status is TaskStatus.CANCELLED
        assert record.cancel_requested_at_ms is not None
        assert len(server.effects_of(AbandonWork)) == 1
    assert server.protocol.open_tickets == 0


@pytest.mark.spec("D39")
@pytest.mark.parametrize("how", ["closed", "cancelled"])
@pytest.mark.parametrize("step", GONE_AT[1:])
@pytest.mark.parametrize("deferral", [Deferral.START, Deferral.PROMOTE])
def test_a_detached_tool_goes_on_without_its_caller(step: str, how: str, deferral: Deferral) -> None:
    server = bench(defer=Defer(deferral=deferral, detach_on_disconnect=True))
    leave(server, step, how)
    assert server.frames == []
    (record,) = rows(server)
    assert record.status is TaskStatus.WORKING
    started = StartWork if deferral is Deferral.START else AdoptWork
    assert [effect.task_id for effect in server.effects_of(started)] == [record.task_id]


@pytest.mark.spec("D39")
@pytest.mark.parametrize("deferral", [Deferral.PROMOTE, Deferral.CLAIM])
def test_running_work_whose_caller_is_gone_is_told_to_stop(deferral: Deferral) -> None:
    server = bench(defer=Defer(deferral=deferral, task_id="mine" if deferral is Deferral.CLAIM else None))
    leave(server, "at the store", "closed")
    assert [effect.ticket for effect in server.effects_of(AbandonWork)] == [server.calls[0].ticket]
    assert not server.effects_of(AdoptWork)


@pytest.mark.spec("D39")
def test_a_task_of_a_caller_that_is_gone_is_cancelled_even_where_the_store_fails_at_first() -> None:
    server = bench()
    server.script(LoadTask, StoreFault.SLOW, StoreFault.FAIL, StoreFault.FAIL)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.close_stream()
    server.release()
    server.advance(2_000)
    (record,) = rows(server)
    assert record.status is TaskStatus.CANCELLED
    assert not server.effects_of(StartWork)


@pytest.mark.spec("X3", "D39")
def test_once_the_handle_was_sent_neither_a_cancelled_request_nor_a_lost_stream_touches_the_task() -> None:
    server = bench()
    task_id = call(server, id=1)["result"]["taskId"]
    server.cancel_request(1)
    server.close_stream()
    server.advance(60_000)
    assert server.record(task_id).status is TaskStatus.WORKING
    assert not server.effects_of(StopWork)
    server.complete(task_id, text_result())
    assert server.request("tasks/get", taskId=task_id, stream=StreamId(9))["result"]["status"] == "completed"


# --- what a deferral may be


@pytest.mark.spec("T4", "C7")
@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"ttl_ms": 0}, "ttl_ms is None or an integer from 1"),
        ({"ttl_ms": -1}, "ttl_ms"),
        ({"ttl_ms": 0.5}, "ttl_ms"),
        ({"ttl_ms": 5.0}, "ttl_ms"),
        ({"ttl_ms": float("nan")}, "ttl_ms"),
        ({"ttl_ms": 2**53}, "ttl_ms"),
        ({"ttl_ms": 2**63}, "ttl_ms"),
        ({"ttl_ms": True}, "ttl_ms"),
        ({"ttl_ms": "5"}, "ttl_ms"),
        ({"ttl_ms": 1, "poll_interval_ms": 0}, "poll_interval_ms"),
        ({"ttl_ms": 1, "poll_interval_ms": 1.5}, "poll_interval_ms"),
        ({"ttl_ms": 1, "entropy": bytes(23)}, "24 random bytes, not 23"),
        ({"ttl_ms": 1, "entropy": b""}, "24 random bytes, not 0"),
        ({"ttl_ms": 1, "deferral": Deferral.PROMOTE, "entropy": b""}, "random bytes"),
        ({"ttl_ms": 1, "deferral": Deferral.CLAIM}, "a claim needs a task_id of 1 to 1024"),
        ({"ttl_ms": 1, "deferral": Deferral.CLAIM, "task_id": ""}, "a claim needs a task_id"),
        ({"ttl_ms": 1, "deferral": Deferral.CLAIM, "task_id": "x" * 1025}, "a claim needs a task_id"),
        ({"ttl_ms": 1, "deferral": Deferral.CLAIM, "task_id": 5}, "a claim needs a task_id"),
    ],
)
def test_a_deferral_that_makes_no_sense_is_the_callers_mistake_and_changes_nothing(members: Any, words: str) -> None:
    server = bench()
    server.tools["slow"] = lambda call: HELD
    server.begin("tools/call", id=1, name="slow", arguments={})
    with pytest.raises(LocalProtocolError, match=words):
        server.feed(ToolDeferred(ticket=server.calls[0].ticket, **{"entropy": bytes(24), **members}))
    assert (rows(server), server.frames, server.protocol.open_tickets) == ([], [], 1)
    (frame,) = server.answer(server.calls[0], Defer())
    assert frame["result"]["resultType"] == "task"


@pytest.mark.spec("T4")
@pytest.mark.parametrize("ttl_ms", [1, 2**53 - 1, None])
def test_the_shortest_and_the_longest_time_to_live_are_kept(ttl_ms: int | None) -> None:
    server = bench(defer=Defer(ttl_ms=ttl_ms, poll_interval_ms=1))
    result = call(server)["result"]
    assert (result["ttlMs"], result["pollIntervalMs"]) == (ttl_ms, 1)
    assert "result" in server.request("tasks/get", taskId=result["taskId"])


def test_a_claimed_id_may_have_just_as_many_characters_as_allowed() -> None:
    server = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="x" * 1024))
    task_id = call(server)["result"]["taskId"]
    assert "result" in server.request("tasks/get", taskId=task_id)


@pytest.mark.spec("C5")
def test_a_stored_task_is_published_before_it_is_announced() -> None:
    server = bench()
    call(server)
    kinds = [type(effect) for effect in server.effects]
    assert kinds.index(PublishChange) < kinds.index(Frame)


@pytest.mark.spec("C5", "T1")
def test_work_that_ends_before_its_handle_went_out_is_not_lost() -> None:
    server = bench(defer=Defer(deferral=Deferral.CLAIM, task_id="mine"))
    server.script(LoadTask, StoreFault.SLOW)
    server.begin("tools/call", id=1, name="slow", arguments={})
    server.complete("mine", text_result())
    (handle,) = server.release()
    assert handle["result"]["status"] == "working"
    assert server.record("mine").status is TaskStatus.COMPLETED


@pytest.mark.spec("C5")
def test_a_second_core_on_the_same_store_serves_the_task() -> None:
    first = bench()
    task_id = call(first)["result"]["taskId"]
    second = bench(first.store)  # type: ignore[arg-type]
    assert second.request("tasks/get", taskId=task_id)["result"]["status"] == "working"
    first.change_elsewhere(task_id, Complete(text_result()))
    for server in (first, second):
        assert server.request("tasks/get", taskId=task_id)["result"]["status"] == "completed"


def test_defer_and_tool_deferred_have_the_same_members() -> None:
    ours = {field.name for field in attrs.fields(Defer)}
    assert ours == {field.name for field in attrs.fields(ToolDeferred)} - {"ticket", "entropy"}
