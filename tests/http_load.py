"""Keep-alive connections under load with requests among them that are malformed or cut off.

    python -m tests.http_load [--backend asyncio|trio] [--connections 64] [--seconds 60]

Server and clients run in one process on loopback. It ends with status 0 if no answer was wrong and afterwards
nothing is left: no connection, no request, no open ticket, and no more memory than a little.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests run with this folder on their path

import anyio
import attrs

from mcp_tasks_http import HttpLimits
from mcp_tasks_trio import Application, ServerEngine, ToolContext
from runners.http_peer import HttpPeer, HttpServed, call, http_served, post

SPOILED = 0.01  # of the requests
# Objects of one connection or one request: when all of these are gone, none of them may live.
MORTAL = frozenset({"HttpLink", "HttpServerConnection", "AsyncioWire", "TrioWire", "TlsLayer", "Exchange"})
SETTLE_SECONDS = 20.0


def application() -> Application:
    app = Application("load", version="1")

    @app.tool()
    async def echo(text: str) -> str:
        return text

    @app.tool()
    async def steps(context: ToolContext, text: str) -> str:
        await context.progress(1, total=2)
        await anyio.lowlevel.checkpoint()
        await context.progress(2, total=2)
        return text

    @app.tool(task="always")
    async def work(text: str) -> str:
        return text

    return app


@attrs.define
class Tally:
    """What came of a run."""

    answered: int = 0
    refused: int = 0
    cut: int = 0
    wrong: list[str] = attrs.field(factory=list)
    left: list[str] = attrs.field(factory=list)


class Client:
    """One connection after the other, each used until something spoils it."""

    def __init__(self, server: HttpServed, number: int, tally: Tally) -> None:
        self._server = server
        self._random = random.Random(number)
        self._number = number
        self._tally = tally
        self._sent = 0
        self._task: tuple[str, str] | None = None

    async def run(self, deadline: float) -> None:
        while anyio.current_time() < deadline:
            async with self._server.peer() as peer:
                while anyio.current_time() < deadline and await self._one(peer):
                    pass

    async def _one(self, peer: HttpPeer) -> bool:
        """One request; whether the connection may be used on."""
        self._sent += 1
        text = f"{self._number}.{self._sent}"
        if self._random.random() < SPOILED:
            return await self._spoil(peer, text)
        kind = self._random.choice(("echo", "steps", "work", "get", "get", "get"))
        if kind == "get" and self._task is not None:
            task_id, text = self._task
            response = await peer.answer(post("tasks/get", {"taskId": task_id}, request_id=self._sent))
            state = response.json["result"]
            self._check(response.json["id"] == self._sent and state["taskId"] == task_id, response.body)
            if state["status"] == "completed":
                self._check(state["result"]["content"][0]["text"] == text, response.body)
        elif kind == "steps":
            await peer.send(call("steps", {"text": text}, request_id=self._sent, meta={"progressToken": text}))
            await peer.stream_head()
            events = [await peer.event() for _ in range(3)]
            self._check([e.get("params", {}).get("progressToken") for e in events] == [text, text, None], events)
            self._check(events[2]["id"] == self._sent and text in json.dumps(events[2]), events)
            self._check(await peer.chunk() == b"", "no end")
        elif kind == "work":
            response = await peer.answer(call("work", {"text": text}, request_id=self._sent))
            self._check(response.json["id"] == self._sent, response.body)
            self._task = (response.json["result"]["taskId"], text)
        else:
            response = await peer.answer(call("echo", {"text": text}, request_id=self._sent))
            self._check(response.json["id"] == self._sent and response.text == text, response.body)
        self._tally.answered += 1
        return True

    async def _spoil(self, peer: HttpPeer, text: str) -> bool:
        request = call(self._random.choice(("echo", "steps", "work")), {"text": text}, meta={"progressToken": text})
        match self._random.randrange(5):
            case 0:
                await peer.send(request[: self._random.randrange(1, len(request))])
                await peer.reset()
            case 1:
                await peer.send(request)
                await peer.reset()
            case 2:
                await peer.send(request[: self._random.randrange(1, len(request))])
                await peer.aclose()
            case 3:
                await peer.send(request.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nbroken line\r\n"))
                self._check((await peer.response()).status == 400, "a broken head was not refused")
                self._tally.refused += 1
                return False
            case _:
                response = await peer.answer(request.replace(b'"jsonrpc"', b'"jsonrpx"'))
                self._check((response.status, response.json["error"]["code"]) == (400, -32600), response.body)
                self._tally.refused += 1
                return True
        self._tally.cut += 1
        return False

    def _check(self, right: bool, shown: object) -> None:
        if not right and len(self._tally.wrong) < 10:
            self._tally.wrong.append(repr(shown)[:300])


async def load(connections: int, seconds: float) -> Tally:
    """Run it, and say what came of it and what was left."""
    tally = Tally()
    settings = {"limits": HttpLimits(eof_comment_interval_ms=50)}
    logging.getLogger("mcp_tasks_trio").addHandler(complaints := _Complaints(logging.ERROR))
    async with http_served(application(), **settings) as server:
        await _clients(server, connections, seconds, tally)
        with anyio.move_on_after(SETTLE_SECONDS):
            await server.is_clean()
        engine, listener = server.engine, server.listener
        await _quiet(engine)
        for what, count in (
            ("connections", listener.connections),
            ("streams", engine.streams_open),
            ("requests", len(engine.protocol.open_exchanges)),
            ("tickets", engine.protocol.open_tickets),
        ):
            if count:
                tally.left.append(f"{count} {what}")
        await anyio.lowlevel.checkpoint()
        gc.collect()
        living = Counter(type(each).__name__ for each in gc.get_objects())
        tally.left += [f"{living[name]} objects of type {name}" for name in sorted(MORTAL & living.keys())]
    tally.wrong += complaints.texts[:10]
    return tally


class _Complaints(logging.Handler):
    """Nothing that clients do is an error of the server."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


async def _clients(server: HttpServed, count: int, seconds: float, tally: Tally) -> None:
    deadline = anyio.current_time() + seconds
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(Client(server, number, tally).run, deadline)


async def _quiet(engine: ServerEngine) -> None:
    with anyio.move_on_after(SETTLE_SECONDS):
        while engine.protocol.open_tickets:
            await anyio.lowlevel.checkpoint()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    tally = anyio.run(load, options.connections, options.seconds, backend=options.backend)
    print(f"{tally.answered} answered, {tally.refused} refused, {tally.cut} cut off")
    for text in (*(f"wrong: {wrong}" for wrong in tally.wrong), *(f"left: {left}" for left in tally.left)):
        print(text)
    return 1 if tally.wrong or tally.left or not tally.answered else 0


if __name__ == "__main__":
    sys.exit(main())
