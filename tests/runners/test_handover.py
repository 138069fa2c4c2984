"""The way of values from threads into the event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from mcp_tasks_trio.threads import Handover, JoiningHandover
from runners.listening import Taken, in_thread
from runners.served import both_loops, run


@both_loops
def test_what_threads_give_is_taken_in_the_thread_of_the_loop_in_order(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        handover: Handover[int] = Handover(taken.take, "the test")
        in_thread(lambda: [handover.give(number) for number in range(200)])
        assert await taken.until(199) == list(range(200))
        assert len(taken.parts) == 1
        assert taken.threads == {threading.get_ident()}

    run(backend, test)


@both_loops
def test_equal_values_are_joined_until_they_were_taken(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        handover: JoiningHandover[str] = JoiningHandover(taken.take, "the test")
        in_thread(lambda: [handover.give(value) for value in ["a", "b", "a", "a", "b"]])
        assert await taken.until("b") == ["a", "b"]
        handover.give("a")
        handover.give("c")
        assert await taken.until("c") == ["a", "b", "a", "c"]

    run(backend, test)


@both_loops
def test_what_is_given_while_its_equal_is_being_taken_is_taken_again(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        again = iter(["a", "end"])

        def take(values: Sequence[str]) -> None:
            for value in list(values):
                if value != "end":
                    in_thread(lambda: handover.give(next(again)))
            taken.take(values)

        handover: JoiningHandover[str] = JoiningHandover(take, "the test")
        handover.give("a")
        assert await taken.until("end") == ["a", "a", "end"]

    run(backend, test)


@both_loops
def test_after_its_end_nothing_is_taken_and_giving_does_no_harm(backend: str) -> None:
    async def test() -> None:
        taken, others = Taken(), Taken()
        handover: JoiningHandover[str] = JoiningHandover(taken.take, "the test")
        other: Handover[str] = Handover(others.take, "the test")
        handover.give("a")
        handover.end()
        in_thread(lambda: handover.give("b"))
        other.give("last")
        await others.until("last")
        assert taken.parts == []

    run(backend, test)


@both_loops
def test_what_the_taker_raises_is_a_line_in_the_log_and_the_next_is_taken(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        taken = Taken()

        def take(values: Sequence[str]) -> None:
            taken.take(values)
            if "bad" in values:
                raise ValueError("what a fault")

        handover: Handover[str] = Handover(take, "The test")
        handover.give("bad")
        await taken.until("bad")
        handover.give("good")
        await taken.until("good")

    with caplog.at_level(logging.ERROR, "mcp_tasks_trio"):
        run(backend, test)
    assert "The test failed on what came out of a thread" in caplog.text
    assert "what a fault" in caplog.text


@both_loops
def test_giving_to_a_loop_that_has_ended_does_no_harm(backend: str) -> None:
    taken: list[Handover[str]] = []

    async def test() -> None:
        taken.append(Handover(lambda values: None, "the test"))

    run(backend, test)
    taken[0].give("late")
    taken[0].end()
