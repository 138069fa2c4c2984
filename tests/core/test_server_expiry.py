"""Tasks whose time is over, and that nothing of them stays behind."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import StreamId, TaskId
from mcp_tasks_core.lifecycle import Complete, Retime
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import DeleteTask, ListDue, LoadTask, Report, StartWork, StopWork, StoreTask
from mcp_tasks_core.server.events import WorkCompleted, WorkRetimed, WorkStopped
from mcp_tasks_core.store import MemoryTaskStore
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question, text_result

OWNER, OTHER = Owner("a", "s"), Owner("b", "s")
LIMITS = Limits(expiry_grace_ms=1_000, tombstone_ms=10_000)
TTL_MS = 300


def bench(store: MemoryTaskStore | None = None, defer: Defer | None = None, **config: Any) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    tools = {"slow": lambda call: defer or Defer(ttl_ms=TTL_MS)}
    return ServerHarness(ServerConfig(tools=[entry], **{"limits": LIMITS, **config}), tools=tools, store=store)


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={}, owner=OWNER)["result"]["taskId"]
    return task_id


def look(server: ServerHarness, task_id: str, owner: Owner = OWNER) -> str:
    """What a poll shows: a status, or the message of its error."""
    answer = server.request("tasks/get", taskId=task_id, owner=owner)
    return str(answer["result"]["status"] if "result" in answer else answer["error"]["message"])


@pytest.mark.spec("T4", "T5", "D9", "D10", "G3")
def test_an_overdue_task_fails_then_becomes_a_tombstone_then_is_gone() -> None:
    server = bench()
    task_id = create(server)
    seen = []
    for moment in (TTL_MS - 1, 1, 999, 1, 9_999, 1):
        server.advance(moment)
        seen.append((look(server, task_id), look(server, task_id, OTHER)))
    gone = "Task not found"
    assert seen == [
        ("working", gone),
        ("failed", gone),
        ("failed", gone),
        ("Task has expired", gone),
        ("Task has expired", gone),
        (gone, gone),
    ]
    assert len(server.store) == 0  # type: ignore[arg-type]


@pytest.mark.spec("T5", "D10")
def test_a_task_that_ran_out_of_time_says_why_and_its_work_is_told_to_stop() -> None:
    server = bench()
    task_id = create(server)
    server.advance(TTL_MS)
    state = server.request("tasks/get", taskId=task_id, owner=OWNER)["result"]
    assert (state["error"]["code"], state["error"]["data"]) == (-32603, {"reason": "expired"})
    assert "time to live of 300 ms" in state["statusMessage"]
    assert [effect.task_id for effect in server.effects_of(StopWork)] == [task_id]


@pytest.mark.spec("T5")
def test_a_task_that_waits_for_an_answer_never_given_is_told_to_stop_too() -> None:
    server = bench()
    task_id = create(server)
    server.ask(task_id, "q", form_question())
    server.advance(TTL_MS)
    assert look(server, task_id) == "failed"
    assert [effect.task_id for effect in server.effects_of(StopWork)] == [task_id]
    late = server.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    assert late["result"] == {"resultType": "complete"}


@pytest.mark.spec("T4", "D9")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_tombstone_says_to_its_owner_that_the_task_has_expired_on_every_method(method: str) -> None:
    server = bench()
    task_id = create(server)
    server.complete(task_id, text_result("secret"))
    server.advance(TTL_MS + 1_000)
    params = {"taskId": task_id, "inputResponses": {}}
    mine, theirs = (server.request(method, params, owner=owner)["error"] for owner in (OWNER, OTHER))
    assert mine == {"code": -32602, "message": "Task has expired"}
    assert theirs == {"code": -32602, "message": "Task not found"}
    row = server.store.load(TaskId(task_id))
    assert row is not None
    assert b"secret" not in row.payload


@pytest.mark.spec("T4")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_before_its_time_is_over_nothing_of_a_task_is_discarded(end: str) -> None:
    server = bench()
    task_id = create(server)
    outcomes = {
        "completed": lambda: server.complete(task_id, text_result()),
        "failed": lambda: server.fail(task_id, 5, "x"),
        "cancelled": lambda: server.feed(WorkCompleted(TaskId(task_id), WorkStopped())),
    }
    outcomes[end]()
    before = server.request("tasks/get", id=1, taskId=task_id, owner=OWNER)
    for _ in range(10):
        server.advance((TTL_MS + 999) // 10)
        assert server.request("tasks/get", id=1, taskId=task_id, owner=OWNER) == before
    assert not server.effects_of(StopWork)


@pytest.mark.spec("T4", "D12")
def test_a_task_without_a_time_to_live_is_never_touched() -> None:
    server = bench(defer=Defer(ttl_ms=None))
    task_id = create(server)
    server.advance(30 * 3_600_000)
    assert look(server, task_id) == "working"
    assert not server.effects_of(StopWork)


@pytest.mark.spec("T4")
def test_a_longer_time_to_live_keeps_a_task_and_a_shorter_one_ends_it_sooner() -> None:
    server = bench()
    longer, shorter, for_ever = create(server), create(server), create(server)
    server.feed(WorkRetimed(task_id=TaskId(longer), ttl_ms=1_000, poll_interval_ms=50))
    server.feed(WorkRetimed(task_id=TaskId(shorter), ttl_ms=100, poll_interval_ms=None))
    server.feed(WorkRetimed(task_id=TaskId(for_ever), ttl_ms=None, poll_interval_ms=None))
    state = server.request("tasks/get", taskId=longer, owner=OWNER)["result"]
    assert (state["ttlMs"], state["pollIntervalMs"]) == (1_000, 50)
    server.advance(100)
    assert [look(server, t) for t in (longer, shorter, for_ever)] == ["working", "failed", "working"]
    server.advance(899)
    assert look(server, longer) == "working"
    server.advance(1)
    assert look(server, longer) == "failed"
    server.advance(10_000_000)
    assert look(server, for_ever) == "working"


@pytest.mark.spec("D11")
def test_a_person_who_is_still_deciding_is_given_more_time_where_that_is_configured() -> None:
    server = bench(input_extension_ms=1_000)
    waiting, working = create(server), create(server)
    server.ask(waiting, "q", form_question())
    server.advance(TTL_MS)
    assert (look(server, waiting), look(server, working)) == ("input_required", "failed")
    ttl_ms = server.request("tasks/get", taskId=waiting, owner=OWNER)["result"]["ttlMs"]
    assert ttl_ms == TTL_MS + 1_000
    server.request("tasks/update", taskId=waiting, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    server.advance(1_000)
    assert look(server, waiting) == "failed"


@pytest.mark.spec("T5", "T1")
def test_work_that_finishes_at_the_moment_its_time_is_over_ends_one_way_only() -> None:
    for first in ("work", "expiry"):
        server = bench()
        task_id = create(server)
        server.advance(TTL_MS - 1)
        if first == "work":
            server.complete(task_id, text_result())
            server.advance(1)
        else:
            server.advance(1)
            server.complete(task_id, text_result())
        assert look(server, task_id) == ("completed" if first == "work" else "failed")


@pytest.mark.spec("T5")
def test_a_task_that_another_process_finished_or_prolonged_in_between_is_left_alone() -> None:
    for change in (Complete(text_result()), Retime(100_000, None)):
        server = bench()
        task_id = create(server)
        raced: list[bool] = []

        def race(effect: object, server: ServerHarness = server, change: Any = change, raced: Any = raced) -> None:
            if isinstance(effect, StoreTask) and effect.row.revision == 2 and not raced:
                raced.append(True)
                server.change_elsewhere(effect.row.task_id, change)

        server.before_store = race
        server.advance(TTL_MS)
        assert raced
        assert look(server, task_id) == ("completed" if isinstance(change, Complete) else "working")


@pytest.mark.spec("T5")
@pytest.mark.parametrize("kind", [ListDue, LoadTask, StoreTask, DeleteTask])
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.DROPPED_LOST])
def test_a_store_that_fails_while_tasks_expire_only_delays_that(kind: Any, fault: StoreFault) -> None:
    server = bench(limits=attrs.evolve(LIMITS, sweep_interval_ms=5_000))
    task_id = create(server)
    server.script(kind, *[fault] * 3)
    server.advance(TTL_MS + 1_000 + 10_000 + 4 * LIMITS.answer_wait_ms + 10_000)
    assert look(server, task_id) == "Task not found"
    assert len(server.store) == 0  # type: ignore[arg-type]
    assert server.effects_of(Report)
    assert server.protocol.open_tickets == 0


def test_a_row_that_cannot_be_read_does_not_keep_the_core_spinning() -> None:
    server = bench()
    task_id = create(server)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    server.store._rows[row.task_id] = attrs.evolve(row, payload=b"{}")  # type: ignore[attr-defined]
    server.forget()
    server.advance(60_000)
    assert 50 <= len(server.effects_of(ListDue)) <= 70


def test_more_rows_than_one_look_takes_are_taken_by_the_next() -> None:
    server = bench(limits=attrs.evolve(LIMITS, sweep_rows_max=10))
    tasks = [create(server) for _ in range(35)]
    server.forget()
    server.advance(TTL_MS)
    assert len(server.effects_of(StopWork)) == 10
    server.advance(3_000)
    assert {effect.task_id for effect in server.effects_of(StopWork)} == set(tasks)


@pytest.mark.spec("T4")
def test_tasks_of_a_process_before_this_one_expire_too() -> None:
    first = bench()
    task_id = create(first)
    second = bench(first.store)  # type: ignore[arg-type]
    second.advance(TTL_MS)
    assert look(second, task_id) == "failed"
    assert len(second.effects_of(StartWork)) == 0


def test_tasks_that_other_processes_create_are_found_within_the_sweep_interval() -> None:
    first = bench()
    second = bench(first.store)  # type: ignore[arg-type]
    second.advance(1)
    task_id = create(first)
    second.advance(LIMITS.sweep_interval_ms)
    assert look(second, task_id) in ("failed", "Task has expired", "Task not found")


def test_without_tasks_nothing_is_ever_due() -> None:
    server = ServerHarness(ServerConfig(tasks=False))
    assert server.protocol.deadline is None
    server.advance(10**9)
    assert server.effects == []


def test_an_idle_server_looks_for_due_rows_once_per_interval_and_no_more() -> None:
    server = bench()
    server.advance(10 * LIMITS.sweep_interval_ms)
    assert len(server.effects_of(ListDue)) == 11


@pytest.mark.spec("T4", "S11")
def test_after_a_thousand_tasks_of_every_fate_nothing_is_kept() -> None:
    server = bench()
    for index in range(1_000):
        task_id = create(server)
        fate = index % 6
        if fate == 0:
            server.complete(task_id, text_result())
        elif fate == 1:
            server.ask(task_id, "q", form_question())
        elif fate == 2:
            server.request("tasks/cancel", taskId=task_id, owner=OWNER)
        elif fate == 3:
            server.progress(task_id, "one")
            server.progress(task_id, "two")
            server.progress(task_id, "three")
        elif fate == 4:
            server.fail(task_id, 5, "x")
            server.complete(task_id, text_result())
        look(server, task_id)
        server.forget()
        server.advance(7)
    server.advance(20_000_000)
    assert len(server.store) == 0  # type: ignore[arg-type]
    assert everything_kept(server) == {}


def everything_kept(server: ServerHarness) -> dict[str, int]:
    """How much every table of the core and of the store still holds, empty ones left out."""
    protocol = server.protocol
    machine, work = protocol._machine, protocol._work
    tables = {
        "open": machine._open,
        "expires": machine._expires_ms,
        "late": machine._late,
        "queues": machine._queues,
        "states": machine.states._kept,
        "live": work._live,
        "graces": work._graces_ms,
        "paces": work._pacing._paces,
        "retries": work._retries,
        "unsure": work._unsure,
        "exchanges": protocol._exchanges._streams,
        "rows": server.store._rows,  # type: ignore[attr-defined]
        "due": server.store._due,  # type: ignore[attr-defined]
    }
    return {name: len(table) for name, table in tables.items() if table}


@pytest.mark.spec("T4")
def test_streams_that_come_and_go_leave_nothing_behind() -> None:
    server = bench()
    server.tools["slow"] = lambda call: text_result()
    for stream in range(2, 1_000):
        server.request("tools/call", name="slow", arguments={}, stream=StreamId(stream))
        if stream % 2:
            server.close_stream(StreamId(stream))
    assert everything_kept(server) == {}


@pytest.mark.spec("D10")
def test_the_end_of_a_task_is_not_earlier_than_its_clock_says_although_the_wall_clock_was_set_back() -> None:
    server = bench()
    task_id = create(server)
    server.now = attrs.evolve(server.now, wall_ms=server.now.wall_ms - 1_000)
    server.advance(TTL_MS)
    assert look(server, task_id) == "working"
    ends_at_ms = server.record(task_id).created_at_ms + TTL_MS
    while look(server, task_id) == "working":
        server.advance(100)
    assert look(server, task_id) == "failed"
    assert ends_at_ms <= server.now.wall_ms <= ends_at_ms + LIMITS.sweep_interval_ms
