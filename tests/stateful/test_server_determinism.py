"""A run is a function of its events: not of the process, not of the order in which hashes happen to fall."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateful.effort import times
from stateful.seeded import storm

_TESTS = Path(__file__).parents[1]
_SEEDS = (3, 5)


def digest_of_storm(seed: int) -> str:
    """A digest of every event, every effect, and every state that was stored."""
    world = storm(seed)
    lives = [[version.row for version in life.versions] for lives in world.ledger.lives.values() for life in lives]
    logs = [core.log for core in [*world.past, *world.cores]]
    assert any(len(versions) > 2 for versions in lives)
    return hashlib.sha256(repr((lives, logs)).encode()).hexdigest()


@pytest.mark.spec("T1")
def test_the_same_choices_give_the_same_run_under_any_hash_seed() -> None:
    script = f"from stateful.test_server_determinism import digest_of_storm as d; print(*map(d, {_SEEDS}))"
    runs = set()
    for hash_seed in ("1", "20"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_TESTS)}
        run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        runs.add(tuple(run.stdout.split()))
    assert runs == {tuple(map(digest_of_storm, _SEEDS))}


@pytest.mark.spec("A1", "B3", "C5", "D31", "G3", "T1", "T3", "T5", "U2", "U6", "X1", "X2")
@pytest.mark.parametrize("tens", range(times(12)))
def test_ten_seeded_storms_break_no_rule_and_leave_nothing_behind(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        try:
            storm(seed)
        except AssertionError as problem:
            raise AssertionError(f"in storm {seed}: {problem}") from problem
