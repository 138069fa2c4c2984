"""How many calls of an application's own engines and rules run at once, and who waits for whom."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_trio import Application, EngineTask
from mcp_tasks_trio.own_engines import READS_AT_ONCE, Turns
from runners.served import both_loops, run, served
from runners.stage import filter_of

FLOOD = [f"ext-{number}" for number in range(READS_AT_ONCE + 40)]


class Held:
    """How many calls are held, and how many were at most, until they are let go."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self._lock = threading.Lock()
        self.running = self.most = self.made = 0

    def enter(self) -> None:
        with self._lock:
            self.running += 1
            self.made += 1
            self.most = max(self.most, self.running)

    def leave(self) -> None:
        with self._lock:
            self.running -= 1


class ThreadEngine:
    """Knows no task, and says so when it may."""

    def __init__(self) -> None:
        self.held = Held()

    def read(self, task_id: str) -> EngineTask | None:
        self.held.enter()
        self.held.may_go.wait()
        self.held.leave()
        return None

    def answer(self, task_id: str, answers: Any) -> bool:
        return False

    def cancel(self, task_id: str) -> bool:
        return False


class LoopEngine:
    """The same without threads."""

    def __init__(self) -> None:
        self.held = Held()

    async def read(self, task_id: str) -> EngineTask | None:
        self.held.enter()
        while not self.held.may_go.is_set():
            await anyio.lowlevel.checkpoint()
        self.held.leave()
        return None

    async def answer(self, task_id: str, answers: Any) -> bool:
        return False

    async def cancel(self, task_id: str) -> bool:
        return False


class Quick:
    """An engine that answers at once."""

    def read(self, task_id: str) -> EngineTask | None:
        state = {
            "taskId": task_id,
            "status": "working",
            "createdAt": "2026-07-28T10:00:00.000Z",
            "lastUpdatedAt": "2026-07-28T10:00:00.000Z",
            "ttlMs": None,
        }
        return EngineTask(owner=LOCAL_OWNER, state=state)

    def answer(self, task_id: str, answers: Any) -> bool:
        return True

    def cancel(self, task_id: str) -> bool:
        return True


@both_loops
@pytest.mark.parametrize("kind", [ThreadEngine, LoopEngine])
def test_a_listen_to_very_many_tasks_of_an_engine_holds_up_no_tool_no_rule_and_no_other_engine(
    backend: str, kind: type[ThreadEngine] | type[LoopEngine]
) -> None:
    async def test() -> None:
        slow = kind()
        app = Application("test", version="1", worker_threads=1, authorize=lambda caller, access, task_id, owner: True)
        app.source("ext-", slow)
        app.source("quick-", Quick())

        @app.tool()
        def hello() -> str:
            return "hi"

        async with served(app) as server:
            peer = server.peer
            request_id = await peer.start("subscriptions/listen", filter_of(*FLOOD))
            while slow.held.running < READS_AT_ONCE:
                await anyio.lowlevel.checkpoint()
            assert (await peer.call("hello"))["content"][0]["text"] == "hi"
            assert (await peer.task("quick-1"))["status"] == "working"
            assert "resultType" in await peer.result("tasks/cancel", {"taskId": "quick-1"})
            slow.held.may_go.set()
            assert "result" in await peer.answer_to(request_id)
        assert (slow.held.made, slow.held.most) == (len(FLOOD), READS_AT_ONCE)

    run(backend, test)


@both_loops
def test_callers_take_turns_however_much_each_of_them_asks_for(backend: str) -> None:
    many, few = Owner("a", "many"), Owner("a", "few")

    async def test() -> None:
        turns = Turns(2)
        order: list[str] = []
        may_go = anyio.Event()

        async def note(name: str) -> None:
            order.append(name)
            await may_go.wait()

        async with anyio.create_task_group() as task_group:
            for number in range(6):
                task_group.start_soon(turns.call, many, note, f"many {number}")
                await anyio.wait_all_tasks_blocked()
            for number in range(2):
                task_group.start_soon(turns.call, few, note, f"few {number}")
                await anyio.wait_all_tasks_blocked()
            assert order == ["many 0", "many 1"]
            may_go.set()
        assert order[:2] == ["many 0", "many 1"]
        assert order.index("few 0") < order.index("many 4")
        assert order.index("few 1") < order.index("many 5")
        assert sorted(order) == sorted([f"many {number}" for number in range(6)] + ["few 0", "few 1"])
        # What failed has given its turn back, too.

        async def fail() -> None:
            raise ValueError("a mistake")

        for _ in range(3):
            with pytest.raises(ValueError, match="a mistake"):
                await turns.call(few, fail)

    run(backend, test)
