"""What runs procedures: tickets out, answers in, queues of changes, and the time they may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Instant, TaskId, Ticket
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.effects import LoadTask, Report, Severity
from mcp_tasks_core.server.events import StoreFailed, TaskLoaded, TaskStored
from mcp_tasks_core.server.machine import Expired, Machine, Need, Procedure

A, B = TaskId("a"), TaskId("b")


def at(monotonic_ms: int) -> Instant:
    return Instant(wall_ms=0, monotonic_ms=monotonic_ms)


def machine(monotonic_ms: int = 0) -> Machine:
    made = Machine(ServerConfig())
    made.begin(at(monotonic_ms))
    return made


def load(wait_ms: int | None = None, late: Callable[[Any], None] | None = None) -> Need:
    return Need(lambda ticket: LoadTask(ticket, A), (TaskLoaded, StoreFailed), wait_ms, late)


def steps(seen: list[Any], *needs: Need) -> Procedure:
    """Yields these needs, one after the other, and notes every answer."""
    for need in needs:
        answer = yield need
        seen.append(answer)
    seen.append("end")


def test_every_need_gets_a_ticket_of_its_own_and_its_procedure_the_answer() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    runs.run(steps(seen, load(), load()))
    assert runs.effects == [LoadTask(Ticket(1), A)]
    first = TaskLoaded(Ticket(1), None)
    runs.resume(first)
    assert runs.effects == [LoadTask(Ticket(1), A), LoadTask(Ticket(2), A)]
    second = StoreFailed(Ticket(2), "no")
    runs.resume(second)
    assert seen == [first, second, "end"]
    assert runs.open_tickets == 0


@pytest.mark.parametrize("ticket", [0, -1, 2, 10**9, True, "1", None, 1.0])
def test_a_ticket_that_was_never_issued_is_the_callers_mistake_and_changes_nothing(ticket: Any) -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    runs.run(steps(seen, load()))
    before = list(runs.effects)
    if ticket is not True and ticket != 1:
        with pytest.raises(LocalProtocolError, match="was never issued"):
            runs.resume(TaskLoaded(ticket, None))
        with pytest.raises(LocalProtocolError, match="was never issued"):
            runs.exchange_of(ticket)
    assert (runs.effects, seen, runs.open_tickets) == (before, [], 1)


def test_the_wrong_kind_of_answer_is_the_callers_mistake_and_the_right_one_still_counts() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    runs.run(steps(seen, load()))
    with pytest.raises(LocalProtocolError, match="answered by TaskLoaded or StoreFailed, not by TaskStored"):
        runs.resume(TaskStored(Ticket(1)))
    runs.resume(TaskLoaded(Ticket(1), None))
    assert seen[-1] == "end"


def test_a_repeated_answer_is_ignored() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    runs.run(steps(seen, load(), load()))
    for _ in range(3):
        runs.resume(TaskLoaded(Ticket(1), None))
    assert (len(seen), runs.open_tickets) == (1, 1)


def test_a_need_without_a_limit_never_expires_and_one_with_it_does_at_the_moment() -> None:
    runs, patient, hasty = machine(100), [], []  # type: ignore[var-annotated]
    runs.run(steps(patient, load()))
    assert runs.next_expiry_ms is None
    runs.run(steps(hasty, load(wait_ms=50)))
    assert runs.next_expiry_ms == 150
    runs.begin(at(149))
    runs.expire()
    assert hasty == []
    runs.begin(at(150))
    runs.expire()
    assert hasty == [Expired(50), "end"]
    runs.begin(at(10**9))
    runs.expire()
    assert (patient, runs.next_expiry_ms, runs.open_tickets) == ([], None, 1)


def test_all_that_is_overdue_expires_at_once_and_what_follows_waits_anew() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    for wait_ms in (10, 20, 30):
        runs.run(steps(seen, load(wait_ms=wait_ms), load(wait_ms=wait_ms)))
    runs.begin(at(20))
    runs.expire()
    assert seen == [Expired(10), Expired(20)]
    assert (runs.open_tickets, runs.next_expiry_ms) == (3, 30)


def test_a_late_answer_goes_to_whoever_wants_it_and_only_once() -> None:
    runs, seen, late = machine(), [], []  # type: ignore[var-annotated]
    runs.run(steps(seen, load(wait_ms=5, late=late.append)))
    runs.begin(at(5))
    runs.expire()
    runs.resume(TaskStored(Ticket(1)))
    assert late == []
    answer = TaskLoaded(Ticket(1), None)
    for _ in range(2):
        runs.resume(answer)
    assert late == [answer]


def test_an_answer_in_time_is_not_late() -> None:
    runs, seen, late = machine(), [], []  # type: ignore[var-annotated]
    runs.run(steps(seen, load(wait_ms=5, late=late.append)))
    runs.resume(TaskLoaded(Ticket(1), None))
    runs.resume(TaskLoaded(Ticket(1), None))
    assert late == []


def test_a_dropped_ticket_ends_its_procedure_and_answers_to_it_are_ignored() -> None:
    closed: list[str] = []

    def procedure() -> Procedure:
        try:
            yield load(wait_ms=5)
        finally:
            closed.append("closed")

    runs = machine()
    runs.run(procedure())
    runs.drop(Ticket(1))
    assert (closed, runs.open_tickets, runs.next_expiry_ms) == (["closed"], 0, None)
    runs.resume(TaskLoaded(Ticket(1), None))


def test_changes_of_one_task_are_made_in_order_and_those_of_another_do_not_wait() -> None:
    runs, order = machine(), []  # type: ignore[var-annotated]

    def change(name: str) -> Procedure:
        order.append(f"{name} begins")
        yield load()
        order.append(f"{name} ends")

    for task_id, name in ((A, "a1"), (A, "a2"), (B, "b1"), (A, "a3")):
        runs.in_order(task_id, change(name))
    assert (order, runs.busy_tasks) == (["a1 begins", "b1 begins"], 2)
    for ticket in (2, 1, 3, 4):
        runs.resume(TaskLoaded(Ticket(ticket), None))
    assert order[2:] == ["b1 ends", "a1 ends", "a2 begins", "a2 ends", "a3 begins", "a3 ends"]
    assert runs.busy_tasks == 0


def test_a_task_that_is_held_keeps_changes_waiting_until_it_is_released() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    assert runs.hold(A)
    assert not runs.hold(A)
    runs.in_order(A, steps(seen, load()))
    assert runs.effects == []
    runs.release(A)
    assert len(runs.effects) == 1
    assert not runs.hold(A)
    runs.resume(TaskLoaded(Ticket(1), None))
    assert (seen[-1], runs.busy_tasks) == ("end", 0)
    assert runs.hold(A)


def test_a_procedure_that_breaks_does_not_keep_its_task_for_ever() -> None:
    def broken() -> Procedure:
        yield load()
        raise RuntimeError("a bug of ours")

    runs, seen = machine(), []  # type: ignore[var-annotated]
    runs.in_order(A, broken())
    runs.in_order(A, steps(seen, load()))
    with pytest.raises(RuntimeError):
        runs.resume(TaskLoaded(Ticket(1), None))
    runs.resume(TaskLoaded(Ticket(2), None))
    assert (seen[-1], runs.busy_tasks) == ("end", 0)


def test_a_thousand_changes_that_wait_for_one_task_need_no_deep_stack() -> None:
    runs, seen = machine(), []  # type: ignore[var-annotated]
    for _ in range(5_000):
        runs.in_order(A, steps(seen, load()))
    for ticket in range(1, 5_001):
        runs.resume(TaskLoaded(Ticket(ticket), None))
    assert (seen.count("end"), runs.busy_tasks) == (5_000, 0)


def test_each_turn_begins_without_effects() -> None:
    runs = machine()
    runs.report(Severity.WARNING, "w")
    assert runs.effects == [Report(Severity.WARNING, "w")]
    before = runs.effects
    runs.begin(at(1))
    assert runs.effects == []
    assert before == [Report(Severity.WARNING, "w")]
