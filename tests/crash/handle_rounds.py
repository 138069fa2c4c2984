"""Rounds in which a server is killed in the very moment in which the bytes of a handle were read."""

from __future__ import annotations

import select
from functools import partial
from pathlib import Path
from typing import Final

from tests.crash.ledger import Handle, Known, Ledger
from tests.crash.rounds import Tally
from tests.crash.server_child import ServerChild

_PATIENCE_SECONDS: Final = 30.0


def kill_at_handles(folder: Path, rounds: int, tally: Tally, *, backend: str, kind: str, start: str) -> None:
    """Create, read, kill, start again and ask; the task resolves each time, and so do all before it."""
    ledger = Ledger()
    open_server = partial(
        ServerChild,
        folder / "tasks.db",
        backend=backend,
        kind=kind,
        start=start,
        log=folder / "stderr.txt",
    )
    server = open_server()
    for number in range(rounds):
        purpose = partial(ledger.created, "endless", f"t{number}", server)
        server.send(purpose, "tools/call", name="endless", arguments={"text": f"t{number}"})
        _take_one(server)
        server.close()
        tally.kills += 1
        server = open_server()
        for handle in list(ledger.handles.values())[-10:]:
            _resolve(handle, server, ledger)
            tally.resolved += 1
        tally.rounds += 1
    for handle in list(ledger.handles.values()):
        _resolve(handle, server, ledger)
        tally.resolved += 1
    server.close()
    tally.handles += ledger.handles_read
    tally.faults += ledger.faults


def _resolve(handle: Handle, server: ServerChild, ledger: Ledger) -> None:
    purpose = partial(ledger.shown, handle, Known.of(handle), alone=server)
    server.send(purpose, "tasks/get", taskId=handle.task_id)
    _take_one(server)


def _take_one(server: ServerChild) -> None:
    while True:
        if not select.select([server.stdout], [], [], _PATIENCE_SECONDS)[0]:
            raise TimeoutError(f"no answer within {_PATIENCE_SECONDS:g} s")
        for purpose, frame in server.frames():
            purpose(frame)
            return
