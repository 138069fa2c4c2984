"""Findings as verdicts: one for each requirement, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, Finding, Outcome
from mcp_tasks_trio.doctor.examine import Examined
from mcp_tasks_trio.doctor.exchanges import Exchange

# A verdict is as bad as the worst of its findings; something not exercised does not spoil what was.
_WORST_FIRST: Final = (Outcome.FAIL, Outcome.PASS, Outcome.NOT_EXERCISED)
_MARKS: Final = {Outcome.PASS: "pass", Outcome.FAIL: "FAIL", Outcome.NOT_EXERCISED: "  - "}
_EXCHANGES_SHOWN: Final = 3


@attrs.frozen(kw_only=True)
class Verdict:
    """What the findings say of one row of the requirement table, at one level."""

    requirement: str
    level: str
    outcome: Outcome
    findings: Sequence[Finding]


def verdicts(findings: Iterable[Finding]) -> list[Verdict]:
    """One verdict for each requirement and level, in the order in which they first came up."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.check.requirement, finding.check.level), []).append(finding)
    return [
        Verdict(requirement=row, level=level, outcome=_worst(found), findings=found)
        for (row, level), found in grouped.items()
    ]


def _worst(findings: Sequence[Finding]) -> Outcome:
    outcomes = {finding.outcome for finding in findings}
    return next(outcome for outcome in _WORST_FIRST if outcome in outcomes)


def failed_musts(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that a MUST is not kept."""
    return [f for f in findings if f.outcome is Outcome.FAIL and f.check.level == MUST]


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many checks ended how, by level and outcome."""
    return {
        f"{level} {outcome.value}": sum(f.outcome is outcome and f.check.level == level for f in findings)
        for level in ("M", "S")
        for outcome in Outcome
    }


# --- for people


def as_text(examined: Examined) -> Iterator[str]:
    """Lines: each check under its subject, then every failure with what shows it, then the verdicts and the sum."""
    title = ""
    for found, finding in zip(examined.titles, examined.findings, strict=True):
        if found != title:
            title = found
            yield ""
            yield title
        check = finding.check
        want = f"  [{finding.reason}]" if finding.outcome is Outcome.NOT_EXERCISED else ""
        yield f"  {_MARKS[finding.outcome]}  {check.requirement:<4}{check.level}  {check.claim}{want}"
    for finding in examined.findings:
        if finding.outcome is Outcome.FAIL:
            yield from _failure(finding)
    yield ""
    yield "By requirement"
    for outcome in (Outcome.FAIL, Outcome.NOT_EXERCISED, Outcome.PASS):
        rows = [f"{v.requirement}({v.level})" for v in verdicts(examined.findings) if v.outcome is outcome]
        if rows:
            yield f"  {outcome.value}: {' '.join(rows)}"
    for named in examined.missing:
        yield f"  --{named.role.value} {named.name}: the server lists no such tool"
    yield ""
    sums = ", ".join(f"{number} {what}" for what, number in counts(examined.findings).items() if number)
    yield f"{sums}; over {examined.transport}, in {examined.seconds:.1f} s"


def _failure(finding: Finding) -> Iterator[str]:
    check = finding.check
    yield ""
    yield f"FAIL {check.requirement} ({check.level}) {check.name}: {finding.reason}"
    yield f"     {check.claim}"
    yield f"     Source: {check.source}"
    for exchange in finding.exchanges[:_EXCHANGES_SHOWN]:
        yield from (f"     > {line}" for line in exchange.sent.shown().splitlines())
        yield from (f"     < {line}" for line in exchange.shown_answer().splitlines())


# --- for programs


def as_json(examined: Examined) -> JSONObject:
    """All of it as one object."""
    return {
        "transport": examined.transport,
        "seconds": round(examined.seconds, 1),
        "tools": {tool.name: sorted(role.value for role in tool.roles) for tool in examined.tools},
        "toolsMissing": [named.name for named in examined.missing],
        "counts": counts(examined.findings),
        "verdicts": [
            {
                "requirement": verdict.requirement,
                "level": verdict.level,
                "verdict": verdict.outcome.value,
                "checks": [_check_as_json(finding) for finding in verdict.findings],
            }
            for verdict in verdicts(examined.findings)
        ],
    }


def _check_as_json(finding: Finding) -> JSONObject:
    check = finding.check
    told: JSONObject = {
        "check": check.name,
        "claim": check.claim,
        "source": check.source,
        "verdict": finding.outcome.value,
    }
    if check.suite:
        told["suite"] = [f"sep-2663-{name}" for name in check.suite]
    if finding.outcome is Outcome.FAIL:
        told["reason"] = finding.reason
        told["exchanges"] = [_exchange_as_json(exchange) for exchange in finding.exchanges[:_EXCHANGES_SHOWN]]
    elif finding.outcome is Outcome.NOT_EXERCISED:
        told["needs"] = finding.reason.removeprefix("needs ")
    return told


def _exchange_as_json(exchange: Exchange) -> JSONObject:
    told: dict[str, Any] = {"request": exchange.sent.shown(), "answer": exchange.shown_answer()}
    if exchange.status is not None:
        told["status"] = exchange.status
    return told
