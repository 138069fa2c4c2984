"""Faults of subscriptions that storms have found: each in its fewest steps."""

from __future__ import annotations

import pytest

from mcp_tasks_core.access import LOCAL_OWNER, AccessRule, Owner
from mcp_tasks_core.identifiers import Revision, StreamId, TaskId
from mcp_tasks_core.lifecycle import Advance, Bury
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Authorize, CutStream, LoadTask
from mcp_tasks_core.server.events import Deferral, StreamBlocked, StreamUnblocked, TaskChanged
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import STREAM, Defer, ServerHarness
from mcp_tasks_core.testing.messages import text_result

OWN = StreamId(50)
LIMITS = Limits(slow_reader_ms=5_000, answer_wait_ms=20_000, reconcile_interval_ms=2_000)


def bench(access: AccessRule = AccessRule.OWNER) -> ServerHarness:
    tool = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    config = ServerConfig(tools=[tool], limits=LIMITS, access=access)
    return ServerHarness(config, tools={"slow": lambda call: Defer(ttl_ms=60_000)})


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    return task_id


@pytest.mark.spec("S8", "D44")
def test_an_end_that_waits_for_room_is_told_though_the_task_is_gone_by_then() -> None:
    """A machine that slept lets a task expire and go in one moment; whoever looks then finds nothing."""
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.feed(StreamBlocked(STREAM))
    server.complete(task_id, text_result())
    server.change_elsewhere(task_id, Bury())
    server.feed(TaskChanged(TaskId(task_id)))
    server.feed(StreamUnblocked(STREAM))
    assert listening.statuses_of(task_id) == ["working", "completed"]
    assert listening.result is not None


@pytest.mark.spec("S5", "S8")
def test_a_task_that_goes_without_an_end_ends_what_listens_to_it_alone() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    assert server.store.delete(row.task_id, Revision(row.revision))
    server.feed(TaskChanged(TaskId(task_id)))
    assert listening.statuses_of(task_id) == ["working"]
    assert listening.result is not None


@pytest.mark.spec("S1", "S11")
def test_a_listen_that_is_still_looked_for_is_not_dropped_before_its_acknowledgement() -> None:
    """Its channel is given up because of an older one; a cancellation would be the first that it hears."""
    server = bench()
    task_id = create(server)
    older = server.listen(task_id)
    server.script(LoadTask, StoreFault.SLOW)
    younger = server.listen(task_id)
    server.feed(StreamBlocked(STREAM))
    server.advance(LIMITS.slow_reader_ms)
    assert older.cancelled
    assert younger.messages == []
    server.release()
    assert younger.agreed == {"taskIds": [task_id]}
    server.advance(LIMITS.slow_reader_ms)
    assert younger.cancelled
    assert server.protocol.open_subscriptions == 0
    assert server.protocol.watched_tasks == 0


@pytest.mark.spec("A1", "D22")
def test_a_right_that_was_taken_is_noticed_within_the_interval_however_often_the_task_changes() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    listening = server.listen(task_id, stream=OWN, own_stream=True)
    server.access = lambda ask: False
    for number in range(5):
        server.advance(LIMITS.reconcile_interval_ms // 2)
        server.change_elsewhere(task_id, Advance(f"step {number}"))
        server.feed(TaskChanged(TaskId(task_id)))
    assert listening.cut
    assert [effect.stream_id for effect in server.effects_of(CutStream)] == [OWN]
    seen = [state.get("statusMessage") for state in listening.states_of(task_id)]
    assert seen == [None, "step 0"]


@pytest.mark.spec("A1", "S7")
def test_who_may_see_a_task_is_not_admitted_to_a_later_one_with_its_id() -> None:
    """The read of the first task is on its way while that one is deleted and somebody else claims its id."""
    tool = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    claim = Defer(deferral=Deferral.CLAIM, task_id="claimed", ttl_ms=60_000)
    server = ServerHarness(ServerConfig(tools=[tool], limits=LIMITS), tools={"slow": lambda call: claim})
    first, second = Owner("acme", "first"), Owner("acme", "second")
    server.request("tools/call", name="slow", arguments={}, owner=first)
    server.script(LoadTask, StoreFault.LATE)
    listening = server.listen("claimed", owner=first)
    row = server.store.load(TaskId("claimed"))
    assert row is not None
    assert server.store.delete(row.task_id, row.revision)
    server.advance(1)
    server.request("tools/call", name="slow", arguments={}, owner=second)
    server.release()
    assert listening.agreed == {"taskIds": []}
    assert listening.states_of("claimed") == []


@pytest.mark.spec("S11")
def test_nobody_is_asked_whether_one_who_has_left_may_listen() -> None:
    """Each such question may take its time, and whoever else listens to the task would wait for all of them."""
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    server.script(LoadTask, StoreFault.SLOW)
    left = server.listen(task_id, stream=OWN, own_stream=True)
    server.close_stream(OWN)
    listening = server.listen(task_id)
    before = len(server.effects_of(Authorize))
    server.release()
    assert listening.agreed == {"taskIds": [task_id]}
    assert left.messages == []
    assert len(server.effects_of(Authorize)) == before + 1


@pytest.mark.spec("S8")
def test_hints_do_not_make_looks_at_intervals_any_rarer() -> None:
    server = bench()
    task_id = create(server)
    server.listen(task_id, owner=LOCAL_OWNER)
    server.advance(LIMITS.reconcile_interval_ms - 1)
    server.feed(TaskChanged(TaskId(task_id)))
    before = len(server.effects_of(LoadTask))
    server.advance(1)
    assert len(server.effects_of(LoadTask)) == before + 1
