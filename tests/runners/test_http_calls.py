"""The client over HTTP: against a real server, and against one that does whatever a test wrote."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_trio import (
    Application,
    CallTimedOut,
    ClientError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    LegacyServer,
    RemoteError,
    ServerUnreachable,
    ToolContext,
    UnknownOutcome,
    bearer,
    connect_http,
)
from mcp_tasks_trio.client_http import open_http
from runners.fakes.scripted_http import FakeRequest, fake_server
from runners.http_peer import Doors, http_served
from runners.served import both_loops, run

PROMPTLY_SECONDS = 5  # far less than the quiet after which a server looks whether somebody is still there


async def unexpected(request: FakeRequest) -> None:
    raise AssertionError(f"the client sent {request.method}, which nobody asked for")


# --- with a real server


@both_loops
@pytest.mark.spec("H9")
def test_calls_progress_questions_and_tasks_as_over_any_transport(backend: str) -> None:
    async def test() -> None:
        app = Application("test", version="1")

        @app.tool()
        async def steps(context: ToolContext, count: int) -> str:
            for step in range(count):
                await context.progress(step + 1, total=count)
            return "é✓ done"

        @app.tool(task="always")
        async def ask(context: ToolContext) -> str:
            answer = await context.elicit("name", "Who?", {"name": {"type": "string"}})
            return f"hello {answer.content['name']}"

        async def on_input(request: Any) -> dict[str, Any]:
            return {"action": "accept", "content": {"name": "Ada"}}

        seen: list[float] = []
        config = ClientConfig(
            client_info={"name": "c", "version": "1"},
            capabilities={"elicitation": {"form": {}}},
            client_limits=ClientLimits(poll_interval_ms_max=100),
        )
        async with http_served(app, allowed_hosts=()) as server:
            async with connect_http(server.url, config=config) as client:
                assert client.server is not None
                assert [tool["name"] for tool in await client.list_tools()] == ["steps", "ask"]
                result = await client.call_tool("steps", {"count": 3}, on_progress=lambda p: seen.append(p.progress))
                assert (result.text, seen) == ("é✓ done", [1, 2, 3])
                result = await client.call_tool("ask", on_input=on_input)
                assert result.text == "hello Ada"
                assert result.task_id is not None
                with pytest.raises(RemoteError, match="Unknown tool"):
                    await client.call_tool("no such tool é")
                assert server.listener.connections == 1
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("H8", "H9")
@pytest.mark.parametrize("how", ["scope", "timeout", "task"])
def test_a_call_that_is_given_up_is_cancelled_at_the_server(backend: str, how: str) -> None:
    async def test() -> None:
        doors = Doors()
        app = Application("test", version="1")

        @app.tool()
        async def wait() -> str:
            await doors.pass_through()
            return "nobody cancelled"

        async with http_served(app, allowed_hosts=()) as server, connect_http(server.url) as client:
            if how == "timeout":
                with pytest.raises(CallTimedOut):
                    await client.call_tool("wait", timeout=0.05)
            elif how == "scope":
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, "wait")
                    await doors.begun.wait()
                    group.cancel_scope.cancel()
            else:
                await _cancelled_task(backend, client.call_tool, doors)
            with anyio.fail_after(PROMPTLY_SECONDS):
                await doors.cancelled.wait()
            await server.until(lambda: not server.engine.protocol.open_exchanges)
            assert (await client.list_tools())[0]["name"] == "wait"

    run(backend, test)


async def _cancelled_task(backend: str, call: Callable[[str], Awaitable[Any]], doors: Doors) -> None:
    """Cancelled in the way of the event loop itself."""
    if backend == "asyncio":
        task = asyncio.ensure_future(call("wait"))
        await doors.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    with trio.move_on_after(1000) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "wait")
            await doors.begun.wait()
            scope.cancel()


@both_loops
def test_a_task_that_its_caller_gives_up_is_cancelled_although_the_client_closes_at_once(backend: str) -> None:
    async def test() -> None:
        doors = Doors()
        app = Application("test", version="1")

        @app.tool(task="always")
        async def work() -> str:
            await doors.pass_through()
            return "nobody cancelled"

        async with http_served(app, allowed_hosts=()) as server:
            async with connect_http(server.url) as client, anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "work")
                await doors.begun.wait()
                group.cancel_scope.cancel()
            await doors.cancelled.wait()
            await server.is_clean()

    run(backend, test)


@both_loops
def test_many_calls_share_a_bounded_number_of_connections(backend: str) -> None:
    async def test() -> None:
        app = Application("test", version="1")

        @app.tool()
        async def echo(text: str) -> str:
            await anyio.lowlevel.checkpoint()
            return text

        async with http_served(app, allowed_hosts=()) as server:
            async with connect_http(server.url, connections_max=4) as client:
                answers: list[str] = []
                most = 0

                async def ask(number: int) -> None:
                    nonlocal most
                    answers.append((await client.call_tool("echo", {"text": str(number)})).text)
                    most = max(most, server.listener.connections)

                async with anyio.create_task_group() as group:
                    for number in range(100):
                        group.start_soon(ask, number)
                assert sorted(answers, key=int) == [str(number) for number in range(100)]
                assert 1 < most <= 4
            await server.is_clean()

    run(backend, test)


# --- what goes out


@both_loops
@pytest.mark.spec("H5", "H6", "H9")
def test_the_headers_of_each_request_say_what_its_body_says(backend: str) -> None:
    async def handler(request: FakeRequest) -> None:
        await request.text("x")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url, headers={"X-Extra": "1"}) as client:
            for name in ("plain", "", " edge ", "é", "=?base64?x?=", "tab\there", "new\nline"):
                await client.call_tool(name)
        discover, *calls = server.requests
        assert discover.fields[":line"] == "POST /mcp HTTP/1.1"
        assert discover.fields["accept"] == "application/json, text/event-stream"
        assert discover.fields["content-type"] == "application/json"
        assert discover.fields["mcp-method"] == "server/discover"
        assert discover.fields["mcp-protocol-version"] == "2026-07-28"
        assert "mcp-name" not in discover.fields
        assert {request.fields["x-extra"] for request in server.requests} == {"1"}
        assert [request.fields["mcp-name"] for request in calls] == [
            "plain",
            "",
            "=?base64?IGVkZ2Ug?=",
            "=?base64?w6k=?=",
            "=?base64?PT9iYXNlNjQ/eD89?=",
            "=?base64?dGFiCWhlcmU=?=",
            "=?base64?bmV3CmxpbmU=?=",
        ]
        assert server.connections == 1

    run(backend, test)


def annotated(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


REGION = {"type": "string", "x-mcp-header": "Region"}


@both_loops
@pytest.mark.spec("H9", "H12")
def test_annotated_arguments_go_into_headers_and_invalid_tools_out_of_the_list(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [
        annotated("good", region=REGION, count={"type": "integer", "x-mcp-header": "Count"}, free={"type": "string"}),
        annotated("bad", region={"type": "number", "x-mcp-header": "Region"}),
        annotated("twice", a=REGION, b={"type": "string", "x-mcp-header": "REGION"}),
        annotated("plain", free={"type": "string"}),
    ]

    async def handler(request: FakeRequest) -> None:
        if request.method == "tools/list":
            await request.result(tools=tools, ttlMs=0, cacheScope="private")
        else:
            await request.text("x")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            assert [tool["name"] for tool in await client.list_tools()] == ["good", "plain"]
            raw = await client.request("tools/list")
            assert [tool["name"] for tool in raw["tools"]] == ["good", "plain"]
            await client.call_tool("good", {"region": "é", "count": 7, "free": "x"})
            await client.call_tool("good", {"region": None, "free": "x"})
            await client.call_tool("plain", {"free": "x"})
            with pytest.raises(ClientError, match="count = 9007199254740993 cannot be repeated"):
                await client.call_tool("good", {"count": 2**53 + 1})
            await client.call_tool("plain")
        first, second, *others = server.of("tools/call")
        assert (first.fields["mcp-param-region"], first.fields["mcp-param-count"]) == ("=?base64?w6k=?=", "7")
        for request in (second, *others):
            assert not [name for name in request.fields if name.startswith("mcp-param-")]

    run(backend, test)
    assert "'bad' is left out" in caplog.text
    assert "'twice' is left out" in caplog.text


@both_loops
@pytest.mark.spec("H12")
def test_a_mismatch_of_a_parameter_makes_the_client_list_the_tools_and_try_once_more(backend: str) -> None:
    async def handler(request: FakeRequest) -> None:
        if request.method == "tools/list":
            await request.result(tools=[annotated("t", region=REGION)], ttlMs=0, cacheScope="private")
        elif "mcp-param-region" in request.fields:
            await request.text("in " + request.fields["mcp-param-region"])
        else:
            await request.error(-32020, "Header mismatch: Mcp-Param-Region is missing")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            assert (await client.call_tool("t", {"region": "here"})).text == "in here"
            assert (await client.call_tool("t", {"region": "there"})).text == "in there"
            assert [request.method for request in server.requests[1:]] == [
                "tools/call", "tools/list", "tools/call", "tools/call",
            ]  # fmt: skip

    run(backend, test)


@both_loops
@pytest.mark.spec("H12")
@pytest.mark.parametrize("listing", ["unchanged", "other", "failing"])
def test_a_mismatch_that_listing_does_not_mend_is_told_once(backend: str, listing: str) -> None:
    async def handler(request: FakeRequest) -> None:
        if request.method != "tools/list":
            await request.error(-32020, "Header mismatch")
        elif listing == "failing":
            await request.error(-32603, status=500)
        else:
            properties = {"region": REGION} if listing == "other" else {}
            await request.result(tools=[annotated("t", **properties)], ttlMs=0, cacheScope="private")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("t", {"region": "here"})
            assert caught.value.code == -32020
            assert len(server.of("tools/call")) == (2 if listing == "other" else 1)
            assert len(server.of("tools/list")) == 1

    run(backend, test)


@both_loops
def test_headers_that_are_not_the_callers_are_refused(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with fake_server(unexpected) as server:
            for headers in ({"Mcp-Method": "x"}, {"X": 1}):
                with pytest.raises(LocalProtocolError):
                    await open_http(server.url, headers=headers)  # type: ignore[arg-type]
            for headers in ({"Host": "x"}, {"X": "new\nline"}, {"X y": "x"}):
                with pytest.raises(ClientError):
                    await open_http(server.url, headers=headers)
            for url in ("ftp://x", "http://user:pass@x/mcp", "127.0.0.1:80", "http://x/#fragment"):
                with pytest.raises(LocalProtocolError):
                    await open_http(url)
            assert server.requests == []

            def broken() -> dict[str, str]:
                raise RuntimeError("the vault is closed")

            with pytest.raises(ClientError, match="the vault is closed"):
                await open_http(server.url, headers=broken)
        with pytest.raises(ClientError):
            await open_http("http://nosuch.invalid/mcp", headers=bearer("x"))

    run(backend, test)
    assert "without encryption" in caplog.text


# --- what comes in


def _event(data: str, end: str = "\n") -> str:
    return f"data: {data}{end}{end}"


async def _lf(request: FakeRequest, answer: str) -> None:
    await request.chunk(_event(answer))


async def _cr(request: FakeRequest, answer: str) -> None:
    await request.chunk(_event(answer, "\r"))


async def _crlf(request: FakeRequest, answer: str) -> None:
    await request.chunk(_event(answer, "\r\n"))


async def _comments_and_unknown_fields(request: FakeRequest, answer: str) -> None:
    await request.chunk(":\n: ka\n:data: x\nretry: 5\nid: 7\nunknown: y\nnocolon\n\n\n\n")
    await request.chunk("event: other\ndata: {}\n\n" + _event(answer))


async def _five_lines(request: FakeRequest, answer: str) -> None:
    lines = json.dumps(json.loads(answer), indent=1, ensure_ascii=False).split("\n")
    await request.chunk("".join(f"data:{line}\n" for line in lines) + "data:\n\n")


async def _byte_by_byte(request: FakeRequest, answer: str) -> None:
    for byte in _event(answer).encode():
        await request.chunk(bytes([byte]))


STREAMS = [_lf, _cr, _crlf, _comments_and_unknown_fields, _five_lines, _byte_by_byte]


@both_loops
@pytest.mark.spec("H9")
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.__name__.strip("_"))
def test_event_streams_are_read_in_every_form_and_their_connection_is_used_again(backend: str, stream: Any) -> None:
    text = "é \u2028 \u2029 \u0085 end"

    async def handler(request: FakeRequest) -> None:
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result}, ensure_ascii=False)
        await request.begin_stream()
        await stream(request, answer)
        await request.raw(b"0\r\n\r\n")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            for _ in range(3):
                assert (await client.call_tool("t")).text == text
            assert server.connections == 1
            assert not [name for request in server.requests for name in request.fields if "last-event" in name]

    run(backend, test)


@both_loops
def test_a_stream_that_stays_open_behind_its_answer_holds_up_nobody(backend: str) -> None:
    async def handler(request: FakeRequest) -> None:
        if request.params["name"] == "open":
            await request.begin_stream()
            await request.chunk(_event(request.answer(result={"content": [], "resultType": "complete"})))
            await anyio.sleep_forever()
        await request.text("x")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            assert (await client.call_tool("open")).content == []
            assert (await client.call_tool("other")).text == "x"
            assert [request.connection for request in server.requests] == [1, 1, 2]

    run(backend, test)


async def _refuse_with_500(request: FakeRequest) -> None:
    await request.respond("<html>Oops\x1b[31m</html>", status=500, content_type="text/html")


async def _refuse_with_504(request: FakeRequest) -> None:
    await request.respond("", status=504, content_type="text/plain")


async def _html(request: FakeRequest) -> None:
    await request.respond("<html>Please log in</html>", content_type="text/html")


async def _redirect(request: FakeRequest) -> None:
    await request.respond("", status=302, Location="https://elsewhere.example/mcp")


async def _json_404(request: FakeRequest) -> None:
    await request.respond('{"detail": "Not Found"}', status=404)


async def _no_json(request: FakeRequest) -> None:
    await request.respond("{nonsense")


async def _empty(request: FakeRequest) -> None:
    await request.respond("")


async def _accepted(request: FakeRequest) -> None:
    await request.raw(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")


async def _no_content(request: FakeRequest) -> None:
    await request.raw(b"HTTP/1.1 204 No Content\r\n\r\n")


async def _stream_without_answer(request: FakeRequest) -> None:
    await request.begin_stream()
    await request.chunk(": nothing\n\n")
    await request.raw(b"0\r\n\r\n")


async def _stream_of_notices(request: FakeRequest) -> None:
    await request.begin_stream()
    progress = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "secret"}}
    await request.chunk(_event(json.dumps(progress)))
    await request.raw(b"0\r\n\r\n")


async def _stream_cut_in_an_event(request: FakeRequest) -> None:
    await request.begin_stream()
    await request.chunk("data: " + request.answer(result={"content": []}))
    await request.raw(b"0\r\n\r\n")


async def _stream_cut(request: FakeRequest) -> None:
    await request.begin_stream()
    await request.close()


async def _stream_reset(request: FakeRequest) -> None:
    await request.begin_stream()
    await request.chunk(": something\n\n")
    await _reset(request)


async def _nothing(request: FakeRequest) -> None:
    await request.close()


async def _reset(request: FakeRequest) -> None:
    raw: socket.socket = request.stream.extra(anyio.abc.SocketAttribute.raw_socket)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    await anyio.aclose_forcefully(request.stream)


async def _half_a_body(request: FakeRequest) -> None:
    await request.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"json')
    await request.close()


async def _no_http(request: FakeRequest) -> None:
    await request.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await request.close()


async def _somebody_elses_answer(request: FakeRequest) -> None:
    await request.respond(json.dumps({"jsonrpc": "2.0", "id": 999, "result": {"content": []}}))


FAILURES: list[tuple[Any, type[ClientError], str]] = [
    (_refuse_with_500, HttpError, "status 500.*Oops"),
    (_refuse_with_504, HttpError, "status 504"),
    (_html, HttpError, "Please log in"),
    (_redirect, HttpError, "elsewhere"),
    (_json_404, HttpError, "status 404.*Not Found"),
    (_no_json, InvalidResponse, "nonsense"),
    (_empty, InvalidResponse, "without an answer"),
    (_accepted, InvalidResponse, "202"),
    (_no_content, InvalidResponse, "204"),
    (_stream_without_answer, InvalidResponse, "without an answer"),
    (_stream_of_notices, InvalidResponse, "invalid: the server ended the stream without a result$"),
    (_stream_cut_in_an_event, InvalidResponse, "without an answer"),
    (_stream_cut, ConnectionLost, "before the response did"),
    (_stream_reset, ConnectionLost, "before the response did"),
    (_nothing, ConnectionLost, "before the response did"),
    (_reset, ConnectionLost, "before the response did"),
    (_half_a_body, ConnectionLost, "before the response did"),
    (_no_http, InvalidResponse, "not valid HTTP"),
    (_somebody_elses_answer, InvalidResponse, "without an answer"),
]


@both_loops
@pytest.mark.spec("D26", "H9")
@pytest.mark.parametrize(
    ("failure", "kind", "text"), FAILURES, ids=[failure.__name__.strip("_") for failure, _, _ in FAILURES]
)
def test_a_response_without_an_answer_fails_its_call_at_once_and_no_other(
    backend: str, failure: Any, kind: type[ClientError], text: str
) -> None:
    async def test() -> None:
        all_there = anyio.Event()

        async def handler(request: FakeRequest) -> None:
            if len(server.of("tools/call")) == 10:
                all_there.set()
            await all_there.wait()
            if request.params["name"] == "5":
                await failure(request)
            else:
                await request.text(request.params["name"])

        outcomes: dict[int, str | Exception] = {}

        async with fake_server(handler) as server, connect_http(server.url) as client:

            async def ask(number: int) -> None:
                try:
                    outcomes[number] = (await client.call_tool(str(number))).text
                except Exception as error:
                    outcomes[number] = error

            begun = time.monotonic()
            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(ask, number)
            assert time.monotonic() - begun < 5
            caught = outcomes.pop(5)
            assert type(caught) is kind, repr(caught)
            with pytest.raises(kind, match=text):
                raise caught
            assert "\x1b" not in str(caught)
            assert outcomes == {number: str(number) for number in range(10) if number != 5}
            assert len(server.of("tools/call")) == 10  # nothing was sent twice
            assert (await client.call_tool("later")).text == "later"

    run(backend, test)


@both_loops
@pytest.mark.spec("C8")
@pytest.mark.parametrize("what", ["tools/call", "tools/list", "tasks/get", "server/discover"])
def test_a_handle_where_none_can_be_is_an_error_that_names_its_task_and_is_not_polled(backend: str, what: str) -> None:
    task = {"taskId": "t-7", "status": "working", "ttlMs": None, "pollIntervalMs": 100}
    moments = dict.fromkeys(("createdAt", "lastUpdatedAt"), "2026-07-28T10:00:00Z")

    async def handler(request: FakeRequest) -> None:
        if request.method == what:
            await request.result(**{**task, **moments, "resultType": "task"})
        else:
            await request.result()

    async def test() -> None:
        config = ClientConfig(cancel_unasked_tasks=True)
        async with (
            fake_server(handler, discover=False) as server,
            connect_http(server.url, config=config, probe=False) as client,
        ):
            asked = {
                "tools/call": lambda: client.call_tool("t", tasks=False),
                "tools/list": client.list_tools,
                "tasks/get": lambda: client.request("tasks/get", {"taskId": "t-7"}),
                "server/discover": client.discover,
            }
            with pytest.raises(InvalidResponse) as caught:
                await asked[what]()
            assert caught.value.task_id == "t-7"
            await server.until(lambda: bool(server.of("tasks/cancel")))
            assert server.of("tasks/cancel")[0].params["taskId"] == "t-7"
            assert len(server.of("tasks/get")) == (what == "tasks/get")

    run(backend, test)


@both_loops
@pytest.mark.spec("D26")
@pytest.mark.parametrize("status", [200, 400, 404, 500, 503])
def test_an_error_is_read_at_any_status(backend: str, status: int) -> None:
    async def handler(request: FakeRequest) -> None:
        if request.params["name"] == "stream":
            await request.begin_stream()
            await request.chunk(_event(request.answer(error={"code": -32602, "message": "no such thing"})))
            await request.raw(b"0\r\n\r\n")
        elif request.params["name"] == "without id":
            await request.respond(
                '{"jsonrpc": "2.0", "error": {"code": -32602, "message": "no such thing"}}', status=status
            )
        else:
            await request.error(-32602, "no such thing", status=status, data={"more": 1})

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            for name in ("body", "stream", "without id"):
                with pytest.raises(RemoteError, match="no such thing") as caught:
                    await client.call_tool(name)
                assert caught.value.code == -32602

    run(backend, test)


# --- connections that do not come about, or do not last


@both_loops
def test_a_server_that_cannot_be_reached_says_so_with_an_ordinary_exception(backend: str) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        for url, text in (
            (f"http://127.0.0.1:{port}/mcp", "Connection refused"),
            ("http://nosuch.invalid/mcp", "nosuch.invalid"),
        ):
            with pytest.raises(ServerUnreachable, match=text) as caught:
                async with connect_http(url):
                    pass
            assert isinstance(caught.value, Exception)

    run(backend, test)


@both_loops
def test_a_server_of_another_kind_is_named(backend: str) -> None:
    async def legacy(request: FakeRequest) -> None:
        await request.error(-32601, "Method not found", status=404)

    async def wrong_path(request: FakeRequest) -> None:
        await request.error(-32600, "nothing is at this path: the endpoint is /mcp", status=404)

    async def test() -> None:
        async with fake_server(wrong_path, discover=False) as server:
            with pytest.raises(HttpError, match=r"^nothing is at this path: the endpoint is /mcp") as caught:
                await open_http(server.url)
            assert caught.value.status == 404
        async with fake_server(legacy, discover=False) as server:
            with pytest.raises(LegacyServer):
                await open_http(server.url)
        async with fake_server(_html, discover=False) as server:
            with pytest.raises(HttpError, match="Please log in"):
                await open_http(server.url)
        async with fake_server(lambda request: anyio.sleep_forever(), discover=False) as server:
            with pytest.raises(LegacyServer, match="did not answer"):
                await open_http(server.url, probe_timeout=0.05)

    run(backend, test)


@both_loops
@pytest.mark.parametrize(("method", "sent"), [("tools/list", 2), ("tasks/get", 2), ("tools/call", 1), ("x/unknown", 1)])
def test_only_reads_are_sent_again_when_a_kept_connection_turns_out_to_be_dead(
    backend: str, method: str, sent: int
) -> None:
    """The server takes the request on the kept connection and closes it without a word, as it may at any moment."""

    async def handler(request: FakeRequest) -> None:
        if request.connection == 1:
            await request.close()
        await request.result(tools=[], ttlMs=0, cacheScope="private")

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            params = {"tools/call": {"name": "t"}, "tasks/get": {"taskId": "x"}}.get(method, {})
            if sent == 2:
                assert "tools" in await client.request(method, params)
            else:
                with pytest.raises(ConnectionLost):
                    await client.request(method, params)
            assert len(server.of(method)) == sent

    run(backend, test)


@both_loops
def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used_for_anything(backend: str) -> None:
    async def handler(request: FakeRequest) -> None:
        await request.text(str(request.connection))
        if request.params["name"] == "last":
            await request.close()

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            assert (await client.call_tool("first")).text == "1"
            assert (await client.call_tool("last")).text == "1"
            await server.until(lambda: server.closed == 1)
            assert (await client.call_tool("next")).text == "2"
            assert len(server.of("tools/call")) == 3

    run(backend, test)


@both_loops
def test_an_answer_that_was_never_acknowledged_is_not_sent_again(backend: str) -> None:
    def state(request: FakeRequest, **members: Any) -> dict[str, Any]:
        task = {"taskId": "t", "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        return {**task, "ttlMs": None, "pollIntervalMs": 100, **members}

    question = {
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
    }

    async def handler(request: FakeRequest) -> None:
        match request.method:
            case "tools/call":
                await request.result(**state(request, resultType="task", status="working"))
            case "tasks/get":
                await request.result(**state(request, status="input_required", inputRequests={"q": question}))
            case _:
                await request.close()

    async def answer(request: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {}}

    async def test() -> None:
        async with fake_server(handler) as server, connect_http(server.url) as client:
            with pytest.raises(UnknownOutcome):
                await client.call_tool("t", on_input=answer)
            assert len(server.of("tasks/update")) == 1

    run(backend, test)


# --- the end


@both_loops
def test_clients_close_in_any_order_from_any_task_and_twice(backend: str) -> None:
    async def handler(request: FakeRequest) -> None:
        await request.text("x")

    async def test() -> None:
        async with fake_server(handler) as server:
            first, second = await open_http(server.url), await open_http(server.url)
            await first.aclose()
            assert (await second.call_tool("t")).text == "x"
            async with anyio.create_task_group() as group:
                group.start_soon(second.aclose)
                group.start_soon(second.aclose)
            await second.aclose()
            with pytest.raises(ConnectionLost, match="closed"):
                await second.call_tool("t")
            await server.until(lambda: server.closed == server.connections)
            await open_http(server.url)  # and one that nobody closes ends with its loop

    run(backend, test)


@both_loops
def test_what_is_pending_when_the_client_closes_fails_and_its_stream_is_closed(backend: str) -> None:
    async def test() -> None:
        async with fake_server(lambda request: anyio.sleep_forever()) as server:
            client = await open_http(server.url)
            failures: list[Exception] = []

            async def ask() -> None:
                try:
                    await client.call_tool("t")
                except ClientError as error:
                    failures.append(error)

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await server.until(lambda: bool(server.of("tools/call")))
                await client.aclose()
            assert [type(error) for error in failures] == [ConnectionLost]

    run(backend, test)


@both_loops
def test_an_idle_client_closes_its_connections_and_costs_nothing(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: FakeRequest) -> None:
        await request.text("x")

    async def test() -> None:
        async with fake_server(handler) as server:
            client = await open_http(server.url)
            async with anyio.create_task_group() as group:
                for number in range(5):
                    group.start_soon(client.call_tool, str(number))
            busy = time.process_time()
            await server.until(lambda: server.closed == server.connections)
            assert time.process_time() - busy < 0.5
            assert (await client.call_tool("t")).text == "x"
            await client.aclose()

    run(backend, test)


@both_loops
def test_headers_are_never_logged(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with fake_server(_refuse_with_500) as server:
            async with connect_http(server.url, headers=bearer("s3cret")) as client:
                with pytest.raises(HttpError):
                    await client.call_tool("t")
            assert server.requests[-1].fields["authorization"] == "Bearer s3cret"

    with caplog.at_level(logging.DEBUG):
        run(backend, test)
    assert "s3cret" not in caplog.text
