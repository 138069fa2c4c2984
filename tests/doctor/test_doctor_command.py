"""``mcp-tasks doctor``: what it takes, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks_trio.doctor.plan import SUBJECTS, checks_for

TESTS = Path(__file__).resolve().parents[1]
SERVER = ["--", sys.executable, "-m", "mcp_tasks_trio", "serve", "doctor.doctor_app:app"]
# Of the 22 requirements that the official suite declares and does not check, three are for clients.
SERVERS_SHARE = {
    "cancel-error-unknown-task-id",
    "cancel-not-via-cancelled-notification",
    "failed-includes-statusmessage",
    "failed-status-jsonrpc-only",
    "input-request-key-unique-per-task",
    "legacy-capability-treated-as-non-declaring",
    "migrate-from-legacy-capabilities",
    "no-key-reuse-after-response",
    "no-progress-or-message-on-task-stream",
    "no-task-result-type-on-others",
    "result-type-complete-on-tasks-cancel",
    "result-type-complete-on-tasks-get",
    "result-type-complete-on-tasks-update",
    "subscribe-missing-capability-non-declaring",
    "tasks-get-status-cancelled",
    "tasks-update-cancel-invalid-task-id-32602",
    "update-ack-empty-result",
    "update-error-unknown-task-id",
    "update-ignore-unknown-keys",
}


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcp_tasks_trio", "doctor", *arguments]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, encoding="utf-8", timeout=120)


def test_every_requirement_of_servers_that_the_official_suite_leaves_out_is_checked() -> None:
    assert {name for subject in SUBJECTS for check in subject.checks for name in check.suite} == SERVERS_SHARE


def test_names_of_checks_are_unique_and_every_check_says_what_it_holds_to() -> None:
    checks = [check for subject in SUBJECTS for check in subject.checks]
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.level in ("M", "S") and check.source and check.claim and check.requirement for check in checks)
    assert {check.name for kind in ("http", "stdio") for _, check in checks_for(kind)} == {c.name for c in checks}


def test_verdicts_as_json() -> None:
    done = doctor("--json", "--check", "discovery-is-served", "--check", "get-of-unknown-task", *SERVER)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    assert {v["requirement"]: (v["level"], v["verdict"]) for v in told["verdicts"]} == {
        "N3": ("M", "pass"),
        "G3": ("M", "pass"),
    }
    assert told["transport"] == "stdio"
    assert told["tools"]["ask"] == ["ask-tool"]
    assert told["tools"]["only_as_task"] == ["required-tool", "task-tool"]


def test_verdicts_for_people() -> None:
    done = doctor("--check", "discovery-is-served", "--check", "undeclared-listen-is-refused", *SERVER)
    assert done.returncode == 0
    assert "  pass  N3  M  server/discover tells the supported versions and the capabilities" in done.stdout


def test_failure_is_shown_with_request_and_answer_and_ends_with_1() -> None:
    between = [str(TESTS / "doctor" / "between_stdio.py"), "notifications are answered"]
    done = doctor("--check", "notification-is-not-answered", "--", sys.executable, *between, *SERVER[1:])
    assert done.returncode == 1
    assert "FAIL B6 (M) notification-is-not-answered: a notification was answered" in done.stdout
    assert '     > {"jsonrpc":"2.0","method":"notifications/mcp-tasks-doctor","params":{}}' in done.stdout
    assert '     < {"jsonrpc": "2.0", "error": {"code": -32601, "message": "what?"}}' in done.stdout


def test_tools_that_are_not_named_can_be_left_alone() -> None:
    done = doctor(
        "--json", "--only-named", "--plain-tool", 'greet={"name":"Ada"}', "--check", "handle-is-whole", *SERVER
    )
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["tools"] == {"greet": ["plain-tool"]}
    (verdict,) = told["verdicts"]
    assert verdict["verdict"] == "not exercised"
    assert verdict["checks"][0]["needs"] == "a tool that becomes a task (--task-tool NAME)"


def test_named_tool_that_is_not_there_is_told() -> None:
    done = doctor("--plain-tool", "nobody", "--check", "discovery-is-served", *SERVER)
    assert "--plain-tool nobody: the server lists no such tool" in done.stdout


def test_time_is_bounded_and_what_there_was_none_for_is_no_pass() -> None:
    done = doctor("--json", "--time-limit", "0.001", *SERVER)
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert {verdict["verdict"] for verdict in told["verdicts"]} == {"not exercised"}
    assert "more time (--time-limit SECONDS)" in {c["needs"] for v in told["verdicts"] for c in v["checks"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one server"),
        (["http://127.0.0.1:1/mcp", "--http", "http://127.0.0.1:1/mcp"], "give one server"),
        (["http://127.0.0.1:1/mcp", *SERVER], "give one server"),
        (["ftp://127.0.0.1/mcp"], "is no endpoint"),
        (["--header", "nonsense", "http://127.0.0.1:1/mcp"], "is no header"),
        (["--other-header", "A: b", "http://127.0.0.1:1/mcp"], "give --header for the first one, too"),
        (["--header", "A: b", *SERVER], "a server on stdio gets no headers"),
        (["--plain-tool", "greet=[]", *SERVER], "--plain-tool greet is a JSON object"),
        (["--check", "nothing", *SERVER], "there is no check 'nothing'"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(arguments: list[str], message: str) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["http://127.0.0.1:1/mcp"], "cannot be reached"),
        (["--", "no-such-command-anywhere"], "is no command that can be run"),
        (["--", sys.executable, "-c", ""], "does not answer server/discover"),
    ],
)
def test_no_connection_ends_with_3(arguments: list[str], message: str) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert message in done.stderr
