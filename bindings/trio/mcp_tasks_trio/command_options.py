"""Types of options that several commands share."""

from __future__ import annotations

import math
from typing import Any, Final

import click


class _Seconds(click.FloatRange):
    """A duration above 0 that has an end: ranges alone let ``nan`` through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is no finite number of seconds.", param, ctx)
        return seconds


SECONDS: Final = _Seconds(min=0, min_open=True)
