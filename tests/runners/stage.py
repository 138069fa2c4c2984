"""An application with lists that change, and a client on pipes that listens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from mcp_tasks_trio import Application
from runners.served import Peer

BOUND_SECONDS = 20
EVERYTHING: dict[str, Any] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["library://A1"],
}


class Taken:
    """What came over in the loop, in how many parts, and in which thread."""

    def __init__(self) -> None:
        self.parts: list[list[Any]] = []
        self.threads: set[int] = set()
        self._came = anyio.Event()

    def take(self, values: Sequence[Any]) -> None:
        self.parts.append(list(values))
        self.threads.add(threading.get_ident())
        self._came.set()
        self._came = anyio.Event()

    @property
    def all(self) -> list[Any]:
        return [value for part in self.parts for value in part]

    async def until(self, last: Any) -> list[Any]:
        """Everything, once this has come."""
        while last not in self.all:
            await self._came.wait()
        return self.all


def in_thread(function: Callable[[], object]) -> None:
    """Have it done in another thread, and wait without giving the loop a turn."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(BOUND_SECONDS)
    assert not thread.is_alive()


def library(**options: Any) -> Application:
    app = Application("library", version="1", **options)

    @app.method("prompts/list")
    async def prompts(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"prompts": []}

    @app.method("resources/list")
    async def resources(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"resources": []}

    @app.tool()
    async def find() -> str:
        return "A1"

    return app


async def listen(peer: Peer, notifications: dict[str, Any]) -> dict[str, Any]:
    """What a new subscription agreed to."""
    await peer.start("subscriptions/listen", {"notifications": notifications})
    acknowledged = await peer.next()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged", acknowledged
    agreed: dict[str, Any] = acknowledged["params"]["notifications"]
    return agreed


async def told(peer: Peer, count: int) -> list[str]:
    """The next notifications, by their methods' last part and the URI if there is one."""
    messages = [await peer.next() for _ in range(count)]
    return [" ".join([m["method"].removeprefix("notifications/"), *_uris(m)]) for m in messages]


def _uris(received: dict[str, Any]) -> list[str]:
    return [received["params"]["uri"]] if "uri" in received["params"] else []


async def until_told(peer: Peer, method: str) -> None:
    while await told(peer, 1) != [method]:
        pass


async def tool_names(peer: Peer) -> list[str]:
    return [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
