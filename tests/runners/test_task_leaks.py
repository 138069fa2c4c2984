"""Hundreds of tasks that end, wait, ask and are cancelled, until their time is over: rows, work and objects all go."""

from __future__ import annotations

import gc
from collections import Counter
from datetime import timedelta

import anyio
import pytest

from mcp_tasks_core.limits import Limits
from mcp_tasks_core.store import MemoryTaskStore
from mcp_tasks_trio import Application, SyncToolContext, ToolContext
from runners.http_peer import HttpServed, call, http_served, post
from runners.served import both_loops, run

TTL = timedelta(milliseconds=50)
LIMITS = Limits(expiry_grace_ms=50, tombstone_ms=50, sweep_interval_ms=50)
TASKS = 600
FOR_EVER_MS = 2**53
PLAIN = (list, dict, tuple, set)  # what watches the frames of this run keeps these, and nothing holds them alone


def application() -> Application:
    app = Application("test", version="1", limits=LIMITS, default_ttl=TTL)

    @app.tool(task="always")
    async def quick() -> str:
        return "done"

    @app.tool(task="always")
    async def endless() -> None:
        await anyio.sleep_forever()

    @app.tool(task="always")
    async def asks(context: ToolContext) -> None:
        await context.elicit("name", "Who?", {"name": {"type": "string"}})

    @app.tool(task="always")
    def in_a_thread(context: SyncToolContext) -> str:
        context.progress(1)
        return "done"

    return app


async def outlived(server: HttpServed, store: MemoryTaskStore, tasks: int) -> Counter[str]:
    """What is alive, by type, once so many tasks have been made and their time is over."""
    async with server.peer() as peer:
        for number in range(tasks):
            tool = ("quick", "endless", "asks", "in_a_thread")[number % 4]
            named = {"taskId": (await peer.answer(call(tool))).result["taskId"]}
            if number % 3 == 0:
                await peer.answer(post("tasks/get", named))
            if number % 7 == 0:
                await peer.answer(post("tasks/cancel", named))
    await server.until(lambda: not store.list_due(FOR_EVER_MS, 1))
    await server.is_clean()
    await server.until(lambda: not (server.engine.busy or server.engine.protocol.open_tickets))
    await anyio.wait_all_tasks_blocked()
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) not in PLAIN)


@both_loops
@pytest.mark.spec("T4", "T5")
def test_nothing_is_left_of_tasks_whose_time_is_over(backend: str) -> None:
    async def test() -> None:
        store = MemoryTaskStore()
        async with http_served(application(), store=store) as server:
            before = await outlived(server, store, TASKS)  # whatever is kept within bounds is kept by now
            after = await outlived(server, store, TASKS)
            grown = {name: count for name, count in (after - before).items() if count >= TASKS // 10}
            assert grown == {}

    run(backend, test)
