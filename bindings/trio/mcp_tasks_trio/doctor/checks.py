"""What a check is, how it ends, and how the checks of one subject are gathered."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import attrs

from mcp_tasks_trio.doctor.exchanges import Exchange, TransportName

if TYPE_CHECKING:
    from mcp_tasks_trio.doctor.examination import Examination

Level = Literal["M", "S"]
MUST: Final = "M"
SHOULD: Final = "S"


class Outcome(enum.Enum):
    """How a check ended."""

    PASS = "pass"
    FAIL = "fail"
    NOT_EXERCISED = "not exercised"


class Failed(Exception):
    """The server departs from a requirement.

    Args:
        reason: one sentence that says what was seen, and what is allowed.
        exchanges: that show it.
    """

    def __init__(self, reason: str, *exchanges: Exchange) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exchanges = exchanges


class NotExercised(Exception):
    """The requirement could not be put to the test; the text says what that needs."""


Run = Callable[["Examination"], Awaitable[None]]
_R = TypeVar("_R", bound=Run)


@attrs.frozen(kw_only=True)
class Check:
    """One thing that the doctor looks at.

    Args:
        name: of this check alone, words with hyphens.
        requirement: the row of the requirement table that it belongs to.
        level: of the sentence that it holds the server to, not of the whole row.
        source: page and heading of the specification.
        claim: what a conforming server does, in one sentence.
        only: the one transport on which it means something.
        suite: ids of the official conformance suite that declare the requirement, without ``sep-2663-``.
    """

    name: str
    requirement: str
    level: Level
    source: str
    claim: str
    run: Run = attrs.field(repr=False)
    only: TransportName | None = None
    suite: tuple[str, ...] = ()


class Subject:
    """The checks of one subject, in the order in which they are written."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.checks: list[Check] = []

    def check(
        self, name: str, requirement: str, level: Level, source: str, claim: str, **more: Any
    ) -> Callable[[_R], _R]:
        """Makes a check of a function that raises ``Failed`` or ``NotExercised``, or returns."""

        def register(run: _R) -> _R:
            self.checks.append(
                Check(name=name, requirement=requirement, level=level, source=source, claim=claim, run=run, **more)
            )
            return run

        return register


@attrs.frozen(kw_only=True)
class Finding:
    """How one check ended.

    Args:
        reason: what was seen, or what it needs; empty when it passed.
        exchanges: that show it.
    """

    check: Check
    outcome: Outcome
    reason: str = ""
    exchanges: Sequence[Exchange] = ()


def demand(holds: object, reason: str, *exchanges: Exchange) -> None:
    """Go on only if this holds.

    Raises:
        Failed: it does not.
    """
    if not holds:
        raise Failed(reason, *exchanges)


def demand_error(exchange: Exchange, *codes: int, what: str) -> None:
    """Go on only if this was refused with one of these codes; no codes are any.

    Raises:
        Failed: it was not.
    """
    allowed = " or ".join(map(str, codes)) or "a JSON-RPC error"
    if exchange.error is None:
        seen = "was served" if exchange.result is not None else f"got no JSON-RPC answer ({_silence(exchange)})"
        raise Failed(f"{what} {seen}, not refused with {allowed}", exchange)
    if codes and exchange.code not in codes:
        raise Failed(f"{what} was refused with {exchange.code}, not with {allowed}", exchange)


def demand_result(exchange: Exchange, what: str) -> dict[str, Any]:
    """The result of what has to succeed.

    Raises:
        Failed: it did not.
    """
    if exchange.result is None:
        seen = f"was refused with {exchange.code}" if exchange.error else f"got no answer ({_silence(exchange)})"
        raise Failed(f"{what} {seen}", exchange)
    return exchange.result


def _silence(exchange: Exchange) -> str:
    return exchange.problem or (f"HTTP {exchange.status}" if exchange.status is not None else "silence")
