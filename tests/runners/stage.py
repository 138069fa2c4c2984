"""What tests of subscriptions share: an application whose tasks and resources change when a test says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio

from mcp_tasks_core.identifiers import Instant
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import ServerEffect
from mcp_tasks_core.server.events import ResourceUpdated, ServerEvent
from mcp_tasks_trio import Application, ServerEngine, ToolContext

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
URI = "stage://curtain"
LONG_URI = "stage://" + "x" * 2000  # few of its notifications fill a socket or a pipe


class Stage:
    """Tasks that go on, and end, at a word of the test."""

    def __init__(self, **limits: int) -> None:
        self._contexts: dict[str, ToolContext] = {}
        self._ends: dict[str, anyio.Event] = {}
        self.app = Application(
            "stage",
            version="1",
            limits=Limits(progress_interval_ms=1, **limits),
            capabilities={"resources": {"subscribe": True}},
        )

        @self.app.tool(task="always", ttl=timedelta(minutes=5))
        async def act(context: ToolContext, part: str) -> str:
            self._contexts[part] = context
            await self._end_of(part).wait()
            return "the end of " + part

    def _end_of(self, part: str) -> anyio.Event:
        return self._ends.setdefault(part, anyio.Event())

    async def says(self, part: str, text: str) -> None:
        """The task of this part has a new status message."""
        await self._contexts[part].progress(1, message=text)

    def ends(self, part: str) -> None:
        self._end_of(part).set()

    async def until_begun(self, part: str) -> None:
        while part not in self._contexts:
            await anyio.lowlevel.checkpoint()


class Told:
    """What an engine tells its core, in its order."""

    def __init__(self, engine: ServerEngine) -> None:
        self.events: list[ServerEvent] = []
        handle = engine.protocol.handle

        def note(event: ServerEvent, now: Instant) -> Sequence[ServerEffect]:
            self.events.append(event)
            return handle(event, now)

        engine.protocol.handle = note  # type: ignore[method-assign]

    def of(self, *kinds: type) -> list[ServerEvent]:
        """Those of these kinds."""
        return [event for event in self.events if type(event) in kinds]

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def filter_of(*task_ids: str, uris: Sequence[str] = (), tools: bool = False) -> dict[str, Any]:
    """The params of a listen."""
    asked: dict[str, Any] = {}
    if task_ids:
        asked["taskIds"] = list(task_ids)
    if uris:
        asked["resourceSubscriptions"] = list(uris)
    if tools:
        asked["toolsListChanged"] = True
    return {"notifications": asked}


def fill(engine: ServerEngine, told: Told, kind: type, *, streams: int = 1) -> int:
    """Update a long URI until the core is told that so many streams are blocked; gives how often."""
    for count in range(1, 20_000):
        engine.feed(ResourceUpdated(LONG_URI))
        if len(set(told.of(kind))) >= streams:
            return count
    raise AssertionError("the stream takes whatever is written to it")
