"""The doctor examines servers that it starts itself."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

import anyio
import pytest

from doctor.test_doctor_breaches import NAMED, PATIENCE, names, reasons
from mcp_tasks_trio.doctor.checks import Outcome
from mcp_tasks_trio.doctor.examine import Examined, Subject, examine
from mcp_tasks_trio.doctor.exchanges import ConnectionFailed
from mcp_tasks_trio.doctor.plan import checks_for

TESTS = Path(__file__).resolve().parents[1]
SERVER = [sys.executable, "-m", "mcp_tasks_trio", "serve", "doctor.doctor_app:app"]

BREACHES = {
    "notifications are answered": {"notification-is-not-answered"},
    "one request after the other": {"requests-run-side-by-side"},
    "cancelled requests are answered": {"cancelled-request-is-not-answered"},
    "wrong cancellations are answered": {"wrong-cancellations-are-ignored"},
    "it greets on stdout": {"stdout-has-messages-alone"},
    "answers come twice": {"nothing-comes-unasked"},
    "it lives on": {"ends-when-stdin-ends"},
}


def examined(command: list[str], monkeypatch: pytest.MonkeyPatch, only: Collection[str] = ()) -> Examined:
    monkeypatch.chdir(TESTS)
    subject = Subject(command=command, named=NAMED, patience=PATIENCE, only=only)
    return anyio.run(examine, subject)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_our_server_passes_on_stdio(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    found = examined([*SERVER, "--backend", backend], monkeypatch)
    assert names(found, Outcome.FAIL) == set(), reasons(found)
    assert names(found, Outcome.NOT_EXERCISED) == set(), reasons(found)


@pytest.mark.parametrize("breach", BREACHES)
def test_breach_on_stdio_is_found(monkeypatch: pytest.MonkeyPatch, breach: str) -> None:
    command = [sys.executable, str(TESTS / "doctor" / "between_stdio.py"), breach, *SERVER]
    expected = BREACHES[breach]
    found = examined(command, monkeypatch, only={*expected, "list-order-is-stable"})
    assert names(found, Outcome.FAIL) == expected, reasons(found)


def test_every_check_on_stdio_alone_can_fail() -> None:
    alone = {check.name for _, check in checks_for("stdio") if check.only == "stdio"}
    assert alone == set().union(*BREACHES.values()) - {"notification-is-not-answered"}


def test_command_that_cannot_be_started_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be started"):
        examined(["/no/such/command"], monkeypatch)


def test_server_that_ends_at_once_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConnectionFailed, match="does not answer"):
        examined([sys.executable, "-c", ""], monkeypatch)
