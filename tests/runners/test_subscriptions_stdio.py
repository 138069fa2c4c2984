"""Subscriptions on a pipe that everything shares, on both event loops: many at once, a full pipe, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.server.events import ResourceUpdated, StreamBlocked, StreamUnblocked, ToolAnswered
from mcp_tasks_trio import ServerEngine, serve_pipes
from mcp_tasks_trio.stdio_link import StdioLink
from runners.http_peer import http_served, post
from runners.served import CAPABILITIES, Peer, Served, both_loops, message, run, served
from runners.stage import ACKNOWLEDGED, LONG_URI, SUBSCRIPTION_ID, URI, Stage, Told, fill, filter_of

CANCELLED = "notifications/cancelled"


async def begin(server: Served, stage: Stage, part: str) -> str:
    """The id of a task that plays this part, and is doing so."""
    handle = await server.peer.call("act", {"part": part})
    await stage.until_begun(part)
    task_id: str = handle["taskId"]
    return task_id


async def listen(peer: Peer, *task_ids: str, **asked: Any) -> int:
    """The id of a listen that was acknowledged, after the first state of each task."""
    request_id = await peer.start("subscriptions/listen", filter_of(*task_ids, **asked))
    acknowledged = await peer.next()
    assert (acknowledged["method"], subscription_of(acknowledged)) == (ACKNOWLEDGED, request_id)
    for task_id in task_ids:
        assert (await peer.next())["params"]["taskId"] == task_id
    return request_id


async def until(holds: Callable[[], bool]) -> None:
    """Let the server go on until something is so; the bound of the test ends it otherwise."""
    while not holds():
        await anyio.lowlevel.checkpoint()


def stored(server: Served, task_id: str) -> str:
    row = server.engine.store.load(TaskId(task_id))
    return "" if row is None else row.payload.decode()


def subscription_of(received: dict[str, Any]) -> object:
    return received["params"]["_meta"][SUBSCRIPTION_ID]


async def ends_gracefully(peer: Peer, request_id: int) -> None:
    result, cancelled = await peer.next(), await peer.next()
    assert (result["id"], result["result"]["_meta"][SUBSCRIPTION_ID]) == (request_id, request_id)
    assert (cancelled["method"], cancelled["params"]["requestId"]) == (CANCELLED, request_id)


@both_loops
@pytest.mark.spec("S6", "S9")
def test_many_subscriptions_share_a_pipe_and_one_that_is_cancelled_says_nothing_more(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with served(stage.app) as server:
            peer = server.peer
            task_id = await begin(server, stage, "only")
            listens = [await listen(peer, task_id) for _ in range(20)]
            others = [await listen(peer, uris=[URI]) for _ in range(20)]
            await stage.says("only", "one")
            assert {subscription_of(await peer.next()) for _ in listens} == set(listens)
            for request_id in listens[::2] + others[::2]:
                await peer.cancel(request_id)
            assert (await peer.task(task_id))["statusMessage"] == "one"  # the cancels were read before it
            assert peer.unclaimed == []
            await stage.says("only", "two")
            assert [subscription_of(await peer.next()) for _ in listens[1::2]] == listens[1::2]
            server.engine.feed(ResourceUpdated(URI))
            assert [subscription_of(await peer.next()) for _ in others[1::2]] == others[1::2]
            stage.ends("only")
            received = [await peer.next() for _ in range(3 * len(listens[1::2]))]
            for request_id in listens[1::2]:
                of_it = [
                    told
                    for told in received
                    if request_id in (told.get("id"), told.get("params", {}).get("_meta", {}).get(SUBSCRIPTION_ID))
                ]
                assert [told.get("method") for told in of_it] == ["notifications/tasks", None, CANCELLED]
            assert (await peer.task(task_id))["status"] == "completed"
            assert peer.unclaimed == []
            assert len(server.engine.protocol.open_exchanges) == len(others[1::2])

    run(backend, test)


# --- a full pipe


@both_loops
@pytest.mark.spec("S8", "S11", "D44")
def test_a_client_that_stopped_reading_gets_the_newest_state_alone_when_it_reads_again(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with served(stage.app) as server:
            peer = server.peer
            told = Told(server.engine)
            first, last = await begin(server, stage, "first"), await begin(server, stage, "last")
            await listen(peer, first, last, uris=[LONG_URI])
            filled = fill(server.engine, told, StreamBlocked)
            for number in range(50):
                await stage.says("first", f"state {number}")
                await until(lambda said=f"state {number}": said in stored(server, first))
            stage.ends("last")
            request_id = await peer.start("tools/list")  # answers go out behind what is blocked
            for _ in range(filled):
                assert (await peer.next())["params"]["uri"] == LONG_URI
            rest = [await peer.next() for _ in range(3)]
            (answer,) = [received for received in rest if received.get("id") == request_id]
            rest.remove(answer)
            assert [received["params"]["taskId"] for received in rest] == [first, last]
            assert rest[0]["params"]["statusMessage"] == "state 49"
            assert rest[1]["params"]["status"] == "completed"
            blocked = told.of(StreamBlocked, StreamUnblocked)
            assert {type(event) for event in blocked[:-1]} == {StreamBlocked}
            assert blocked[-1] == StreamUnblocked(blocked[0].stream_id)  # type: ignore[union-attr]

    run(backend, test)


@both_loops
@pytest.mark.spec("D22", "S11")
def test_subscriptions_of_a_client_that_reads_nothing_for_too_long_are_dropped_and_the_pipe_goes_on(
    backend: str,
) -> None:
    async def test() -> None:
        stage = Stage(slow_reader_ms=100)
        async with served(stage.app) as server:
            peer = server.peer
            told = Told(server.engine)
            request_id = await listen(peer, uris=[LONG_URI])
            filled = fill(server.engine, told, StreamBlocked)
            server.engine.feed(ResourceUpdated(LONG_URI))
            await until(lambda: not server.engine.protocol.open_exchanges)
            for _ in range(filled):
                assert (await peer.next())["params"]["uri"] == LONG_URI
            dropped = await peer.next()
            assert (dropped["method"], dropped["params"]["requestId"]) == (CANCELLED, request_id)
            assert "tools" in await peer.result("tools/list")
            await listen(peer, uris=[URI])
            server.engine.feed(ResourceUpdated(URI))
            assert (await peer.next())["params"]["uri"] == URI

    run(backend, test)


@both_loops
@pytest.mark.spec("S11")
def test_subscriptions_of_a_client_that_is_slow_and_takes_something_all_the_time_go_on(backend: str) -> None:
    wait_ms, answers = 400, 30

    async def test() -> None:
        stage = Stage(slow_reader_ms=wait_ms)

        @stage.app.tool()
        async def read_out() -> str:
            return "x" * 20_000

        async with served(stage.app) as server:
            peer = server.peer
            told = Told(server.engine)
            await listen(peer, uris=[LONG_URI, URI])
            filled = fill(server.engine, told, StreamBlocked)
            server.engine.feed(ResourceUpdated(URI))
            # Answers are not held back: these are much more than the pipe takes, and keep it full while they are read.
            for _ in range(answers):
                await peer.start("tools/call", {"name": "read_out", "arguments": {}})
            await until(lambda: len(told.of(ToolAnswered)) == answers)
            for _ in range(filled):
                assert (await peer.next())["params"]["uri"] == LONG_URI
            for _ in range(answers):
                await anyio.sleep(5 * wait_ms / 1000 / answers)
                assert "result" in await peer.next()
            assert (await peer.next())["params"]["uri"] == URI
            assert server.engine.protocol.open_subscriptions == 1
            assert StreamBlocked(told.of(StreamBlocked)[0].stream_id, progressed=True) in told.events  # type: ignore[union-attr]

    run(backend, test)


# --- the end


@both_loops
@pytest.mark.spec("S5", "I3")
def test_the_end_of_the_input_ends_subscriptions_in_good_order_and_the_server_at_once(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with served(stage.app, eof_grace_seconds=3600) as server:
            peer = server.peer
            request_id = await listen(peer, await begin(server, stage, "only"))
            peer.close_input()
            await ends_gracefully(peer, request_id)
            await server.ended.wait()

    run(backend, test)


@both_loops
@pytest.mark.spec("S1", "S5", "I3")
@pytest.mark.parametrize("output", ["file", "pipe"])
def test_a_listen_with_nothing_behind_it_is_acknowledged_and_ended(backend: str, output: str, tmp_path: Path) -> None:
    """As from ``echo``, or out of a file."""
    request = {**message("subscriptions/listen", filter_of("unknown", uris=[URI]), CAPABILITIES), "id": "a"}
    (tmp_path / "in").write_bytes(json.dumps(request).encode() + b"\n")

    async def test() -> None:
        stage = Stage()
        input_fd = os.open(tmp_path / "in", os.O_RDONLY)
        read_fd = None
        if output == "file":
            output_fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        else:
            read_fd, output_fd = os.pipe()
        await serve_pipes(ServerEngine(stage.app), input_fd, output_fd, eof_grace_seconds=3600)
        os.close(input_fd)
        os.close(output_fd)
        written = (tmp_path / "out").read_bytes() if read_fd is None else os.read(read_fd, 65536)
        if read_fd is not None:
            os.close(read_fd)
        acknowledged, result, cancelled = map(json.loads, written.splitlines())
        assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": [URI], "taskIds": []}
        assert (result["id"], cancelled["params"]["requestId"]) == ("a", "a")

    run(backend, test)


@both_loops
@pytest.mark.spec("S5")
def test_the_end_of_one_pipe_ends_no_subscription_beside_it_and_none_that_comes_later(backend: str) -> None:
    """One engine may serve many pipes and HTTP: where one client leaves, the others stay."""

    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server, server.peer() as stays:
            await stays.send(post("subscriptions/listen", filter_of(uris=[URI])))
            await stays.stream_head()
            assert (await stays.event())["method"] == ACKNOWLEDGED
            to_server, from_client = os.pipe()
            to_client, from_server = os.pipe()
            peer = Peer(to_client, from_client)
            async with anyio.create_task_group() as task_group:
                task_group.start_soon(serve_pipes, server.engine, to_server, from_server)
                request_id = await listen(peer, uris=[URI])
                peer.close_input()
                await ends_gracefully(peer, request_id)
            peer.close()
            os.close(to_server)
            os.close(from_server)
            async with server.peer() as later:
                await later.send(post("subscriptions/listen", filter_of(uris=[URI])))
                await later.stream_head()
                assert (await later.event())["method"] == ACKNOWLEDGED
                server.engine.feed(ResourceUpdated(URI))
                assert (await later.event())["params"]["uri"] == URI
                assert (await stays.event())["params"]["uri"] == URI

    run(backend, test)


@both_loops
@pytest.mark.spec("S5")
def test_a_listen_that_comes_while_the_pipe_is_about_to_end_ends_right_after_its_first_states(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        engine = ServerEngine(stage.app)
        written = b""

        def write(data: bytes) -> None:
            nonlocal written
            written += data

        async with engine.running():
            link = StdioLink(engine, LOCAL_OWNER, write)
            link.shut_down()
            for request_id in ("a", "b"):
                listen = {**message("subscriptions/listen", filter_of(uris=[URI]), CAPABILITIES), "id": request_id}
                link.receive(json.dumps(listen).encode() + b"\n")
            link.close()
            link.receive(b"{}\n")
            link.shut_down()  # nothing is told of a stream that has ended
        told = [json.loads(line) for line in written.splitlines()]
        assert [line.get("method") for line in told] == [ACKNOWLEDGED, None, CANCELLED] * 2
        assert [told[1]["id"], told[4]["id"]] == ["a", "b"]

    run(backend, test)


SERVER = """
import sys
from mcp_tasks_trio import Application, run_stdio

app = Application("test", version="1", capabilities={"resources": {"subscribe": True}})
sys.exit(run_stdio(app, backend=sys.argv[1], eof_grace_seconds=60))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@both_loops
@pytest.mark.spec("S5")
def test_a_signal_ends_subscriptions_in_good_order_and_the_process(backend: str) -> None:
    request = {**message("subscriptions/listen", filter_of(uris=[URI]), CAPABILITIES), "id": 1}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, backend], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["method"] == ACKNOWLEDGED
        process.send_signal(signal.SIGTERM)
        result, cancelled = map(json.loads, process.stdout.read().splitlines())
        assert (result["id"], cancelled["params"]["requestId"]) == (1, 1)
        assert process.wait(timeout=20) == 0
