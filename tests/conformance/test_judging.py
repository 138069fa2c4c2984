"""What is made of the suite's results: nothing that it finds, or leaves out, goes unnoticed."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from tests.conformance.judging import Check, judge, read_results
from tests.conformance.scenarios import CLIENT, HEADERS_AND_SCHEMAS, REQUIRED, TASKS, Scenario

PLAIN = Scenario(name="plain")
GOOD = Check(id="good", status="SUCCESS")


def test_a_scenario_whose_checks_succeed_passes() -> None:
    verdict = judge(PLAIN, [GOOD, attrs.evolve(GOOD, status="INFO")], exit_status=0)
    assert verdict.passed
    assert verdict.counts == {"SUCCESS": 1, "INFO": 1}


@pytest.mark.parametrize("status", ["FAILURE", "ERROR"])
def test_a_failed_check_and_one_of_an_unknown_kind_fail_their_scenario(status: str) -> None:
    (fault,) = judge(PLAIN, [GOOD, Check(id="bad", status=status, message="because")]).faults
    assert fault == f"{status} bad: because"


def test_a_warning_fails_where_warnings_gate_and_nowhere_else() -> None:
    checks = [GOOD, Check(id="so-so", status="WARNING")]
    assert judge(PLAIN, checks).passed
    assert not judge(attrs.evolve(PLAIN, warnings_gate=True), checks).passed


def test_a_skipped_check_fails_unless_it_may_be_skipped_so_often() -> None:
    checks = [GOOD, Check(id="left-out", status="SKIPPED"), Check(id="left-out", status="SKIPPED")]
    assert not judge(PLAIN, checks).passed
    assert not judge(attrs.evolve(PLAIN, may_skip={"left-out": 1}), checks).passed
    assert judge(attrs.evolve(PLAIN, may_skip={"left-out": 2}), checks).passed


@pytest.mark.parametrize("checks", [None, [], [Check(id="note", status="INFO")]])
def test_a_scenario_in_which_nothing_was_tried_fails(checks: list[Check] | None) -> None:
    assert not judge(PLAIN, checks).passed


def test_a_stub_that_does_something_is_no_stub() -> None:
    stub = Scenario(name="stub", may_skip={"stub": 1}, only_skips=True)
    skipped = Check(id="stub", status="SKIPPED")
    assert judge(stub, [skipped], exit_status=0).passed
    assert not judge(stub, [skipped, GOOD]).passed
    assert not judge(stub, None).passed


def test_the_exit_status_of_the_suite_counts_too() -> None:
    assert judge(PLAIN, [GOOD], exit_status=1).faults == ("the suite ended with 1",)


def test_results_are_found_by_scenario_in_all_places_where_the_suite_writes_them(tmp_path: Path) -> None:
    checks = [{"id": "a", "status": "FAILURE", "errorMessage": "no"}, {"id": "b", "status": "SUCCESS"}]
    for name in (
        "server-tools-list-2026-11-29T16-44-30-350Z",
        "request-metadata-2026-11-29T16-44-30-350Z",
        "auth/metadata-2026-11-29T16-44-30-350Z",
    ):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "checks.json").write_text(json.dumps(checks), encoding="utf-8")
    found = read_results(tmp_path)
    assert set(found) == {"tools-list", "request-metadata", "metadata"}
    assert found["tools-list"] == [
        Check(id="a", status="FAILURE", message="no"),
        Check(id="b", status="SUCCESS", message=""),
    ]


def test_no_scenario_is_forgotten_or_named_twice() -> None:
    assert [len(group) for group in (REQUIRED, TASKS, HEADERS_AND_SCHEMAS, CLIENT)] == [37, 10, 3, 8]
    names = [scenario.name for scenario in (*REQUIRED, *TASKS, *HEADERS_AND_SCHEMAS, *CLIENT)]
    assert len(set(names)) == len(names)
    assert all(scenario.warnings_gate for scenario in TASKS)
