"""``mcp-tasks call`` and ``demo`` at a terminal, which is a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
BOUND_SECONDS = 30
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Session:
    """A command at a terminal: stdin and stderr are one, stdout is a pipe unless it is to be the terminal, too."""

    def __init__(self, command: list[str], env: dict[str, str], *, stdout_too: bool) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=HERE,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200", **env},
            stdin=theirs,
            stderr=theirs,
            stdout=theirs if stdout_too else subprocess.PIPE,
        )
        os.close(theirs)
        self._seen = ""

    def expect(self, text: str) -> str:
        """Wait until a text is on the screen; gives what came before it, and forgets both."""
        deadline = time.monotonic() + BOUND_SECONDS
        while text not in self._seen:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._terminal], [], [], max(0, left))
            assert ready, f"{text!r} never came; instead:\n{self._seen}"
            self._seen += _CONTROL_SEQUENCE.sub("", self._read())
        before, _, self._seen = self._seen.partition(text)
        return before

    def _read(self) -> str:
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the other end is closed
            data = b""
        assert data, f"the command ended; on the screen:\n{self._seen}"
        return data.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def finish(self) -> tuple[int, str]:
        """The exit status and what came on stdout, once the command has ended."""
        out = b"" if self.process.stdout is None else self.process.stdout.read()
        return self.process.wait(BOUND_SECONDS), out.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        os.close(self._terminal)


@contextmanager
def at_terminal(*arguments: str, stdout_too: bool = False, **env: str) -> Iterator[Session]:
    session = Session([*MCP_TASKS, *arguments], env, stdout_too=stdout_too)
    try:
        yield session
    finally:
        session.close()


@pytest.mark.spec("P4", "P11")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_person_is_told_what_is_wrong_and_asked_again(recording: Any, backend: str) -> None:
    with at_terminal("call", "--backend", backend, "ask_form", "--", *recording.command) as session:
        session.expect("The server asks 'form': Fill in, please")
        session.expect("Size (integer, at least 1, at most 9, required): ")
        session.type("10\n")
        session.expect("size: at most 9, not 10")
        session.expect("Size (integer, at least 1, at most 9, required): ")
        session.type("9\n")
        session.expect("ratio (number, required): ")
        session.type("0.5\n")
        session.expect("draft (yes or no) [yes]: ")
        session.type("\n")
        session.expect("tags (choices, separated by commas")
        session.type("1, c\n")
        session.expect("note (text, at most 5 characters, may be left empty): ")
        session.type("naïve\n")
        status, out = session.finish()
    expected = {"size": 9, "ratio": 0.5, "draft": True, "tags": ["a", "c"], "note": "naïve"}
    assert (status, out) == (0, f"accept: {expected}\n")
    (update,) = [message for message in recording.sent if message["method"] == "tasks/update"]
    assert update["params"]["inputResponses"] == {"form": {"action": "accept", "content": expected}}


@pytest.mark.spec("P4")
@pytest.mark.parametrize(("typed", "action"), [(":decline\n", "decline"), (":cancel\n", "cancel"), ("\x04", "cancel")])
def test_person_may_decline_or_dismiss(sample_server: list[str], typed: str, action: str) -> None:
    with at_terminal("call", "ask_inline", "--", *sample_server) as session:
        session.expect("colour (one of these, required): ")
        session.type(typed)
        assert session.finish() == (0, f"{action}: None\n")


@pytest.mark.spec("P11")
def test_url_is_shown_and_nothing_happens_before_consent(recording: Any) -> None:
    with at_terminal("call", "ask_to_visit", "--", *recording.command) as session:
        session.expect("https://example.com/sign-in?for=tests")
        session.expect("It leads to example.com.")
        session.expect("Do you agree to go there? [yes/no]: ")
        assert "tasks/update" not in recording.methods
        session.type("yes\n")
        assert session.finish() == (0, "accept\n")


@pytest.mark.spec("P5")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_interrupt_at_a_prompt_cancels_the_task(recording: Any, backend: str) -> None:
    with at_terminal("call", "--backend", backend, "ask_form", "--", *recording.command) as session:
        session.expect("required): ")
        session.process.send_signal(signal.SIGINT)
        session.expect("interrupted: the server was told to cancel the task (tasks/cancel), and it is cancelled")
        assert session.finish() == (130, "")
    assert recording.methods.count("tasks/cancel") == 1
    assert "tasks/update" not in recording.methods


@pytest.mark.spec("P5")
def test_deadline_at_a_prompt_cancels_the_task(recording: Any) -> None:
    with at_terminal("call", "--timeout", "3", "ask_form", "--", *recording.command) as session:
        session.expect("required): ")
        session.expect("no result in 3 s: the server was told to cancel the task (tasks/cancel), and it is cancelled")
        assert session.finish() == (124, "")


def test_sampling_is_refused_in_words_where_a_server_insists(sample_server: list[str]) -> None:
    given = 'other={"role": "assistant", "model": "m", "content": {"type": "text", "text": "t"}}'
    with at_terminal("call", "ask_model", "--answer", given, "--", *sample_server) as session:
        session.expect("'summary' is refused: sampling/createMessage asks for something that a person does not type")
        session.expect("the server asks 'summary'")
        session.expect("The task was cancelled.")
        assert session.finish() == (4, "")


def test_progress_is_live_on_a_terminal_and_leaves_only_lines_behind(sample_server: list[str]) -> None:
    with at_terminal("call", "finish", "--", *sample_server) as session:
        session.expect("connected to sample 1.0")
        session.expect("the call is task ")
        session.expect(" working 0:00:0")
        assert session.finish() == (0, "done\n")


def test_terminal_that_cannot_be_steered_gets_plain_lines(sample_server: list[str]) -> None:
    with at_terminal("call", "finish", "--", *sample_server, TERM="dumb") as session:
        session.expect("connected to sample 1.0\r\n")
        session.expect("working\r\n")
        assert session.finish() == (0, "done\n")


def test_control_codes_of_a_result_do_not_reach_a_terminal(sample_server: list[str]) -> None:
    with at_terminal("call", "complain", "--", *sample_server, stdout_too=True) as session:
        session.expect("\\x1b[31mred")
        assert session.finish() == (0, "")


def test_demo_asks_the_person(sample_server: list[str]) -> None:
    with at_terminal("demo", stdout_too=True) as session:
        session.expect("Quarter (one of these, required): ")
        session.type("Q5\n")
        session.expect('quarter: one of "Q1", "Q2", "Q3", "Q4", not "Q5"')
        session.type("4\n")
        session.expect('-> tasks/update  quarter: accept {"quarter": "Q4"}')
        session.expect("Report on sales, Q4: 3 pages.")
        assert session.finish() == (0, "")


def test_person_who_starts_a_server_by_hand_is_told_what_speaks_to_it() -> None:
    with at_terminal("serve", "sample_app:app") as session:
        session.expect("mcp-tasks call TOOL -- mcp-tasks serve sample_app:app")
        session.type("\x04")
        assert session.finish() == (0, "")
