"""A short run of the load that ``python -m tests.http_load`` makes."""

from __future__ import annotations

import anyio

from http_load import load
from runners.served import both_loops


@both_loops
def test_requests_that_are_malformed_or_cut_off_harm_no_other_and_leave_nothing(backend: str) -> None:
    tally = anyio.run(load, 64, 2.0, backend=backend)
    assert tally.wrong == []
    assert tally.left == []
    assert tally.answered > 100
    assert tally.cut + tally.refused > 0
