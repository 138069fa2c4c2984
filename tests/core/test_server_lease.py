"""Leases and clocks: who is taken for dead, and who is not although its lease looks as if it had run out."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import HoldLease, ListOrphans, ResumeWork, StopWork, StoreTask
from mcp_tasks_core.server.events import Ticked
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import text_result
from mcp_tasks_core.testing.processes import Processes

LIMITS = Limits()
SETTLED_MS = 20_000  # what limits.py promises at its default values


def machine(recovery: Recovery = Recovery.FAIL, **config: Any) -> Processes:
    return Processes(tools={"slow": lambda call: Defer()}, recovery=recovery, **config)


def create(process: ServerHarness) -> str:
    task_id: str = process.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    return task_id


def status(process: ServerHarness, task_id: str) -> TaskStatus:
    return process.record(task_id).status


@pytest.mark.spec("D31")
@pytest.mark.parametrize("died_after_ms", [0, 1, 2_500, 4_999, 5_000, 5_001])
@pytest.mark.parametrize("started_after_ms", [0, 1_234, 4_999])
def test_the_work_of_a_dead_process_is_settled_after_twenty_seconds_at_the_latest(
    died_after_ms: int, started_after_ms: int
) -> None:
    processes = machine()
    dead = processes.start("dead")
    processes.live(started_after_ms)
    alive = processes.start("alive")
    processes.live(died_after_ms)
    task_id = create(dead)
    processes.kill(dead)
    processes.live(SETTLED_MS)
    assert status(alive, task_id) is TaskStatus.FAILED


@pytest.mark.spec("D31")
def test_no_lease_runs_out_before_its_time_is_over() -> None:
    processes = machine()
    dead, alive = processes.start("dead"), processes.start("alive")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(LIMITS.lease_ms - 1)
    assert status(alive, task_id) is TaskStatus.WORKING


def test_the_work_of_a_process_that_ended_as_it_should_is_settled_at_the_next_look() -> None:
    processes = machine()
    ended = processes.start("ended")
    task_id = create(ended)
    processes.end(ended)
    heir = processes.start("heir")
    assert status(heir, task_id) is TaskStatus.FAILED, "a restart settles at once"


@pytest.mark.parametrize("jump_ms", [6_000, 60_000, 8 * 3_600_000])
def test_a_clock_that_is_set_forward_kills_no_living_process(jump_ms: int) -> None:
    """Every lease looks over at once, and whoever looks first would take all the work of the others."""
    processes = machine(Recovery.RESUME)
    first, second = processes.start("first"), processes.start("second")
    processes.live(2_500)
    third = processes.start("third")
    tasks = {process: create(process) for process in (first, second, third)}
    processes.jump(jump_ms)
    for process in (third, second, first):
        process.feed(Ticked())
    processes.live(2 * SETTLED_MS)
    for process, task_id in tasks.items():
        assert process.record(task_id).executor == process.config.executor
        assert not process.effects_of(ResumeWork)
        assert not process.effects_of(StopWork)


def test_after_a_jump_of_the_clock_the_dead_are_found_once_the_living_had_time_to_renew() -> None:
    processes = machine()
    dead, alive = processes.start("dead"), processes.start("alive")
    task_id = create(dead)
    processes.kill(dead)
    processes.jump(60_000)
    processes.live(LIMITS.lease_renewal_ms + LIMITS.lease_ms + LIMITS.lease_renewal_ms)
    assert status(alive, task_id) is TaskStatus.FAILED


def test_a_clock_that_is_set_back_kills_nobody_and_new_work_is_looked_after() -> None:
    processes = machine()
    first, second = processes.start("first"), processes.start("second")
    task_id = create(first)
    processes.jump(-3_600_000)
    later = create(second)
    processes.live(2 * SETTLED_MS)
    assert status(first, task_id) is status(second, later) is TaskStatus.WORKING


def test_processes_that_all_overslept_their_leases_take_no_work_from_each_other() -> None:
    """As when somebody holds the store's lock for longer than a lease: all renew late, and none is dead."""
    processes = machine(Recovery.RESUME)
    first, second = processes.start("first"), processes.start("second")
    tasks = [(first, create(first)), (second, create(second))]
    for process in (first, second):
        process.script(HoldLease, *[StoreFault.FAIL] * 20)
    processes.live(20_000)
    for process, task_id in tasks:
        assert process.record(task_id).executor == process.config.executor
    processes.live(2 * SETTLED_MS)
    for process, task_id in tasks:
        assert process.record(task_id).executor == process.config.executor
        assert not process.effects_of(StopWork)


def test_a_renewal_that_fails_is_tried_again_before_the_lease_runs_out() -> None:
    processes = machine()
    first, second = processes.start("first"), processes.start("second")
    task_id = create(first)
    first.script(HoldLease, *[StoreFault.FAIL] * 8)
    processes.live(2 * SETTLED_MS)
    assert status(second, task_id) is TaskStatus.WORKING


def test_a_process_that_cannot_renew_its_lease_looks_for_no_dead() -> None:
    processes = machine()
    dead, alive = processes.start("dead"), processes.start("alive")
    task_id = create(dead)
    processes.kill(dead)
    alive.script(HoldLease, *[StoreFault.FAIL] * 100)
    alive.forget()
    processes.live(50_000)
    assert not alive.effects_of(ListOrphans)
    assert status(alive, task_id) is TaskStatus.WORKING


# --- no work without a lease


def test_no_task_is_created_under_a_lease_that_does_not_run() -> None:
    """A runner that hands in the first call before the first tick; others would take its work for a dead process's."""
    processes = machine()
    alive = processes.start("alive")
    early = ServerHarness(
        alive.config.__class__(tools=alive.config.tools, executor="early"),
        tools={"slow": lambda call: Defer()},
        store=processes.store,
        now=processes.now,
        seed="early",
    )
    task_id = create(early)
    order = [type(effect) for effect in early.effects if isinstance(effect, HoldLease | StoreTask)]
    assert order == [HoldLease, StoreTask]
    processes.running["early"] = early
    processes.live(SETTLED_MS)
    assert status(alive, task_id) is TaskStatus.WORKING


@pytest.mark.spec("C5")
def test_a_process_that_was_stopped_renews_its_lease_before_it_makes_a_task() -> None:
    processes = machine()
    stopped, alive = processes.start("stopped"), processes.start("alive")
    processes.kill(stopped)
    processes.live(2 * SETTLED_MS)
    processes.wake(stopped)
    stopped.forget()
    task_id = create(stopped)
    assert isinstance(stopped.effects[1], HoldLease)
    processes.live(2 * SETTLED_MS)
    assert status(alive, task_id) is TaskStatus.WORKING


@pytest.mark.spec("C5")
def test_a_caller_gets_an_error_and_no_work_starts_when_the_lease_cannot_be_held() -> None:
    processes = machine()
    stopped = processes.start("stopped")
    processes.kill(stopped)
    processes.live(2 * SETTLED_MS)
    processes.wake(stopped)
    stopped.script(HoldLease, StoreFault.FAIL)
    error = stopped.request("tools/call", name="slow", arguments={})["error"]
    assert (error["code"], error["data"]["retryable"]) == (-32603, True)
    assert not stopped.effects_of(StoreTask)


def test_a_server_without_tasks_settles_nobodys_work() -> None:
    processes = machine()
    dead = processes.start("dead")
    task_id = create(dead)
    processes.kill(dead)
    plain = processes.start("plain", tasks=False)
    processes.live(2 * SETTLED_MS)
    assert status(plain, task_id) is TaskStatus.WORKING
    assert not plain.effects_of(HoldLease)


@pytest.mark.spec("T1", "D29")
def test_a_store_that_fails_for_longer_than_a_lease_loses_no_end_of_work() -> None:
    processes = machine()
    worker, other = processes.start("worker"), processes.start("other")
    task_id = create(worker)
    for process in (worker, other):
        for kind in (StoreTask, HoldLease):
            process.script(kind, *[StoreFault.FAIL] * 40)
    worker.complete(task_id, text_result("kept"))
    processes.live(60_000)
    assert status(other, task_id) is TaskStatus.COMPLETED
