"""Commands whose standard streams are closed, full, or read by nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
SERVE = ["--", *MCP_TASKS, "serve", "sample_app:app", "--store", "memory"]
BOUND_SECONDS = 60

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the streams are arranged by a POSIX shell")
both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with its streams as a shell arranges them; everything that is left of them is captured."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *MCP_TASKS, *arguments],
        cwd=HERE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=BOUND_SECONDS,
    )


@both_loops
@pytest.mark.parametrize("redirection", ["2>&-", "<&-", "<&- 2>&-"])
def test_stdin_and_stderr_are_not_needed(redirection: str, backend: str) -> None:
    done = run(redirection, "call", "finish", "--backend", backend, *SERVE)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert ("connected to sample 1.0" in done.stderr) is ("2>" not in redirection)


def test_status_tells_what_came_where_nothing_can_be_written() -> None:
    for tool, status in (("check_mark", 0), ("refuse", 1)):
        done = run(">&-", "call", tool, *SERVE)
        assert (done.returncode, done.stdout) == (status, "")
        assert "Traceback" not in done.stderr
    assert run(">&- 2>&- <&-", "call", "nobody", *SERVE).returncode == 3
    assert run(">&- 2>&- <&-", "watch", "nobody", *SERVE).returncode == 3
    assert run("2>&-", "call").returncode == 2


@both_loops
@pytest.mark.parametrize("command", [["call", "check_mark"], ["call", "--json", "finish"]])
def test_result_that_nobody_reads_ends_it_quietly(backend: str, command: list[str]) -> None:
    arguments = [*MCP_TASKS, *command, "--backend", backend, *SERVE]
    with subprocess.Popen(arguments, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(BOUND_SECONDS) == 1
    assert "Error" not in said
    assert "Traceback" not in said


@both_loops
def test_words_that_nobody_reads_end_nothing(backend: str) -> None:
    arguments = [*MCP_TASKS, "call", "complain", "--backend", backend, *SERVE]
    with subprocess.Popen(arguments, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        assert process.stdout.read() == "\x1b[31mred\n"
        assert process.wait(BOUND_SECONDS) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("command", [["call", "check_mark"], ["call", "--json", "check_mark"]])
def test_full_disk_is_named_in_one_line(command: list[str]) -> None:
    done = run(">/dev/full", *command, *SERVE)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "mcp-tasks: stdout cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
