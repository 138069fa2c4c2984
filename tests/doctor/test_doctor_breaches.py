"""Each rule that is broken alone is found by its checks, and by no others."""

from __future__ import annotations

from collections.abc import Collection
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


def examined(breach: Breach | None, only: Collection[str] = (), backend: str = "asyncio") -> Examined:
    """What the doctor finds out about our server with a breach before it, or about the server itself."""

    async def run() -> Examined:
        engine = ServerEngine(app)
        settings: dict[str, Any] = {"port": 0, "owner_resolver": _owner_of}
        async with (
            engine.running(),
            serving_http(engine, shutdown_grace_seconds=0, **settings) as listener,
            between(listener.url, breach or Breach()) as url,
        ):
            subject = Subject(
                url=listener.url if breach is None else url,
                named=NAMED,
                headers=[("Authorization", "Bearer own")],
                other_headers=[("Authorization", "Bearer other")],
                patience=PATIENCE,
                only=only,
            )
            return await examine(subject)

    return anyio.run(run, backend=backend)


def names(found: Examined, outcome: Outcome) -> set[str]:
    return {finding.check.name for finding in found.findings if finding.outcome is outcome}


def reasons(found: Examined) -> dict[str, str]:
    return {finding.check.name: finding.reason for finding in found.findings if finding.reason}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_our_server_passes_over_http(backend: str) -> None:
    found = examined(None, backend=backend)
    assert names(found, Outcome.FAIL) == set(), reasons(found)
    # Whether it serves subscriptions or not: with them on, these are exercised, too.
    left = {check.name for title, check in checks_for("http") if title == "Subscriptions to tasks"}
    assert names(found, Outcome.NOT_EXERCISED) <= left | {"foreign-task-is-not-pushed"}, reasons(found)


def test_nothing_is_found_where_nothing_is_broken_and_everything_is_exercised() -> None:
    found = examined(Breach(listens=True))
    assert reasons(found) == {}
    assert names(found, Outcome.PASS) == {check.name for _, check in checks_for("http")}


@pytest.mark.parametrize("what", UNNOTICED)
def test_violation_that_the_official_suite_does_not_notice_is_found_and_nothing_else(what: str) -> None:
    breach = UNNOTICED[what]
    found = examined(breach)
    assert names(found, Outcome.FAIL) == breach.finds, reasons(found)


@pytest.mark.parametrize("what", OTHERS)
def test_breach_is_found_by_its_checks(what: str) -> None:
    breach = OTHERS[what]
    found = examined(breach, only={*breach.finds, *breach.among})
    assert names(found, Outcome.FAIL) == breach.finds, reasons(found)


def test_every_check_over_http_can_fail() -> None:
    can_fail = {name for breach in (*UNNOTICED.values(), *OTHERS.values()) for name in breach.finds}
    assert can_fail == {check.name for _, check in checks_for("http")}
