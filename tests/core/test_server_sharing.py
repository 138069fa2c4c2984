"""Several processes on one store: each is a core of its own, and the store is all that they share."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.lifecycle import Adopt, Complete
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery, ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import (
    DeliverInput,
    HoldLease,
    ListChanges,
    ListOrphans,
    OrphanLeft,
    Report,
    ResumeWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import TaskChanged, WorkCompleted, WorkStopped
from mcp_tasks_core.store import SharedTaskStore, TaskStore
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question, text_result
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore
from mcp_tasks_core.testing.shared_store_contract import SharedStoreContract

LIMITS = Limits()
DEATH_MS = LIMITS.lease_ms + LIMITS.lease_renewal_ms


class TestSharedMemoryTaskStore(SharedStoreContract):
    def make_store(self) -> SharedTaskStore:
        return SharedMemoryTaskStore()

    def reopen(self, store: TaskStore) -> SharedTaskStore:
        assert isinstance(store, SharedMemoryTaskStore)
        return store


def process(store: TaskStore, name: str, recovery: Recovery = Recovery.FAIL, **config: Any) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}}, recovery=recovery)
    config = {"tools": [entry], "executor": name, **config}
    server = ServerHarness(ServerConfig(**config), tools={"slow": lambda call: Defer()}, store=store, seed=name)
    server.advance(0)
    return server


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={"n": 1}, meta={"traceparent": "t"})["result"][
        "taskId"
    ]
    server.forget()
    return task_id


def live(*servers: ServerHarness, for_ms: int) -> None:
    """These processes live on, side by side; every other one is dead."""
    for _ in range(for_ms // 250):
        for server in servers:
            server.advance(250)


# --- this process


def test_a_process_says_that_it_lives_from_its_start_and_on_time() -> None:
    store = SharedMemoryTaskStore()
    server = process(store, "p1")
    assert [effect.executor for effect in server.effects_of(HoldLease)] == ["p1"]
    server.advance(60_000)
    leases = server.effects_of(HoldLease)
    assert len(leases) == 1 + 60_000 // LIMITS.lease_renewal_ms
    assert all(lease.until_ms - server.now.wall_ms <= LIMITS.lease_ms for lease in leases)


def test_a_process_on_a_store_of_its_own_holds_no_lease() -> None:
    server = ServerHarness()
    server.advance(600_000)
    assert not [*server.effects_of(HoldLease), *server.effects_of(ListOrphans), *server.effects_of(ListChanges)]


@pytest.mark.parametrize("kind", [HoldLease, ListOrphans, ListChanges])
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.DROPPED_LOST])
def test_a_store_that_fails_is_asked_again_and_the_operator_is_told(kind: Any, fault: StoreFault) -> None:
    server = process(SharedMemoryTaskStore(), "p1")
    server.script(kind, fault, fault)
    server.advance(3 * LIMITS.answer_wait_ms)
    assert len(server.effects_of(Report)) >= 2
    before = len(server.effects_of(kind))
    server.advance(60_000)
    assert len(server.effects_of(kind)) > before
    assert server.protocol.open_tickets == 0


# --- the dead


@pytest.mark.spec("D31", "T1")
def test_the_work_of_a_dead_process_fails_within_a_bound_and_that_of_a_living_one_goes_on() -> None:
    store = SharedMemoryTaskStore()
    dead, alive, watcher = (process(store, name) for name in ("dead", "alive", "watcher"))
    lost, kept = [create(dead) for _ in range(3)], create(alive)
    live(alive, watcher, for_ms=DEATH_MS)
    for task_id in lost:
        state = watcher.request("tasks/get", taskId=task_id)["result"]
        assert (state["status"], state["error"]["code"]) == ("failed", -32603)
        assert state["error"]["data"] == {"reason": "worker_lost"}
    assert watcher.request("tasks/get", taskId=kept)["result"]["status"] == "working"
    alive.complete(kept, text_result())
    assert watcher.request("tasks/get", taskId=kept)["result"]["status"] == "completed"


def test_work_that_may_run_twice_is_run_again_with_what_its_call_said_and_its_answers() -> None:
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, Recovery.RESUME) for name in ("dead", "heir"))
    task_id = create(dead)
    dead.ask(task_id, "q", form_question())
    dead.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")})
    live(heir, for_ms=DEATH_MS)
    (resumed,) = heir.effects_of(ResumeWork)
    assert (resumed.task_id, resumed.name, resumed.arguments, resumed.attempt) == (task_id, "slow", {"n": 1}, 2)
    assert resumed.meta["traceparent"] == "t"
    heir.ask(task_id, "q", form_question())
    assert [effect.answer for effect in heir.effects_of(DeliverInput)] == [accepted(value="x")]
    heir.complete(task_id, text_result("second"))
    assert heir.record(task_id).status is TaskStatus.COMPLETED


def test_two_heirs_run_the_work_of_the_dead_once() -> None:
    store = SharedMemoryTaskStore()
    dead, *heirs = (process(store, name, Recovery.RESUME) for name in ("dead", "a", "b", "c"))
    tasks = {create(dead) for _ in range(5)}
    live(*heirs, for_ms=DEATH_MS)
    resumed = [effect.task_id for heir in heirs for effect in heir.effects_of(ResumeWork)]
    assert (len(resumed), set(resumed)) == (5, tasks)


def test_an_heir_that_loses_the_race_for_one_task_starts_nothing() -> None:
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, Recovery.RESUME) for name in ("dead", "heir"))
    task_id = create(dead)
    raced: list[bool] = []

    def race(effect: object) -> None:
        if isinstance(effect, StoreTask) and not raced:
            raced.append(True)
            heir.change_elsewhere(task_id, Adopt("other"))

    store.hold_lease("other", 10**15)
    heir.before_store = race
    live(heir, for_ms=DEATH_MS)
    assert raced
    assert not heir.effects_of(ResumeWork)
    assert heir.record(task_id).executor == "other"


@pytest.mark.parametrize("recovery", [Recovery.RESUME, Recovery.LEAVE])
def test_a_take_over_that_was_stored_although_nobody_knew_is_carried_through(recovery: Recovery) -> None:
    """The write lands only after it was given up and a read found nothing of it."""
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, recovery) for name in ("dead", "heir"))
    task_id = create(dead)
    heir.script(StoreTask, StoreFault.SLOW_UNCERTAIN)
    heir.before_store = lambda effect: heir.release() if isinstance(effect, StoreTask) and heir.held else None
    live(heir, for_ms=DEATH_MS + LIMITS.answer_wait_ms)
    kind = ResumeWork if recovery is Recovery.RESUME else OrphanLeft
    assert [effect.task_id for effect in heir.effects_of(kind)] == [task_id]


def test_work_that_kills_every_process_is_given_up_after_so_many_attempts() -> None:
    store = SharedMemoryTaskStore()
    task_id = create(process(store, "p1", Recovery.RESUME))
    clock_ms = 0
    for attempt in range(2, LIMITS.work_attempts_max + 2):
        heir = process(store, f"p{attempt}", Recovery.RESUME)
        clock_ms += DEATH_MS
        heir.advance(clock_ms)
        found = [effect.attempt for effect in heir.effects_of(ResumeWork)]
        assert found == ([attempt] if attempt <= LIMITS.work_attempts_max else [])
    assert heir.record(task_id).status is TaskStatus.FAILED


def test_work_that_is_left_to_the_application_is_told_of_and_can_be_settled_by_it() -> None:
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, Recovery.LEAVE) for name in ("dead", "heir"))
    task_id = create(dead)
    live(heir, for_ms=DEATH_MS)
    assert [effect.task_id for effect in heir.effects_of(OrphanLeft)] == [task_id]
    assert heir.record(task_id).status is TaskStatus.WORKING
    heir.complete(task_id, text_result())
    assert heir.record(task_id).status is TaskStatus.COMPLETED


@pytest.mark.spec("X1", "D28")
def test_a_cancel_of_work_that_nobody_runs_is_carried_through() -> None:
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, Recovery.LEAVE) for name in ("dead", "heir"))
    task_id = create(dead)
    live(heir, for_ms=DEATH_MS)
    heir.request("tasks/cancel", taskId=task_id)
    live(heir, for_ms=LIMITS.cancel_grace_ms + 250)
    assert heir.record(task_id).status is TaskStatus.CANCELLED


@pytest.mark.spec("X1", "D31")
def test_a_task_whose_cancel_was_accepted_before_its_process_died_is_cancelled() -> None:
    store = SharedMemoryTaskStore()
    dead, heir = (process(store, name, Recovery.RESUME) for name in ("dead", "heir"))
    task_id = create(dead)
    dead.request("tasks/cancel", taskId=task_id)
    live(heir, for_ms=DEATH_MS)
    assert heir.record(task_id).status is TaskStatus.CANCELLED
    assert not heir.effects_of(ResumeWork)


# --- the living


@pytest.mark.spec("X1", "U6")
def test_cancels_and_answers_that_another_process_took_reach_the_work() -> None:
    store = SharedMemoryTaskStore()
    worker, front = process(store, "worker"), process(store, "front")
    task_id = create(worker)
    worker.ask(task_id, "q", form_question())
    answered = front.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")})
    assert "result" in answered
    live(worker, front, for_ms=500)
    assert [effect.key for effect in worker.effects_of(DeliverInput)] == ["q"]
    assert not front.effects_of(DeliverInput)
    front.request("tasks/cancel", taskId=task_id)
    live(worker, front, for_ms=500)
    assert len(worker.effects_of(StopWork)) >= 1
    assert not front.effects_of(StopWork)
    live(worker, front, for_ms=LIMITS.cancel_grace_ms)
    assert front.request("tasks/get", taskId=task_id)["result"]["status"] == "cancelled"


@pytest.mark.spec("T1")
def test_a_process_that_was_taken_for_dead_stops_its_work_and_its_end_does_not_count() -> None:
    store = SharedMemoryTaskStore()
    frozen, heir = (process(store, name, Recovery.RESUME) for name in ("frozen", "heir"))
    task_id = create(frozen)
    live(heir, for_ms=DEATH_MS)
    assert heir.effects_of(ResumeWork)
    frozen.complete(task_id, text_result("too late"))
    assert frozen.record(task_id).status is TaskStatus.WORKING
    other = create(frozen)
    assert frozen.record(other).executor == "frozen"
    heir.complete(task_id, text_result("second"))
    assert frozen.record(task_id).result == {**text_result("second"), "resultType": "complete"}


def test_a_process_that_was_taken_for_dead_tells_its_work_to_stop_once_it_looks() -> None:
    store = SharedMemoryTaskStore()
    frozen, heir = (process(store, name, Recovery.RESUME) for name in ("frozen", "heir"))
    task_id = create(frozen)
    live(heir, for_ms=DEATH_MS)
    live(frozen, heir, for_ms=LIMITS.lease_renewal_ms)
    assert [effect.task_id for effect in frozen.effects_of(StopWork)] == [task_id]


@pytest.mark.spec("T1")
def test_work_that_was_told_to_stop_does_not_end_the_task_when_it_comes_back_to_its_process() -> None:
    store = SharedMemoryTaskStore()
    frozen, heir = (process(store, name, Recovery.RESUME) for name in ("frozen", "heir"))
    task_id = create(frozen)
    live(heir, for_ms=DEATH_MS)
    live(frozen, heir, for_ms=LIMITS.lease_renewal_ms)
    assert frozen.effects_of(StopWork)
    ended: list[str] = []

    def end_the_first_work(effect: object) -> None:
        if isinstance(effect, StoreTask) and not ended:
            ended.append(task_id)
            frozen.feed(WorkCompleted(TaskId(task_id), WorkStopped()))

    frozen.before_store = end_the_first_work
    live(frozen, for_ms=2 * DEATH_MS)
    assert ended
    (resumed,) = frozen.effects_of(ResumeWork)
    assert (resumed.task_id, resumed.attempt) == (task_id, 3)
    assert frozen.record(task_id).status is TaskStatus.WORKING
    frozen.complete(task_id, text_result("third"))
    assert frozen.record(task_id).status is TaskStatus.COMPLETED


def test_hints_are_harmless_when_they_are_untrue_and_helpful_when_they_are_not() -> None:
    store = SharedMemoryTaskStore()
    worker = process(store, "worker")
    task_id = create(worker)
    for hinted in (task_id, "unknown", ""):
        worker.feed(TaskChanged(TaskId(hinted)))
    assert not worker.effects_of(StopWork)
    worker.change_elsewhere(task_id, Complete(text_result()))
    worker.feed(TaskChanged(TaskId(task_id)))
    assert [effect.task_id for effect in worker.effects_of(StopWork)] == [task_id]


def test_more_hints_than_one_look_takes_are_taken_by_the_next() -> None:
    store = SharedMemoryTaskStore()
    worker = process(store, "worker", limits=Limits(hints_max=2))
    tasks = [create(worker) for _ in range(5)]
    live(worker, for_ms=5_000)
    for task_id in tasks:
        worker.change_elsewhere(task_id, Complete(text_result()))
    worker.forget()
    worker.advance(4 * LIMITS.hint_interval_ms)
    assert {effect.task_id for effect in worker.effects_of(StopWork)} == set(tasks)


def test_more_orphans_than_one_look_takes_are_taken_by_the_next() -> None:
    store = SharedMemoryTaskStore()
    dead = process(store, "dead")
    tasks = [create(dead) for _ in range(5)]
    heir = process(store, "heir", limits=Limits(sweep_rows_max=2))
    live(heir, for_ms=DEATH_MS + 3 * LIMITS.lease_renewal_ms)
    assert {heir.record(task_id).status for task_id in tasks} == {TaskStatus.FAILED}
