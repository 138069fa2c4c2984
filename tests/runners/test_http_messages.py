"""Messages with something wrong in them over HTTP: which error with which status, nothing run, the connection kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from mcp_tasks_core.capabilities import TASKS_EXTENSION
from mcp_tasks_trio import Application, ToolContext
from runners.http_peer import HttpPeer, call, http_served, post
from runners.served import WITHOUT_TASKS, both_loops, message, run

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
Change = Callable[[dict[str, Any]], Any]


def marking(ran: list[str], **options: Any) -> Application:
    """An application that writes down what it did."""
    app = Application("test", version="1", **options)

    @app.tool(input_schema={"type": "object"}, task="never")
    async def mark(arguments: dict[str, Any]) -> dict[str, Any]:
        ran.append("mark")
        return arguments

    return app


def with_body(body: bytes, method: str = "tools/call", name: str | None = "mark", **headers: str) -> bytes:
    """A request of this body, whose headers say what a good message of that method would say."""
    told = {} if name is None else {"name": name}
    whole = post(method, told, headers={"Content-Length": str(len(body)), **headers})
    return whole[: whole.index(b"\r\n\r\n") + 4] + body


def body_of(change: Change | None = None) -> bytes:
    """The body of a good tool call, changed."""
    told = message("tools/call", {"name": "mark", "arguments": {}}, WITHOUT_TASKS)
    told["id"] = 1
    if change is not None:
        change(told)
    return json.dumps(told).encode()


def without(*path: str) -> Change:
    def change(told: dict[str, Any]) -> None:
        for step in path[:-1]:
            told = told[step]
        del told[path[-1]]

    return change


def with_value(value: Any, *path: str) -> Change:
    def change(told: dict[str, Any]) -> None:
        for step in path[:-1]:
            told = told[step]
        told[path[-1]] = value

    return change


def with_integer(digits: str) -> bytes:
    return body_of(with_value({"n": 0}, "params", "arguments")).replace(b'{"n": 0}', b'{"n": %b}' % digits.encode())


BOM = b"\xef\xbb\xbf"
FAULTS: dict[str, tuple[bytes, int, bool]] = {
    # what is wrong: the body, the code, whether the answer carries the id
    "a brace": (b"{", -32700, False),
    "nothing": (b"", -32700, False),
    "bare text": (b"call the tool", -32700, False),
    "a byte order mark": (BOM + body_of(), -32700, False),
    "a member twice": (body_of().replace(b'"id": 1', b'"id": 1, "id": 2'), -32700, False),
    "something behind it": (body_of() + b"{}", -32700, False),
    "NaN": (with_integer("NaN"), -32700, False),
    "Infinity": (with_integer("-Infinity"), -32700, False),
    "bytes that are no UTF-8": (body_of().replace(b"arguments", b"argument\xff"), -32700, False),
    "half a surrogate": (body_of().replace(b"arguments", b"argument\\ud800"), -32700, False),
    "200 KB of brackets": (b"[" * 200_000, -32600, False),
    "a batch": (b"[" + body_of() + b"]", -32600, False),
    "a number": (b"5", -32600, False),
    "an id that is null": (body_of(with_value(None, "id")), -32600, False),
    "an id that is an object": (body_of(with_value({}, "id")), -32600, False),
    "an id that is a fraction": (body_of(with_value(1.5, "id")), -32600, False),
    "no jsonrpc": (body_of(without("jsonrpc")), -32600, True),
    "jsonrpc 1.0": (body_of(with_value("1.0", "jsonrpc")), -32600, True),
    "jsonrpc as a number": (body_of(with_value(2, "jsonrpc")), -32600, True),
    "a method that is no text": (body_of(with_value(5, "method")), -32600, True),
    "params that are a list": (body_of(with_value([], "params")), -32602, True),
    "no params": (body_of(without("params")), -32602, True),
    "no _meta": (body_of(without("params", "_meta")), -32602, True),
    "no version": (body_of(without("params", "_meta", VERSION)), -32602, True),
    "no capabilities": (body_of(without("params", "_meta", CAPABILITIES)), -32602, True),
    "an integer of too many digits": (with_integer("1" + "0" * 1000), -32602, True),
}


@both_loops
@pytest.mark.spec("B7", "B10", "H7", "D26", "N1")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_with_a_fault_is_refused_with_status_400_and_runs_nothing(backend: str, fault: str) -> None:
    body, code, has_id = FAULTS[fault]

    async def test() -> None:
        ran: list[str] = []
        async with http_served(marking(ran)) as server, server.peer() as peer:
            response = await peer.answer(with_body(body))
            assert (response.status, response.json["error"]["code"]) == (400, code)
            assert response.json.get("id", "none") == (1 if has_id else "none")
            assert ran == []
            assert (await peer.answer(with_body(body_of()))).result["structuredContent"] == {}

    run(backend, test)


SERVED: dict[str, bytes] = {
    "no client info": body_of(),
    "client info": body_of(with_value({"name": "c", "version": "1"}, "params", "_meta", CLIENT_INFO)),
    "an empty id": body_of(with_value("", "id")),
    "0 as its id": body_of(with_value(0, "id")),
    "a negative id": body_of(with_value(-1, "id")),
    "an id that no float holds": body_of(with_value(2**53 + 1, "id")),
    "a long id": body_of(with_value("x" * 1000, "id")),
    "members of nobody": body_of(with_value({"a": [1]}, "trace")),
    "an integer that no float holds": with_integer(str(2**53 + 1)),
    "an integer of 64 bits": with_integer(str(2**64)),
    "an integer of 400 digits": with_integer("1" + "2" * 399),
}


@both_loops
@pytest.mark.spec("B2", "B3", "B10", "N1")
@pytest.mark.parametrize("what", SERVED)
def test_what_is_unusual_and_lawful_is_served_and_comes_back_to_the_last_digit(backend: str, what: str) -> None:
    async def test() -> None:
        ran: list[str] = []
        async with http_served(marking(ran)) as server:
            response = await server.ask(with_body(SERVED[what]))
            sent = json.loads(SERVED[what])
            assert (type(response.json["id"]), response.json["id"]) == (type(sent["id"]), sent["id"])
            assert response.result["structuredContent"] == sent["params"]["arguments"]
            assert ran == ["mark"]

    run(backend, test)


@both_loops
@pytest.mark.spec("N2")
def test_another_version_is_refused_with_what_is_supported_and_what_was_asked(backend: str) -> None:
    async def test() -> None:
        ran: list[str] = []
        async with http_served(marking(ran)) as server:
            body = body_of(with_value("1900-01-01", "params", "_meta", VERSION))
            response = await server.ask(with_body(body, **{"MCP-Protocol-Version": "1900-01-01"}))
            assert (response.status, response.json["error"]["code"]) == (400, -32022)
            assert response.json["error"]["data"] == {"supported": ["2026-07-28"], "requested": "1900-01-01"}
            assert ran == []

    run(backend, test)


@both_loops
@pytest.mark.spec("B6", "H4")
def test_a_call_without_an_id_is_a_notification_and_runs_nothing(backend: str) -> None:
    async def test() -> None:
        ran: list[str] = []
        async with http_served(marking(ran)) as server, server.peer() as peer:
            response = await peer.answer(with_body(body_of(without("id"))))
            assert (response.status, response.body) == (202, b"")
            assert ran == []
            assert (await peer.answer(with_body(body_of()))).status == 200

    run(backend, test)


@both_loops
@pytest.mark.spec("N1", "H7", "B7")
def test_a_method_that_is_there_is_not_unknown_for_want_of_its_meta(backend: str) -> None:
    async def test() -> None:
        async with http_served(marking([])) as server, server.peer() as peer:
            bare = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}'
            response = await peer.answer(with_body(bare, "server/discover", None))
            assert (response.status, response.json["error"]["code"]) == (400, -32602)
            response = await peer.answer(post("server/nonsense"))
            assert (response.status, response.json["error"]["code"]) == (404, -32601)

    run(backend, test)


NEED_TASKS: list[tuple[str, dict[str, Any]]] = [
    ("tasks/get", {"taskId": "t"}),
    ("tasks/update", {"taskId": "t", "inputResponses": {}}),
    ("tasks/cancel", {"taskId": "t"}),
    ("subscriptions/listen", {"notifications": {"taskIds": ["t"]}}),
]


@both_loops
@pytest.mark.spec("G4", "N7", "H7", "N3")
@pytest.mark.parametrize(("method", "params"), NEED_TASKS, ids=[method for method, _ in NEED_TASKS])
def test_who_does_not_declare_tasks_is_told_to_where_there_are_tasks(
    backend: str, method: str, params: dict[str, Any]
) -> None:
    async def test() -> None:
        app = marking([])
        app.tool("work", task="always")(lambda: "done")
        request = post(method, params, capabilities=WITHOUT_TASKS)
        async with http_served(app) as server:
            response = await server.ask(request)
            assert (response.status, response.fields["content-type"]) == (400, "application/json")
            assert response.json["error"]["code"] == -32021
            assert response.json["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        if method.startswith("tasks/"):
            async with http_served(marking([])) as server:
                response = await server.ask(request)
                assert (response.status, response.json["error"]["code"]) == (404, -32601)

    run(backend, test)


@both_loops
@pytest.mark.spec("B10")
@pytest.mark.parametrize("way", ["text", "structured", "nested"])
def test_a_number_that_json_does_not_have_never_reaches_the_wire(backend: str, way: str) -> None:
    def results() -> Any:
        worst = float("nan") if way == "nested" else float("inf")
        return {
            "text": {"content": [{"type": "text", "text": "x", "_meta": {"n": worst}}]},
            "structured": {"content": [], "structuredContent": {"n": worst}},
            "nested": {"content": [], "structuredContent": {"a": [{"b": worst}]}},
        }[way]

    def refused(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    async def test() -> None:
        app = marking([])
        app.tool("now", output_schema=None)(lambda: results())
        app.tool("later", task="always", output_schema=None)(lambda: results())
        async with http_served(app) as server, server.peer() as peer:
            response = await peer.answer(call("now"))
            answer = json.loads(response.body, parse_constant=refused)
            assert "error" in answer or answer["result"]["isError"] is True
            task = (await peer.answer(call("later"))).result
            while task["status"] == "working":
                response = await peer.answer(post("tasks/get", {"taskId": task["taskId"]}))
                task = json.loads(response.body, parse_constant=refused)["result"]
            assert task["status"] == "failed" or task["result"]["isError"] is True

    run(backend, test)


@both_loops
@pytest.mark.spec("H6")
def test_a_resource_beyond_ascii_is_read_by_its_encoded_name(backend: str) -> None:
    async def test() -> None:
        app = marking([])

        @app.method("resources/read")
        async def read(params: dict[str, Any], context: object) -> dict[str, Any]:
            return {"contents": [{"uri": params["uri"], "text": "x"}], "ttlMs": 0, "cacheScope": "private"}

        async with http_served(app) as server, server.peer() as peer:
            uri = "file:///é"
            for name, status in (("=?base64?ZmlsZTovLy/DqQ==?=", 200), ("=?base64?ZmlsZTovLy9l?=", 400), (None, 400)):
                headers = {} if name is None else {"Mcp-Name": name}
                response = await peer.answer(post("resources/read", {"uri": uri}, headers=headers))
                assert response.status == status, name
                if status == 200:
                    assert response.result["contents"][0]["uri"] == uri
                else:
                    assert response.json["error"]["code"] == -32020

    run(backend, test)


@both_loops
@pytest.mark.spec("X3", "H8")
def test_work_uses_what_its_request_said_after_the_connection_is_gone(backend: str) -> None:
    async def test() -> None:
        gone = anyio.Event()
        app = marking([])

        @app.tool(task="always")
        async def work(context: ToolContext) -> str:
            await context.progress(1, message="waiting")
            await gone.wait()
            answer = await context.elicit("name", "Who?", {"name": {"type": "string"}})
            await context.progress(2, message="going on")
            assert context.owner is not None
            return f"{(answer.content or {})['name']} {context.meta['vendor/trace']}"

        async def state(peer: HttpPeer, *statuses: str) -> dict[str, Any]:
            while True:
                task = (await peer.answer(post("tasks/get", {"taskId": task_id}))).result
                if task["status"] in statuses:
                    return task

        async with http_served(app) as server:
            async with server.peer() as peer:
                task_id = (await peer.answer(call("work", meta={"vendor/trace": "t-7"}))).result["taskId"]
                await peer.reset()
            await server.until(lambda: server.listener.connections == 0)
            gone.set()
            async with server.peer() as peer:
                await state(peer, "input_required")
                answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
                await peer.answer(post("tasks/update", {"taskId": task_id, "inputResponses": answers}))
                ended = await state(peer, "completed", "failed")
                assert ended["result"]["content"][0]["text"] == "Ada t-7"

    run(backend, test)
