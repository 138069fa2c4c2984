"""Feeds of changes that fail, end, give what is none, or outlive the server that listens to them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.server.events import TaskChanged
from mcp_tasks_trio.change_feeds import follow_all
from runners.served import both_loops, run

BOUND_SECONDS = 20


class Followed:
    """What a feed told, and the pauses before it was asked anew; the pauses pass at once."""

    def __init__(self, pauses_max: int) -> None:
        self.ids: list[str] = []
        self.pauses: list[float] = []
        self.done = anyio.Event()
        self._pauses_max = pauses_max

    def take(self, hints: Sequence[TaskChanged]) -> None:
        self.ids += [hint.task_id for hint in hints]

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self._pauses_max:
            self.done.set()
            await anyio.sleep_forever()
        await anyio.lowlevel.checkpoint()

    async def follow(self, *engines: object) -> None:
        """Follow until there were so many pauses."""
        async with anyio.create_task_group() as task_group:
            backends = [(f"engine-{number}-", engine) for number, engine in enumerate(engines)]
            task_group.start_soon(lambda: follow_all(backends, self.take, pause=self.pause))
            await self.done.wait()
            await anyio.wait_all_tasks_blocked()
            task_group.cancel_scope.cancel()


class Scripted:
    """Gives what a function gives, and counts how often it was asked."""

    def __init__(self, changes: Callable[[int], Any]) -> None:
        self.asked = 0
        self._changes = changes

    def changes(self) -> Any:
        self.asked += 1
        return self._changes(self.asked)


async def _a_coroutine(turn: int) -> AsyncIterator[str]:
    return _in_loop(turn)


async def _in_loop(turn: int) -> AsyncIterator[str]:
    yield f"job-{turn}"
    if turn % 2:
        raise OSError(f"the line is dead at turn {turn}")


def _in_thread(turn: int) -> Iterator[str]:
    yield f"job-{turn}"
    if turn % 2:
        raise OSError(f"the line is dead at turn {turn}")


@both_loops
@pytest.mark.parametrize("changes", [_in_loop, _in_thread, _a_coroutine, lambda turn: [f"job-{turn}"]])
def test_a_feed_that_raises_or_ends_is_asked_again_after_ever_longer_pauses(
    backend: str, changes: Callable[[int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        engine, followed = Scripted(changes), Followed(8)
        await followed.follow(engine)
        assert followed.pauses == [1, 2, 4, 8, 16, 32, 60, 60]
        assert followed.ids == [f"job-{turn}" for turn in range(1, 9)]
        assert engine.asked == 8

    with caplog.at_level(logging.WARNING, "mcp_tasks_trio"):
        run(backend, test)
    assert len(caplog.records) == 8
    ended = caplog.records[1].getMessage()
    assert ended == "The changes of the task engine 'engine-0-' have ended; they are asked for again in 2 s"
    if changes in (_in_loop, _in_thread):
        assert "have failed" in caplog.records[0].getMessage()
        assert "the line is dead at turn 7" in caplog.text


@both_loops
def test_a_feed_that_lasted_is_asked_again_as_soon_as_one_that_failed_for_the_first_time(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def lasting(turn: int) -> list[str]:
        now[0] += 60.0 if turn == 3 else 59.0
        return []

    async def test() -> None:
        monkeypatch.setattr("mcp_tasks_trio.change_feeds.anyio.current_time", lambda: now[0])
        followed = Followed(5)
        await followed.follow(Scripted(lasting))
        assert followed.pauses == [1, 2, 1, 2, 4]

    run(backend, test)


@both_loops
def test_what_is_no_iterator_of_ids_is_a_failure_that_names_it(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    wrong = [7, "job-1", None, [b"job-1"], _numbers()]

    async def test() -> None:
        followed = Followed(len(wrong))
        await followed.follow(Scripted(lambda turn: wrong[turn - 1]))
        assert followed.ids == []

    with caplog.at_level(logging.WARNING, "mcp_tasks_trio"):
        run(backend, test)
    reasons = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert reasons == [
        *(f"changes() gives an iterator of task ids, asynchronous or not; not {what!r}" for what in (7, "job-1", None)),
        "changes() gives task ids, which are strings; not b'job-1'",
        "changes() gives task ids, which are strings; not 7",
    ]


async def _numbers() -> AsyncIterator[int]:
    yield 7


@both_loops
def test_one_feed_that_fails_and_one_that_is_none_do_not_trouble_the_others(backend: str) -> None:
    async def test() -> None:
        failing, working = Scripted(_failing), Scripted(_lasting)
        followed = Followed(4)
        await followed.follow(failing, object(), working)
        assert followed.ids == ["job-1"]
        assert failing.asked == 4

    run(backend, test)


async def _lasting(turn: int) -> AsyncIterator[str]:
    yield "job-1"
    await anyio.sleep_forever()


def _failing(turn: int) -> Any:
    raise SystemExit(f"turn {turn}")


def test_a_cancellation_of_the_engines_own_is_a_failure_of_the_feed() -> None:
    async def cancelled(turn: int) -> AsyncIterator[str]:
        task = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task
        yield "never"

    async def test() -> None:
        followed = Followed(3)
        await followed.follow(Scripted(cancelled))
        assert followed.pauses == [1, 2, 4]

    run("asyncio", test)


@both_loops
def test_a_thread_that_hears_of_the_end_of_the_server_closes_its_feed_and_ends(backend: str) -> None:
    may_go, closed = threading.Event(), threading.Event()

    def changes(turn: int) -> Iterator[str]:
        try:
            yield "job-1"
            assert may_go.wait(BOUND_SECONDS)
            yield "job-2"
            yield "job-3"
        finally:
            closed.set()

    async def test() -> None:
        taken: list[str] = []
        came = anyio.Event()

        def take(hints: Sequence[TaskChanged]) -> None:
            taken.extend(hint.task_id for hint in hints)
            came.set()

        async with anyio.create_task_group() as task_group:
            task_group.start_soon(lambda: follow_all([("job-", Scripted(changes))], take))
            await came.wait()
            task_group.cancel_scope.cancel()
        assert not closed.is_set()
        may_go.set()
        assert closed.wait(BOUND_SECONDS)
        assert taken == ["job-1"]

    run(backend, test)
