"""TLS on both event loops, by the standard library's contexts."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream

from mcp_tasks_trio import Application, HttpListener, ServerUnreachable, ToolContext, connect_http, serve_http
from runners.certificates import contexts_for_loopback
from runners.http_peer import Doors, HttpPeer, call, http_served
from runners.served import both_loops, run

TOKEN = {"progressToken": "p"}

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return contexts_for_loopback(tmp_path_factory.mktemp("certificates"))


def application(doors: Doors | None = None) -> Application:
    app = Application("test", version="1")

    @app.tool()
    async def echo(text: str) -> str:
        return text

    @app.tool()
    async def talk(context: ToolContext) -> str:
        await context.progress(1)
        if doors is not None:
            await doors.pass_through()
        return "done"

    return app


@both_loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_requests_and_streams_pass_through_tls(backend: str, version: ssl.TLSVersion, tmp_path: Path) -> None:
    server_context, client_context = contexts_for_loopback(tmp_path)
    client_context.maximum_version = client_context.minimum_version = version

    async def test() -> None:
        async with http_served(application(), ssl_context=server_context) as server:
            assert server.url.startswith("https://127.0.0.1:")
            async with server.peer(client_context) as peer:
                for size in (1, 1000, 3_000_000):
                    assert (await peer.answer(call("echo", {"text": "x" * size}))).text == "x" * size
                await peer.send(b"".join(call("echo", {"text": str(n)}) for n in range(5)))
                assert [(await peer.response()).text for _ in range(5)] == ["0", "1", "2", "3", "4"]
                await peer.send(call("talk", meta=TOKEN))
                await peer.stream_head()
                assert (await peer.event())["method"] == "notifications/progress"
                assert (await peer.event())["id"] == 1
                assert await peer.chunk() == b""
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("H8")
@pytest.mark.parametrize("way", ["reset", "closed"])
def test_a_client_that_goes_away_cancels_its_request_through_tls(backend: str, way: str, contexts: Contexts) -> None:
    async def test() -> None:
        doors = Doors()
        async with http_served(application(doors), ssl_context=contexts[0]) as server:
            async with server.peer(contexts[1]) as peer:
                await peer.send(call("talk", meta=TOKEN))
                await peer.stream_head()
                await doors.begun.wait()
                await (peer.reset() if way == "reset" else peer.aclose())
                await doors.cancelled.wait()
            await server.is_clean()

    run(backend, test)


@both_loops
def test_who_speaks_no_tls_or_breaks_it_off_harms_nobody(backend: str, contexts: Contexts) -> None:
    async def test() -> None:
        async with http_served(application(), ssl_context=contexts[0]) as server:
            async with server.peer() as plain, server.peer() as silent, server.peer() as broken:
                await plain.send(call("echo", {"text": "x"}))
                await plain.ended()
                await broken.send(b"\x16\x03\x01\x02\x00\x01\x00")
                await broken.reset()
                async with server.peer(contexts[1]) as peer:
                    assert (await peer.answer(call("echo", {"text": "x"}))).text == "x"
                await silent.reset()
            await server.is_clean()

    run(backend, test)


@both_loops
def test_bytes_that_come_one_by_one_make_the_same_connection(backend: str, contexts: Contexts) -> None:
    """The handshake, and the first request that comes with its end, cut anywhere."""

    async def test() -> None:
        async with http_served(application(), ssl_context=contexts[0]) as server:
            assert server.listener.port is not None
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = contexts[1].wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            async with await anyio.connect_tcp("127.0.0.1", server.listener.port) as stream:

                async def flush() -> None:
                    for byte in outgoing.read():
                        await stream.send(bytes([byte]))

                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        await flush()
                        incoming.write(await stream.receive())
                tls.write(call("echo", {"text": "behind the handshake"}))
                await flush()
                received = b""
                while b"behind the handshake" not in received:
                    try:
                        received += tls.read(65536)
                    except ssl.SSLWantReadError:
                        incoming.write(await stream.receive())

    run(backend, test)


@both_loops
def test_the_client_speaks_tls_and_trusts_nobody_by_itself(backend: str, contexts: Contexts) -> None:
    async def test() -> None:
        async with http_served(application(), ssl_context=contexts[0], allowed_hosts=()) as server:
            async with connect_http(server.url, ssl_context=contexts[1]) as client:
                assert (await client.call_tool("echo", {"text": "x" * 100_000})).text == "x" * 100_000
                assert (await client.call_tool("talk", on_progress=lambda progress: None)).text == "done"
            with pytest.raises(ServerUnreachable, match="certificate"):
                async with connect_http(server.url):
                    pass
            with socket.create_server(("127.0.0.1", 0)) as plain:
                port = plain.getsockname()[1]
                async with anyio.create_task_group() as group:
                    group.start_soon(_answer_in_plain_text, plain)
                    with pytest.raises(ServerUnreachable, match="TLS"):
                        async with connect_http(f"https://127.0.0.1:{port}/mcp", ssl_context=contexts[1]):
                            pass
                    group.cancel_scope.cancel()

    run(backend, test)


async def _answer_in_plain_text(listening: socket.socket) -> None:
    listening.setblocking(False)
    await anyio.wait_readable(listening)
    connection, _ = listening.accept()
    with connection:
        await anyio.wait_readable(connection)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await anyio.sleep_forever()


@both_loops
def test_a_connection_whose_handshake_ends_when_the_server_is_about_to_end_is_turned_away(
    backend: str, contexts: Contexts
) -> None:
    server_context, client_context = contexts

    async def test() -> None:
        doors, stop, started = Doors(), anyio.Event(), anyio.Event()
        listeners: list[HttpListener] = []

        def note(listener: HttpListener) -> None:
            listeners.append(listener)
            started.set()

        async def serve() -> None:
            await serve_http(
                application(doors),
                port=0,
                allowed_hosts=["localhost:80"],
                ssl_context=server_context,
                stop=stop,
                started=note,
                shutdown_grace_seconds=3600,
            )

        async def secured(raw: SocketStream) -> HttpPeer:
            return HttpPeer(await TLSStream.wrap(raw, hostname="127.0.0.1", ssl_context=client_context))

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await started.wait()
            port = listeners[0].port
            assert port is not None
            async with (
                await anyio.connect_tcp("127.0.0.1", port) as late,
                await anyio.connect_tcp("127.0.0.1", port) as one,
                await anyio.connect_tcp("127.0.0.1", port) as two,
            ):
                idle, busy = await secured(one), await secured(two)
                assert (await idle.answer(call("echo", {"text": "x"}))).text == "x"
                await busy.send(call("talk", meta=TOKEN))
                await doors.begun.wait()
                stop.set()
                assert await idle.ended() == b""
                served = listeners[0].connections
                turned_away = await secured(late)
                response = await turned_away.response()
                assert (response.status, response.fields["connection"]) == (503, "close")
                assert "about to end" in response.json["error"]["message"]
                assert await turned_away.ended() == b""
                assert listeners[0].connections <= served
                doors.open.set()
                await busy.stream_head()
                assert (await busy.event())["method"] == "notifications/progress"
                assert (await busy.event())["id"] == 1

    run(backend, test)
