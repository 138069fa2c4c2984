"""``mcp-tasks serve --http`` and ``mcp-tasks call --http``, as whole processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
BOUND_SECONDS = 30
UNDECIDED = ("working", "input_required", "failed")  # until the lease of the dead process is over, and then

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Server:
    """A server over HTTP as a child process."""

    def __init__(self, *options: str) -> None:
        store = () if "--store" in options else ("--store", "memory")
        command = [*MCP_TASKS, "serve", "sample_app:app", "--http", "0", *store, *options]
        self.process = subprocess.Popen(command, cwd=HERE, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        self.said = ""
        while (found := re.search(r"is served at (\S+)\n", self.said)) is None:
            line = self.process.stderr.readline().decode()
            assert line, f"the server ended: {self.said}"
            self.said += line
        self.url = found[1]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(BOUND_SECONDS)

    def post(self, make_request: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request on a connection of its own."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": params.get("taskId") or params.get("name"),
        }
        host, _, path = self.url.removeprefix("http://").partition("/")
        with closing(HTTPConnection(host, timeout=BOUND_SECONDS)) as connection:
            connection.request("POST", f"/{path}", json.dumps(make_request(method, params)), headers)
            result: dict[str, Any] = json.load(connection.getresponse())["result"]
        return result

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*options: str) -> Server:
        servers.append(Server(*options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@both_loops
@pytest.mark.spec("H2")
def test_a_served_application_is_called_by_its_url(mcp_tasks: Any, serve: Any, backend: str) -> None:
    server = serve("--backend", backend)
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/mcp", server.url)
    done = mcp_tasks("call", "--json", "--backend", backend, "greet", '{"name":"Ada"}', "--http", server.url)
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["content"][0]["text"] == "Hello, Ada!"
    answers = ["--answer", 'first={"value": 2}', "--answer", 'second={"value": 3}']
    done = mcp_tasks("call", "--backend", backend, "ask_two", *answers, "--http", server.url)
    assert (done.status, done.stdout) == (0, "2 and 3\n"), done.stderr
    assert server.end() == 0


@both_loops
@pytest.mark.spec("C5")
def test_tasks_are_found_by_their_ids_alone_after_their_server_was_killed(
    serve: Any, make_request: Any, tmp_path: Path, backend: str
) -> None:
    """No session and no connection holds a task: another process on the file shows it to a new connection."""
    options = ("--store", str(tmp_path / "tasks.db"), "--backend", backend)
    first = serve(*options)
    ids = {}
    for tool in ("finish", "ask_two", "work"):
        ids[tool] = first.post(make_request, "tools/call", {"name": tool, "arguments": {}})["taskId"]
    done = {"status": "working"}
    while done["status"] == "working":
        done = first.post(make_request, "tasks/get", {"taskId": ids["finish"]})
    first.process.kill()
    first.process.wait(BOUND_SECONDS)
    second = serve(*options)
    assert second.post(make_request, "tasks/get", {"taskId": ids["finish"]}) == done
    for tool in ("ask_two", "work"):
        state = second.post(make_request, "tasks/get", {"taskId": ids[tool]})
        assert (state["taskId"], state["status"]) in [(ids[tool], status) for status in UNDECIDED]


@both_loops
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal of POSIX")
def test_ctrl_c_ends_the_server_with_status_0(serve: Any, backend: str) -> None:
    assert serve("--backend", backend).end(signal.SIGINT) == 0


def test_a_path_and_headers_can_be_given(mcp_tasks: Any, serve: Any) -> None:
    server = serve("--path", "/tools")
    assert server.url.endswith("/tools")
    done = mcp_tasks("call", "greet", '{"name":"Ada"}', "--http", server.url, "--header", "X-Trace: 1")
    assert (done.status, done.stdout) == (0, "Hello, Ada!\n")
    done = mcp_tasks("call", "greet", "--http", server.url.replace("/tools", "/other"))
    assert done.status == 3
    assert "HTTP status 404" in done.stderr or "/tools" in done.stderr


@pytest.mark.spec("H2")
def test_pages_are_let_in_by_name_alone(mcp_tasks: Any, serve: Any) -> None:
    server = serve("--allow-origin", "https://app.example.com")
    for origin, status in (("https://app.example.com", 0), ("https://evil.example.com", 3)):
        header = f"Origin: {origin}"
        done = mcp_tasks("call", "greet", '{"name":"Ada"}', "--http", server.url, "--header", header)
        assert done.status == status, done.stderr


@pytest.mark.spec("H2")
def test_only_this_machine_is_served_until_the_operator_says_otherwise(mcp_tasks: Any, serve: Any) -> None:
    done = mcp_tasks("serve", "sample_app:app", "--http", "0.0.0.0:0")
    assert done.status == 2
    assert "--insecure-public" in done.stderr
    server = serve("--http", "0.0.0.0:0", "--insecure-public")
    assert "everybody who reaches it may call every tool" in server.said
    url = server.url.replace("0.0.0.0", "127.0.0.1")
    assert mcp_tasks("call", "greet", '{"name":"Ada"}', "--http", url).status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["serve", "sample_app:app", "--http", "nowhere"], 2, "HOST:PORT"),
        (["serve", "sample_app:app", "--http", "127.0.0.1:99999"], 2, "HOST:PORT"),
        (["serve", "sample_app:app", "--http", "0", "--path", "mcp"], 2, "slash"),
        (["serve", "sample_app:app", "--http", "0", "--allow-origin", "x"], 2, "https://name"),
        (["serve", "sample_app:app", "--path", "/x"], 2, "go with --http"),
        (["serve", "sample_app:app", "--insecure-public"], 2, "go with --http"),
        (["call", "greet", "--http", "127.0.0.1:8000"], 2, "no endpoint"),
        (["call", "greet", "--http", "http://127.0.0.1:1/mcp", "--", "x"], 2, "not both"),
        (["call", "greet", "--http", "http://127.0.0.1:1/mcp", "--header", "Authorization s3cret"], 2, "NAME: VALUE"),
        (["call", "greet", "--http", "http://127.0.0.1:1/mcp", "--header", "Mcp-Name: x"], 2, "itself"),
        (["call", "greet", "--header", "X: y", "--", "x"], 2, "--http URL"),
        (["call", "greet", "--http", "http://127.0.0.1:1/mcp"], 3, "Connection refused"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(mcp_tasks: Any, arguments: list[str], status: int, text: str) -> None:
    done = mcp_tasks(*arguments)
    assert done.status == status, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mcp-tasks: ")
    assert text in last
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_in_one_line(mcp_tasks: Any, serve: Any) -> None:
    port = serve().url.rpartition(":")[2].partition("/")[0]
    done = mcp_tasks("serve", "sample_app:app", "--http", port, "--store", "memory")
    assert done.status == 3
    assert done.stderr.strip().endswith(f"cannot listen on 127.0.0.1 port {port}: Address already in use")


def test_no_header_is_told_to_anybody(mcp_tasks: Any) -> None:
    header = "Authorization: Bearer s3cret\u00e9"
    done = mcp_tasks("call", "greet", "--http", "http://127.0.0.1:1/mcp", "--header", header)
    assert done.status == 2
    assert "s3cret" not in done.stderr
