"""Storms of subscriptions whose choices come from a seed alone."""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.access import AccessRule
from stateful.picking import SeededPick
from stateful.subscription_world import STEPS, SubscriptionWorld

BURSTS: Final = (500, 1024 * 1024)
_OFTEN: Final = ("birth", "listen", "listen", "listen", "work", "elsewhere", "engine", "hint", "time", "store", "news")
_STEPS: Final = [*STEPS, *_OFTEN, *_OFTEN]


def storm(seed: int, steps: int = 120) -> SubscriptionWorld:
    """A storm and its calm; the world as it then is."""
    pick = SeededPick(seed)
    world = SubscriptionWorld(
        servers=pick.number(1, 2),
        named=pick.of([True, False]),
        access=pick.of(list(AccessRule)),
        burst_bytes=pick.of(BURSTS),
    )
    for _ in range(steps):
        STEPS[pick.of(_STEPS)](world, pick)
        world.settle()
    world.calm()
    return world
