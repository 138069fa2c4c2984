"""A server as a process of its own, as a client starts it: what it writes where, and that it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runners.served import CAPABILITIES, message
from schema_frames import spec_directory, validate_server_frame

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])

SERVER = """
import os, subprocess, sys, time
import anyio
from mcp_tasks_trio import Application, ToolContext, run_stdio

app = Application("test", version="1")

@app.tool()
def greet(name: str) -> str:
    print("a stray print", name)
    print("\\N{SNOWMAN} another", flush=True)
    os.write(1, b"stray bytes\\n")
    subprocess.run([sys.executable, "-c", "print('a stray child')"], check=True)
    return f"Hello {name} \\N{CHECK MARK} \\N{GRINNING FACE} \\N{LINE SEPARATOR}"

@app.tool()
async def hear() -> str:
    return repr(sys.stdin.readline())

@app.tool()
def sleep_in_thread() -> None:
    print("asleep", file=sys.stderr, flush=True)
    time.sleep(60)

@app.tool()
async def never_give_up() -> None:
    print("asleep", file=sys.stderr, flush=True)
    while True:
        try:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)
        except BaseException:
            pass

@app.tool(task="always")
async def work() -> None:
    print("asleep", file=sys.stderr, flush=True)
    await anyio.sleep(60)

@app.tool(task="always")
def work_in_thread() -> None:
    print("asleep", file=sys.stderr, flush=True)
    time.sleep(60)

sys.exit(run_stdio(app, backend=sys.argv[1]))
"""


class Child:
    """A server process and the test's ends of its pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr
        self._ids = 0

    def send(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self._ids += 1
        request = {**message("tools/call", {"name": tool, "arguments": arguments}, CAPABILITIES), "id": self._ids}
        self.stdin.write(json.dumps(request).encode() + b"\n")
        self.stdin.flush()
        return request

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a call, from the next line, whose every byte is held against the schemas where they are."""
        request = self.send(tool, **arguments)
        line = self.stdout.readline()
        if spec_directory() is not None:
            validate_server_frame(line.removesuffix(b"\n"), request)
        result: dict[str, Any] = json.loads(line.decode("utf-8", "strict"))["result"]
        return result

    def wait_until_asleep(self) -> None:
        while line := self.stderr.readline():
            if b"asleep" in line:
                return
        raise AssertionError("the server ended")

    def seconds_to_end(self) -> float:
        begun = time.monotonic()
        self.process.wait(timeout=20)
        return time.monotonic() - begun


@contextmanager
def child(backend: str, **environment: str) -> Iterator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, backend],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


LOCALES: list[dict[str, str]] = [
    {},
    {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "utf-16", "PYTHONUNBUFFERED": "1"},
]


@both_loops
@pytest.mark.spec("I1", "B1")
@pytest.mark.parametrize("environment", LOCALES, ids=["plain", "cp1252", "utf-16"])
def test_stdout_holds_messages_alone_as_utf_8_whatever_the_locale_and_whoever_prints(
    backend: str, environment: dict[str, str]
) -> None:
    with child(backend, **environment) as server:
        assert text_of(server.call("greet", name="Ada")) == "Hello Ada ✓ \N{GRINNING FACE} \u2028"
        assert text_of(server.call("greet", name="Bob")) == "Hello Bob ✓ \N{GRINNING FACE} \u2028"
        out, err = server.process.communicate(timeout=20)
        assert out == b""
        assert server.process.returncode == 0
        if not environment:
            for stray in (b"a stray print Ada", b"another", b"stray bytes", b"a stray child"):
                assert err.count(stray) == 2 if b"Ada" not in stray else err.count(stray) == 1


@both_loops
def test_a_tool_that_reads_stdin_takes_nothing_from_the_channel(backend: str) -> None:
    with child(backend) as server:
        assert text_of(server.call("hear")) == "''"
        assert text_of(server.call("hear")) == "''"


@both_loops
@pytest.mark.spec("I3")
def test_a_server_without_input_ends_at_once(backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER, backend], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@both_loops
@pytest.mark.spec("I3")
@pytest.mark.parametrize("tool", ["sleep_in_thread", "never_give_up", "work", "work_in_thread"])
def test_the_end_of_input_ends_a_server_within_two_seconds_whatever_runs(backend: str, tool: str) -> None:
    with child(backend) as server:
        server.send(tool)
        server.wait_until_asleep()
        server.stdin.close()
        assert server.seconds_to_end() < 2
        assert server.process.returncode == 0
        assert b"Traceback" not in server.stderr.read()


@both_loops
@pytest.mark.spec("I3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_server_as_the_end_of_input_does(backend: str, number: signal.Signals) -> None:
    with child(backend) as server:
        server.call("greet", name="Ada")
        server.send("sleep_in_thread")
        server.wait_until_asleep()
        server.process.send_signal(number)
        assert server.seconds_to_end() < 2
        assert server.process.returncode == 0
        assert b"Traceback" not in server.stderr.read()


@both_loops
@pytest.mark.spec("I3")
def test_a_server_whose_client_died_ends(backend: str) -> None:
    with child(backend) as server:
        server.call("greet", name="Ada")
        server.send("work")
        server.wait_until_asleep()
        server.stdout.close()  # stdin stays open: a grandchild of the client may hold it
        assert server.seconds_to_end() < 2
        assert server.process.returncode == 0


@pytest.mark.spec("I3")
def test_a_server_may_be_run_by_asyncio_itself() -> None:
    server = SERVER.replace(
        "sys.exit(run_stdio(app, backend=sys.argv[1]))",
        "import asyncio; from mcp_tasks_trio import serve_stdio; asyncio.run(serve_stdio(app))",
    )
    request = {**message("tools/call", {"name": "greet", "arguments": {"name": "Ada"}}, CAPABILITIES), "id": 1}
    task = {**message("tools/call", {"name": "work", "arguments": {}}, CAPABILITIES), "id": 2}
    lines = b"".join(json.dumps(r).encode() + b"\n" for r in (request, task))
    done = subprocess.run([sys.executable, "-c", server], input=lines, capture_output=True, timeout=20, check=True)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines())}
    assert text_of(answers[1]).startswith("Hello Ada")
    assert answers[2]["resultType"] == "task"


def test_an_unknown_loop_is_refused() -> None:
    from mcp_tasks_core.errors import LocalProtocolError
    from mcp_tasks_trio import Application, run_stdio

    with pytest.raises(LocalProtocolError, match="asyncio, trio"):
        run_stdio(Application("test", version="1"), backend="curio")
