"""The clock of a listener's connections: told at their moments, moved moments, many of them, and none kept."""

from __future__ import annotations

import gc
import weakref

import anyio
import pytest

from mcp_tasks_trio.http_clock import Alarm, DeadlineClock
from runners.served import both_loops, run


class Timed:
    def __init__(self, deadline_ms: int | None) -> None:
        self.deadline_ms = deadline_ms
        self.alarm: Alarm | None = None
        self.told: list[int] = []

    def tick(self, now_ms: int) -> None:
        self.told.append(now_ms)
        self.deadline_ms = None


def make(clock: DeadlineClock, deadline_ms: int | None) -> Timed:
    timed = Timed(deadline_ms)
    clock.watch(timed)
    return timed


@pytest.fixture
def clock() -> DeadlineClock:
    return DeadlineClock(lambda: 0)


def test_each_is_told_when_its_moment_has_come_and_once(clock: DeadlineClock) -> None:
    first, second, never = make(clock, 10), make(clock, 20), make(clock, None)
    clock.tell_due(9)
    assert (first.told, second.told) == ([], [])
    clock.tell_due(15)
    clock.tell_due(25)
    clock.tell_due(99)
    assert (first.told, second.told, never.told) == ([15], [25], [])


def test_a_moment_that_is_moved_away_is_looked_at_and_kept(clock: DeadlineClock) -> None:
    timed = make(clock, 10)
    timed.deadline_ms = 30
    clock.watch(timed)
    clock.tell_due(10)
    assert timed.told == []
    clock.tell_due(30)
    assert timed.told == [30]


def test_a_moment_that_is_moved_nearer_is_kept_too(clock: DeadlineClock) -> None:
    timed = make(clock, 30)
    timed.deadline_ms = 10
    clock.watch(timed)
    clock.tell_due(10)
    clock.tell_due(30)
    assert timed.told == [10]


def test_what_stays_due_is_told_again_but_not_for_ever_at_once(clock: DeadlineClock) -> None:
    class Stubborn(Timed):
        def tick(self, now_ms: int) -> None:
            self.told.append(now_ms)

    timed = Stubborn(10)
    clock.watch(timed)
    clock.tell_due(10)
    clock.tell_due(11)
    assert timed.told == [10, 11]


def test_what_is_forgotten_is_not_told_and_not_kept(clock: DeadlineClock) -> None:
    timed, other = make(clock, 10), make(clock, 10)
    gone = weakref.ref(timed)
    clock.forget(timed)
    del timed
    gc.collect()
    assert gone() is None
    clock.tell_due(10)
    assert other.told == [10]


def test_a_thousand_that_came_and_went_leave_little_behind(clock: DeadlineClock) -> None:
    staying = [make(clock, 5000 + n) for n in range(10)]
    for number in range(1000):
        clock.forget(make(clock, 1000 + number))
    gc.collect()
    assert len([each for each in gc.get_objects() if isinstance(each, Alarm)]) < 200
    clock.tell_due(9999)
    assert all(timed.told == [9999] for timed in staying)


@both_loops
def test_it_wakes_by_itself_and_for_moments_that_come_up_later(backend: str) -> None:
    async def test() -> None:
        told = anyio.Event()
        clock = DeadlineClock(lambda: int(anyio.current_time() * 1000))

        class Waited(Timed):
            def tick(self, now_ms: int) -> None:
                super().tick(now_ms)
                told.set()

        async with anyio.create_task_group() as group:
            group.start_soon(clock.run)
            await anyio.lowlevel.checkpoint()
            make(clock, int(anyio.current_time() * 1000) + 60_000)
            clock.watch(Waited(int(anyio.current_time() * 1000) + 20))
            await told.wait()
            group.cancel_scope.cancel()

    run(backend, test)
