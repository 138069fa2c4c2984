"""The official suite judges our server; and what it says of none, or leaves out in silence, is no success."""

from __future__ import annotations

import attrs
import pytest

from tests.conformance.judging import Verdict
from tests.conformance.scenarios import ALONE, REQUIRED, REVISION, TASKS, Scenario
from tests.conformance.serving import serving_fixture
from tests.conformance.suite import ALL_REQUIRED, Suite

Verdicts = dict[str, Verdict]


def named(scenario: Scenario) -> str:
    return scenario.name


@pytest.fixture(scope="module", params=["asyncio, memory", "trio, SQLite"])
def run_of_all(request: pytest.FixtureRequest, suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """What one run of everything gave: on each loop, and on each store."""
    backend, _, store = request.param.partition(", ")
    file = tmp_path_factory.mktemp("store") / "tasks.db" if store == "SQLite" else None
    with serving_fixture(backend, file) as url:
        return {verdict.name: verdict for verdict in suite.run_of_all(url)}


@pytest.mark.parametrize("scenario", [*REQUIRED, *ALONE], ids=named)
def test_scenario_succeeds_in_a_run_of_all(run_of_all: Verdicts, scenario: Scenario) -> None:
    assert run_of_all[scenario.name].faults == ()


def test_the_suite_itself_finds_everything_that_is_required(run_of_all: Verdicts) -> None:
    assert run_of_all[ALL_REQUIRED].faults == ()


@pytest.mark.parametrize("scenario", ALONE, ids=named)
def test_scenario_succeeds_on_its_own(suite: Suite, fixture_url: str, scenario: Scenario) -> None:
    assert suite.server_scenario(scenario, fixture_url).faults == ()


def test_a_scenario_that_the_suite_skips_in_silence_is_no_success(suite: Suite, fixture_url: str) -> None:
    skipped = attrs.evolve(TASKS[0], options=("--spec-version", REVISION))
    assert suite.server_scenario(skipped, fixture_url).faults == ("the suite wrote no results: it was not run",)


def test_a_server_that_is_not_there_fails(suite: Suite) -> None:
    verdict = suite.server_scenario(ALONE[-1], "http://127.0.0.1:1/mcp")
    assert verdict.counts["FAILURE"]
    assert not verdict.passed
