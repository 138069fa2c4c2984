"""Server processes that are killed lose nothing that they promised; and the looking would find it if they did."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = re.compile(r"rounds (\d+), handles (\d+), answers (\d+), lost (\d+)")


def crash(*options: str) -> tuple[int, tuple[int, int, int, int], str]:
    """Exit status; rounds, handles, answers, lost; everything that was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    found = SUMMARY.search(done.stdout)
    assert found is not None, done.stdout
    rounds, handles, answers, lost = map(int, found.groups())
    return done.returncode, (rounds, handles, answers, lost), done.stdout


@pytest.mark.spec("C5")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_servers_killed_at_random_moments_lose_no_handle_no_answer_and_no_end(backend: str) -> None:
    status, (rounds, handles, answers, lost), printed = crash("--rounds", "10", "--backend", backend)
    assert (status, rounds, lost) == (0, 10, 0), printed
    assert handles > 20, printed
    assert answers > 5, printed


@pytest.mark.spec("C5")
def test_sealed_stores_lose_nothing_either() -> None:
    status, (_, handles, _, lost), printed = crash("--rounds", "6", "--store", "sealed")
    assert (status, lost) == (0, 0), printed
    assert handles > 10, printed


@pytest.mark.spec("C5")
def test_handle_resolves_though_its_server_was_killed_when_its_bytes_were_read() -> None:
    status, (rounds, handles, _, lost), printed = crash("--rounds", "50", "--kill", "handle")
    assert (status, rounds, handles, lost) == (0, 50, 50, 0), printed


def test_processes_with_interpreters_of_their_own_lose_nothing() -> None:
    status, (_, handles, _, lost), printed = crash("--rounds", "3", "--start", "exec", "--seed", "5")
    assert (status, lost) == (0, 0), printed
    assert handles > 0, printed


@pytest.mark.parametrize("kill", ["handle", "random"])
def test_a_store_that_answers_before_it_writes_is_found_out(kill: str) -> None:
    status, (_, handles, _, lost), printed = crash("--rounds", "6", "--store", "forgetful", "--kill", kill)
    assert status == 1, printed
    assert 0 < lost <= handles, printed
    assert "does not resolve" in printed
