"""``mcp-tasks watch``: what it writes where, its exit status, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command.served import Server

HERE = Path(__file__).resolve().parent
FAKES = HERE.parent / "runners" / "fakes"
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
BOUND_SECONDS = 30
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])

POLLED = """
from mcp_tasks_trio import Application

app = Application("polled", version="1.0", subscriptions=False)


@app.tool(task="always")
async def finish() -> str:
    return "done"
"""


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*arguments: Any, **options: Any) -> Server:
        servers.append(Server(*arguments, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


class Watch:
    """The command while it runs."""

    def __init__(self, *arguments: str, cwd: Path = HERE) -> None:
        self.process = subprocess.Popen(
            [*MCP_TASKS, "watch", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def finish(self) -> tuple[int, str, str]:
        """Exit status, and the rest of stdout and stderr."""
        out, err = self.process.communicate(timeout=BOUND_SECONDS)
        return self.process.returncode, out.decode(), err.decode()


@pytest.fixture
def watch() -> Iterator[Callable[..., Watch]]:
    running: list[Watch] = []

    def start(*arguments: str, **options: Any) -> Watch:
        running.append(Watch(*arguments, **options))
        return running[-1]

    yield start
    for command in running:
        command.process.kill()
        command.process.communicate()


@both_loops
def test_states_of_several_tasks_are_shown_and_their_results(mcp_tasks: Any, serve: Any, backend: str) -> None:
    server = serve()
    first, second = server.start("finish"), server.start("finish", {"text": "two\nlines"})
    done = mcp_tasks("watch", first, second, first, "--backend", backend, "--http", server.url)
    assert done.status == 0, done.stderr
    assert done.stdout == f"{first} completed\n  done\n{second} completed\n  two\n  lines\n"
    assert "connected to sample 1.0" in done.stderr
    assert "watching 2 tasks" in done.stderr


@both_loops
def test_a_state_is_shown_when_it_comes(serve: Any, watch: Any, backend: str) -> None:
    server = serve()
    task_id = server.start("say_and_work", {"message": "at it"})
    command = watch(task_id, "--backend", backend, "--http", server.url)
    shown = command.line()
    while "at it" not in shown:
        shown = command.line()
    assert shown == f"{task_id} working: at it\n"
    server.cancel(task_id)
    status, rest, _ = command.finish()
    assert status == 1
    assert f"{task_id} cancelled" in rest


@pytest.mark.parametrize(
    ("tool", "says"),
    [("fail", "  error 7: the printer is on fire\n"), ("fail_as_tool", "  no paper left\n")],
)
def test_a_task_that_did_not_succeed_shows_in_the_exit_status(mcp_tasks: Any, serve: Any, tool: str, says: str) -> None:
    server = serve()
    done = mcp_tasks("watch", server.start(tool), server.start("finish"), "--http", server.url)
    assert done.status == 1
    assert says in done.stdout


def test_json_is_one_state_a_line_as_tasks_get_gives_it(mcp_tasks: Any, serve: Any) -> None:
    server = serve()
    task_id = server.start("finish")
    done = mcp_tasks("watch", "--json", task_id, "--http", server.url)
    assert done.status == 0
    [state] = [json.loads(line) for line in done.stdout.splitlines()]
    told = server.state(task_id)
    assert state == {name: value for name, value in told.items() if name not in ("resultType", "_meta")}


@pytest.mark.spec("S7")
def test_tasks_that_the_server_does_not_know_are_named_and_the_others_are_watched(mcp_tasks: Any, serve: Any) -> None:
    server = serve()
    task_id = server.start("finish")
    done = mcp_tasks("watch", "nobody", task_id, "-q9", "--No-such", "--http", server.url)
    assert done.status == 3
    assert done.stdout == f"{task_id} completed\n  done\n"
    lines = done.stderr.splitlines()
    for name in ("nobody", "-q9", "--No-such"):
        assert [line for line in lines if name in line] == [f"{name}: the server does not know it, or not for you"]
    assert "watching 1 task" in lines
    assert "watching 4 tasks" not in lines


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal of POSIX")
@both_loops
@pytest.mark.spec("P5", "S6")
def test_questions_are_shown_and_left_open_and_ctrl_c_leaves_the_task_alone(
    serve: Any, watch: Any, backend: str
) -> None:
    server = serve()
    task_id = server.start("ask_two")
    command = watch(task_id, "--backend", backend, "--http", server.url)
    shown = [command.line()]
    while not shown[-1].startswith("  asks 'second'"):
        shown.append(command.line())
    assert shown[-3:] == [f"{task_id} input_required\n", "  asks 'first': How many?\n", "  asks 'second': How many?\n"]
    command.process.send_signal(signal.SIGINT)
    status, rest, said = command.finish()
    assert (status, rest) == (130, "")
    assert said.endswith("mcp-tasks: interrupted: the tasks are left alone\n")
    state = server.state(task_id)
    assert state["status"] == "input_required"
    assert set(state["inputRequests"]) == {"first", "second"}


def test_a_timeout_names_the_tasks_that_go_on(mcp_tasks: Any, serve: Any) -> None:
    server = serve()
    task_id = server.start("work")
    done = mcp_tasks("watch", task_id, "--timeout", "0.2", "--http", server.url)
    assert done.status == 124
    assert done.stderr.endswith(f"mcp-tasks: not ended in 0.2 s: {task_id}\n")
    assert server.state(task_id)["status"] == "working"


def test_at_a_terminal_states_stay_above_a_line_that_tells_what_is_watched(serve: Any) -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    server = serve()
    finished, working = server.start("finish"), server.start("work")
    ours, theirs = pty.openpty()
    command = [*MCP_TASKS, "watch", finished, working, "--http", server.url]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = ""

    def read_until(text: str) -> None:
        nonlocal seen
        while text not in seen:
            ready, _, _ = select.select([ours], [], [], BOUND_SECONDS)
            assert ready, f"{text!r} never came; instead:\n{seen}"
            seen += _CONTROL_SEQUENCE.sub("", os.read(ours, 65536).decode("utf-8", "replace"))

    try:
        read_until(f"{finished} completed")
        read_until("watching 1 task")
        server.cancel(working)
        read_until(f"{working} cancelled")
        assert process.wait(BOUND_SECONDS) == 1
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@both_loops
@pytest.mark.parametrize("known", [True, False])
def test_a_server_without_subscriptions_is_polled(
    mcp_tasks: Any, serve: Any, tmp_path: Path, backend: str, known: bool
) -> None:
    (tmp_path / "polled.py").write_text(POLLED, encoding="utf-8")
    server = serve("polled:app", cwd=tmp_path)
    task_id = server.start("finish") if known else "nobody"
    done = mcp_tasks("watch", task_id, "--backend", backend, "--http", server.url)
    assert done.stderr.count("the server has no subscriptions: the tasks are polled") == 1
    assert done.status == (0 if known else 3), done.stderr
    assert done.stdout == (f"{task_id} completed\n  done\n" if known else "")


@pytest.mark.skipif(os.name != "posix", reason="the fake server is a child process of POSIX")
def test_a_task_that_a_server_does_not_tell_of_and_knows_all_the_same_is_polled(mcp_tasks: Any, tmp_path: Path) -> None:
    fake = [sys.executable, str(FAKES / "listening_server.py"), str(tmp_path / "record")]
    done = mcp_tasks("watch", "unknown", "ends", "--timeout", "3", "--", *fake)
    assert done.status == 124
    assert {"  ends is done", "ends completed", "unknown working"} <= set(done.stdout.splitlines())
    assert done.stderr.endswith("mcp-tasks: not ended in 3 s: unknown\n")


@both_loops
def test_a_server_of_its_own_tells_of_tasks_that_run_elsewhere(
    serve: Any, watch: Any, tmp_path: Path, backend: str
) -> None:
    store = str(tmp_path / "tasks.db")
    server = serve("sample_app:app", "--store", store)
    task_id = server.start("say_and_work", {"message": "at it"})
    command = watch(task_id, "--backend", backend, "--", *MCP_TASKS, "serve", "sample_app:app", "--store", store)
    shown = command.line()
    while "at it" not in shown:
        shown = command.line()
    server.cancel(task_id)
    status, rest, said = command.finish()
    assert status == 1, said
    assert f"{task_id} cancelled" in rest
    assert "server| " in said


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal of POSIX")
@pytest.mark.spec("P10", "S6")
def test_what_it_sends_is_what_the_schemas_allow(mcp_tasks: Any, recording: Any, watch: Any, tmp_path: Path) -> None:
    done = mcp_tasks("watch", "nobody", "--", *recording.command)
    assert done.status == 3, done.stderr
    assert recording.methods == ["server/discover", "subscriptions/listen", "tasks/get"]
    fake = [sys.executable, str(FAKES / "listening_server.py"), str(tmp_path / "record")]
    command = watch("works", "--", *type(recording)(fake, tmp_path / "more.jsonl").command)
    assert command.line() == "works working\n"
    command.process.send_signal(signal.SIGINT)
    assert command.finish()[0] == 130
    more = type(recording)(fake, tmp_path / "more.jsonl")
    assert more.methods == ["server/discover", "subscriptions/listen", "notifications/cancelled"]


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["watch"], 2, "TASK_ID"),
        (["watch", "--http", "http://127.0.0.1:1/mcp"], 2, "TASK_ID"),
        (["watch", "t-1"], 2, "the server's command stands after '--'"),
        (["watch", "t-1"], 2, "--http http://127.0.0.1:8000/mcp for one that runs already"),
        (["watch", "", "--http", "http://127.0.0.1:1/mcp"], 2, "1 to 1024 characters, and not 0"),
        (["watch", "x" * 1025, "--http", "http://127.0.0.1:1/mcp"], 2, "1 to 1024 characters, and not 1025"),
        (["watch", b"t-\xff", "--http", "http://127.0.0.1:1/mcp"], 2, "is no UTF-8"),
        (
            ["watch", *map(str, range(5001)), "--http", "http://127.0.0.1:1/mcp"],
            2,
            "5,000 tasks can be watched at once",
        ),
        (["watch", "t-1", "--timeout", "nan", "--", "x"], 2, "no finite number of seconds"),
        (["watch", "t-1", "--timeout", "inf", "--", "x"], 2, "no finite number of seconds"),
        (["call", "t", "--timeout", "nan", "--", "x"], 2, "no finite number of seconds"),
        (["call", b"t\xff", "--", *MCP_TASKS, "serve", "sample_app:app"], 2, ""),
        (["doctor", "--timeout", "nan", "--", "x"], 2, "no finite number of seconds"),
        (["serve", "--store-wait", "nan", "sample_app:app"], 2, "no finite number of seconds"),
        (["watch", "t-1", "--http", "http://127.0.0.1:1/mcp", "--", "x"], 2, "not both"),
        (["watch", "t-1", "--header", "X: y", "--", "x"], 2, "--http URL"),
        (["watch", "t-1", "--http", "127.0.0.1:8000"], 2, "no endpoint"),
        (["watch", "t-1", "--timeout", "0", "--", "x"], 2, "timeout"),
        (["watch", "t-1", "--http", "http://127.0.0.1:1/mcp"], 3, "Connection refused"),
        (["watch", "t-1", "--", "/no/such/server"], 3, "cannot be run"),
    ],
)
def test_what_cannot_be_is_said_at_the_end(mcp_tasks: Any, arguments: list[Any], status: int, text: str) -> None:
    done = mcp_tasks(*arguments)
    assert done.status == status, done.stderr
    assert text in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_server_that_dies_shows_in_the_exit_status_with_its_last_words(mcp_tasks: Any, tmp_path: Path) -> None:
    fake = [sys.executable, str(FAKES / "listening_server.py"), str(tmp_path / "record")]
    done = mcp_tasks("watch", "-q", "dies", "--", *fake)
    assert done.status == 3
    assert done.stdout == "dies working\n"
    assert "server| out of cheese" in done.stderr


def test_help_tells_what_each_exit_status_means(mcp_tasks: Any) -> None:
    done = mcp_tasks("watch", "--help")
    assert done.status == 0
    text = " ".join(done.stdout.split())
    assert "TASK_ID... -- COMMAND... | --http URL" in text
    for meaning in ("0 every task completed", "130 interrupted by Ctrl-C; the tasks are left alone"):
        assert meaning in text
