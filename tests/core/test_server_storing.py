"""How changes of work that runs here are stored: from what was stored last, unless something says that it is not so."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import Instant, Revision, TaskId
from mcp_tasks_core.lifecycle import Adopt, Advance
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import DeliverInput, LoadTask, StartWork, StoreTask
from mcp_tasks_core.server.events import Deferral, TaskStored, ToolDeferred
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question, text_result
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore

LIMITS = Limits(progress_interval_ms=1)
SLOW = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})


def process(reply: Any = None, **config: Any) -> ServerHarness:
    told = {"tools": [SLOW], "executor": "here", "limits": LIMITS, **config}
    tools = {"slow": lambda call: Defer(ttl_ms=3_600_000) if reply is None else reply}
    server = ServerHarness(ServerConfig(**told), tools=tools, store=SharedMemoryTaskStore())
    server.advance(0)
    return server


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    server.forget()
    return task_id


def loads_of(server: ServerHarness, task_id: str) -> int:
    return len([effect for effect in server.effects_of(LoadTask) if effect.task_id == task_id])


@pytest.mark.spec("X1", "T1")
def test_work_that_runs_here_is_changed_without_reading_what_was_just_stored() -> None:
    server = process()
    task_id = create(server)
    server.progress(task_id, "one")
    server.advance(2)
    server.progress(task_id, "two")
    server.ask(task_id, "colour", form_question())
    server.complete(task_id, text_result())
    assert loads_of(server, task_id) == 0
    assert [effect.row.revision for effect in server.effects_of(StoreTask)] == [2, 3, 4, 5]
    assert server.record(task_id).status == "completed"


@pytest.mark.spec("X1")
def test_what_another_process_changed_meanwhile_is_read_and_kept() -> None:
    server = process()
    task_id = create(server)
    server.ask(task_id, "colour", form_question())
    other = ServerHarness(ServerConfig(tools=[SLOW], executor="there"), store=server.store, seed="there")
    other.request("tasks/update", taskId=task_id, inputResponses={"colour": accepted(value="red")})
    server.forget()
    server.ask(task_id, "size", form_question())
    assert loads_of(server, task_id) == 1
    record = server.record(task_id)
    assert record.inputs["colour"].answer == accepted(value="red")  # type: ignore[index]
    assert list(record.outstanding) == ["size"]


@pytest.mark.spec("X1", "T4")
def test_a_cancel_that_another_process_accepted_is_seen_before_the_work_stores_anything() -> None:
    server = process()
    task_id = create(server)
    other = ServerHarness(ServerConfig(tools=[SLOW], executor="there"), store=server.store, seed="there")
    other.request("tasks/cancel", taskId=task_id)
    server.progress(task_id, "still at it")
    record = server.record(task_id)
    assert record.cancel_requested_at_ms is not None
    server.complete(task_id, text_result())
    assert server.record(task_id).status == "completed"


@pytest.mark.spec("X1")
def test_work_that_was_taken_over_stores_nothing_from_what_it_remembers() -> None:
    server = process()
    task_id = create(server)
    server.progress(task_id, "mine")
    server.change_elsewhere(task_id, Adopt("there"))
    server.complete(task_id, text_result("of the former process"))
    assert server.record(task_id).status == "working"
    assert server.record(task_id).executor == "there"


@pytest.mark.spec("U1", "X1")
def test_nothing_is_refused_and_nothing_left_undone_because_of_what_was_so_a_moment_ago() -> None:
    server = process()
    task_id = create(server)
    server.ask(task_id, "colour", form_question())
    other = ServerHarness(ServerConfig(tools=[SLOW], executor="there"), store=server.store, seed="there")
    other.request("tasks/update", taskId=task_id, inputResponses={"colour": accepted(value="red")})
    server.forget()
    # What is remembered says that the question stands open and needs no asking again; what is stored has its answer.
    server.ask(task_id, "colour", form_question())
    assert loads_of(server, task_id) >= 1
    assert [effect.answer for effect in server.effects_of(DeliverInput)] == [accepted(value="red")]


@pytest.mark.spec("X1")
def test_a_process_that_was_stopped_for_longer_than_a_lease_reads_before_it_changes_anything() -> None:
    server = process()
    task_id = create(server)
    server.progress(task_id, "one")
    now = server.now
    server.now = Instant(wall_ms=now.wall_ms + 15_001, monotonic_ms=now.monotonic_ms + 15_001)
    server.forget()
    server.progress(task_id, "two")
    assert loads_of(server, task_id) == 1


@pytest.mark.spec("X1")
def test_a_task_that_nobody_shares_is_read_before_each_change() -> None:
    server = ServerHarness(ServerConfig(tools=[SLOW], limits=LIMITS), tools={"slow": lambda call: Defer()})
    task_id = create(server)
    server.change_elsewhere(task_id, Advance("by somebody"))
    server.complete(task_id, text_result())
    assert loads_of(server, task_id) == 1


@pytest.mark.spec("X2", "C5")
def test_a_write_whose_outcome_is_unknown_is_looked_at_before_anything_starts_from_it() -> None:
    server = process()
    task_id = create(server)
    server.script(StoreTask, StoreFault.UNCERTAIN_LOST)
    server.progress(task_id, "perhaps")
    assert server.record(task_id).status_message == "perhaps"
    assert loads_of(server, task_id) >= 1


@pytest.mark.spec("X1", "A1")
@pytest.mark.parametrize("way", ["the store's own delete", "expiry"])
def test_late_work_of_a_claimed_id_leaves_the_next_task_of_that_id_alone(way: str) -> None:
    limits = Limits(progress_interval_ms=1, expiry_grace_ms=1, tombstone_ms=1)
    claim = Defer(deferral=Deferral.CLAIM, task_id="job-1", ttl_ms=1_000)
    store = SharedMemoryTaskStore()

    def start(name: str) -> ServerHarness:
        config = ServerConfig(tools=[SLOW], executor=name, limits=limits)
        return ServerHarness(config, tools={"slow": lambda call: claim}, store=store, seed=name)

    first, second = start("first"), start("second")
    alice, bob = Owner("t", "alice"), Owner("t", "bob")
    first.request("tools/call", name="slow", arguments={}, owner=alice)
    second.advance(1_000)
    assert second.record("job-1").status == "failed"
    if way == "expiry":
        second.advance(5_000)
    else:
        row = store.load(TaskId("job-1"))
        assert row is not None
        assert store.delete(row.task_id, row.revision)
    assert store.load(TaskId("job-1")) is None
    second.request("tools/call", name="slow", arguments={}, owner=bob)
    first.complete("job-1", text_result("alice's, and too late"))
    assert second.record("job-1").owner == bob
    assert second.record("job-1").status == "working"


@pytest.mark.spec("X1")
def test_what_is_read_of_a_task_takes_the_place_of_what_was_remembered() -> None:
    server = process()
    task_id = create(server)
    server.change_elsewhere(task_id, Advance("by somebody"))
    server.request("tasks/get", taskId=task_id)
    server.forget()
    server.ask(task_id, "colour", form_question())
    assert [effect.row.revision for effect in server.effects_of(StoreTask)] == [3]
    assert loads_of(server, task_id) == 0


@pytest.mark.spec("X1", "U1")
def test_a_guess_is_no_attempt() -> None:
    server = process(limits=Limits(progress_interval_ms=1, swap_attempts_max=1))
    task_id = create(server)
    assert "result" in server.request("tasks/update", taskId=task_id, inputResponses={})
    assert "result" in server.request("tasks/cancel", taskId=task_id)
    assert "result" in server.request("tasks/cancel", taskId=task_id)


# --- the read after a create


@pytest.mark.spec("C5", "C6")
def test_a_runner_that_reads_what_it_created_is_not_asked_to_read_again() -> None:
    server = process(reply=HELD)
    request_id = server.begin("tools/call", name="slow", arguments={})
    (call,) = server.calls
    server.script(StoreTask, StoreFault.DROPPED_MADE)
    server.feed(ToolDeferred(ticket=call.ticket, entropy=server.entropy(), ttl_ms=None))
    (stored,) = server.effects_of(StoreTask)
    assert stored.read_back
    assert server.answers_to(request_id) == []
    server.feed(TaskStored(stored.ticket, server.store.load(stored.row.task_id)))
    assert server.answers_to(request_id)[0]["result"]["taskId"] == stored.row.task_id
    assert loads_of(server, stored.row.task_id) == 0
    assert [effect.task_id for effect in server.effects_of(StartWork)] == [stored.row.task_id]


@pytest.mark.spec("C5")
def test_a_created_task_that_the_runner_did_not_read_is_read_before_its_handle_goes_out() -> None:
    server = process(reply=HELD)
    request_id = server.begin("tools/call", name="slow", arguments={})
    (call,) = server.calls
    server.script(StoreTask, StoreFault.DROPPED_MADE)
    server.script(LoadTask, StoreFault.SLOW)
    server.feed(ToolDeferred(ticket=call.ticket, entropy=server.entropy(), ttl_ms=None))
    (stored,) = server.effects_of(StoreTask)
    server.feed(TaskStored(stored.ticket))
    assert server.answers_to(request_id) == []
    server.release()
    assert server.answers_to(request_id)[0]["result"]["taskId"] == stored.row.task_id


@pytest.mark.spec("C5", "C7")
def test_a_create_after_which_the_task_of_somebody_else_is_read_announces_nothing() -> None:
    server = process(reply=HELD)
    request_id = server.begin("tools/call", name="slow", arguments={})
    (call,) = server.calls
    server.script(StoreTask, StoreFault.DROPPED_LOST)
    server.feed(ToolDeferred(ticket=call.ticket, entropy=server.entropy(), ttl_ms=None))
    (stored,) = server.effects_of(StoreTask)
    mine = decode_record(stored.row.payload)
    theirs = row_of(attrs.evolve(mine, owner=Owner("other", "owner")), Revision(1), LIMITS)
    server.feed(TaskStored(stored.ticket, theirs))
    assert server.answers_to(request_id)[0]["error"]["code"] == -32603
    assert server.effects_of(StartWork) == []
