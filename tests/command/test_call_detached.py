"""``mcp-tasks call --detach``: it ends when the call is a task, and leaves that running."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command.served import Server

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@both_loops
@pytest.mark.spec("P5")
def test_id_of_the_task_is_written_and_the_task_goes_on(mcp_tasks: Any, server: Server, backend: str) -> None:
    done = mcp_tasks("call", "--detach", "work", "--backend", backend, "--http", server.url)
    assert done.status == 0, done.stderr
    task_id = done.stdout.removesuffix("\n")
    assert server.state(task_id)["status"] == "working"
    follow = done.stderr.splitlines()[-1].removeprefix("follow it with: ")
    assert shlex.split(follow) == ["mcp-tasks", "watch", task_id, "--http", server.url]
    server.cancel(task_id)
    watched = mcp_tasks(*shlex.split(follow)[1:])
    assert (watched.status, f"{task_id} cancelled" in watched.stdout) == (1, True)


def test_json_is_the_handle_as_one_object(mcp_tasks: Any, server: Server) -> None:
    done = mcp_tasks("call", "--detach", "--json", "work", "--http", server.url, "--header", "X-Who: me")
    assert (done.status, done.stdout.count("\n")) == (0, 1), done.stderr
    handle = json.loads(done.stdout)
    state = server.state(handle["taskId"])
    assert handle["resultType"] == "task"
    assert {name: handle[name] for name in ("createdAt", "ttlMs", "pollIntervalMs")} == {
        name: state[name] for name in ("createdAt", "ttlMs", "pollIntervalMs")
    }
    assert done.stderr.endswith(" and the same --header\n")


@pytest.mark.parametrize(
    ("tool", "options", "status", "text"),
    [
        ("check_mark", [], 0, "✓ 🎉 é"),
        ("refuse", [], 1, "no paper left"),
        ("ask_inline", ["--answer", 'colour={"colour": "blue"}'], 0, "accept: {'colour': 'blue'}"),
    ],
)
def test_result_that_comes_at_once_is_written_as_ever(
    mcp_tasks: Any, server: Server, tool: str, options: list[str], status: int, text: str
) -> None:
    done = mcp_tasks("call", "--detach", tool, *options, "--http", server.url)
    assert (done.status, done.stdout) == (status, text + "\n"), done.stderr
    raw = mcp_tasks("call", "--detach", "--json", tool, *options, "--http", server.url)
    assert (raw.status, json.loads(raw.stdout)["resultType"]) == (status, "complete")


@pytest.mark.parametrize(
    ("tool", "options", "status", "says"),
    [
        ("wait_for_ever", ["--timeout", "1"], 124, "no result in 1 s: the server was told"),
        ("nobody", [], 3, "Unknown tool: nobody"),
        ("ask_inline", [], 4, "The call was given up."),
        ("work", ["--no-tasks"], 2, "--no-tasks lets the call become none"),
    ],
)
def test_call_that_becomes_no_task_ends_as_ever(
    mcp_tasks: Any, server: Server, tool: str, options: list[str], status: int, says: str
) -> None:
    done = mcp_tasks("call", "--detach", tool, *options, "--http", server.url)
    assert (done.status, done.stdout) == (status, "")
    assert says in done.stderr.splitlines()[-1]


def test_task_of_a_server_that_ends_is_where_its_store_is(
    mcp_tasks: Any, sample_server: list[str], tmp_path: Path
) -> None:
    serve = [*sample_server, "--store", str(tmp_path / "tasks.db")]
    done = mcp_tasks("call", "--detach", "work", "--", *serve)
    assert done.status == 0, done.stderr
    assert any(line.startswith("the server ends now: ") for line in done.stderr.splitlines())
    task_id = done.stdout.removesuffix("\n")
    watched = mcp_tasks("watch", task_id, "--", *serve)
    assert watched.status == 1, watched.stderr
    assert f"{task_id} failed" in watched.stdout
