"""One of several server processes on one store, and its client, which may ask many things at once."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

_APP = Path(__file__).with_name("race_app.py")
_LINE_BYTES_MAX = 1 << 20
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


class ServerDied(Exception):
    """The process ended although nobody told it to."""


class ServerChild:
    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self._log = log
        self._process = process
        self._ids = 0
        self._waiting: dict[int, tuple[anyio.Event, list[dict[str, Any]]]] = {}
        self._writing = anyio.Lock()
        self._ended = False

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer: a message with its result or error.

        Raises:
            ServerDied: there will be none.
        """
        self._ids += 1
        request = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {**params, "_meta": _META}}
        arrived, answers = self._waiting[self._ids] = (anyio.Event(), [])
        assert self._process.stdin is not None
        async with self._writing:
            await self._process.stdin.send(json.dumps(request).encode() + b"\n")
        if not self._ended:
            await arrived.wait()
        if not answers:
            said = self._log.read_text(errors="replace")[-2_000:]
            raise ServerDied(f"{self.name} ended without an answer to {method}; its last words:\n{said}")
        return answers[0]

    async def receive(self) -> None:
        """Take the answers until the process closes its output."""
        assert self._process.stdout is not None
        lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            while True:
                answer = json.loads(await lines.receive_until(b"\n", _LINE_BYTES_MAX))
                arrived, answers = self._waiting.pop(answer["id"])
                answers.append(answer)
                arrived.set()
        except (anyio.IncompleteRead, anyio.EndOfStream):
            self._ended = True
            for arrived, _ in self._waiting.values():
                arrived.set()


async def _open(command: list[str], log: Path) -> Process:
    with log.open("wb") as stderr:
        return await anyio.open_process(command, stderr=stderr)


@asynccontextmanager
async def server_children(
    file: Path, count: int, *, busy_wait_ms: int = 15_000, backend: str = "asyncio"
) -> AsyncIterator[list[ServerChild]]:
    """So many servers on one file while the block runs; then their input ends, and so must they.

    Raises:
        ServerDied: one of them ended otherwise than it should.
    """
    command = [sys.executable, str(_APP), str(file), backend, str(busy_wait_ms)]
    logs = [file.with_name(f"{file.name}-p{index}.log") for index in range(count)]
    processes = [await _open(command, log) for log in logs]
    try:
        async with anyio.create_task_group() as group:
            children = [ServerChild(f"p{index}", *pair) for index, pair in enumerate(zip(processes, logs, strict=True))]
            for child in children:
                group.start_soon(child.receive)
            yield children
            for process in processes:
                assert process.stdin is not None
                await process.stdin.aclose()
            codes = [await process.wait() for process in processes]
            if any(codes):
                raise ServerDied(f"the servers ended with {codes}")
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.aclose()
