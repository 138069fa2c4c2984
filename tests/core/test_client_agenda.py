"""The agenda of moments."""

from __future__ import annotations

import random

from mcp_tasks_core.client.agenda import Agenda


def test_what_is_due_comes_in_order_and_once() -> None:
    agenda: Agenda[str] = Agenda()
    for name, moment in (("c", 30), ("a", 10), ("b", 20), ("a2", 10)):
        agenda.set(name, moment)
    assert agenda.earliest_ms == 10
    assert agenda.take_due(20) == ["a", "a2", "b"]
    assert agenda.take_due(20) == []
    assert (agenda.earliest_ms, len(agenda)) == (30, 1)


def test_a_moment_that_is_set_again_counts_alone_whether_sooner_or_later() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.set("x", 10)
    agenda.set("x", 50)
    assert agenda.take_due(49) == []
    agenda.set("x", 20)
    agenda.set("x", 20)
    assert agenda.take_due(100) == ["x"]
    agenda.set("x", 5)
    agenda.set("x", None)
    agenda.set("never", None)
    assert agenda.earliest_ms is None


def test_it_agrees_with_a_plain_dictionary_and_does_not_grow_with_moments_that_are_set_again() -> None:
    chance = random.Random(1)
    agenda: Agenda[int] = Agenda()
    plain: dict[int, int] = {}
    for now in range(3_000):
        name, moment = chance.randrange(20), now + chance.randrange(40)
        if chance.random() < 0.2:
            agenda.set(name, None)
            plain.pop(name, None)
        else:
            agenda.set(name, moment)
            plain[name] = moment
        assert agenda.earliest_ms == min(plain.values(), default=None)
        if now % 7 == 0:
            due = agenda.take_due(now)
            assert sorted(due) == sorted(name for name, moment in plain.items() if moment <= now)
            plain = {name: moment for name, moment in plain.items() if moment > now}
        assert len(agenda._heap) <= 64 + 4 * 20 + 1
