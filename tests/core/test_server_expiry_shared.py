"""Time on a store that several processes share: any of them ends what is overdue, whoever runs its work."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import ResumeWork, StopWork, StoreTask
from mcp_tasks_core.server.events import WorkReleased, WorkRetimed
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import form_question
from mcp_tasks_core.testing.processes import Processes
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore

LIMITS = Limits()
DEATH_MS = LIMITS.lease_ms + LIMITS.lease_renewal_ms
TTL_MS = 120_000


def machine(recovery: Recovery = Recovery.FAIL, ttl_ms: int | None = TTL_MS, **config: Any) -> Processes:
    return Processes(tools={"slow": lambda call: Defer(ttl_ms=ttl_ms)}, recovery=recovery, **config)


def create(process: ServerHarness) -> str:
    task_id: str = process.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    return task_id


def rows(processes: Processes) -> int:
    assert isinstance(processes.store, SharedMemoryTaskStore)
    return len(processes.store)


@pytest.mark.spec("T4", "T5", "D10")
def test_an_overdue_task_is_ended_by_any_process_and_its_work_is_told_to_stop_where_it_runs() -> None:
    processes = machine()
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    worker.script(StoreTask, *[StoreFault.FAIL] * 1_000)  # so that it cannot be the worker that ends it
    processes.live(TTL_MS - 1)
    assert other.record(task_id).status is TaskStatus.WORKING
    processes.live(1 + LIMITS.hint_interval_ms)
    state = other.request("tasks/get", taskId=task_id)["result"]
    assert (state["status"], state["error"]["code"], state["error"]["data"]) == (
        "failed",
        -32603,
        {"reason": "expired"},
    )
    assert str(TTL_MS) in state["statusMessage"]
    assert {effect.task_id for effect in worker.effects_of(StopWork)} == {task_id}


@pytest.mark.spec("T4", "T5", "D9", "D10")
def test_a_task_goes_step_by_step_in_every_process_alike() -> None:
    processes = machine()
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    processes.live(TTL_MS)
    for process in (worker, other):
        assert process.request("tasks/get", taskId=task_id)["result"]["status"] == "failed"
    processes.live(LIMITS.expiry_grace_ms)
    for process in (worker, other):
        assert process.request("tasks/get", taskId=task_id)["error"]["message"] == "Task has expired"
        stranger = process.request("tasks/get", taskId=task_id, owner=Owner("other", "one"))
        assert stranger["error"]["message"] == "Task not found"
    processes.live(LIMITS.tombstone_ms)
    for process in (worker, other):
        assert process.request("tasks/get", taskId=task_id)["error"]["message"] == "Task not found"
    assert rows(processes) == 0


@pytest.mark.spec("T4", "D10")
def test_a_task_that_comes_due_while_its_process_is_dead_says_that_its_time_was_over() -> None:
    processes = machine(Recovery.RESUME, ttl_ms=LIMITS.lease_ms // 2)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(LIMITS.sweep_interval_ms)
    assert heir.request("tasks/get", taskId=task_id)["result"]["error"]["data"] == {"reason": "expired"}
    assert not heir.effects_of(ResumeWork)


@pytest.mark.spec("T4", "D10")
def test_a_restart_ends_what_came_due_while_no_process_ran() -> None:
    processes = machine(Recovery.RESUME)
    dead = processes.start("dead")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(TTL_MS)
    heir = processes.start("heir")
    assert heir.request("tasks/get", taskId=task_id)["result"]["status"] == "failed"
    processes.live(LIMITS.expiry_grace_ms + LIMITS.tombstone_ms + LIMITS.sweep_interval_ms)
    assert rows(processes) == 0


@pytest.mark.spec("T4")
def test_resumed_work_has_no_more_time_than_its_task() -> None:
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    (resumed,) = heir.effects_of(ResumeWork)
    assert resumed.ttl_ms == TTL_MS
    processes.live(TTL_MS - DEATH_MS)
    assert heir.record(task_id).status is TaskStatus.FAILED
    assert [effect.task_id for effect in heir.effects_of(StopWork)] == [task_id]


@pytest.mark.spec("D11")
def test_a_tasks_time_grows_while_a_person_decides_and_the_process_is_another_ones() -> None:
    processes = machine(input_extension_ms=60_000)
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    worker.ask(task_id, "q", form_question())
    processes.live(3 * TTL_MS)
    state = other.request("tasks/get", taskId=task_id)["result"]
    assert state["status"] == "input_required"
    assert state["ttlMs"] > 3 * TTL_MS
    assert not worker.effects_of(StopWork)


@pytest.mark.spec("D11", "T5")
def test_the_time_of_a_task_that_nobody_runs_does_not_grow_with_its_open_question() -> None:
    """Nothing would ever come of the answer, and the task would never go."""
    processes = machine(Recovery.LEAVE, input_extension_ms=60_000)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    dead.ask(task_id, "q", form_question())
    processes.kill(dead)
    processes.live(DEATH_MS)
    heir.feed(WorkReleased(TaskId(task_id)))
    processes.live(TTL_MS)
    assert heir.record(task_id).status is TaskStatus.FAILED


@pytest.mark.spec("T4")
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"ttl_ms": 10 * TTL_MS}, (10 * TTL_MS, None)),
        ({"ttl_ms": None}, (None, None)),
        ({"poll_interval_ms": 250}, (TTL_MS, 250)),
        ({"ttl_ms": 5, "poll_interval_ms": 7}, (5, 7)),
        ({}, (TTL_MS, None)),
    ],
)
def test_work_changes_of_its_tasks_times_what_it_names_and_nothing_else(
    changed: dict[str, Any], expected: tuple[int | None, int | None]
) -> None:
    processes = machine()
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    worker.feed(WorkRetimed(task_id=TaskId(task_id), **changed))
    state = other.request("tasks/get", taskId=task_id)["result"]
    assert (state["ttlMs"], state.get("pollIntervalMs")) == expected


@pytest.mark.spec("T4")
def test_a_longer_time_that_one_process_set_is_kept_by_all() -> None:
    processes = machine()
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    worker.feed(WorkRetimed(task_id=TaskId(task_id), ttl_ms=4 * TTL_MS))
    processes.live(4 * TTL_MS - 1)
    assert other.record(task_id).status is TaskStatus.WORKING
    processes.live(1)
    assert other.record(task_id).status is TaskStatus.FAILED


def test_nothing_is_left_in_the_store_or_in_any_process_after_many_short_tasks() -> None:
    processes = machine(ttl_ms=1_000)
    worker, other = processes.start("worker"), processes.start("other")
    for _ in range(300):
        create(worker)
    processes.live(1_000 + LIMITS.expiry_grace_ms + LIMITS.tombstone_ms + 2 * LIMITS.sweep_interval_ms)
    assert rows(processes) == 0
    for process in (worker, other):
        assert (process.protocol.open_tickets, process.protocol.busy_tasks) == (0, 0)
