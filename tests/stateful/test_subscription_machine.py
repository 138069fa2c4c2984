"""Arbitrary interleavings of everything that can happen to those who listen to a server."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mcp_tasks_core.access import AccessRule
from stateful.effort import effort, times
from stateful.picking import DrawnPick
from stateful.subscription_storm import BURSTS, storm
from stateful.subscription_world import STEPS, SubscriptionWorld

_TESTS = Path(__file__).parents[1]
_SEEDS = (3, 5)
_SPEC = ("A1", "S1", "S2", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "D19", "D20", "D21", "D22", "D41", "D44")


class SubscriptionMachine(RuleBasedStateMachine):
    """Every rule is a step of the storm; what must hold is checked within each, and the calm at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.world: SubscriptionWorld | None = None

    @initialize(
        servers=st.integers(1, 2),
        named=st.booleans(),
        access=st.sampled_from(AccessRule),
        burst_bytes=st.sampled_from(BURSTS),
    )
    def begin(self, **setting: Any) -> None:
        self.world = SubscriptionWorld(**setting)

    def _step(self, name: str, data: Any) -> None:
        assert self.world is not None
        STEPS[name](self.world, DrawnPick(data))
        self.world.settle()

    @rule(data=st.data())
    def a_task_begins(self, data: Any) -> None:
        self._step("birth", data)

    @rule(data=st.data())
    def a_client_listens(self, data: Any) -> None:
        self._step("listen", data)

    @rule(data=st.data())
    def another_client_listens(self, data: Any) -> None:
        self._step("listen", data)

    @rule(data=st.data())
    def work_goes_on(self, data: Any) -> None:
        self._step("work", data)

    @rule(data=st.data())
    def work_ends(self, data: Any) -> None:
        self._step("finish", data)

    @rule(data=st.data())
    def an_owner_answers_or_cancels(self, data: Any) -> None:
        self._step("owner", data)

    @rule(data=st.data())
    def another_process_writes(self, data: Any) -> None:
        self._step("elsewhere", data)

    @rule(data=st.data())
    def the_engine_goes_on(self, data: Any) -> None:
        self._step("engine", data)

    @rule(data=st.data())
    def a_hint_comes(self, data: Any) -> None:
        self._step("hint", data)

    @rule(data=st.data())
    def a_reader_stops_or_goes_on(self, data: Any) -> None:
        self._step("reader", data)

    @rule(data=st.data())
    def a_list_or_a_resource_changes(self, data: Any) -> None:
        self._step("news", data)

    @rule(data=st.data())
    def time_passes(self, data: Any) -> None:
        self._step("time", data)

    @rule(data=st.data())
    def time_passes_unseen(self, data: Any) -> None:
        self._step("late", data)

    @rule(data=st.data())
    def the_store_becomes_slow_or_prompt(self, data: Any) -> None:
        self._step("mood", data)

    @rule(data=st.data())
    def the_slow_store_does_something(self, data: Any) -> None:
        self._step("store", data)

    @rule(data=st.data())
    def a_client_leaves(self, data: Any) -> None:
        self._step("leave", data)

    @rule(data=st.data())
    def a_task_changes_all_the_time(self, data: Any) -> None:
        self._step("bustle", data)

    @rule(data=st.data())
    def a_change_overtakes_a_look(self, data: Any) -> None:
        self._step("overtake", data)

    @rule(data=st.data())
    def a_right_is_taken_or_given(self, data: Any) -> None:
        self._step("right", data)

    @rule(data=st.data())
    def a_row_is_deleted_by_hand(self, data: Any) -> None:
        self._step("purge", data)

    @rule(data=st.data())
    def a_server_is_about_to_end(self, data: Any) -> None:
        self._step("shutdown", data)

    def teardown(self) -> None:
        if self.world is not None:
            self.world.calm()


@pytest.mark.spec(*_SPEC)
def test_no_interleaving_breaks_what_a_subscription_promises() -> None:
    run_state_machine_as_test(SubscriptionMachine, settings=effort(examples=60, steps=60))


@pytest.mark.spec(*_SPEC)
@pytest.mark.parametrize("tens", range(times(20)))
def test_ten_seeded_storms_of_subscriptions_break_no_rule_and_leave_nothing_behind(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        try:
            storm(seed)
        except AssertionError as problem:
            raise AssertionError(f"in storm {seed}: {problem}") from problem


def test_storms_of_subscriptions_are_worth_their_name() -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        counts.update(storm(seed).counts)
    least = {
        "opened": 300,
        "states": 150,
        "compared": 50,
        "left out": 200,
        "open in the calm": 30,
        "dropped as slow": 10,
        "dropped as forbidden": 2,
        "answered with -32021": 10,
        "answered with -32602": 10,
        "answered with -32603": 3,
    }
    assert {name: counts[name] for name, few in least.items() if counts[name] < few} == {}


def digest_of_subscriptions(seed: int) -> str:
    """A digest of every event and every effect, frames among them."""
    world = storm(seed)
    assert world.counts["opened"]
    return hashlib.sha256(repr([server.log for server in world.servers]).encode()).hexdigest()


def test_the_same_choices_send_the_same_frames_under_any_hash_seed() -> None:
    script = f"from stateful.test_subscription_machine import digest_of_subscriptions as d; print(*map(d, {_SEEDS}))"
    runs = set()
    for hash_seed in ("1", "20"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_TESTS)}
        run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        runs.add(tuple(run.stdout.split()))
    assert runs == {tuple(map(digest_of_subscriptions, _SEEDS))}
