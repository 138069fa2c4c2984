"""Engines as processes of one machine: one clock that the test moves, one store file, and deaths without goodbye."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import Instant
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import Acknowledge, Frame
from mcp_tasks_core.server.events import MessageReceived, Ticked
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import Application, ServerEngine
from runners.served import CAPABILITIES, message

LIMITS = Limits()
DEATH_MS = LIMITS.lease_ms + LIMITS.lease_renewal_ms


class MortalStore(SqliteTaskStore):
    """A store whose process may die: then it says no goodbye."""

    died = False

    def end_lease(self, executor: str) -> None:
        if not self.died:
            super().end_lease(executor)


class Process:
    """An engine, and a client of it that only remembers what it was sent."""

    def __init__(self, engine: ServerEngine) -> None:
        self.engine = engine
        self.frames: dict[int, dict[str, Any]] = {}
        self._ids = 0
        self._arrived = anyio.Event()
        self._stream_id = engine.open_stream(self)

    def send(self, frame: Frame) -> None:
        decoded = json.loads(b"".join(frame.payload))
        if "id" in decoded:
            self.frames[decoded["id"]] = decoded

    def acknowledge(self, effect: Acknowledge) -> None:
        pass

    def flush(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._ids += 1
        request = {**message(method, params, CAPABILITIES), "id": self._ids}
        self.engine.feed(MessageReceived(self._stream_id, json.dumps(request).encode(), LOCAL_OWNER))
        wanted = self._ids
        while wanted not in self.frames:
            await self._arrived.wait()
        return self.frames[wanted]

    async def create(self, tool: str, **arguments: Any) -> str:
        task_id: str = (await self.request("tools/call", name=tool, arguments=arguments))["result"]["taskId"]
        return task_id

    async def answer(self, task_id: str, **values: Any) -> None:
        given = {key: {"action": "accept", "content": {key: value}} for key, value in values.items()}
        answered = await self.request("tasks/update", taskId=task_id, inputResponses=given)
        assert "result" in answered, answered

    async def task(self, task_id: str) -> dict[str, Any]:
        state: dict[str, Any] = (await self.request("tasks/get", taskId=task_id))["result"]
        return state

    async def task_where(self, task_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            state = await self.task(task_id)
            if holds(state):
                return state
            await anyio.lowlevel.checkpoint()

    async def task_in(self, task_id: str, status: str) -> dict[str, Any]:
        return await self.task_where(task_id, lambda state: state["status"] == status)


class Machine:
    """What all processes share.

    Args:
        path: of the store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = 1_785_232_800_000
        self.running: list[Process] = []
        self._stopped_at_ms: dict[ServerEngine, int] = {}

    def clock(self) -> Instant:
        return Instant(wall_ms=self.now_ms, monotonic_ms=self.now_ms)

    def stop(self, process: Process) -> None:
        """The process stands still: no time passes for it. What its timer says in real time comes to nothing."""
        self.running.remove(process)
        self._stopped_at_ms[process.engine] = self.now_ms

    def wake(self, process: Process) -> None:
        """The process finds the clock where it is now."""
        del self._stopped_at_ms[process.engine]
        self.running.append(process)

    @asynccontextmanager
    async def process(self, application: Application, *, dies: bool = False) -> AsyncIterator[Process]:
        """A process while the block runs.

        Args:
            dies: it ends as if it had been killed, its lease still running.
        """

        def clock() -> Instant:
            now_ms = self._stopped_at_ms.get(engine, self.now_ms)
            return Instant(wall_ms=now_ms, monotonic_ms=now_ms)

        with MortalStore(self.path) as store:
            engine = ServerEngine(application, store=store, clock=clock)
            async with engine.running():
                process = Process(engine)
                self.running.append(process)
                try:
                    yield process
                finally:
                    if process in self.running:
                        self.running.remove(process)
                    store.died = dies

    async def live(self, span_ms: int) -> None:
        """Let this time pass for the processes that run, each renewal and each look in its turn."""
        for _ in range(span_ms // LIMITS.hint_interval_ms):
            self.now_ms += LIMITS.hint_interval_ms
            for process in self.running:
                process.engine.feed(Ticked())
            for process in self.running:
                while process.engine.protocol.open_tickets or process.engine.protocol.busy_tasks:
                    await anyio.lowlevel.checkpoint()
