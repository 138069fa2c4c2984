"""The official packages, a server of the fixture, and the suite, for all tests here that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.official import WANTING, Official, find
from tests.conformance.serving import serving_fixture
from tests.conformance.suite import Suite


@pytest.fixture(scope="session")
def official() -> Official:
    found = find()
    if found is None:
        pytest.skip(WANTING)
    return found


@pytest.fixture(scope="session")
def suite(official: Official, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(official, tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="session")
def fixture_url(official: Official) -> Iterator[str]:
    """A server on asyncio that all share: none leaves anything behind that another would mind."""
    with serving_fixture("asyncio") as url:
        yield url
