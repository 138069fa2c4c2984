"""Another program holds the file's write lock: reads go on, writes wait or fail cleanly, no handle is a lie."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs

from tests.races.server_child import ServerChild, server_children

_WRITES = 24  # more than a server has threads for writing
_READ_SECONDS_MAX = 2.0  # a read that waited for the lock would take as long as that


@attrs.define
class LockTally:
    reads: int = 0
    slowest_read_seconds: float = 0.0
    handles: list[str] = attrs.field(factory=list)
    refused: int = 0
    faults: list[str] = attrs.field(factory=list)


@contextmanager
def write_lock(file: Path) -> Iterator[None]:
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


async def hold_the_lock(file: Path, *, lock_seconds: float, busy_wait_ms: int, backend: str) -> LockTally:
    """Two servers on one file; the lock is held while both are asked to read and to write."""
    tally = LockTally()
    released = False

    async def create(child: ServerChild, number: int) -> None:
        answer = await child.request("tools/call", name="decide", arguments={"number": number})
        if "result" in answer:
            if not released:
                tally.faults.append(f"{child.name} gave a handle while nothing could be written")
            tally.handles.append(answer["result"]["taskId"])
            return
        error = answer["error"]
        tally.refused += 1
        if error["code"] != -32603 or error.get("data", {}).get("retryable") is not True:
            tally.faults.append(f"{child.name} refused a call without saying that it may be tried again: {error}")

    async def read(child: ServerChild, task_id: str) -> None:
        begun = anyio.current_time()
        state = await child.request("tasks/get", taskId=task_id)
        tally.reads += 1
        tally.slowest_read_seconds = max(tally.slowest_read_seconds, anyio.current_time() - begun)
        if "result" not in state:
            tally.faults.append(f"{child.name} could not read while the lock was held: {state}")

    async with server_children(file, 2, busy_wait_ms=busy_wait_ms, backend=backend) as children:
        known, _ = [await _known_task(child) for child in children]  # both are up, and can write
        async with anyio.create_task_group() as writers:
            with write_lock(file):
                for number in range(_WRITES):
                    writers.start_soon(create, children[number % 2], number)
                until = anyio.current_time() + lock_seconds
                while anyio.current_time() < until:
                    for child in children:
                        await read(child, known)
                    await anyio.sleep(0.01)
                released = True
        if tally.slowest_read_seconds > min(_READ_SECONDS_MAX, lock_seconds):
            tally.faults.append(f"a read took {tally.slowest_read_seconds:.2f} s while the lock was held")
        for task_id in tally.handles:
            for child in children:
                if "result" not in await child.request("tasks/get", taskId=task_id):
                    tally.faults.append(f"{task_id} was announced, and {child.name} does not find it")
        await _known_task(children[1])  # it can write again
    return tally


async def _known_task(child: ServerChild) -> str:
    made: dict[str, Any] = {}
    while "result" not in made:
        made = await child.request("tools/call", name="decide", arguments={"number": 0})
        # The other server's writes may be in the way for longer than this one waits.
        assert "result" in made or made["error"].get("data", {}).get("retryable") is True, made
    task_id: str = made["result"]["taskId"]
    return task_id
