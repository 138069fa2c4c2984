"""How a client ends its server, and what it keeps of its stderr."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_stdio import ShutdownLadder, ShutdownStep, ShutdownWaits, StderrTail

WAITS = ShutdownWaits(input_closed_ms=100, terminated_ms=20, killed_ms=5)


@pytest.mark.spec("I6")
def test_the_steps_are_close_terminate_kill_each_after_its_wait():
    ladder = ShutdownLadder(WAITS)
    assert (ladder.step, ladder.deadline_ms) == (None, None)
    assert ladder.begin(1000) is ShutdownStep.CLOSE_INPUT
    assert ladder.deadline_ms == 1100
    assert ladder.tick(1099) is None
    assert ladder.tick(1100) is ShutdownStep.TERMINATE
    assert ladder.deadline_ms == 1120
    assert ladder.tick(1119) is None
    assert ladder.tick(1120) is ShutdownStep.KILL
    assert not ladder.finished
    assert ladder.deadline_ms == 1125
    assert ladder.tick(1125) is ShutdownStep.ABANDON
    assert (ladder.finished, ladder.deadline_ms) == (True, None)
    assert ladder.tick(9999) is None


@pytest.mark.spec("I6")
@pytest.mark.parametrize("ticks", [[], [1100], [1100, 1120]])
def test_a_process_that_exits_meets_no_further_step(ticks):
    ladder = ShutdownLadder(WAITS)
    ladder.begin(1000)
    for now_ms in ticks:
        assert ladder.tick(now_ms) is not None
    ladder.process_exited()
    assert (ladder.finished, ladder.deadline_ms) == (True, None)
    assert ladder.tick(10_000) is None


@pytest.mark.spec("I6")
def test_a_late_tick_skips_no_step_and_each_wait_counts_from_when_its_step_was_taken():
    ladder = ShutdownLadder(WAITS)
    ladder.begin(1000)
    assert ladder.tick(50_000) is ShutdownStep.TERMINATE
    assert ladder.tick(50_000) is None
    assert ladder.deadline_ms == 50_020


def test_a_shutdown_begins_once():
    ladder = ShutdownLadder(WAITS)
    ladder.begin(1000)
    assert ladder.begin(1050) is None
    assert ladder.deadline_ms == 1100


def test_a_process_that_is_gone_is_not_shut_down():
    ladder = ShutdownLadder(WAITS)
    ladder.process_exited()
    assert ladder.begin(1000) is None
    assert ladder.finished


def test_a_tick_before_the_shutdown_does_nothing():
    ladder = ShutdownLadder(WAITS)
    assert ladder.tick(10_000) is None
    assert not ladder.finished


@pytest.mark.parametrize("name", ["input_closed_ms", "terminated_ms", "killed_ms"])
@pytest.mark.parametrize("value", [0, -1, 0.5, True])
def test_a_wait_that_is_no_positive_integer_is_refused(name, value):
    with pytest.raises(LocalProtocolError, match=f"{name} is an integer of 1 or more"):
        ShutdownWaits(**{name: value})


def test_a_short_stderr_is_kept_whole():
    tail = StderrTail(100)
    tail.receive_data(b"Traceback\n  boom\n")
    assert tail.text() == "Traceback\n  boom\n"
    assert tail.bytes_seen == 17


def test_of_a_long_stderr_the_last_whole_lines_are_kept():
    tail = StderrTail(20)
    for number in range(1000):
        tail.receive_data(f"line {number}\n".encode())
    assert tail.text() == "line 998\nline 999\n"


@pytest.mark.parametrize("write", [1, 7, 20, 21, 5000])
def test_a_megabyte_without_a_newline_takes_no_more_memory_than_three_times_the_bound(write):
    tail = StderrTail(20)
    for _ in range(1024 * 1024 // write):
        tail.receive_data(b"x" * write)
        assert len(tail._buffer) <= 3 * 20
    assert tail.text() == "…" + "x" * 20


@pytest.mark.parametrize("size", [19, 20, 21])
def test_the_bound_counts_bytes(size):
    tail = StderrTail(20)
    tail.receive_data(b"x" * size)
    assert tail.text() == ("x" * size if size <= 20 else "…" + "x" * 20)


def test_a_character_cut_at_the_front_is_dropped_and_one_cut_between_writes_is_whole():
    tail = StderrTail(6)
    for byte in "ab😀😀".encode():
        tail.receive_data(bytes([byte]))
    assert tail.text() == "…😀"


def test_bytes_that_are_no_utf8_are_shown_as_escapes():
    tail = StderrTail(100)
    tail.receive_data(b"caf\xe9\n")
    assert tail.text() == "caf\\xe9\n"


def test_a_bound_that_is_no_positive_integer_is_refused():
    with pytest.raises(LocalProtocolError, match="bytes_max is an integer of 1 or more"):
        StderrTail(0)
