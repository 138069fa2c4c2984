"""A client's protocol core on a bench: a virtual clock, what it sent as values, and a server that is you.

For tests of what is built on ``ClientProtocol``, and of a server's answers as a client sees them.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.client.calls import LISTEN
from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.client.effects import ClientEffect, Frame, OperationEnded, Report, Severity
from mcp_tasks_core.client.events import CallId, ClientEvent, MessageReceived, OperationId, Ticked
from mcp_tasks_core.client.outcomes import Outcome
from mcp_tasks_core.client.protocol import ClientProtocol
from mcp_tasks_core.client.subscriptions import ACKNOWLEDGED
from mcp_tasks_core.identifiers import Instant, JSONObject, JSONValue

E = TypeVar("E")


class ClientBench:
    """Feeds events to one client and keeps everything that comes out.

    Args:
        start_ms: where the monotonic clock begins.
    """

    def __init__(self, config: ClientConfig | None = None, *, start_ms: int = 1_000_000) -> None:
        self.config = ClientConfig() if config is None else config
        self.protocol = ClientProtocol(self.config)
        self.now_ms = start_ms
        self.effects: list[ClientEffect] = []
        self.sent: list[JSONObject] = []
        self.sent_at_ms: list[int] = []
        self._operations = 0

    def next_operation(self) -> OperationId:
        """An operation id that was not used yet."""
        self._operations += 1
        return OperationId(self._operations)

    def feed(self, event: ClientEvent) -> list[ClientEffect]:
        """Hand an event in at the present moment; gives the effects of it alone."""
        effects = list(self.protocol.handle(event, Instant(wall_ms=0, monotonic_ms=self.now_ms)))
        self.effects.extend(effects)
        for effect in effects:
            if isinstance(effect, Frame):
                self.sent.append(json.loads(b"".join(effect.payload)))
                self.sent_at_ms.append(self.now_ms)
        return effects

    def pass_time(self, duration_ms: int) -> None:
        """Let the clock run, with a tick at each moment that the client asks for."""
        until_ms = self.now_ms + duration_ms
        while (deadline := self.protocol.deadline) is not None and deadline <= until_ms:
            self.now_ms = max(self.now_ms, deadline)
            self.feed(Ticked())
        self.now_ms = until_ms

    def receive(self, message: JSONValue, *, stream: int | None = None) -> list[ClientEffect]:
        """A message from the server, as a value."""
        call_id = None if stream is None else CallId(stream)
        return self.feed(MessageReceived(json.dumps(message).encode(), call_id))

    def requests(self, method: str) -> list[JSONObject]:
        """Every request or notification of this method that was sent, the oldest first."""
        return [message for message in self.sent if message["method"] == method]

    def answer(self, method: str, result: JSONObject) -> list[ClientEffect]:
        """The newest request of this method has this result; ``resultType`` is ``complete`` where it names none."""
        result = {"resultType": "complete", **result}
        return self.receive({"jsonrpc": "2.0", "id": self.requests(method)[-1]["id"], "result": result})

    def refuse(self, method: str, code: int, message: str = "no", data: Any = None) -> list[ClientEffect]:
        """The newest request of this method is answered with this error."""
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        return self.receive({"jsonrpc": "2.0", "id": self.requests(method)[-1]["id"], "error": error})

    def tell(self, method: str, *, subscription: JSONValue = None, **params: Any) -> list[ClientEffect]:
        """A notification of a subscription: of the newest one, where none is named by its id.

        Over a stream per request it comes on the stream of the newest subscription.
        """
        newest: int = self.requests(LISTEN)[-1]["id"]
        found = newest if subscription is None else subscription
        told = {"_meta": {META_SUBSCRIPTION_ID: found}, **params}
        stream = newest if self.config.transport is TransportKind.PER_REQUEST else None
        return self.receive({"jsonrpc": "2.0", "method": method, "params": told}, stream=stream)

    def acknowledge(self, **agreed: Any) -> list[ClientEffect]:
        """Acknowledge the newest subscription: with what it asks for, or with this, in wire names."""
        agreed = agreed or self.requests(LISTEN)[-1]["params"]["notifications"]
        return self.tell(ACKNOWLEDGED, notifications=agreed)

    def end_listen(self) -> list[ClientEffect]:
        """End the newest subscription in good order."""
        newest: int = self.requests(LISTEN)[-1]["id"]
        return self.answer(LISTEN, {"_meta": {META_SUBSCRIPTION_ID: newest}})

    def seen(self, kind: type[E]) -> list[E]:
        """Every effect of this class so far, the oldest first."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def outcome(self, operation_id: OperationId) -> Outcome | None:
        """How the operation ended; ``None`` while it goes on.

        Raises:
            AssertionError: it ended more than once.
        """
        ends = [end.outcome for end in self.seen(OperationEnded) if end.operation_id == operation_id]
        if len(ends) > 1:
            raise AssertionError(f"operation {operation_id} ended {len(ends)} times")
        return ends[0] if ends else None

    @property
    def reports(self) -> list[str]:
        """The texts for the log so far."""
        return [report.message for report in self.seen(Report)]

    @property
    def warnings(self) -> list[str]:
        """Those of them that people are to see."""
        return [report.message for report in self.seen(Report) if report.severity is Severity.WARNING]


def wire_task(status: str = "working", *, updated_s: int = 0, **members: Any) -> JSONObject:
    """A task as it stands on the wire, created at a fixed moment, with whatever else is given in wire names.

    Args:
        updated_s: seconds from its creation to its last change.
    """
    task: JSONObject = {
        "taskId": "t-1",
        "status": status,
        "createdAt": "2026-07-28T10:00:00.000Z",
        "lastUpdatedAt": f"2026-07-28T10:{updated_s // 60:02d}:{updated_s % 60:02d}.000Z",
        "ttlMs": None,
    }
    return task | members


def wire_handle(status: str = "working", **members: Any) -> JSONObject:
    """The same as a ``CreateTaskResult``."""
    return {"resultType": "task", **wire_task(status, **members)}
