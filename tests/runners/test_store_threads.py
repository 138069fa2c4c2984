"""The threads that ask a blocking store: as many as are needed, answers together, an end that leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from mcp_tasks_core.identifiers import TaskId, Ticket
from mcp_tasks_core.server.effects import LoadTask
from mcp_tasks_core.server.events import ServerEvent, TaskLoaded
from mcp_tasks_trio.store_answers import StoreEffect
from mcp_tasks_trio.store_threads import StoreThreads

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
BOUND_SECONDS = 20


def load(number: int) -> LoadTask:
    return LoadTask(Ticket(number), TaskId(str(number)))


class Taken:
    """The answers that came back, and in how many parts."""

    def __init__(self) -> None:
        self.parts: list[list[int]] = []
        self._came = anyio.Event()

    def take(self, events: Sequence[ServerEvent]) -> None:
        self.parts.append([event.ticket for event in events if isinstance(event, TaskLoaded)])
        self._came.set()
        self._came = anyio.Event()

    @property
    def tickets(self) -> list[int]:
        return [ticket for part in self.parts for ticket in part]

    async def until(self, count: int) -> None:
        with anyio.fail_after(BOUND_SECONDS):
            while len(self.tickets) < count:
                await self._came.wait()


def run(backend: str, test: Callable[[], Any]) -> None:
    anyio.run(test, backend=backend)


@both_loops
def test_every_answer_comes_back_once(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        threads = StoreThreads(4, lambda effect: TaskLoaded(effect.ticket, None), taken.take)
        for number in range(1, 501):
            threads.ask(load(number))
        await taken.until(500)
        assert sorted(taken.tickets) == list(range(1, 501))
        threads.end()

    run(backend, test)


@both_loops
def test_what_waits_in_one_thread_holds_up_no_other_until_all_are_taken(backend: str) -> None:
    async def test() -> None:
        taken, may_go = Taken(), threading.Event()

        def answer(effect: StoreEffect) -> ServerEvent:
            if effect.ticket <= 2:
                assert may_go.wait(BOUND_SECONDS)
            return TaskLoaded(effect.ticket, None)

        threads = StoreThreads(3, answer, taken.take)
        for number in range(1, 8):
            threads.ask(load(number))
        await taken.until(5)
        assert sorted(taken.tickets) == [3, 4, 5, 6, 7]
        may_go.set()
        await taken.until(7)
        threads.end()

    run(backend, test)


@both_loops
def test_answers_that_are_there_together_are_handed_over_together(backend: str) -> None:
    async def test() -> None:
        taken, all_asked = Taken(), threading.Event()
        answered = threading.Semaphore(0)

        def answer(effect: StoreEffect) -> ServerEvent:
            assert all_asked.wait(BOUND_SECONDS)
            answered.release()
            return TaskLoaded(effect.ticket, None)

        threads = StoreThreads(1, answer, taken.take)
        for number in range(1, 21):
            threads.ask(load(number))
        all_asked.set()
        for _ in range(20):  # the loop takes nothing meanwhile
            assert answered.acquire(timeout=BOUND_SECONDS)
        await taken.until(20)
        assert taken.tickets == list(range(1, 21))
        assert len(taken.parts) <= 2
        threads.end()

    run(backend, test)


@both_loops
def test_after_the_end_no_answer_is_taken_and_no_thread_stays(backend: str) -> None:
    async def test() -> list[threading.Thread]:
        taken, may_go, begun = Taken(), threading.Event(), threading.Event()

        def answer(effect: StoreEffect) -> ServerEvent:
            begun.set()
            assert may_go.wait(BOUND_SECONDS)
            return TaskLoaded(effect.ticket, None)

        before = set(threading.enumerate())
        threads = StoreThreads(2, answer, taken.take)
        threads.ask(load(1))
        threads.ask(load(2))
        started = [thread for thread in threading.enumerate() if thread not in before]
        assert begun.wait(BOUND_SECONDS)
        threads.end()
        may_go.set()
        assert started
        for thread in started:
            thread.join(BOUND_SECONDS)
            assert not thread.is_alive()
        await anyio.lowlevel.checkpoint()
        assert taken.parts == []
        return started

    run(backend, test)
