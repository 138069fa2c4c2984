"""What a client costs once it is closed, dropped or stuck: no time of the processor, and no waiting without end."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path

import anyio
import pytest

from mcp_tasks_stdio import ShutdownWaits
from mcp_tasks_trio import CallTimedOut, connect_stdio
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_http import open_http
from mcp_tasks_trio.client_stdio import open_stdio
from runners.fakes.scripted_http import FakeRequest, fake_server
from runners.served import both_loops, run

FAKE = Path(__file__).parent / "fakes" / "scripted_server.py"
OBSERVED_SECONDS = 0.5
BUSY_SECONDS = 0.1  # a loop that spins has all of what is observed; an idle one takes less than a thousandth

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake server uses signals of POSIX")


async def seconds_busy() -> float:
    """Time of the processor that this process takes while nobody wants anything of it."""
    begun = time.process_time()
    await anyio.sleep(OBSERVED_SECONDS)
    return time.process_time() - begun


async def answer(request: FakeRequest) -> None:
    if request.params["name"] == "hang":
        await anyio.sleep_forever()
    await request.text("x")


@both_loops
@pytest.mark.parametrize("end", ["in order", "in another task", "given up", "dropped"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_no_client_spins_when_it_is_closed_given_up_or_dropped(
    backend: str, transport: str, end: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    record.touch()

    async def opened(url: str) -> Client:
        if transport == "http":
            return await open_http(url)
        return await open_stdio([sys.executable, str(FAKE), str(record)])

    async def leave(first: Client, second: Client) -> None:
        if end == "given up":
            with anyio.move_on_after(0.05):
                await first.call_tool("hang")
        if end == "in another task":
            async with anyio.create_task_group() as group:
                group.start_soon(first.aclose)
        else:
            await first.aclose()
        if end != "dropped":
            await second.aclose()

    async def test() -> None:
        async with fake_server(answer) as server:
            await leave(await opened(server.url), await opened(server.url))
            gc.collect()
            assert await seconds_busy() < BUSY_SECONDS

    run(backend, test)


DEAF = """
import json, sys, time
request = json.loads(sys.stdin.buffer.readline())
result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0}
answer = {"jsonrpc": "2.0", "id": request["id"], "result": {**result, "cacheScope": "private"}}
print(json.dumps(answer), flush=True)
while True:
    time.sleep(1)
"""


@both_loops
@pytest.mark.spec("P9", "I6")
def test_a_server_that_reads_nothing_any_more_holds_up_no_cancelled_call_and_no_close(backend: str) -> None:
    more_than_a_pipe_holds = {"text": "x" * 1_000_000}
    waits = ShutdownWaits(input_closed_ms=50, terminated_ms=1_000)

    async def test() -> None:
        async with connect_stdio([sys.executable, "-c", DEAF], shutdown=waits) as client:
            begun = anyio.current_time()
            with anyio.move_on_after(0.1) as scope:
                await client.call_tool("t", more_than_a_pipe_holds)
            assert scope.cancelled_caught
            with pytest.raises(CallTimedOut):
                await client.call_tool("t", more_than_a_pipe_holds, timeout=0.1)
            assert anyio.current_time() - begun < 2
            begun = anyio.current_time()
        assert anyio.current_time() - begun < 8

    run(backend, test)
