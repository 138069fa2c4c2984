"""Storms whose choices come from a seed alone."""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.access import AccessRule
from stateful.picking import SeededPick
from stateful.server_calm import calm
from stateful.server_world import STEPS, World

_STEPS: Final = [*STEPS, *("message",) * 4, *("store",) * 3, "question", "call", "work", "race"]


def storm(seed: int, steps: int = 120) -> World:
    """A storm and its calm; the world as it then is."""
    pick = SeededPick(seed)
    world = World(
        cores=pick.number(1, 2),
        named=pick.of([True, False]),
        access=pick.of(list(AccessRule)),
        call_limit_ms=pick.of([None, 3_000]),
        input_extension_ms=pick.of([None, 1_500]),
    )
    for _ in range(steps):
        STEPS[pick.of(_STEPS)](world, pick)
    calm(world)
    return world
