"""Each rule that is broken alone is found by its checks, and by no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from doctor.between import Breach, between
from doctor.breaches_of_http import OF_HTTP
from doctor.breaches_of_messages import OF_MESSAGES
from doctor.breaches_of_tasks import OF_TASKS
from doctor.breaches_unnoticed import UNNOTICED
from doctor.doctor_app import app
from mcp_tasks_core.access import Owner
from mcp_tasks_http import RequestHead
from mcp_tasks_trio import Challenge, ServerEngine
from mcp_tasks_trio.doctor.checks import Outcome
from mcp_tasks_trio.doctor.examination import Patience
from mcp_tasks_trio.doctor.examine import Examined, Subject, examine
from mcp_tasks_trio.doctor.plan import checks_for
from mcp_tasks_trio.doctor.tools import NamedTool, Role
from mcp_tasks_trio.http_server import serving_http

OTHERS = {**OF_TASKS, **OF_MESSAGES, **OF_HTTP}
_AT_ONCE = 6
PATIENCE = Patience(answer=3.0, probe=0.4, settle=1.5, quiet=0.12)
# The first listed tool of a kind is found anyway; these would be hidden by what a breach does to them.
NAMED = [
    NamedTool(role=role, name=name, arguments=None)
    for role, name in (
        (Role.PLAIN, "greet"),
        (Role.TASK, "quick"),
        (Role.SLOW, "slow"),
        (Role.ASK, "ask"),
        (Role.FAILING, "fail"),
        (Role.TOOL_ERROR, "fail_as_tool"),
        (Role.REQUIRED, "only_as_task"),
        (Role.ROUND, "ask_inline"),
        (Role.PROGRESS, "report"),
        (Role.HEADER, "route"),
    )
]


def _owner_of(head: RequestHead) -> Owner | Challenge:
    token = head.by_name.get(b"authorization", b"").decode()
    if not token.startswith("Bearer "):
        return Challenge.unauthorized(resource_metadata="https://example.com/metadata")
    return Owner(tenant="tests", subject=token.removeprefix("Bearer "))


async def _examined(url: str, only: Collection[str] = ()) -> Examined:
    return await examine(
        Subject(
            url=url,
            named=NAMED,
            headers=[("Authorization", "Bearer own")],
            other_headers=[("Authorization", "Bearer other")],
            patience=PATIENCE,
            only=only,
        )
    )


@asynccontextmanager
async def _served() -> AsyncIterator[str]:
    engine = ServerEngine(app)
    settings: dict[str, Any] = {"port": 0, "owner_resolver": _owner_of}
    async with engine.running(), serving_http(engine, shutdown_grace_seconds=0, **settings) as listener:
        yield listener.url


def examined(breach: Breach | None, backend: str = "asyncio") -> Examined:
    """What the doctor finds out about our server with a breach before it, or about the server itself."""

    async def run() -> Examined:
        async with _served() as url, between(url, breach or Breach()) as broken_url:
            return await _examined(url if breach is None else broken_url)

    return anyio.run(run, backend=backend)


async def _all_examined(breaches: Mapping[str, Breach], *, whole: bool) -> dict[str, Examined]:
    """Many at a time, since an examination spends its time waiting."""
    found: dict[str, Examined] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def one(url: str, what: str, breach: Breach) -> None:
        only = () if whole else {*breach.finds, *breach.among}
        async with limiter, between(url, breach) as broken_url:
            found[what] = await _examined(broken_url, only)

    async with _served() as url, anyio.create_task_group() as task_group:
        for what, breach in breaches.items():
            task_group.start_soon(one, url, what, breach)
    return found


@pytest.fixture(scope="module")
def unnoticed() -> dict[str, Examined]:
    """All checks on every violation that the official suite does not notice."""
    return anyio.run(partial(_all_examined, UNNOTICED, whole=True))


@pytest.fixture(scope="module")
def others() -> dict[str, Examined]:
    """On every other breach the checks that have to find it."""
    return anyio.run(partial(_all_examined, OTHERS, whole=False))


def names(found: Examined, outcome: Outcome) -> set[str]:
    return {finding.check.name for finding in found.findings if finding.outcome is outcome}


def reasons(found: Examined) -> dict[str, str]:
    return {finding.check.name: finding.reason for finding in found.findings if finding.reason}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_our_server_passes_over_http(backend: str) -> None:
    found = examined(None, backend=backend)
    assert names(found, Outcome.FAIL) == set(), reasons(found)
    assert names(found, Outcome.NOT_EXERCISED) == set(), reasons(found)


def test_nothing_is_found_where_nothing_is_broken_and_everything_is_exercised() -> None:
    found = examined(Breach())
    assert reasons(found) == {}
    assert names(found, Outcome.PASS) == {check.name for _, check in checks_for("http")}


@pytest.mark.parametrize("what", UNNOTICED)
def test_violation_that_the_official_suite_does_not_notice_is_found_and_nothing_else(
    unnoticed: dict[str, Examined], what: str
) -> None:
    found = unnoticed[what]
    assert names(found, Outcome.FAIL) == UNNOTICED[what].finds, reasons(found)


@pytest.mark.parametrize("what", OTHERS)
def test_breach_is_found_by_its_checks(others: dict[str, Examined], what: str) -> None:
    found = others[what]
    assert names(found, Outcome.FAIL) == OTHERS[what].finds, reasons(found)


def test_every_check_over_http_can_fail() -> None:
    can_fail = {name for breach in (*UNNOTICED.values(), *OTHERS.values()) for name in breach.finds}
    assert can_fail == {check.name for _, check in checks_for("http")}
