"""One server under many open event streams: what a stream costs it in memory, and how fast it tells all of them.

The streams are opened and counted by a program in C from the folder of peers; see ``benchmarks.subscriptions``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.idle_connections import VERSION, resident_kib

_CHECKOUT: Final = Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = 0, 1
WARM_STREAMS: Final = 10
_START_S: Final = 40.0
_SETTLE_S: Final = 1.0
_LISTEN_ID: Final = 7
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_TASK_ID: Final = re.compile(rb'"taskId":"([^"]+)"')


@attrs.frozen(kw_only=True)
class Target:
    """One server, and how its listeners are told of something.

    Args:
        command: starts it, listening on ``port`` of the loopback interface.
        listens_to: the filter of each listener. ``None`` for the id of a task that its tool ``watched`` gives.
        publish: method and params, without ``_meta``, of the request that makes ``n`` changes.
        marker: what each notification holds once.
    """

    name: str
    port: int
    command: Sequence[str]
    listens_to: Mapping[str, Any] | None
    publish: tuple[str, Mapping[str, Any]]
    marker: str
    environment: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Measured:
    """One server in one round. Memory is resident, for each stream, beyond what it was before they were opened."""

    opened_per_s: float
    kib_per_stream: float
    kib_per_stream_after: float
    notifications_per_s: float
    cpu_us: float
    idle_cpu_share: float
    first_ms: float
    last_ms: float
    delivered: int
    wanted: int


def compiled_sink(peers: Path, folder: Path) -> Path:
    """The program that opens streams and counts what comes, made from its source."""
    sink = folder / "sse_sink"
    subprocess.run(["gcc", "-O2", "-o", str(sink), str(peers / "load" / "sse_sink.c")], check=True)
    return sink


def request(method: str, params: Mapping[str, Any], request_id: int = 1) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
    }
    name = params.get("name")
    if name:
        headers["Mcp-Name"] = name
    return json.dumps(message, separators=(",", ":")).encode(), headers


def post(port: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Send one request and give the answer to it."""
    body, headers = request(method, params)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/mcp", body, headers)
        response = connection.getresponse()
        answer = response.read()
    if response.status != 200:
        raise RuntimeError(f"{method} was answered with {response.status}: {answer[:300]!r}")
    return answer


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def served(target: Target, log: Path) -> Iterator[int]:
    """The id of the server's process, which lives as long as the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(SERVER_CORE), *target.command],
            cwd=_CHECKOUT,
            env={**environment, **target.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        _wait_for_port(target, process)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_port(target: Target, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _START_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise RuntimeError(f"it ended at once with status {process.returncode}")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", target.port), 1).close()
            return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on port {target.port} after {_START_S:.0f} s")


class Streams:
    """Event streams that the sink holds open."""

    def __init__(self, process: subprocess.Popen[str], opened_s: float) -> None:
        self._process = process
        self.opened_s = opened_s

    def count(self) -> None:
        """Count from now on."""
        self._tell("go\n")

    def counted(self) -> tuple[int, float, float]:
        """How many notifications came, and after how many milliseconds the first and the last."""
        _, number, first_us, last_us, _ = self._line().split()
        return int(number), float(first_us) / 1000, float(last_us) / 1000

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the sink has ended: a stream was closed or refused")
        return line


@contextmanager
def open_streams(sink: Path, target: Target, listen: Path, number: int, events: int) -> Iterator[Streams]:
    """So many streams, open and acknowledged while the block runs."""
    command = [str(sink), str(target.port), str(listen), str(number), target.marker, "acknowledged", str(events)]
    process = subprocess.Popen(
        ["taskset", "-c", str(LOAD_CORE), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        streams = Streams(process, 0.0)
        streams.opened_s = float(streams._line().split()[1]) / 1e6
        yield streams
    finally:
        process.kill()
        process.communicate()


def measure(target: Target, sink: Path, folder: Path, *, streams: int, events: int) -> Measured:
    """Start a server, open streams, let it tell all of them of each change, and end it."""
    with served(target, folder / "server.log") as pid:
        listen = _listen_file(target, folder)
        method, params = target.publish
        publish = (
            {**params, "arguments": {**params["arguments"], "n": events}} if "arguments" in params else {"n": events}
        )
        post(target.port, method, publish)
        with open_streams(sink, target, listen, WARM_STREAMS, events) as warm:
            warm.count()
            post(target.port, method, publish)
            warm.counted()
        time.sleep(_SETTLE_S)
        before_kib = resident_kib(pid)
        with open_streams(sink, target, listen, streams, events) as opened:
            time.sleep(_SETTLE_S)
            idle_kib = resident_kib(pid)
            idle_s = processor_seconds(pid)
            time.sleep(2 * _SETTLE_S)
            began_s = processor_seconds(pid)
            opened.count()
            post(target.port, method, publish)
            delivered, first_ms, last_ms = opened.counted()
            busy_s = processor_seconds(pid) - began_s
            after_kib = resident_kib(pid)
        return Measured(
            opened_per_s=streams / opened.opened_s,
            kib_per_stream=(idle_kib - before_kib) / streams,
            kib_per_stream_after=(after_kib - before_kib) / streams,
            notifications_per_s=delivered / (last_ms / 1000) if last_ms else 0.0,
            cpu_us=busy_s * 1e6 / max(1, delivered),
            idle_cpu_share=(began_s - idle_s) / (2 * _SETTLE_S),
            first_ms=first_ms,
            last_ms=last_ms,
            delivered=delivered,
            wanted=streams * events,
        )


def _listen_file(target: Target, folder: Path) -> Path:
    """A whole subscriptions/listen, as the sink sends it on each of its connections."""
    listens_to = target.listens_to
    if listens_to is None:
        handle = post(target.port, "tools/call", {"name": "watched", "arguments": {}})
        task_id = _TASK_ID.search(handle)
        if task_id is None:
            raise RuntimeError(f"the tool watched made no task: {handle[:300]!r}")
        listens_to = {"taskIds": [task_id[1].decode()]}
    body, headers = request("subscriptions/listen", {"notifications": listens_to}, _LISTEN_ID)
    headers |= {"Host": f"127.0.0.1:{target.port}", "Content-Length": str(len(body))}
    head = "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    path = folder / "listen.http"
    path.write_bytes(head.encode() + body)
    return path
