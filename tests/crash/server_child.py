"""A server process as the driver sees it: a pipe to write requests to, a pipe to read answers from, and SIGKILL.

A process is forked from the driver, which has imported everything and opened nothing: that takes milliseconds, where
a new interpreter takes half a second. ``start="exec"`` takes a new interpreter all the same.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.crash.crash_app import serve

ROOT: Final = Path(__file__).resolve().parents[2]
_READ_BYTES: Final = 65_536
# What a server imports only when it begins to serve: a fork is to have it.
_IMPORTED_LATE: Final = (
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "cryptography.hazmat.primitives.ciphers.aead",
    "mcp_tasks_trio.pump_asyncio",
    "mcp_tasks_trio.pump_trio",
)
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}

Message = dict[str, Any]


class ServerChild:
    """One server process on a store's file.

    Args:
        kind: of its store; see ``crash_app.open_store``.
        start: ``fork`` or ``exec``.
        log: the file that its stderr is added to.
    """

    def __init__(self, path: Path, *, backend: str, kind: str, start: str, log: Path) -> None:
        child_in, self._stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if start == "fork":
                self.process_id = _fork(path, backend, kind, (child_in, child_out, stderr))
            else:
                command = [sys.executable, "-m", "tests.crash.crash_app", str(path), backend, kind]
                self.process_id = subprocess.Popen(
                    command,
                    stdin=child_in,
                    stdout=child_out,
                    stderr=stderr,
                    cwd=ROOT,
                ).pid
        finally:
            for fd in (child_in, child_out, stderr):
                os.close(fd)
        os.set_blocking(self.stdout, False)
        self.alive = True
        self.in_flight: dict[int, Any] = {}
        self._buffer = b""
        self._ids = 0

    def send(self, purpose: Any, method: str, **params: Any) -> None:
        """Write a request; its answer comes out of ``frames`` beside this purpose."""
        self._ids += 1
        self.in_flight[self._ids] = purpose
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {**params, "_meta": _META}}
        os.write(self._stdin, json.dumps(message).encode() + b"\n")

    def frames(self) -> Iterator[tuple[Any, Message]]:
        """Every whole answer that has arrived, with the purpose of its request."""
        while True:
            try:
                data = os.read(self.stdout, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                if self.alive:
                    raise ServerEnded(f"the server {self.process_id} ended by itself")
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                frame = json.loads(line)
                yield self.in_flight.pop(frame["id"]), frame

    def kill(self) -> None:
        """SIGKILL. What it wrote before that can still be read from ``frames``: it counts as read by a client."""
        if self.alive:
            self.alive = False
            os.kill(self.process_id, signal.SIGKILL)
            os.waitpid(self.process_id, 0)
            os.close(self._stdin)

    def close(self) -> None:
        self.kill()
        os.close(self.stdout)


class ServerEnded(Exception):
    """A server ended although nobody killed it."""


def _fork(path: Path, backend: str, kind: str, streams: tuple[int, int, int]) -> int:
    for name in _IMPORTED_LATE:
        importlib.import_module(name)
    # What the driver has printed and not flushed would be flushed by the child, too.
    sys.stdout.flush()
    sys.stderr.flush()
    process_id = os.fork()
    if process_id:
        return process_id
    status = 70
    try:
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        os.closerange(3, 256)
        status = serve(str(path), backend, kind)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
