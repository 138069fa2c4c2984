"""Something between the doctor and a server over HTTP that breaks one rule, on the way there or on the way back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import attrs
import h11
from anyio.abc import SocketStream

from mcp_tasks_trio.doctor.exchanges import Sent, encode
from mcp_tasks_trio.doctor.over_http import HttpTransport, http_transport

TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_HOP = {"host", "content-length", "connection", "transfer-encoding", "date"}
Message = dict[str, Any]


@attrs.define
class Call:
    """A request on its way; the rule may be broken by changing it."""

    verb: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def message(self) -> Message:
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @message.setter
    def message(self, value: Message) -> None:
        self.body = encode(value)

    @property
    def method(self) -> str:
        return str(self.message.get("method"))

    @property
    def params(self) -> Message:
        found = self.message.get("params")
        return found if isinstance(found, dict) else {}

    @property
    def meta(self) -> Message:
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}

    @property
    def capabilities(self) -> Message:
        found = self.meta.get(CAPABILITIES)
        return found if isinstance(found, dict) else {}

    @property
    def declares_tasks(self) -> bool:
        return TASKS in self.capabilities.get("extensions", {})

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def set_header(self, name: str, value: str) -> None:
        self.headers = [(k, v) for k, v in self.headers if k.lower() != name.lower()] + [(name, value)]

    def change(self, change: Callable[[Message], None]) -> None:
        message = self.message
        change(message)
        self.message = message

    def declare(self, extension: str = TASKS) -> None:
        self.change(lambda m: m["params"]["_meta"][CAPABILITIES].setdefault("extensions", {}).update({extension: {}}))


@attrs.define
class Reply:
    """An answer on its way back; ``messages`` of which the last one is the response."""

    status: int
    headers: list[tuple[str, str]]
    messages: list[Any]
    raw: bytes = b""
    as_events: bool = False
    stays_open: bool = False

    @property
    def response(self) -> Message:
        return self.messages[-1] if self.messages else {}

    @property
    def result(self) -> Message:
        found = self.response.get("result") if isinstance(self.response, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def code(self) -> Any:
        error = self.response.get("error") if isinstance(self.response, dict) else None
        return error.get("code") if isinstance(error, dict) else None

    def serve(self, result: Message, call: Call) -> None:
        self.status = 200
        self.messages = [{"jsonrpc": "2.0", "id": call.message.get("id"), "result": result}]

    def refuse(self, code: int, call: Call, status: int = 400) -> None:
        self.status = status
        error = {"code": code, "message": "refused"}
        self.messages = [{"jsonrpc": "2.0", "id": call.message.get("id"), "error": error}]


def _nothing_to_call(call: Call) -> None: ...


def _nothing_to_reply(call: Call, reply: Reply) -> None: ...


def _nothing_to_push(message: Message) -> Message | None:
    return message


@attrs.frozen(kw_only=True)
class Breach:
    """One rule broken, and nothing else.

    Args:
        there: changes the request on its way to the server.
        back: changes the answer on its way back.
        push: changes a message of a subscription; ``None`` keeps it back.
        cleans: takes control characters out of the head before anybody reads it.
        among: checks that have to be made, too, so that there is something to look back at.
        listens: serve subscriptions to tasks, which are made of polls.
        finds: the checks that have to fail, all of them and no others.
    """

    finds: frozenset[str] = frozenset()
    among: tuple[str, ...] = ()
    there: Callable[[Call], None] = _nothing_to_call
    back: Callable[[Call, Reply], None] = _nothing_to_reply
    push: Callable[[Message], Message | None] = _nothing_to_push
    listens: bool = False
    cleans: bool = False


class _Between:
    def __init__(self, upstream: HttpTransport, breach: Breach) -> None:
        self._upstream = upstream
        self._breach = breach

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                await self._serve_one(stream)

    async def _serve_one(self, stream: SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        head: h11.Request | None = None
        body = b""
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                await stream.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            if event is h11.NEED_DATA:
                data = await stream.receive()
                connection.receive_data(data.replace(b"\x01", b"") if self._breach.cleans else data)
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                break
        assert head is not None
        headers = [(k.decode(), v.decode("latin-1")) for k, v in head.headers if k.decode() not in _HOP]
        call = Call(head.method.decode(), headers, body)
        if self._breach.listens and call.method == "subscriptions/listen":
            await self._listen(stream, call)
            return
        reply = await self._ask(call)
        await stream.send(_bytes_of(reply))
        if reply.stays_open:
            await anyio.sleep_forever()

    async def _ask(self, call: Call) -> Reply:
        original = Call(call.verb, list(call.headers), call.body)
        self._breach.there(call)
        own_id = call.message.get("id")
        sent = Sent(body=call.body, request_id=own_id, headers=call.headers, verb=call.verb, hostile=True)
        exchange = await self._upstream.exchange(sent, 30.0)
        fields = [(k, v) for k, v in exchange.fields if k not in _HOP and k != "content-type"]
        events = (exchange.field("content-type") or "").startswith("text/event-stream")
        reply = Reply(exchange.status or 500, fields, list(exchange.messages), exchange.body, as_events=events)
        self._breach.back(original, reply)
        return reply

    # --- subscriptions

    async def _state(self, call: Call, task_id: str) -> Message | None:
        params = {"taskId": task_id, "_meta": call.meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}
        headers = [(k, v) for k, v in call.headers if k.lower() not in ("mcp-method", "mcp-name")]
        headers += [("Mcp-Method", "tasks/get"), ("Mcp-Name", task_id)]
        reply = await self._ask(Call("POST", headers, encode(message)))
        return reply.result or None

    async def _listen(self, stream: SocketStream, call: Call) -> None:
        own_id = call.message.get("id")
        asked = call.params.get("notifications", {}).get("taskIds", [])
        if not call.declares_tasks:
            reply = Reply(400, [], [])
            reply.refuse(-32021, call)
            required = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            reply.messages[0]["error"]["data"] = required
            self._breach.back(call, reply)
            await stream.send(_bytes_of(reply))
            return
        agreed = [task_id for task_id in asked if await self._state(call, task_id) is not None]
        await stream.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
        )
        meta = {"_meta": {SUBSCRIPTION: own_id}}
        acknowledged = {"notifications": {"taskIds": agreed}, **meta}
        await self._push(stream, _notification("notifications/subscriptions/acknowledged", acknowledged))
        last: dict[str, Message] = {}
        while len([s for s in last.values() if s["status"] in ("completed", "failed", "cancelled")]) < len(agreed):
            for task_id in agreed:
                state = await self._state(call, task_id) or {}
                bare = {name: value for name, value in state.items() if name not in ("_meta", "resultType")}
                if last.get(task_id) != bare:
                    last[task_id] = bare
                    await self._push(stream, _notification("notifications/tasks", {**bare, **meta}))
            await anyio.sleep(0.02)
        meta["_meta"]["io.modelcontextprotocol/serverInfo"] = {"name": "between", "version": "1.0"}
        await self._push(stream, {"jsonrpc": "2.0", "id": own_id, "result": {"resultType": "complete", **meta}})

    async def _push(self, stream: SocketStream, message: Message) -> None:
        broken = self._breach.push(message)
        if broken is not None:
            await stream.send(b"data: " + encode(broken) + b"\n\n")


def _notification(method: str, params: Message) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": json.loads(json.dumps(params))}


def _bytes_of(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Status"]
    if reply.messages and reply.as_events:
        body = b"".join(b"data: " + encode(message) + b"\n\n" for message in reply.messages)
        lines.append("Content-Type: text/event-stream")
    elif reply.messages:
        body = encode(reply.messages[0])
        if not any(name.lower() == "content-type" for name, _ in reply.headers):
            lines.append("Content-Type: application/json")
    else:
        body = reply.raw
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if not reply.stays_open:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: close")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def between(url: str, breach: Breach) -> AsyncIterator[str]:
    """Stand between whoever asks at the URL that this gives and the server at this one."""
    upstream = http_transport(url)
    port = None
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.start_soon(listener.serve, _Between(upstream, breach).serve)
        yield f"http://127.0.0.1:{port}{upstream.endpoint.target}"
        tasks.cancel_scope.cancel()
