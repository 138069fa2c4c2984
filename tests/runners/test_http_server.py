"""A whole server over real loopback sockets, on both event loops: answers, streams, ends, and pressure."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_http import HttpLimits
from mcp_tasks_trio import (
    Application,
    HttpSettings,
    ServerEngine,
    SyncToolContext,
    ToolContext,
    serve_http,
    serving_http,
)
from runners.http_peer import Doors, HttpPeer, call, http_served, post
from runners.served import WITHOUT_TASKS, both_loops, run

TOKEN = {"progressToken": "p"}


def application(doors: Doors | None = None, **options: Any) -> Application:
    app = Application("test", version="1", **options)

    @app.tool()
    async def echo(text: str) -> str:
        return text

    @app.tool()
    async def steps(context: ToolContext, count: int) -> str:
        for step in range(count):
            await context.progress(step + 1, total=count)
        return "done"

    @app.tool(task="always", ttl=timedelta(minutes=5))
    async def work(text: str) -> str:
        if doors is not None:
            await doors.pass_through()
        return "ok: " + text

    if doors is not None:

        @app.tool()
        async def wait() -> str:
            await doors.pass_through()
            return "went through"

        @app.tool()
        async def talk(context: ToolContext) -> str:
            await context.progress(1, total=2)
            await doors.pass_through()
            await context.progress(2, total=2)
            return "went through"

    return app


# --- forms of answers


@both_loops
@pytest.mark.spec("H1", "H3")
def test_requests_of_one_connection_are_answered_as_json_in_their_order(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server:
            async with server.peer() as peer:
                for number in range(3):
                    response = await peer.answer(call("echo", {"text": f"text {number}"}, request_id=number))
                    assert response.json["id"] == number
                    assert response.text == f"text {number}"
                    assert response.fields["content-type"] == "application/json"
                assert server.listener.connections == 1
            await server.is_clean()

    run(backend, test)


@both_loops
def test_requests_sent_in_one_piece_are_answered_in_one_piece(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            await peer.send(b"".join(call("echo", {"text": str(n)}, request_id=n) for n in range(20)))
            assert [(await peer.response()).text for _ in range(20)] == [str(n) for n in range(20)]

    run(backend, test)


@both_loops
def test_a_request_that_comes_byte_by_byte_is_answered_like_any_other(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            request = call("echo", {"text": "é✓"})
            for position in range(len(request)):
                await peer.send(request[position : position + 1])
                await anyio.lowlevel.checkpoint()
            assert (await peer.response()).text == "é✓"

    run(backend, test)


@both_loops
@pytest.mark.spec("H3")
def test_progress_makes_an_event_stream_that_ends_with_the_answer(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            for _ in range(2):
                await peer.send(call("steps", {"count": 3}, meta=TOKEN))
                head = await peer.stream_head()
                assert head.fields["x-accel-buffering"] == "no"
                assert head.fields["cache-control"] == "no-store"
                events = [await peer.event() for _ in range(4)]
                assert [event["params"]["progress"] for event in events[:3]] == [1, 2, 3]
                assert events[3]["result"]["content"][0]["text"] == "done"
                assert await peer.chunk() == b""

    run(backend, test)


@both_loops
@pytest.mark.spec("H3")
def test_a_quiet_stream_gets_comments_and_then_its_answer(backend: str) -> None:
    doors = Doors

    async def test() -> None:
        gate = doors()
        limits = HttpLimits(comment_interval_ms=20)
        async with http_served(application(gate), limits=limits) as server, server.peer() as peer:
            await peer.send(call("wait"))
            await peer.stream_head()
            assert [await peer.chunk() for _ in range(3)] == [b":\n\n"] * 3
            gate.open.set()
            assert (await peer.event())["result"]["content"][0]["text"] == "went through"

    run(backend, test)


@both_loops
@pytest.mark.spec("H4")
def test_a_notification_is_accepted_and_a_message_that_cannot_be_read_is_not(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            response = await peer.answer(post("notifications/anything", request_id=None))
            assert (response.status, response.body) == (202, b"")
            response = await peer.answer(post("tools/list", request_id=[]))
            assert (response.status, response.json["error"]["code"]) == (400, -32600)
            response = await peer.answer(post("tools/list", request_id=7))
            assert response.json["id"] == 7

    run(backend, test)


@both_loops
@pytest.mark.spec("H7", "D26")
def test_the_status_follows_the_error(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            response = await peer.answer(post("no/such"))
            assert (response.status, response.json["error"]["code"]) == (404, -32601)
            response = await peer.answer(post("tasks/get", {"taskId": "x"}, capabilities=WITHOUT_TASKS))
            assert (response.status, response.json["error"]["code"]) == (400, -32021)
            response = await peer.answer(post("tools/list", headers={"Mcp-Method": "tools/call"}))
            assert (response.status, response.json["error"]["code"]) == (400, -32020)
            response = await peer.answer(post("tools/list"))
            assert response.status == 200

    run(backend, test)


@both_loops
@pytest.mark.spec("H1")
def test_other_methods_paths_and_old_headers(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server:
            for method in ("GET", "DELETE", "PUT"):
                response = await server.ask(f"{method} /mcp HTTP/1.1\r\nHost: localhost:80\r\n\r\n".encode())
                assert (response.status, response.fields["allow"]) == (405, "POST")
            assert (await server.ask(post("tools/list", path="/other"))).status == 404
            old = {"Mcp-Session-Id": "s", "Last-Event-ID": "4"}
            response = await server.ask(call("echo", {"text": "x"}, headers=old))
            assert response.text == "x"
            assert "mcp-session-id" not in response.fields

    run(backend, test)


@both_loops
@pytest.mark.spec("H5", "H6")
def test_routing_headers_are_held_against_the_body(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server, server.peer() as peer:
            for wrong in ({"Mcp-Name": "other"}, {"Mcp-Name": "ECHO"}, {"Mcp-Name": "=?base64?!!?="}):
                response = await peer.answer(call("echo", {"text": "x"}, headers=wrong))
                assert (response.status, response.json["error"]["code"]) == (400, -32020), wrong
            encoded = {"Mcp-Name": "=?base64?ZWNobw==?="}
            assert (await peer.answer(call("echo", {"text": "x"}, headers=encoded))).text == "x"
            lower = call("echo", {"text": "x"}).replace(b"Mcp-Name", b"MCP-NAME")
            assert (await peer.answer(lower)).text == "x"

    run(backend, test)


@both_loops
@pytest.mark.spec("H10")
def test_annotated_arguments_are_held_against_their_headers(backend: str) -> None:
    async def test() -> None:
        app = Application("test", version="1")
        schema = {
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
            },
        }
        app.tool("annotated", input_schema=schema)(lambda arguments: json.dumps(arguments))
        async with http_served(app) as server, server.peer() as peer:
            arguments = {"region": "é", "count": 42}
            good = {"Mcp-Param-Region": "=?base64?w6k=?=", "mcp-param-count": "42.0"}
            assert json.loads((await peer.answer(call("annotated", arguments, headers=good))).text) == arguments
            for name, value in (("Mcp-Param-Region", "other"), ("mcp-param-count", "43")):
                response = await peer.answer(call("annotated", arguments, headers={**good, name: value}))
                assert (response.status, response.json["error"]["code"]) == (400, -32020)
            response = await peer.answer(call("annotated", arguments, headers={"mcp-param-count": "42"}))
            assert (response.status, response.json["error"]["code"]) == (400, -32020)

    run(backend, test)


# --- who may speak to it


@both_loops
@pytest.mark.spec("H2")
def test_a_foreign_origin_or_host_runs_nothing(backend: str) -> None:
    async def test() -> None:
        ran: list[str] = []
        app = Application("test", version="1")

        @app.tool()
        async def mark() -> str:
            ran.append("ran")
            return "ran"

        async with http_served(app, allowed_origins=["https://app.example.com", "http://localhost:*"]) as server:
            for fields in (
                {"Origin": "http://evil.example"},
                {"Origin": "null"},
                {"Origin": "http://localhost:8080.evil.com"},
                {"Origin": "https://app.example.com.evil.com"},
                {"Host": "rebound.example"},
                {"Host": f"evil.example:{server.listener.port}"},
            ):
                response = await server.ask(call("mark", headers=fields))
                assert response.status == 403, fields
            assert ran == []
            for fields in (
                {"Origin": "https://APP.example.com"},
                {"Origin": "http://localhost:3000"},
                {"Origin": f"http://127.0.0.1:{server.listener.port}"},
                {"Host": f"127.0.0.1:{server.listener.port}"},
            ):
                assert (await server.ask(call("mark", headers=fields))).text == "ran", fields
            assert len(ran) == 4

    run(backend, test)


@both_loops
@pytest.mark.spec("H2")
def test_a_server_that_others_can_reach_needs_a_resolver_or_the_operators_word(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(LocalProtocolError, match="owner_resolver"):
            HttpSettings(host=host)
    assert HttpSettings().host == "127.0.0.1"
    assert not HttpSettings(host="localhost").is_open

    async def test() -> None:
        with pytest.raises(LocalProtocolError, match="insecure_public"):
            await serve_http(application(), host="0.0.0.0", port=0)
        async with http_served(application(), host="0.0.0.0", insecure_public=True) as server:
            assert (await server.ask(call("echo", {"text": "x"}))).text == "x"

    run(backend, test)
    assert "everybody who reaches it" in caplog.text


def test_settings_that_cannot_be_are_refused_with_what_is_allowed() -> None:
    for settings in (
        {"port": -1},
        {"port": 65536},
        {"port": "80"},
        {"path": "mcp"},
        {"allowed_origins": "http://x"},
        {"allowed_origins": ["evil.example"]},
        {"allowed_hosts": ["http://x"]},
        {"connections_max": 0},
    ):
        with pytest.raises(LocalProtocolError):
            HttpSettings(**settings)  # type: ignore[arg-type]


# --- senders that know nothing of each other


@both_loops
@pytest.mark.spec("D41")
def test_ten_clients_that_all_use_the_same_id_get_each_their_own_answer(backend: str) -> None:
    async def test() -> None:
        gates = [Doors() for _ in range(10)]
        app = Application("test", version="1")

        @app.tool()
        async def numbered(number: int) -> str:
            await gates[number].pass_through()
            return f"number {number}"

        answers: dict[int, str] = {}
        async with http_served(app) as server:

            async def ask(number: int) -> None:
                answers[number] = (await server.ask(call("numbered", {"number": number}, request_id=1))).text

            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(ask, number)
                for gate in gates:
                    await gate.begun.wait()
                for gate in reversed(gates):
                    gate.open.set()
            assert answers == {number: f"number {number}" for number in range(10)}
            await server.is_clean()

    run(backend, test)


# --- clients that go away


async def _close_before_the_head_ends(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait")[:40])


async def _close_before_the_body_ends(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait")[:-5])


async def _close_at_once(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait"))


async def _close_during_work(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait"))
    await doors.begun.wait()


async def _close_between_events(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("talk", meta=TOKEN))
    await peer.stream_head()
    await peer.event()
    await doors.begun.wait()


async def _close_right_before_the_answer(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait"))
    await doors.begun.wait()
    doors.open.set()


async def _close_in_the_middle_of_reading_events(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("steps", {"count": 5000}, meta=TOKEN))
    await peer.stream_head()
    await peer.event()


async def _close_after_the_answer(peer: HttpPeer, doors: Doors) -> None:
    await peer.answer(call("echo", {"text": "x"}))


async def _close_with_a_request_behind_another(peer: HttpPeer, doors: Doors) -> None:
    await peer.send(call("wait") + call("echo", {"text": "never"}))
    await doors.begun.wait()


POINTS = [
    _close_before_the_head_ends,
    _close_before_the_body_ends,
    _close_at_once,
    _close_during_work,
    _close_between_events,
    _close_right_before_the_answer,
    _close_in_the_middle_of_reading_events,
    _close_after_the_answer,
    _close_with_a_request_behind_another,
]
WAITS = {_close_during_work, _close_between_events, _close_with_a_request_behind_another}


@both_loops
@pytest.mark.spec("H8")
@pytest.mark.parametrize("way", ["reset", "closed"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__.removeprefix("_close_"))
def test_a_client_that_goes_away_cancels_its_request_alone(
    backend: str, point: Any, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        doors = Doors()
        limits = HttpLimits(eof_comment_interval_ms=20)
        async with http_served(application(doors), limits=limits) as server:
            async with server.peer() as other, server.peer() as peer:
                await point(peer, doors)
                await (peer.reset() if way == "reset" else peer.aclose())
                if point in WAITS:
                    await doors.cancelled.wait()
                await server.until(lambda: server.listener.connections == 1)
                assert not server.engine.protocol.open_exchanges
                assert (await other.answer(call("echo", {"text": "still here"}))).text == "still here"
            await server.is_clean()

    run(backend, test)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


@both_loops
@pytest.mark.spec("H8")
def test_a_function_in_a_thread_sees_that_its_client_has_gone(backend: str) -> None:
    async def test() -> None:
        saw = threading.Event()
        app = application()

        @app.tool()
        def block(context: SyncToolContext) -> str:
            context.progress(1)
            never = threading.Event()
            while not context.cancel_requested:
                never.wait(0.001)
            saw.set()
            return "too late"

        async with http_served(app) as server:
            async with server.peer() as peer:
                await peer.send(call("block", meta=TOKEN))
                await peer.stream_head()
                assert (await peer.event())["method"] == "notifications/progress"
                await peer.reset()
            await server.is_clean()
            await server.until(saw.is_set)
            assert (await server.ask(call("echo", {"text": "next"}))).text == "next"

    run(backend, test)


@both_loops
@pytest.mark.spec("H8")
def test_work_outlives_the_connection_that_its_handle_was_read_from(backend: str) -> None:
    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors)) as server:
            async with server.peer() as peer:
                handle = (await peer.answer(call("work", {"text": "later"}))).result
                await doors.begun.wait()
                await peer.reset()
            await server.is_clean()
            doors.open.set()
            while True:
                task = (await server.ask(post("tasks/get", {"taskId": handle["taskId"]}))).result
                if task["status"] != "working":
                    break
            assert task["status"] == "completed"
            assert task["result"]["content"][0]["text"] == "ok: later"

    run(backend, test)


@both_loops
@pytest.mark.spec("D40")
@pytest.mark.parametrize("tool", ["echo", "wait", "steps"])
def test_a_client_that_only_sends_nothing_more_gets_its_answer(backend: str, tool: str) -> None:
    arguments = {"echo": {"text": "x"}, "wait": {}, "steps": {"count": 3}}[tool]

    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors)) as server, server.peer() as peer:
            await peer.send(call(tool, arguments, meta=TOKEN))
            await peer.send_eof()
            if tool == "wait":
                await doors.begun.wait()
                doors.open.set()
            if tool == "steps":
                await peer.stream_head()
                assert [event.get("id") for event in [await peer.event() for _ in range(4)]] == [None, None, None, 1]
                assert await peer.chunk() == b""
            else:
                assert (await peer.response()).text == ("x" if tool == "echo" else "went through")
            assert await peer.ended() == b""
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("D40")
def test_the_end_of_input_on_an_open_stream_is_answered_with_a_comment_at_once(backend: str) -> None:
    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors)) as server, server.peer() as peer:
            await peer.send(call("talk", meta=TOKEN))
            await peer.stream_head()
            await peer.event()
            await peer.send_eof()
            assert await peer.chunk() == b":\n\n"
            doors.open.set()
            assert (await peer.event())["params"]["progress"] == 2
            assert (await peer.event())["id"] == 1

    run(backend, test)


@both_loops
def test_a_client_that_reads_nothing_is_given_up_and_its_call_cancelled(backend: str) -> None:
    async def test() -> None:
        cancelled = anyio.Event()
        app = application()

        @app.tool()
        async def flood(context: ToolContext) -> str:
            try:
                for step in range(1_000_000):
                    await context.progress(step + 1, message="x" * 50_000)
                    await anyio.lowlevel.checkpoint()
            except anyio.get_cancelled_exc_class():
                cancelled.set()
                raise
            return "nobody cancelled"

        async with http_served(app, limits=HttpLimits(write_wait_ms=100)) as server, server.peer() as peer:
            await peer.send(call("flood", meta=TOKEN))
            await cancelled.wait()
            await server.is_clean()
            assert await peer.ended()

    run(backend, test)


@both_loops
def test_nothing_more_is_read_from_a_client_that_sends_on_behind_a_request(backend: str) -> None:
    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors)) as server, server.peer() as peer:
            request = call("echo", {"text": "x" * 10_000})
            await peer.send(call("wait"))
            await doors.begun.wait()
            sent = 0
            with anyio.move_on_after(0.5):
                for _ in range(2_000):
                    await peer.send(request)
                    sent += 1
            assert sent < 2_000
            doors.open.set()
            assert (await peer.response()).text == "went through"
            for _ in range(sent):
                assert len((await peer.response()).text) == 10_000

    run(backend, test)


# --- bounds


@both_loops
def test_idle_and_slow_connections_are_closed(backend: str) -> None:
    async def test() -> None:
        limits = HttpLimits(idle_wait_ms=50, head_wait_ms=50, body_wait_ms=50)
        async with http_served(application(), limits=limits) as server:
            async with server.peer() as idle, server.peer() as used, server.peer() as half, server.peer() as body:
                await half.send(b"POST /mcp HT")
                await body.send(call("echo", {"text": "x"})[:-1])
                assert (await used.answer(call("echo", {"text": "x"}))).text == "x"
                assert await idle.ended() == b""
                assert await used.ended() == b""
                assert (await half.response()).status == 408
                assert (await body.response()).status == 408
            await server.is_clean()

    run(backend, test)


@both_loops
def test_a_body_over_the_limit_is_refused_as_it_comes_and_the_refusal_can_be_read(backend: str) -> None:
    async def test() -> None:
        async with http_served(application(), limits=HttpLimits(body_bytes_max=1000)) as server:
            async with server.peer() as peer:
                response = await peer.answer(call("echo", {"text": "x" * 2000}))
                assert response.status == 413
            async with server.peer() as peer:
                head = call("echo").partition(b"\r\n\r\n")[0].replace(b"Content-Length: ", b"X-Length: ")
                await peer.send(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(8):  # it never says that it has ended
                    await peer.send(b"100\r\n" + b"x" * 256 + b"\r\n")
                assert (await peer.response()).status == 413
                assert await peer.ended() == b""
            await server.is_clean()

    run(backend, test)


@both_loops
def test_connections_beyond_the_limit_are_turned_away(backend: str) -> None:
    async def test() -> None:
        async with http_served(application(), connections_max=2) as server:
            async with server.peer() as first, server.peer() as second:
                for peer in (first, second):
                    assert (await peer.answer(call("echo", {"text": "in"}))).text == "in"
                async with server.peer() as third:
                    response = await third.response()
                    assert (response.status, response.fields["connection"]) == (503, "close")
            await server.is_clean()
            assert (await server.ask(call("echo", {"text": "in again"}))).text == "in again"

    run(backend, test)


# --- other sockets


@both_loops
def test_a_unix_socket_is_for_its_user_alone_and_goes_with_the_server(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "server.sock"

    async def test() -> None:
        async with http_served(application(), unix_socket=path, allowed_hosts=()) as server:
            assert server.listener.port is None
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            stream = await anyio.connect_unix(path)
            async with stream:
                peer = HttpPeer(stream)
                assert (await peer.answer(call("echo", {"text": "x"}))).text == "x"
            engine = ServerEngine(application())
            with pytest.raises(OSError, match="a server listens there"):
                async with serving_http(engine, unix_socket=path):
                    pass
        assert not path.exists()

    run(backend, test)


@both_loops
def test_a_socket_that_a_dead_server_left_is_replaced_and_a_file_is_not(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "server.sock"

    async def test() -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        async with http_served(application(), unix_socket=path):
            assert path.is_socket()
        path.write_text("precious")
        with pytest.raises(OSError, match="no socket"):
            await serve_http(application(), unix_socket=path)
        assert path.read_text() == "precious"

    run(backend, test)


@both_loops
def test_a_port_that_is_taken_says_so(backend: str) -> None:
    async def test() -> None:
        async with http_served(application()) as server:
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {server.listener.port}"):
                await serve_http(application(), port=server.listener.port)

    run(backend, test)


@both_loops
def test_localhost_is_every_address_that_it_stands_for_with_one_port(backend: str) -> None:
    async def test() -> None:
        async with http_served(application(), host="localhost", allowed_hosts=()) as server:
            port = server.listener.port
            found = await anyio.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
            for family, *_, address in found:
                if family == socket.AF_INET6 and not _has_ipv6():
                    continue
                async with await anyio.connect_tcp(address[0], port) as stream:
                    request = call("echo", {"text": "x"}, headers={"Host": f"localhost:{port}"})
                    assert (await HttpPeer(stream).answer(request)).text == "x"

    run(backend, test)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


# --- the end


@both_loops
def test_what_is_being_answered_is_answered_when_the_server_ends_and_nothing_new_is(backend: str) -> None:
    async def test() -> None:
        doors, stop, started = Doors(), anyio.Event(), anyio.Event()
        listeners = []
        app = application(doors)

        def note(listener: Any) -> None:
            listeners.append(listener)
            started.set()

        async def serve() -> None:
            await serve_http(
                app, port=0, allowed_hosts=["localhost:80"], stop=stop, started=note, shutdown_grace_seconds=10
            )

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await started.wait()
            port = listeners[0].port
            async with (
                await anyio.connect_tcp("127.0.0.1", port) as one,
                await anyio.connect_tcp("127.0.0.1", port) as two,
                await anyio.connect_tcp("127.0.0.1", port) as three,
            ):
                busy, idle, streaming = HttpPeer(one), HttpPeer(two), HttpPeer(three)
                assert (await idle.answer(call("echo", {"text": "x"}))).text == "x"
                await streaming.send(call("talk", meta=TOKEN))
                await streaming.stream_head()
                await streaming.event()
                await busy.send(call("wait"))
                await doors.begun.wait()
                stop.set()
                assert await idle.ended() == b""
                with pytest.raises(OSError, match=r"."):
                    await anyio.connect_tcp("127.0.0.1", port)
                doors.open.set()
                response = await busy.response()
                assert (response.text, response.fields["connection"]) == ("went through", "close")
                assert (await streaming.event())["params"]["progress"] == 2
                assert (await streaming.event())["id"] == 1
                assert await streaming.ended() == b"0\r\n\r\n"

    run(backend, test)


@both_loops
def test_what_is_not_answered_within_the_grace_is_cancelled(backend: str) -> None:
    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors), grace=0.05) as server, server.peer() as peer:
            await peer.send(call("wait"))
            await doors.begun.wait()
        assert doors.cancelled.is_set()

    run(backend, test)


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
@both_loops
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_server_process_with_status_0(backend: str, name: str, tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    script = tmp_path / "server.py"
    script.write_text(
        "import sys\n"
        "import anyio\n"
        "from mcp_tasks_trio import Application, run_http\n"
        "app = Application('test', version='1')\n"
        "@app.tool(task='always')\n"
        "async def forever() -> str:\n"
        "    await anyio.sleep_forever()\n"
        "    return ''\n"
        "def started(listener):\n"
        "    print(listener.port, flush=True)\n"
        "sys.exit(run_http(app, backend=sys.argv[1], port=0, allowed_hosts=['localhost:80'], started=started,"
        " shutdown_grace_seconds=1))\n"
    )
    process = subprocess.Popen([sys.executable, str(script), backend], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(call("forever"))
            assert b'"status":"working"' in connection.recv(65536)
            process.send_signal(getattr(signal, name))
            assert connection.recv(10) == b""
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()
