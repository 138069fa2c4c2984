"""The official suite judges our client."""

from __future__ import annotations

import pytest

from tests.conformance.scenarios import CLIENT, Scenario
from tests.conformance.suite import CLIENT_COMMAND, Suite


def named(scenario: Scenario) -> str:
    return scenario.name


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("scenario", CLIENT, ids=named)
def test_client_goes_through_with(suite: Suite, scenario: Scenario, backend: str) -> None:
    assert suite.client_scenario(scenario, f"{CLIENT_COMMAND} --backend {backend}").faults == ()


def test_a_client_that_does_nothing_fails(suite: Suite) -> None:
    assert not suite.client_scenario(CLIENT[0], "true").passed
