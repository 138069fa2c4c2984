"""One listen with a quiet spell, through nginx: whether it lives, and whether what then happens is told at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import anyio
from anyio.abc import SocketStream

from mcp_tasks_http import Endpoint, HttpClientConnection, HttpClientEvent, HttpLimits, ReplyReceived, ResponseEnded
from mcp_tasks_trio import Application, ClientError, ServerEngine, ToolContext, connect_http, serving_http
from tests.nginx.moments import EARLY_SECONDS, Chronicle, Moment
from tests.nginx.proxying import NginxNotServing, nginx_before

# For what is not to be quiet: the beginning, and what follows the change. What nginx holds back takes longer.
_PROMPT_SECONDS: Final = 10
_REVISION: Final = "2026-07-28"
EXPECTED: Final = ("acknowledged", "working", "it ends", "completed", "result", "it ended as it should")


class Vigil(Chronicle):
    """What happened to one listen on one task."""

    def __init__(self, quiet_seconds: float, note: Callable[[Moment], None]) -> None:
        super().__init__(note)
        self.quiet_seconds = quiet_seconds
        self._may_end = anyio.Event()

    def application(self) -> Application:
        """A server with a task that is quiet until it ends."""
        app = Application("behind-nginx", version="1")

        @app.tool(task="always", ttl=timedelta(hours=1))
        async def watch(context: ToolContext) -> str:
            await self._may_end.wait()
            return "it was a quiet night"

        return app

    async def keep(self, url: str, task_id: str) -> None:
        """Listen through nginx, be quiet, let the task end, and read to the end of the stream."""
        endpoint = Endpoint.parse(url)
        async with await anyio.connect_tcp(endpoint.host, endpoint.port) as stream:
            listen = _Listen(stream, HttpClientConnection(endpoint))
            self.begin()
            await listen.begin(task_id)
            with anyio.move_on_after(_PROMPT_SECONDS):
                for _ in range(2):
                    self.happened(await listen.next())
            with anyio.move_on_after(self.quiet_seconds):
                self.happened(await listen.next())  # nothing is to come
                return
            self.happened("it ends")
            self._may_end.set()
            with anyio.move_on_after(_PROMPT_SECONDS):
                while not listen.over:
                    self.happened(await listen.next())

    def faults(self) -> list[str]:
        """What is wrong with what happened."""
        happened = [moment.what for moment in self.moments]
        if happened != list(EXPECTED):
            return [f"what came through was {', '.join(happened)}; it should be {', '.join(EXPECTED)}"]
        quiet = self.moments[2].at - self.moments[1].at
        if quiet < self.quiet_seconds - EARLY_SECONDS:
            return [f"it was quiet for {quiet:.2f} seconds, not for {self.quiet_seconds:g}"]
        return []


class _Listen:
    """One subscriptions/listen on a connection of its own."""

    def __init__(self, stream: SocketStream, connection: HttpClientConnection) -> None:
        self._stream = stream
        self._connection = connection
        self._events: list[HttpClientEvent] = []
        self.over = False

    async def begin(self, task_id: str) -> None:
        meta = {
            "io.modelcontextprotocol/protocolVersion": _REVISION,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        params = {"notifications": {"taskIds": [task_id]}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        headers = [("MCP-Protocol-Version", _REVISION), ("Mcp-Method", "subscriptions/listen")]
        await self._stream.send(self._connection.send_request(1, [json.dumps(message).encode()], headers))

    async def next(self) -> str:
        """What happens next, in a word or two."""
        while not self._events:
            try:
                self._events += self._connection.receive_data(await self._stream.receive(), 0)
            except anyio.EndOfStream:
                self._events += self._connection.receive_eof(0)
        event = self._events.pop(0)
        if isinstance(event, ReplyReceived):
            return _gist_of(json.loads(event.payload))
        self.over = True
        return event.kind.value if isinstance(event, ResponseEnded) else repr(event)


def _gist_of(message: dict[str, Any]) -> str:
    if "method" not in message:
        return "result" if "result" in message else repr(message)
    if message["method"] == "notifications/tasks":
        status: str = message["params"]["status"]
        return status
    return str(message["method"]).rpartition("/")[2]


async def keep_vigil(
    quiet_seconds: float,
    *,
    directives: Sequence[str] = (),
    comment_interval_ms: int | None = None,
    note: Callable[[Moment], None] = lambda moment: None,
) -> Vigil:
    """Listen to one task through nginx.

    Args:
        quiet_seconds: how long nothing happens.
        directives: of nginx, beside its defaults.
        comment_interval_ms: of the server; its default where it is ``None``.
        note: called with everything that happens.

    Raises:
        ClientError: the task did not come about.
        NginxNotServing: there is no nginx, or it does not start.
    """
    vigil = Vigil(quiet_seconds, note)
    limits = HttpLimits() if comment_interval_ms is None else HttpLimits(comment_interval_ms=comment_interval_ms)
    engine = ServerEngine(vigil.application())
    failure: ClientError | NginxNotServing | None = None
    async with engine.running(), serving_http(engine, port=0, limits=limits) as listener:
        assert listener.port is not None
        try:
            with nginx_before(listener.port, directives) as url:
                async with connect_http(url) as client:
                    execution = await client.start_tool("watch")
                    assert execution.task_id is not None
                    await vigil.keep(url, execution.task_id)
        except (ClientError, NginxNotServing) as error:
            failure = error  # raised outside of the server's task groups, which would wrap it
    if failure is not None:
        raise failure
    return vigil
