"""How many examples of how many steps: the same few on every default run, many fresh ones in the deep profile."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def _deep() -> bool:
    return settings.get_current_profile_name() == "deep"


def times(few: int) -> int:
    """So many by default, and 50 times as many in the deep profile."""
    return few * 50 if _deep() else few


def effort(examples: int, steps: int) -> settings:
    """Settings of a machine. The deep profile runs 50 times the examples with twice the steps, with new seeds."""
    deep = _deep()
    return settings(
        max_examples=times(examples),
        stateful_step_count=steps * (2 if deep else 1),
        derandomize=not deep,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
