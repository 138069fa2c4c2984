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

from mcp_tasks_trio.doctor.exchanges import Exchange, Sent, encode
from mcp_tasks_trio.doctor.over_http import HttpTransport, http_transport

TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_LISTEN_SECONDS = 30.0
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
        finds: the checks that have to fail, all of them and no others.
    """

    finds: frozenset[str] = frozenset()
    among: tuple[str, ...] = ()
    there: Callable[[Call], None] = _nothing_to_call
    back: Callable[[Call, Reply], None] = _nothing_to_reply
    push: Callable[[Message], Message | None] = _nothing_to_push
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
        if call.method == "subscriptions/listen":
            await self._listen(stream, call)
            return
        reply = await self._ask(call)
        await stream.send(_bytes_of(reply))
        if reply.stays_open:
            await anyio.sleep_forever()

    async def _ask(self, call: Call) -> Reply:
        original = Call(call.verb, list(call.headers), call.body)
        reply = self._reply(await self._upstream.exchange(self._sent(call), 30.0))
        self._breach.back(original, reply)
        return reply

    def _sent(self, call: Call) -> Sent:
        """The request as the server gets it."""
        self._breach.there(call)
        own_id = call.message.get("id")
        return Sent(body=call.body, request_id=own_id, headers=call.headers, verb=call.verb, hostile=True)

    def _reply(self, exchange: Exchange) -> Reply:
        """The answer as the server gave it."""
        fields = [(k, v) for k, v in exchange.fields if k not in _HOP and k != "content-type"]
        events = (exchange.field("content-type") or "").startswith("text/event-stream")
        return Reply(exchange.status or 500, fields, list(exchange.messages), exchange.body, as_events=events)

    # --- subscriptions

    async def _listen(self, stream: SocketStream, call: Call) -> None:
        """Hand on message by message what the server says, until one of the two has had enough."""
        original = Call(call.verb, list(call.headers), call.body)
        async with self._upstream.listening(self._sent(call)) as listening, anyio.create_task_group() as tasks:
            tasks.start_soon(_until_closed, stream, tasks.cancel_scope)
            message = await listening.next(_LISTEN_SECONDS)
            reply = self._reply(listening.exchange)
            if reply.as_events:
                reply.messages, reply.stays_open = [], True
                await stream.send(_bytes_of(reply))
                while message is not None:
                    await self._push(stream, message)
                    message = await listening.next(_LISTEN_SECONDS)
            else:
                self._breach.back(original, reply)
                await stream.send(_bytes_of(reply))
            tasks.cancel_scope.cancel()

    async def _push(self, stream: SocketStream, message: Message) -> None:
        broken = self._breach.push(message)
        if broken is not None:
            await stream.send(b"data: " + encode(broken) + b"\n\n")


async def _until_closed(stream: SocketStream, scope: anyio.CancelScope) -> None:
    """Cancel once whoever listens has gone away."""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()
    scope.cancel()


def _bytes_of(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} Status"]
    if reply.as_events:
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
