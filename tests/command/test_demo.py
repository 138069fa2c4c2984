"""``mcp-tasks demo`` and what else a newcomer types first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_demo_shows_every_state_and_the_result(mcp_tasks: Any, tmp_path: Path, backend: str) -> None:
    done = mcp_tasks("demo", "--backend", backend, cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert done.stderr == ""
    steps = [
        r"-> server/discover",
        r"<- reports 1\.0, revision 2026-07-28",
        r"<- extensions: io\.modelcontextprotocol/tasks",
        r"-> tools/list",
        r"<- greet\(name\)",
        r"<- generate_report\(topic, pages\)",
        r"-> tools/call  greet",
        r'<- resultType "complete": Hello, Ada!',
        r"-> tools/call  generate_report",
        r'<- resultType "task": the handle of task [\w-]{32,}',
        r"<- working, ttlMs 3600000",
        r"-> tasks/get",
        r"<- working +collecting sources",
        r"<- input_required +inputRequests: quarter",
        r"Which quarter is the report to cover\?",
        r'-> tasks/update  quarter: accept {"quarter": "Q3"}',
        r"<- working",
        r"<- completed",
        r"Report on sales, Q3: 3 pages\.",
    ]
    position = 0
    for step in steps:
        found = re.compile(step).search(done.stdout, position)
        assert found, f"{step} does not follow in\n{done.stdout[position:]}"
        position = found.end()


def test_version_and_help_are_there(mcp_tasks: Any) -> None:
    assert re.fullmatch(r"mcp-tasks, version \d+\.\d+\.\d+\n", mcp_tasks("--version").stdout)
    for arguments in (["--help"], ["serve", "-h"], ["call", "--help"], ["demo", "--help"]):
        done = mcp_tasks(*arguments)
        assert done.status == 0
        assert "Usage: mcp-tasks" in done.stdout
    assert "130  interrupted" in mcp_tasks("call", "--help").stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["demo", "extra"], ["demo", "--backend", "curio"]])
def test_unknown_command_or_option_is_status_2(mcp_tasks: Any, arguments: list[str]) -> None:
    done = mcp_tasks(*arguments)
    assert (done.status, done.stdout) == (2, "")
    assert "Error: " in done.stderr
