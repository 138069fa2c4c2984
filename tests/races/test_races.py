"""Several server processes on one file, as real processes: a short run of ``python -m tests.races``."""

from __future__ import annotations

import functools
from pathlib import Path

import anyio
import pytest

from tests.races.locking import hold_the_lock
from tests.races.racing import race

_TASKS = 50


@pytest.mark.spec("T1", "U1", "U6", "X1", "X4", "D29", "C5", "A1")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_four_processes_race_and_every_task_has_one_end_and_no_answer_is_lost(backend: str, tmp_path: Path) -> None:
    run = functools.partial(
        race, tmp_path / "races.db", processes=4, tasks=_TASKS, seed=20260728, seconds=120, backend=backend
    )
    tally = anyio.run(run)
    assert tally.faults == []
    assert tally.tasks == len(tally.ends) == 4 * _TASKS
    assert tally.statuses["completed"] > 0
    assert tally.statuses["cancelled"] > 0


@pytest.mark.spec("C5", "B7")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_while_the_lock_is_held_for_longer_than_writes_wait_they_fail_with_a_hint_to_try_again(
    backend: str, tmp_path: Path
) -> None:
    run = functools.partial(hold_the_lock, tmp_path / "lock.db", lock_seconds=1.5, busy_wait_ms=200, backend=backend)
    tally = anyio.run(run)
    assert tally.faults == []
    assert tally.refused > 0
    assert tally.reads > 20


@pytest.mark.spec("C5")
def test_while_the_lock_is_held_for_less_than_writes_wait_they_are_made_when_it_is_free(tmp_path: Path) -> None:
    run = functools.partial(
        hold_the_lock, tmp_path / "lock.db", lock_seconds=1.0, busy_wait_ms=15_000, backend="asyncio"
    )
    tally = anyio.run(run)
    assert tally.faults == []
    assert (tally.refused, len(tally.handles)) == (0, 24)
