"""Arbitrary interleavings of everything that can happen around a server's core."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mcp_tasks_core.access import AccessRule
from stateful.effort import effort
from stateful.picking import DrawnPick
from stateful.server_calm import calm
from stateful.server_world import World


class ServerMachine(RuleBasedStateMachine):
    """Every rule is a step of the storm; what must hold is checked within each, and the calm at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None

    @initialize(
        cores=st.integers(1, 2),
        named=st.booleans(),
        access=st.sampled_from(AccessRule),
        call_limit_ms=st.sampled_from([None, 3_000]),
        input_extension_ms=st.sampled_from([None, 1_500]),
    )
    def begin(self, **setting: Any) -> None:
        self.world = World(**setting)

    def _step(self, name: str, data: Any) -> None:
        assert self.world is not None
        getattr(self.world, name)(DrawnPick(data))

    @rule(data=st.data())
    def a_client_sends(self, data: Any) -> None:
        self._step("message", data)

    @rule(data=st.data())
    def a_client_sends_more(self, data: Any) -> None:
        self._step("message", data)

    @rule(data=st.data())
    def a_call_becomes_a_task(self, data: Any) -> None:
        self._step("birth", data)

    @rule(data=st.data())
    def work_asks(self, data: Any) -> None:
        self._step("question", data)

    @rule(data=st.data())
    def an_owner_answers_or_cancels(self, data: Any) -> None:
        self._step("owner", data)

    @rule(data=st.data())
    def writers_race(self, data: Any) -> None:
        self._step("race", data)

    @rule(data=st.data())
    def a_client_goes_on_with_a_round(self, data: Any) -> None:
        self._step("round", data)

    @rule(data=st.data())
    def work_ends(self, data: Any) -> None:
        self._step("finish", data)

    @rule(data=st.data())
    def the_store_does_something(self, data: Any) -> None:
        self._step("store", data)

    @rule(data=st.data())
    def the_store_does_more(self, data: Any) -> None:
        self._step("store", data)

    @rule(data=st.data())
    def the_store_answers_everything(self, data: Any) -> None:
        self._step("prompt", data)

    @rule(data=st.data())
    def a_call_goes_on(self, data: Any) -> None:
        self._step("call", data)

    @rule(data=st.data())
    def work_goes_on(self, data: Any) -> None:
        self._step("work", data)

    @rule(data=st.data())
    def time_passes(self, data: Any) -> None:
        self._step("time", data)

    @rule(data=st.data())
    def a_stream_is_closed(self, data: Any) -> None:
        self._step("close", data)

    @rule(data=st.data())
    def another_process_writes(self, data: Any) -> None:
        self._step("outsider", data)

    @rule(data=st.data())
    def a_process_dies(self, data: Any) -> None:
        self._step("crash", data)

    @rule(data=st.data())
    def somebody_breaks_a_rule(self, data: Any) -> None:
        self._step("blunder", data)

    def teardown(self) -> None:
        if self.world is not None:
            calm(self.world)


@pytest.mark.spec("A1", "B3", "C5", "G3", "T1", "T3", "U2", "U6", "X2", "X3")
def test_no_interleaving_breaks_a_rule_and_the_calm_leaves_nothing_behind() -> None:
    run_state_machine_as_test(ServerMachine, settings=effort(examples=100, steps=60))
