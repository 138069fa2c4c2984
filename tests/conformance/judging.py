"""Reads what the official suite found, and says whether it is good enough."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.conformance.scenarios import Scenario

STATUSES: Final = ("SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO")
_RESULT_FOLDER: Final = re.compile(r"(?:server-)?(?P<name>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@attrs.frozen(kw_only=True)
class Check:
    """One check of the suite, as it ended."""

    id: str
    status: str
    message: str = ""


@attrs.frozen(kw_only=True)
class Verdict:
    """What is to be said of one scenario.

    Args:
        counts: checks by how they ended.
        faults: why it is not good enough, a sentence each; empty where it is.
    """

    name: str
    counts: Counter[str]
    faults: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.faults


def read_results(folder: Path) -> dict[str, list[Check]]:
    """The checks by scenario, from everything that the suite wrote below a folder."""
    found: dict[str, list[Check]] = {}
    for path in sorted(folder.rglob("checks.json")):
        matched = _RESULT_FOLDER.fullmatch(path.parent.name)
        name = matched["name"] if matched else path.parent.name
        raw: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        found[name] = [
            Check(id=check["id"], status=check["status"], message=str(check.get("errorMessage") or "")) for check in raw
        ]
    return found


def judge(scenario: Scenario, checks: Sequence[Check] | None, *, exit_status: int | None = None) -> Verdict:
    """Whether the checks of a scenario are good enough.

    Args:
        checks: ``None`` where the suite wrote nothing of it.
        exit_status: of the suite, where it ran this scenario alone.
    """
    counts = Counter(check.status for check in checks or ())
    faults = [f"{check.status} {check.id}: {check.message}" for check in checks or () if _is_fault(scenario, check)]
    skipped = Counter(check.id for check in checks or () if check.status == "SKIPPED")
    for check_id, count in skipped.items():
        allowed = scenario.may_skip.get(check_id, 0)
        if count > allowed:
            faults.append(f"SKIPPED {check_id}: {count} times, and {allowed} times it may be")
    if checks is None:
        faults.append("the suite wrote no results: it was not run")
    elif scenario.only_skips:
        if set(counts) != {"SKIPPED"}:
            faults.append("a stub no longer: it has to be judged as any other")
    elif not counts["SUCCESS"]:
        faults.append("nothing succeeded")
    if exit_status:
        faults.append(f"the suite ended with {exit_status}")
    return Verdict(name=scenario.name, counts=counts, faults=tuple(faults))


def _is_fault(scenario: Scenario, check: Check) -> bool:
    if check.status not in STATUSES or check.status == "FAILURE":
        return True
    return check.status == "WARNING" and scenario.warnings_gate
