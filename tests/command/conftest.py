"""Real child processes for the tests of this folder: servers to speak to line by line, and whole commands."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from schema_frames import spec_directory, validate_client_frame, validate_server_frame

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
TASKS = "io.modelcontextprotocol/tasks"
BOUND_SECONDS = 30  # nothing waits for it but a test that fails

Message = dict[str, Any]


class ServerProcess:
    """A server as a child process, spoken to in raw lines. Each frame it writes is held against the schemas."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._stderr: list[bytes] = []
        self._said = threading.Condition()
        self._open: dict[tuple[type, Any], Message] = {}
        self._ids = itertools.count(1_000_000)
        self._threads = [threading.Thread(target=work) for work in (self._read_stdout, self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self._stderr.append(line)
                self._said.notify_all()

    @property
    def stderr(self) -> str:
        return b"".join(self._stderr).decode()

    def until_it_says(self, text: str) -> None:
        """Wait until this stands on stderr."""
        with self._said:
            assert self._said.wait_for(lambda: text in self.stderr, BOUND_SECONDS), self.stderr

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Message) -> None:
        if "id" in message:
            self._open[_key(message["id"])] = message
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def read_line(self) -> bytes:
        """The next line as it is, without having been held against anything."""
        line = self._lines.get(timeout=BOUND_SECONDS)
        assert line is not None, f"the server ended: {self.stderr}"
        return line

    def read(self) -> Message:
        line = self.read_line()
        assert line.endswith(b"\n")
        assert b"\r" not in line
        frame: Message = json.loads(line.decode("utf-8", "strict"), parse_constant=_no_constant)
        request = None if "method" in frame else self._open.pop(_key(frame.get("id")), None)
        if spec_directory() is not None:
            validate_server_frame(line[:-1], request)
        return frame

    def answer_to(self, message: Message) -> Message:
        """Send a message and give the next frame, which must be its answer."""
        self.send(message)
        frame = self.read()
        assert _key(frame.get("id")) == _key(message["id"])
        return frame

    def call(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        """The answer to a request, result or error."""
        return self.answer_to(request(method, params, request_id=next(self._ids), **meta))

    def result(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        answer = self.call(method, params, **meta)
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def error(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        answer = self.call(method, params, **meta)
        assert "error" in answer, answer
        error: Message = answer["error"]
        return error

    def tool(self, name: str, arguments: Message | None = None, **meta: Any) -> Message:
        return self.result("tools/call", {"name": name, "arguments": arguments or {}}, **meta)

    def state(self, task_id: str) -> Message:
        return self.result("tasks/get", {"taskId": task_id})

    def state_when(self, task_id: str, holds: Callable[[Message], bool]) -> Message:
        """The first state of a task that is of a kind; asked for again and again, as a client polls."""
        for _ in range(100_000):
            state = self.state(task_id)
            if holds(state):
                return state
        raise AssertionError(f"the task never got there: {state}")

    def ended_state(self, task_id: str) -> Message:
        return self.state_when(task_id, lambda state: state["status"] in ("completed", "failed", "cancelled"))

    def is_alive(self) -> bool:
        return self.tool("greet", {"name": "Ada"})["content"][0]["text"] == "Hello, Ada!"

    def close_input(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def wait(self) -> int:
        status = self.process.wait(BOUND_SECONDS)
        for thread in self._threads:
            thread.join(BOUND_SECONDS)
        return status

    def rest(self) -> list[Message]:
        """What the server still wrote, once it has ended."""
        lines = list(iter(self._lines.get_nowait, None))
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self.close_input()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def _key(request_id: Any) -> tuple[type, Any]:
    return type(request_id), request_id if isinstance(request_id, (str, int)) else repr(request_id)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def request(
    method: str,
    params: Message | None = None,
    *,
    request_id: Any = 1,
    tasks: bool = True,
    version: str = "2026-07-28",
    capabilities: Message | None = None,
    **more_meta: Any,
) -> Message:
    """A whole request that declares what it has to."""
    declared = {"elicitation": {"form": {}, "url": {}}} if capabilities is None else dict(capabilities)
    if tasks:
        declared["extensions"] = {TASKS: {}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": declared,
        **more_meta,
    }
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**(params or {}), "_meta": meta}}


StartServer = Callable[..., ServerProcess]


@contextmanager
def running_servers() -> Iterator[StartServer]:
    servers: list[ServerProcess] = []

    def start(
        spec: str = "sample_app:app", *options: str, cwd: Path = HERE, env: dict[str, str] | None = None
    ) -> ServerProcess:
        servers.append(ServerProcess([*MCP_TASKS, "serve", spec, *options], cwd, env))
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.close()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts a server; it is ended after the test."""
    with running_servers() as start:
        yield start


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for a whole module, once on each event loop."""
    with running_servers() as start:
        yield start("sample_app:app", "--backend", request.param)


@pytest.fixture
def make_request() -> Callable[..., Message]:
    return request


class Finished:
    """A command that has ended."""

    def __init__(self, status: int, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout.decode("utf-8", "strict")
        self.stderr = stderr.decode("utf-8", "strict")


@pytest.fixture
def mcp_tasks() -> Callable[..., Finished]:
    """Runs ``mcp-tasks`` with arguments to its end, without a terminal."""

    def run(*arguments: str, cwd: Path = HERE, env: dict[str, str] | None = None) -> Finished:
        done = subprocess.run(
            [*MCP_TASKS, *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BOUND_SECONDS * 2,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def sample_server() -> list[str]:
    """The command line that serves the sample application, for use after ``--``."""
    return [*MCP_TASKS, "serve", "sample_app:app"]


class Recording:
    """A server command whose client's messages are kept, held against the schemas."""

    def __init__(self, command: list[str], file: Path) -> None:
        self.command = [sys.executable, str(HERE / "recorder.py"), str(file), *command]
        self._file = file

    @property
    def sent(self) -> list[Message]:
        lines = self._file.read_bytes().splitlines()
        if spec_directory() is not None:
            for line in lines:
                validate_client_frame(line)
        return [json.loads(line) for line in lines]

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.sent]


@pytest.fixture
def recording(sample_server: list[str], tmp_path: Path) -> Recording:
    return Recording(sample_server, tmp_path / "client.jsonl")


@pytest.fixture
def root() -> Path:
    return ROOT
