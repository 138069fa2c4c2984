"""What becomes of a task whose process died, and of a process that was only thought to be dead."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import (
    AbandonWork,
    DeliverInput,
    LoadTask,
    OrphanLeft,
    RefuseInput,
    ResumeWork,
    StartWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    Deferral,
    InputWithdrawn,
    Raised,
    WorkCompleted,
    WorkReleased,
    WorkRetimed,
    WorkStopped,
)
from mcp_tasks_core.tasks import InputEntry, TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question, text_result
from mcp_tasks_core.testing.processes import Processes

LIMITS = Limits()
DEATH_MS = LIMITS.lease_ms + LIMITS.lease_renewal_ms


def machine(recovery: Recovery, defer: Defer | None = None, **config: Any) -> Processes:
    return Processes(tools={"slow": lambda call: defer or Defer()}, recovery=recovery, **config)


def create(process: ServerHarness, **arguments: Any) -> str:
    task_id: str = process.request("tools/call", name="slow", arguments=arguments)["result"]["taskId"]
    return task_id


def status(process: ServerHarness, task_id: str) -> TaskStatus:
    return process.record(task_id).status


# --- answers and cancels while nobody runs the work


@pytest.mark.spec("U1", "U6")
def test_an_answer_that_was_accepted_while_the_process_was_dead_reaches_the_work_that_runs_again() -> None:
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    dead.ask(task_id, "q", form_question())
    processes.kill(dead)
    assert "result" in heir.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="late")})
    processes.live(DEATH_MS)
    assert not heir.effects_of(DeliverInput), "the work that runs again has not asked yet"
    heir.ask(task_id, "q", form_question())
    assert [effect.answer for effect in heir.effects_of(DeliverInput)] == [accepted(value="late")]


@pytest.mark.spec("G2", "U2")
def test_a_question_that_stood_open_stands_open_still_and_is_answered_after_the_work_runs_again() -> None:
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    dead.ask(task_id, "q", form_question())
    before = heir.request("tasks/get", taskId=task_id)["result"]
    processes.kill(dead)
    processes.live(DEATH_MS)
    assert heir.effects_of(ResumeWork)
    assert heir.request("tasks/get", taskId=task_id)["result"] == before, "a take-over shows nowhere"
    heir.ask(task_id, "q", form_question())
    assert heir.request("tasks/get", taskId=task_id)["result"] == before, "the same question is not asked twice"
    heir.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")})
    assert [effect.key for effect in heir.effects_of(DeliverInput)] == ["q"]


@pytest.mark.spec("U2")
def test_work_that_runs_again_cannot_give_a_key_another_meaning() -> None:
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    dead.ask(task_id, "q", form_question("First?"))
    processes.kill(dead)
    processes.live(DEATH_MS)
    heir.ask(task_id, "q", form_question("Another?"))
    assert [effect.key for effect in heir.effects_of(RefuseInput)] == ["q"]


def test_answers_from_before_the_task_existed_are_kept_for_work_that_runs_again() -> None:
    question, answer = form_question("Sure?"), accepted(value="yes")
    defer = Defer(answered={InputKey("sure"): (question, answer)})
    processes = machine(Recovery.RESUME, defer)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    (resumed,) = heir.effects_of(ResumeWork)
    assert resumed.answered == {"sure": InputEntry(request=question, answer=answer)}
    assert "inputRequests" not in heir.request("tasks/get", taskId=task_id)["result"]


@pytest.mark.spec("X1", "X3")
@pytest.mark.parametrize("recovery", list(Recovery))
def test_a_cancel_that_was_accepted_while_the_process_was_dead_ends_the_task(recovery: Recovery) -> None:
    processes = machine(recovery)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    heir.request("tasks/cancel", taskId=task_id)
    assert status(heir, task_id) is TaskStatus.WORKING, "whether its process lives is not known yet"
    processes.live(DEATH_MS)
    assert status(heir, task_id) is TaskStatus.CANCELLED
    assert not [*heir.effects_of(ResumeWork), *heir.effects_of(OrphanLeft)]


# --- what cannot be run again


@pytest.mark.spec("D31")
@pytest.mark.parametrize("deferral", [Deferral.PROMOTE, Deferral.CLAIM])
def test_work_that_the_application_had_begun_by_itself_is_not_begun_by_another_process(deferral: Deferral) -> None:
    task_id = "own-1" if deferral is Deferral.CLAIM else None
    processes = machine(Recovery.RESUME, Defer(deferral=deferral, task_id=task_id))
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    assert heir.request("tasks/get", taskId=task_id)["result"]["error"]["data"] == {"reason": "worker_lost"}
    assert not heir.effects_of(ResumeWork)


@pytest.mark.spec("D31")
def test_work_whose_tool_the_new_process_does_not_have_fails() -> None:
    processes = machine(Recovery.RESUME)
    dead = processes.start("dead")
    heir = processes.start("heir", tools={"other": lambda call: Defer()})
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    assert heir.request("tasks/get", taskId=task_id)["result"]["error"]["data"] == {"reason": "worker_lost"}


def test_a_task_whose_process_died_before_its_work_began_is_dealt_with_like_any_other() -> None:
    """The record is stored, the read-back is never answered: nobody got the handle, and no work started."""
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    dead.script(LoadTask, StoreFault.DROPPED_LOST)
    dead.begin("tools/call", name="slow", arguments={"n": 1})
    (stored,) = [effect.row.task_id for effect in dead.effects_of(StoreTask)]
    assert not dead.effects_of(StartWork)
    processes.kill(dead)
    processes.live(DEATH_MS)
    assert [(effect.task_id, effect.arguments) for effect in heir.effects_of(ResumeWork)] == [(stored, {"n": 1})]


@pytest.mark.spec("C5")
def test_a_process_that_was_stopped_between_storing_and_starting_starts_nothing_that_another_runs() -> None:
    processes = machine(Recovery.RESUME)
    stopped, heir = processes.start("stopped"), processes.start("heir")
    stopped.script(LoadTask, StoreFault.SLOW)
    stopped.begin("tools/call", name="slow", arguments={})
    processes.kill(stopped)
    processes.live(DEATH_MS)
    assert len(heir.effects_of(ResumeWork)) == 1
    processes.wake(stopped)
    stopped.release()
    assert not stopped.effects_of(StartWork)
    assert stopped.effects_of(AbandonWork)


# --- a process that comes back


def said_too_late(process: ServerHarness, task_id: str, what: str) -> None:
    task = TaskId(task_id)
    match what:
        case "result":
            process.complete(task_id, text_result("too late"))
        case "error":
            process.feed(WorkCompleted(task, Raised(ErrorObject(7, "too late"))))
        case "stop":
            process.feed(WorkCompleted(task, WorkStopped("too late")))
        case "progress":
            process.progress(task_id, "too late")
        case "question":
            process.ask(task_id, "late", form_question())
        case "withdrawal":
            process.feed(InputWithdrawn(task, InputKey("q")))
        case "time":
            process.feed(WorkRetimed(task_id=task, ttl_ms=1))
        case "release":
            process.feed(WorkReleased(task))


@pytest.mark.spec("T1", "D29", "D31")
@pytest.mark.parametrize("recovery", [Recovery.RESUME, Recovery.LEAVE])
@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("what", ["result", "error", "stop", "progress", "question", "withdrawal", "time", "release"])
def test_nothing_that_work_says_counts_once_its_task_is_another_processs(
    what: str, recovery: Recovery, released: bool
) -> None:
    processes = machine(recovery)
    stopped, heir = processes.start("stopped"), processes.start("heir")
    task_id = create(stopped)
    stopped.ask(task_id, "q", form_question())
    processes.kill(stopped)
    processes.live(DEATH_MS)
    if released:
        heir.feed(WorkReleased(TaskId(task_id)))
        assert heir.record(task_id).executor is None
    before = heir.record(task_id)
    processes.wake(stopped)
    stopped.forget()
    said_too_late(stopped, task_id, what)
    assert heir.record(task_id) == before
    if what not in ("result", "error", "stop", "release"):  # these tell that it stopped by itself
        assert [effect.task_id for effect in stopped.effects_of(StopWork)] == [task_id]
    processes.live(DEATH_MS)
    assert heir.record(task_id) == before


@pytest.mark.spec("U1")
def test_an_answer_is_not_handed_to_work_whose_task_is_another_processs() -> None:
    processes = machine(Recovery.RESUME)
    stopped, heir = processes.start("stopped"), processes.start("heir")
    task_id = create(stopped)
    stopped.ask(task_id, "q", form_question())
    processes.kill(stopped)
    processes.live(DEATH_MS)
    heir.ask(task_id, "q", form_question())
    processes.wake(stopped)
    stopped.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")})
    assert not stopped.effects_of(DeliverInput)
    assert [effect.task_id for effect in stopped.effects_of(StopWork)] == [task_id]
    processes.live(1_000)
    assert [effect.answer for effect in heir.effects_of(DeliverInput)] == [accepted(value="x")]


@pytest.mark.spec("T1")
def test_a_process_that_comes_back_stops_what_was_taken_from_it_and_keeps_what_nobody_took() -> None:
    processes = machine(Recovery.RESUME)
    stopped, heir = processes.start("stopped"), processes.start("heir")
    taken = create(stopped)
    processes.kill(stopped)
    processes.live(DEATH_MS)
    processes.kill(heir)
    processes.wake(stopped)
    kept = create(stopped)
    processes.live(LIMITS.lease_renewal_ms)
    assert [effect.task_id for effect in stopped.effects_of(StopWork)] == [taken]
    stopped.complete(kept, text_result())
    assert status(stopped, kept) is TaskStatus.COMPLETED


@pytest.mark.spec("T1")
def test_a_process_that_comes_back_alone_goes_on_with_all_of_its_work() -> None:
    processes = machine(Recovery.FAIL)
    stopped = processes.start("stopped")
    task_id = create(stopped)
    processes.kill(stopped)
    processes.live(10 * DEATH_MS)
    processes.wake(stopped)
    processes.live(DEATH_MS)
    assert not stopped.effects_of(StopWork)
    stopped.complete(task_id, text_result())
    assert status(stopped, task_id) is TaskStatus.COMPLETED


def test_a_task_that_comes_back_to_its_first_process_is_run_there_once_more() -> None:
    processes = machine(Recovery.RESUME)
    first, second = processes.start("first"), processes.start("second")
    task_id = create(first)
    processes.kill(first)
    processes.live(DEATH_MS)
    processes.wake(first)
    processes.live(LIMITS.lease_renewal_ms)
    processes.kill(second)
    processes.live(2 * DEATH_MS)
    assert [effect.attempt for effect in first.effects_of(ResumeWork)] == [3]
    assert first.record(task_id).executor == "first"


# --- take-overs of an uncertain outcome


@pytest.mark.spec("D31")
@pytest.mark.parametrize("recovery", [Recovery.RESUME, Recovery.LEAVE])
def test_a_take_over_whose_outcome_could_not_be_read_is_carried_through_later(recovery: Recovery) -> None:
    """The swap is made, the store says that it does not know, and then cannot be read for a while."""
    processes = machine(recovery)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    heir.script(StoreTask, StoreFault.UNCERTAIN_MADE)
    heir.script(LoadTask, None, StoreFault.FAIL)
    processes.live(LIMITS.lease_ms)
    kind = ResumeWork if recovery is Recovery.RESUME else OrphanLeft
    assert heir.record(task_id).executor == "heir"
    assert not heir.effects_of(kind)
    processes.live(LIMITS.lease_renewal_ms)
    assert [(effect.task_id, effect.attempt) for effect in heir.effects_of(kind)] == [(task_id, 2)]
    heir.complete(task_id, text_result())
    processes.live(DEATH_MS)
    assert len(heir.effects_of(kind)) == 1
    assert status(heir, task_id) is TaskStatus.COMPLETED


def test_a_take_over_that_was_not_stored_is_tried_again() -> None:
    processes = machine(Recovery.RESUME)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    heir.script(StoreTask, *[StoreFault.FAIL] * 3)
    processes.live(DEATH_MS + 3 * LIMITS.lease_renewal_ms)
    assert [effect.attempt for effect in heir.effects_of(ResumeWork)] == [2]
    assert heir.record(task_id).executor == "heir"


# --- left to the application


def test_an_orphan_that_is_left_to_the_application_comes_with_all_that_is_known_of_it() -> None:
    processes = machine(Recovery.LEAVE)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead, n=1)
    processes.kill(dead)
    processes.live(DEATH_MS)
    (left,) = heir.effects_of(OrphanLeft)
    assert (left.task_id, left.name, left.arguments, left.attempt) == (task_id, "slow", {"n": 1}, 2)
    assert left.owner == heir.record(task_id).owner


def test_an_orphan_that_was_told_of_is_told_of_again_when_that_process_dies_before_it_is_settled() -> None:
    processes = machine(Recovery.LEAVE)
    dead, second, third = (processes.start(name) for name in ("dead", "second", "third"))
    task_id = create(dead)
    processes.kill(dead, third)
    processes.live(DEATH_MS)
    assert second.effects_of(OrphanLeft)
    processes.wake(third)
    processes.kill(second)
    processes.live(2 * DEATH_MS)
    assert [(effect.task_id, effect.attempt) for effect in third.effects_of(OrphanLeft)] == [(task_id, 3)]


def test_an_orphan_whose_deciding_kills_every_process_fails_after_so_many() -> None:
    processes = machine(Recovery.LEAVE)
    task_id = create(first := processes.start("p1"))
    processes.kill(first)
    for attempt in range(2, LIMITS.work_attempts_max + 2):
        heir = processes.start(f"p{attempt}")
        processes.live(DEATH_MS)
        processes.kill(heir)
    assert status(heir, task_id) is TaskStatus.FAILED


def test_a_released_orphan_is_nobodys_and_stays_as_it_is() -> None:
    processes = machine(Recovery.LEAVE)
    dead, heir, other = (processes.start(name) for name in ("dead", "heir", "other"))
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    told = heir if heir.effects_of(OrphanLeft) else other
    told.feed(WorkReleased(TaskId(task_id)))
    told.forget()
    processes.live(10 * DEATH_MS)
    assert heir.record(task_id).executor is None
    assert status(heir, task_id) is TaskStatus.WORKING
    assert not [*heir.effects_of(OrphanLeft)[1:], *told.effects_of(OrphanLeft), *told.effects_of(StopWork)]


@pytest.mark.spec("X1", "D28")
def test_a_cancel_of_a_task_that_nobody_runs_ends_it_at_once() -> None:
    """No process would be there to end it when the grace is over."""
    processes = machine(Recovery.LEAVE)
    dead, heir = processes.start("dead"), processes.start("heir")
    task_id = create(dead)
    processes.kill(dead)
    processes.live(DEATH_MS)
    heir.feed(WorkReleased(TaskId(task_id)))
    heir.request("tasks/cancel", taskId=task_id)
    assert status(heir, task_id) is TaskStatus.CANCELLED


# --- many orphans


@pytest.mark.spec("D31")
def test_more_orphans_than_one_look_takes_are_settled_within_seconds() -> None:
    processes = machine(Recovery.FAIL, limits=Limits(sweep_rows_max=10))
    dead, heir = processes.start("dead"), processes.start("heir")
    tasks = [create(dead) for _ in range(50)]
    processes.kill(dead)
    processes.live(DEATH_MS + 5 * LIMITS.settle_retry_ms)
    assert {status(heir, task_id) for task_id in tasks} == {TaskStatus.FAILED}
