"""What is told was made durable before: the order of writes, synchronizations and answers of a real server process."""

from __future__ import annotations

import json
import os
import select
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    made = tmp_path_factory.mktemp("faults") / "file_faults.so"
    source = ROOT / "tests" / "sqlite" / "file_faults.c"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return made


class RecordedServer:
    """A conversation with a server whose operations on files are written down."""

    def __init__(self, library: Path, folder: Path, synchronous: str) -> None:
        home, self._record = folder / "home", folder / "record"
        home.mkdir()
        pipe = home / "answers"
        os.mkfifo(pipe)
        self._answers = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        stdout = os.open(pipe, os.O_WRONLY)
        module = [sys.executable, "-m", "tests.crash.recorded_server"]
        self.process = subprocess.Popen(
            [*module, str(library), str(self._record), str(home), synchronous],
            stdin=subprocess.PIPE,
            stdout=stdout,
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(library)},
        )
        os.close(stdout)
        self._ids = 0
        self._buffer = b""

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {**params, "_meta": META}}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        while b"\n" not in self._buffer:
            assert select.select([self._answers], [], [], PATIENCE_SECONDS)[0], "no answer came"
            data = os.read(self._answers, 65_536)
            assert data, "the server ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        result: dict[str, Any] = json.loads(line)["result"]
        return result

    def ended(self) -> list[Operation]:
        """Everything that happened, once the server has been told to end and has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_SECONDS) == 0
        os.close(self._answers)
        return list(_operations(self._record.read_bytes()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@attrs.frozen
class Operation:
    kind: str  # W: a write; S: a synchronization
    file: str
    data: bytes


def _operations(record: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(record):
        kind, length = struct.unpack_from("<cI", record, at)
        path = record[at + 5 : at + 5 + length].decode()
        at += 5 + length
        _, size = struct.unpack_from("<QQ", record, at)
        yield Operation(kind.decode(), Path(path).name, record[at + 16 : at + 16 + size])
        at += 16 + size


def durable_before_told(operations: list[Operation], stored: bytes, told: bytes) -> bool:
    """Whether, before the first answer that holds ``told``, the log got ``stored`` and was synchronized after it."""
    frame = _first(operations, lambda operation: operation.file == "answers" and told in operation.data)
    written = _first(operations, lambda operation: operation.file == "tasks.db-wal" and stored in operation.data)
    synchronized = [
        index
        for index, operation in enumerate(operations)
        if operation.kind == "S" and operation.file == "tasks.db-wal" and written < index < frame
    ]
    return written < frame and bool(synchronized)


def _first(operations: list[Operation], holds: Callable[[Operation], bool]) -> int:
    return next(index for index, operation in enumerate(operations) if operation.kind == "W" and holds(operation))


@pytest.fixture
def converse(library: Path, tmp_path: Path) -> Iterator[Callable[[str], tuple[list[Operation], str]]]:
    """A task is created, answered and cancelled; gives what happened, and the task's id."""
    servers: list[RecordedServer] = []

    def run(synchronous: str) -> tuple[list[Operation], str]:
        servers.append(server := RecordedServer(library, tmp_path, synchronous))
        arguments = {"text": "t", "pause_ms": 0}
        task_id = server.ask("tools/call", name="interview", arguments=arguments)["taskId"]
        state: dict[str, Any] = {}
        while "first" not in state.get("inputRequests", {}):
            state = server.ask("tasks/get", taskId=task_id)
        answer = {"action": "accept", "content": {"value": "an answer like no other"}}
        server.ask("tasks/update", taskId=task_id, inputResponses={"first": answer})
        server.ask("tasks/cancel", taskId=task_id)
        return server.ended(), task_id

    yield run
    for server in servers:
        server.close()


def _told_by_answer(operations: list[Operation]) -> list[bytes]:
    """The acknowledgements, in the order in which they were written: of the answer, then of the cancel."""
    lines = b"".join(o.data for o in operations if o.kind == "W" and o.file == "answers").splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    return [b'"id":%d,' % number for number in ids[-2:]]


@pytest.mark.spec("C5")
def test_handle_answer_and_cancel_are_synchronized_before_they_are_told(
    converse: Callable[[str], tuple[list[Operation], str]],
) -> None:
    operations, task_id = converse("FULL")
    of_answer, of_cancel = _told_by_answer(operations)
    assert durable_before_told(operations, task_id.encode(), b'"taskId":"%s"' % task_id.encode())
    assert durable_before_told(operations, b"an answer like no other", of_answer)
    assert durable_before_told(operations, b"Cancellation requested", of_cancel)


def test_without_full_synchronization_the_handle_is_told_while_the_disk_still_has_to_take_it(
    converse: Callable[[str], tuple[list[Operation], str]],
) -> None:
    operations, task_id = converse("NORMAL")
    assert not durable_before_told(operations, task_id.encode(), b'"taskId":"%s"' % task_id.encode())
