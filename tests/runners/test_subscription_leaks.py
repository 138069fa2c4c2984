"""A thousand subscriptions, opened and ended in each way there is: streams, tasks, timers and descriptors all go."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.server.events import ResourceUpdated, StreamEnding
from mcp_tasks_trio import ServerEngine
from runners.http_peer import HttpPeer, HttpServed, call, http_served, post
from runners.served import Served, both_loops, run, served
from runners.stage import ACKNOWLEDGED, LONG_URI, URI, Stage, filter_of

LISTENS = 1_000
AT_ONCE = 250  # connections, each with a descriptor at both ends


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def loop_tasks() -> int:
    """Tasks of the running loop, the test's own among them."""
    if "trio" in sys.modules:
        import trio

        try:
            statistics: Any = trio.lowlevel.current_statistics()
        except RuntimeError:
            pass
        else:
            return int(statistics.tasks_living)
    return len(asyncio.all_tasks())


def remains(engine: ServerEngine) -> tuple[int, ...]:
    """What the server keeps of requests and subscriptions: all of it is zero when there are none."""
    protocol = engine.protocol
    return (
        protocol.open_subscriptions,
        protocol.watched_tasks,
        protocol.open_tickets,
        len(protocol.open_exchanges),
        engine.streams_open,
    )


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await anyio.lowlevel.checkpoint()


async def settle(before: tuple[int, int]) -> None:
    """Wait until descriptors and tasks are back at what they were; the bound of the test ends it otherwise."""
    gc.collect()
    await until(lambda: descriptors() <= before[0] and loop_tasks() <= before[1])


pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")


# --- over HTTP


async def connected(server: HttpServed) -> HttpPeer:
    path, port = server.listener.settings.unix_socket, server.listener.port
    if path is not None:
        return HttpPeer(await anyio.connect_unix(path))
    assert port is not None
    return HttpPeer(await anyio.connect_tcp("127.0.0.1", port))


async def hear(peer: HttpPeer, request: bytes) -> None:
    await peer.send(request)
    await peer.stream_head()
    assert (await peer.event())["method"] == ACKNOWLEDGED


async def on_connections(server: HttpServed, listen: bytes, after: Callable[[list[HttpPeer]], Awaitable[None]]) -> None:
    """Open that many subscriptions, have something done to them, and see that the server forgets them."""
    for _ in range(LISTENS // AT_ONCE):
        peers: list[HttpPeer] = []
        for _ in range(AT_ONCE):
            peers.append(await connected(server))
            await hear(peers[-1], listen)
        await after(peers)
        for peer in peers:
            await anyio.aclose_forcefully(peer.stream)
        await server.until(lambda: server.listener.connections == 0 and not any(remains(server.engine)))


async def leave_in_order(peers: list[HttpPeer]) -> None:
    for peer in peers:
        await peer.aclose()


async def leave_by_reset(peers: list[HttpPeer]) -> None:
    for peer in peers:
        await peer.reset()


@both_loops
@pytest.mark.parametrize("leave", [leave_in_order, leave_by_reset], ids=["FIN", "RST"])
@pytest.mark.spec("S6", "S11", "H6")
def test_connections_that_their_clients_end_leave_nothing(backend: str, leave: Any) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server:
            task_id = (await server.ask(call("act", {"part": "hero"}))).result["taskId"]
            await server.until(lambda: server.listener.connections == 0)
            before = descriptors(), loop_tasks()
            await on_connections(server, post("subscriptions/listen", filter_of(task_id, uris=[URI])), leave)
            await settle(before)
            stage.ends("hero")

    run(backend, test)


@both_loops
@pytest.mark.spec("S5", "S11", "D20")
def test_connections_whose_task_ends_leave_nothing(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        parts = iter(range(LISTENS))
        async with http_served(stage.app) as server:
            await server.ask(call("act", {"part": "overture"}))
            await server.until(lambda: server.listener.connections == 0)
            before = descriptors(), loop_tasks()
            for _ in range(LISTENS // AT_ONCE):
                part = f"part {next(parts)}"
                task_id = (await server.ask(call("act", {"part": part}))).result["taskId"]
                async with anyio.create_task_group() as group:

                    async def listen_to_the_end(task_id: str = task_id) -> None:
                        async with server.peer() as peer:
                            await hear(peer, post("subscriptions/listen", filter_of(task_id)))
                            while "result" not in await peer.event():
                                pass
                            assert await peer.chunk() == b""

                    for _ in range(AT_ONCE):
                        group.start_soon(listen_to_the_end)
                    await server.until(lambda: server.engine.protocol.open_subscriptions == AT_ONCE)
                    stage.ends(part)
            await server.until(lambda: server.listener.connections == 0 and not any(remains(server.engine)))
            await settle(before)
            stage.ends("overture")

    run(backend, test)


@both_loops
@pytest.mark.spec("S5", "S7", "S11", "D19")
def test_listens_of_which_nothing_can_be_honoured_leave_nothing(backend: str) -> None:
    async def test() -> None:
        async with http_served(Stage().app) as server, server.peer() as peer:
            before = descriptors(), loop_tasks()
            for n in range(LISTENS):
                await hear(peer, post("subscriptions/listen", filter_of(f"unknown {n}"), request_id=n))
                assert (await peer.event())["id"] == n
                assert await peer.chunk() == b""
            assert not any(remains(server.engine))
            await settle(before)

    run(backend, test)


@both_loops
@pytest.mark.spec("S11", "D22")
def test_connections_whose_readers_are_given_up_leave_nothing(backend: str, tmp_path: Path) -> None:
    async def test() -> None:
        stage = Stage(slow_reader_ms=1)
        # A local socket keeps few bytes for a reader that does not read.
        async with http_served(stage.app, unix_socket=tmp_path / "stage") as server:
            before = descriptors(), loop_tasks()
            listen = post("subscriptions/listen", filter_of(uris=[LONG_URI]))

            async def stop_reading(peers: list[HttpPeer]) -> None:
                while server.engine.protocol.open_subscriptions:
                    server.engine.feed(ResourceUpdated(LONG_URI))
                    await anyio.lowlevel.checkpoint()
                for peer in peers:
                    await anyio.aclose_forcefully(peer.stream)

            await on_connections(server, listen, stop_reading)
            await settle(before)

    run(backend, test)


@both_loops
@pytest.mark.spec("S5", "S11")
def test_connections_of_a_server_that_shuts_down_leave_nothing(backend: str) -> None:
    async def test() -> None:
        before = descriptors(), loop_tasks()
        for _ in range(LISTENS // AT_ONCE):
            peers: list[HttpPeer] = []
            async with http_served(Stage().app) as server:
                for _ in range(AT_ONCE):
                    peers.append(await connected(server))
                    await hear(peers[-1], post("subscriptions/listen", filter_of(uris=[URI])))
            assert not any(remains(server.engine))
            for peer in peers:
                assert b'"result"' in await peer.ended()
                await peer.aclose()
        await settle(before)

    run(backend, test)


# --- on a pipe


async def hear_on(server: Served, task_id: str, *, uris: Sequence[str] = (URI,)) -> list[int]:
    """Open as many subscriptions as may be at once, and wait for the acknowledgement of each."""
    listen = filter_of(task_id, uris=uris)
    ids = [await server.peer.start("subscriptions/listen", listen) for _ in range(AT_ONCE)]
    waits = set(ids)
    while waits:
        received = await server.peer.next()
        if received.get("method") == ACKNOWLEDGED:
            waits.discard(received["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"])
    assert server.engine.protocol.open_subscriptions == AT_ONCE
    return ids


async def begin(server: Served, part: str) -> str:
    handle = await server.peer.result("tools/call", {"name": "act", "arguments": {"part": part}})
    task_id: str = handle["taskId"]
    return task_id


async def have_all_end(server: Served, ids: list[int]) -> None:
    for request_id in ids:
        assert (await server.peer.answer_to(request_id))["result"]["resultType"] == "complete"


@both_loops
@pytest.mark.parametrize("way", ["cancelled", "the stream is to end", "the task ends", "unknown"])
@pytest.mark.spec("S5", "S6", "S9", "S11")
def test_subscriptions_on_one_pipe_leave_nothing(backend: str, way: str) -> None:
    async def test() -> None:
        stage = Stage(subscriptions_per_stream_max=AT_ONCE)
        async with served(stage.app) as server:
            await begin(server, "overture")
            before = descriptors(), loop_tasks()
            nothing = remains(server.engine)
            assert nothing == (0, 0, 0, 0, 1)
            (stream_id,) = server.engine._sinks
            for batch in range(LISTENS // AT_ONCE):
                if way == "unknown":
                    for n in range(AT_ONCE):
                        await server.peer.result("subscriptions/listen", filter_of(f"unknown {n}"))
                else:
                    task_id = await begin(server, f"part {batch}")
                    ids = await hear_on(server, task_id, uris=() if way == "the task ends" else (URI,))
                if way == "cancelled":
                    for request_id in ids:
                        await server.peer.cancel(request_id)
                elif way == "the stream is to end":
                    server.engine.feed(StreamEnding(stream_id))
                    await have_all_end(server, ids)
                stage.ends(f"part {batch}")
                if way == "the task ends":
                    await have_all_end(server, ids)
                await until(lambda: remains(server.engine) == nothing)
            await settle(before)
            stage.ends("overture")

    run(backend, test)


@both_loops
@pytest.mark.spec("S5", "S11")
def test_pipes_that_end_with_their_subscriptions_leave_nothing(backend: str) -> None:
    async def test() -> None:
        before = descriptors(), loop_tasks()
        for _ in range(LISTENS // AT_ONCE):
            stage = Stage(subscriptions_per_stream_max=AT_ONCE)
            async with served(stage.app) as server:
                ids = await hear_on(server, await begin(server, "hero"))
                server.peer.close_input()
                await have_all_end(server, ids)
                await server.ended.wait()
            assert remains(server.engine) == (0, 0, 0, 0, 0)
        await settle(before)

    run(backend, test)
