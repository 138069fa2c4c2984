"""A whole server on pipes, files and sockets, on both event loops: order, cancellation, ends, and pressure."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_tasks_trio import Application, ServerEngine, SyncToolContext, ToolContext, serve_pipes
from runners.served import CAPABILITIES, Peer, both_loops, message, run, served

LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def application(**options: Any) -> Application:
    app = Application("test", version="1", **options)

    @app.tool()
    async def echo(text: str) -> str:
        return text

    return app


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


class Doors:
    """Lets a test know when a tool has begun, and lets the tool end."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.open = anyio.Event()

    async def pass_through(self) -> None:
        self.begun.set()
        await self.open.wait()


@both_loops
@pytest.mark.spec("I4")
def test_a_slow_request_never_holds_up_anothers_answer(backend: str) -> None:
    app = application()

    async def test() -> None:
        doors = Doors()

        @app.tool()
        async def slow() -> str:
            await doors.pass_through()
            return "slow"

        thread_may_go = threading.Event()

        @app.tool()
        def slow_in_thread() -> str:
            thread_may_go.wait()
            return "slow in thread"

        async with served(app) as server:
            first = await server.peer.start("tools/call", {"name": "slow"})
            second = await server.peer.start("tools/call", {"name": "slow_in_thread"})
            await doors.begun.wait()
            assert text_of(await server.peer.call("echo", {"text": "quick"})) == "quick"
            assert server.peer.unclaimed == []
            thread_may_go.set()
            assert text_of((await server.peer.answer_to(second))["result"]) == "slow in thread"
            doors.open.set()
            assert text_of((await server.peer.answer_to(first))["result"]) == "slow"

    run(backend, test)


@both_loops
@pytest.mark.spec("L1")
def test_progress_of_a_call_is_sent_with_its_token_alone_and_only_upwards(backend: str) -> None:
    app = application()

    @app.tool()
    async def work(context: ToolContext) -> str:
        for progress in (1, 2.5, 2.5, 2, 3):
            await context.progress(progress, total=3, message=f"at {progress}")
        return "done"

    @app.tool()
    def work_in_thread(context: SyncToolContext) -> str:
        context.progress(1)
        context.progress(2)
        return "done"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            await peer.call("work")
            assert peer.unclaimed == []
            for token in ("t", 7, ""):
                request_id = await peer.start("tools/call", {"name": "work"}, progressToken=token)
                received = [await peer.next() for _ in range(4)]
                assert [m.get("method") for m in received] == ["notifications/progress"] * 3 + [None]
                assert [m["params"]["progress"] for m in received[:3]] == [1, 2.5, 3]
                assert all(m["params"]["progressToken"] == token for m in received[:3])
                assert received[0]["params"] == {"progressToken": token, "progress": 1, "total": 3, "message": "at 1"}
                assert received[3]["id"] == request_id
            request_id = await peer.start("tools/call", {"name": "work_in_thread"}, progressToken="t")
            received = [await peer.next() for _ in range(3)]
            assert [m["params"]["progress"] for m in received[:2]] == [1, 2]
            assert received[2]["id"] == request_id

    run(backend, test)


@both_loops
@pytest.mark.spec("L2")
def test_log_messages_go_only_to_requests_that_ask_for_their_level(backend: str) -> None:
    app = application()

    @app.tool()
    async def work(context: ToolContext) -> str:
        for level in ("debug", "info", "warning", "emergency"):
            await context.log(level, {"level": level}, logger="work")
        return "done"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            await peer.call("work")
            assert peer.unclaimed == []
            await peer.call("work", **{LOG_LEVEL: "warning"})
            assert [m["params"] for m in peer.unclaimed] == [
                {"level": level, "data": {"level": level}, "logger": "work"} for level in ("warning", "emergency")
            ]
            assert (await peer.error("tools/call", {"name": "work"}, **{LOG_LEVEL: "loud"}))["code"] == -32602

    run(backend, test)


@both_loops
@pytest.mark.spec("I2")
def test_a_cancelled_request_stops_its_tool_and_gets_no_answer(backend: str) -> None:
    app = application()
    seen: list[str] = []

    async def test() -> None:
        doors = Doors()
        thread_begun, thread_ended = threading.Event(), anyio.Event()

        @app.tool()
        async def slow(context: ToolContext) -> str:
            try:
                await doors.pass_through()
            finally:
                seen.append(f"slow: {context.cancel_requested}")
            return "slow"

        @app.tool()
        def slow_in_thread(context: SyncToolContext) -> str:
            thread_begun.set()
            waited = threading.Event()
            while not context.cancel_requested:
                waited.wait(0.001)
            seen.append("thread: True")
            return "slow"

        async with served(app) as server:
            peer = server.peer
            first = await peer.start("tools/call", {"name": "slow"}, progressToken="t")
            second = await peer.start("tools/call", {"name": "slow_in_thread"})
            await doors.begun.wait()
            while not thread_begun.is_set():
                await peer.call("echo", {"text": ""})
            await peer.cancel(first)
            await peer.cancel(second)
            await peer.cancel(first)
            await peer.cancel(99_999)
            odd: list[Any] = [None, [], {}, 1.5, True, "1"]
            await peer.send(
                *({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": i}} for i in odd),
                {"jsonrpc": "2.0", "method": "notifications/cancelled"},
            )
            while len(seen) < 2:
                await peer.call("echo", {"text": ""})
            doors.open.set()
            assert text_of(await peer.call("echo", {"text": "alive"})) == "alive"
            assert peer.unclaimed == []
            thread_ended.set()
        assert sorted(seen) == ["slow: True", "thread: True"]

    run(backend, test)


@both_loops
@pytest.mark.spec("I2")
def test_a_thousand_racing_cancels_leave_a_working_server(backend: str) -> None:
    app = application()

    @app.tool()
    async def quick(turns: int) -> str:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        return "quick"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            cancelled = set()
            for n in range(1_000):
                request_id = await peer.start("tools/call", {"name": "quick", "arguments": {"turns": n % 7}})
                cancelled.add(request_id)
                if n % 3:
                    await anyio.lowlevel.checkpoint()
                await peer.cancel(request_id)
            assert text_of(await peer.call("echo", {"text": "alive"})) == "alive"
            ids = [m["id"] for m in peer.unclaimed]
            assert len(ids) == len(set(ids)), "a request has two answers"
            assert cancelled.issuperset(ids)
            assert server.engine.protocol.open_exchanges == []

    run(backend, test)


@both_loops
@pytest.mark.spec("X3", "I2")
def test_work_outlives_the_cancellation_of_the_request_that_made_it(backend: str) -> None:
    app = application()

    async def test() -> None:
        doors = Doors()

        @app.tool(task="always")
        async def work() -> str:
            await doors.pass_through()
            return "done"

        async with served(app) as server:
            peer = server.peer
            request_id = await peer.start("tools/call", {"name": "work"})
            task_id = (await peer.answer_to(request_id))["result"]["taskId"]
            await doors.begun.wait()
            await peer.cancel(request_id)
            assert (await peer.task(task_id))["status"] == "working"
            doors.open.set()
            assert text_of((await peer.task_in(task_id, "completed"))["result"]) == "done"

    run(backend, test)


@both_loops
@pytest.mark.spec("I5", "B1")
def test_a_large_message_is_served_and_one_over_the_limit_is_refused_alone(backend: str) -> None:
    app = application()

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            text = "x" * (10 * 1024 * 1024) + "\u2028✓"
            assert text_of(await peer.call("echo", {"text": text})) == text

            async def flood() -> None:
                await peer.send_bytes(b"y" * (17 * 1024 * 1024) + b"\n")

            async with anyio.create_task_group() as group:
                group.start_soon(flood)
                assert (await peer.next())["error"]["code"] == -32600
            assert text_of(await peer.call("echo", {"text": "alive"})) == "alive"

    run(backend, test)


@both_loops
@pytest.mark.spec("I1")
def test_lines_end_with_a_newline_alone_and_a_carriage_return_before_it_is_accepted(backend: str) -> None:
    app = application()

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            request = {
                **message("tools/call", {"name": "echo", "arguments": {"text": "a\nb\r"}}, CAPABILITIES),
                "id": "x",
            }
            await peer.send_bytes(json.dumps(request).encode() + b"\r\n")
            line = await peer.line()
            assert b"\r" not in line
            assert text_of(json.loads(line)["result"]) == "a\nb\r"

    run(backend, test)


@both_loops
@pytest.mark.spec("I1", "B7")
def test_bytes_that_are_no_message_are_answered_and_the_channel_lives_on(backend: str) -> None:
    app = application()

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            for junk in (b"\xff\xfe", b"garbage", b'{"a": "\xed\xa0\x80"}', b"\x00"):
                await peer.send_bytes(junk + b"\n")
                answer = await peer.next()
                assert answer["error"]["code"] == -32700
                assert "id" not in answer
            assert text_of(await peer.call("echo", {"text": "alive"})) == "alive"

    run(backend, test)


@both_loops
def test_requests_are_not_read_while_their_answers_are_not(backend: str) -> None:
    app = application()
    handled: list[int] = []

    @app.tool()
    async def take(text: str) -> str:
        handled.append(len(text))
        return text

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            text = "x" * 32_768

            async def send_all() -> None:
                for _ in range(1_000):
                    await peer.start("tools/call", {"name": "take", "arguments": {"text": text}})

            async with anyio.create_task_group() as group:
                group.start_soon(send_all)
                await anyio.sleep(0.3)  # the writer blocks; only a server that reads on without end would go on
                assert len(handled) < 200
                for _ in range(1_000):
                    assert text_of((await peer.next())["result"]) == text
            assert len(handled) == 1_000

    run(backend, test)


# --- how it ends


@both_loops
@pytest.mark.spec("I3")
def test_at_the_end_of_its_input_a_server_still_answers_what_it_can(backend: str) -> None:
    app = application()

    async def test() -> None:
        doors = Doors()

        @app.tool()
        async def slow() -> str:
            await doors.pass_through()
            return "slow"

        async with served(app, eof_grace_seconds=15) as server:
            request_id = await server.peer.start("tools/call", {"name": "slow"})
            await doors.begun.wait()
            server.peer.close_input()
            doors.open.set()
            assert text_of((await server.peer.answer_to(request_id))["result"]) == "slow"
            await server.ended.wait()

    run(backend, test)


@both_loops
@pytest.mark.spec("I3")
def test_what_cannot_be_finished_in_the_grace_is_cancelled(backend: str) -> None:
    app = application()
    ended: list[str] = []

    @app.tool()
    async def endless() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("inline")

    @app.tool(task="always")
    async def endless_task() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("task")

    @app.tool()
    def endless_thread(context: SyncToolContext) -> None:
        waited = threading.Event()
        while not context.cancel_requested:
            waited.wait(0.001)

    async def test() -> None:
        async with served(app, eof_grace_seconds=0.01) as server:
            await server.peer.call("endless_task")
            await server.peer.start("tools/call", {"name": "endless"})
            await server.peer.start("tools/call", {"name": "endless_thread"})
            await server.peer.call("echo", {"text": ""})
            server.peer.close_input()
            await server.ended.wait()
        assert sorted(ended) == ["inline", "task"]

    run(backend, test)


@both_loops
@pytest.mark.spec("I3")
@pytest.mark.parametrize("idle", [True, False])
def test_a_server_whose_output_nobody_reads_any_longer_ends(backend: str, idle: bool) -> None:
    app = application()

    async def test() -> None:
        to_server, from_client = os.pipe()
        to_client, from_server = os.pipe()
        engine = ServerEngine(app)
        peer = Peer(to_client, from_client)

        async def serve() -> None:
            await serve_pipes(engine, to_server, from_server)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await peer.call("echo", {"text": "x"})
            os.close(to_client)
            if not idle:
                await peer.start("tools/call", {"name": "echo", "arguments": {"text": "x"}})
            await anyio.sleep_forever()
        peer.close_input()
        os.close(to_server)
        os.close(from_server)

    run(backend, test)


@both_loops
@pytest.mark.spec("I3")
@pytest.mark.parametrize("source", ["file", "null", "socket"])
def test_input_and_output_may_be_anything_that_has_a_descriptor(backend: str, source: str, tmp_path: Path) -> None:
    app = application()
    requests = [
        {**message("tools/call", {"name": "echo", "arguments": {"text": str(n)}}, CAPABILITIES), "id": n}
        for n in range(3)
    ]
    data = b"".join(json.dumps(r).encode() + b"\n" for r in requests)
    expected = {str(n) for n in range(3)} if source != "null" else set()

    async def through_files() -> bytes:
        (tmp_path / "in").write_bytes(data)
        name = os.devnull if source == "null" else str(tmp_path / "in")
        input_fd = os.open(name, os.O_RDONLY)
        output_fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        await serve_pipes(ServerEngine(app), input_fd, output_fd)
        os.close(input_fd)
        os.close(output_fd)
        return (tmp_path / "out").read_bytes()

    async def through_a_socket() -> bytes:
        ours, theirs = socket.socketpair()
        output_fd = os.dup(theirs.fileno())
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        await serve_pipes(ServerEngine(app), theirs.fileno(), output_fd)
        os.close(output_fd)
        theirs.close()
        received = b""
        while more := ours.recv(65_536):
            received += more
        ours.close()
        return received

    async def test() -> None:
        received = await (through_a_socket() if source == "socket" else through_files())
        answers = [json.loads(line) for line in received.splitlines()]
        assert {text_of(answer["result"]) for answer in answers} == expected

    run(backend, test)


@both_loops
@pytest.mark.spec("I3")
def test_half_a_line_at_the_end_of_the_input_is_refused_and_not_run(backend: str) -> None:
    app = application()

    async def test() -> None:
        async with served(app) as server:
            await server.peer.send_bytes(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"')
            server.peer.close_input()
            assert (await server.peer.next())["error"]["code"] == -32700
            await server.ended.wait()

    run(backend, test)
