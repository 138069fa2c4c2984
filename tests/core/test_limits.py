"""The table of bounds itself; each bound is tested at and past it where it works."""

from __future__ import annotations

import attrs
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.limits import Limits

NAMES = [field.name for field in attrs.fields(Limits)]


@pytest.mark.parametrize("name", NAMES)
def test_every_bound_is_an_integer_of_one_or_more(name: str) -> None:
    assert getattr(Limits(**{name: 1}), name) == 1
    for wrong in (0, -1, True, 1.0, "1", None, float("inf")):
        with pytest.raises(LocalProtocolError, match=f"{name} is an integer of 1 or more, not"):
            Limits(**{name: wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_every_bound_tells_its_unit_or_what_it_counts(name: str) -> None:
    assert name.endswith(("_ms", "_max", "_min")) or name == "tools_per_page"


@pytest.mark.spec("C7")
def test_an_id_has_192_random_bits_or_more_by_default() -> None:
    assert Limits().task_id_entropy_bytes_min * 8 >= 192


@pytest.mark.spec("D28")
def test_the_grace_of_a_cancel_is_five_seconds_by_default() -> None:
    assert Limits().cancel_grace_ms == 5_000
