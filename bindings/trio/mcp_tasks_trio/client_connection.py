"""Between a client's callers, its protocol core and its transport: carries out what the core says.

Source: basic.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.client.effects import (
    AskInput,
    ClientEffect,
    CloseConnection,
    CloseStream,
    Frame,
    ListChangeObserved,
    ListenAcknowledged,
    LogObserved,
    OperationEnded,
    ProgressObserved,
    Report,
    ResourceUpdateObserved,
    Severity,
    StateObserved,
    TaskCreated,
    TaskDropped,
    WithdrawInput,
)
from mcp_tasks_core.client.events import (
    CallId,
    ClientEvent,
    DiscoverStarted,
    ListenStarted,
    ObservationStarted,
    OperationId,
    RequestSubmitted,
    Ticked,
    ToolCallStarted,
    ToolsListStarted,
)
from mcp_tasks_core.client.outcomes import Discovered
from mcp_tasks_core.client.protocol import ClientProtocol
from mcp_tasks_core.identifiers import Instant
from mcp_tasks_trio.client_execution import Pending, ProgressHandler, StateHandler
from mcp_tasks_trio.client_inputs import InputHandler
from mcp_tasks_trio.client_listening import Subscription

LogHandler = Callable[[LogObserved], None]

_log: Final = logging.getLogger("mcp_tasks.client")
_LEVELS: Final = {Severity.INFO: logging.DEBUG, Severity.WARNING: logging.WARNING}


class Transport(Protocol):
    """What carries a client's messages. Nothing here waits but ``aclose``."""

    def send(self, frame: Frame) -> None:
        """Send a message as soon as there is room."""

    def close_stream(self, call_id: CallId) -> None:
        """Close the stream of one request."""

    def end(self, reason: str) -> None:
        """The other end is no MCP server: end the connection."""

    async def run(self) -> None:
        """Carry messages until the connection is gone. Raises nothing but a cancellation."""

    async def aclose(self) -> None:
        """End the connection in good order and return when it is gone. From any task, any number of times."""


class ClientConnection:
    """One connection to one server, and what is waited for on it.

    Args:
        on_log: called with each log message that a request asked for; it must not wait.
    """

    def __init__(self, config: ClientConfig, on_log: LogHandler | None = None) -> None:
        self._protocol = ClientProtocol(config)
        self.has_stream_per_request = config.transport is TransportKind.PER_REQUEST
        self._transport: Transport | None = None
        self._on_log = on_log
        self._pending: dict[OperationId, Pending] = {}
        self._subscriptions: dict[OperationId, Subscription] = {}
        self._operations = 0
        self._deadline_moved = anyio.Event()
        self._timer_wants_ms: int | None = None
        self.server: Discovered | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection and wait until it is gone. What is pending fails with ``ConnectionLost``.

        Tasks run on. It may be called from any task, and more than once.
        """
        if self._transport is not None:
            await self._transport.aclose()

    def attach(self, transport: Transport) -> None:
        self._transport = transport

    def awaits(self, call_id: CallId) -> bool:
        """Whether an answer to this request is still wanted."""
        return self._protocol.awaits(call_id)

    def feed(self, event: ClientEvent) -> None:
        """Tell the core what happened and carry out what it says. Never waits.

        Raises:
            LocalProtocolError: a caller's mistake; nothing has changed.
        """
        for effect in self._protocol.handle(event, _now()):
            self._carry_out(effect)
        deadline_ms = self._protocol.deadline
        if deadline_ms is not None and (self._timer_wants_ms is None or deadline_ms < self._timer_wants_ms):
            self._deadline_moved.set()

    async def keep_time(self) -> None:
        """Tell the core each time that its deadline comes. Runs beside the transport, for ever."""
        while True:
            self._deadline_moved = anyio.Event()
            self._timer_wants_ms = self._protocol.deadline
            wait_s = math.inf
            if self._timer_wants_ms is not None:
                wait_s = self._timer_wants_ms / 1000 - anyio.current_time()
            with anyio.move_on_after(max(wait_s, 0)):
                await self._deadline_moved.wait()
            due_ms = self._protocol.deadline
            if due_ms is not None and due_ms <= _now().monotonic_ms:
                self.feed(Ticked())

    def _next(self) -> OperationId:
        self._operations += 1
        return OperationId(self._operations)

    def _start(
        self,
        event: DiscoverStarted | ToolsListStarted | RequestSubmitted | ToolCallStarted | ObservationStarted,
        *,
        on_input: InputHandler | None = None,
        on_progress: ProgressHandler | None = None,
        on_state: StateHandler | None = None,
    ) -> Pending:
        pending = Pending(self, event.operation_id, on_input=on_input, on_progress=on_progress, on_state=on_state)
        self._pending[event.operation_id] = pending
        try:
            self.feed(event)
        except BaseException:
            self._pending.pop(event.operation_id, None)
            raise
        return pending

    def _subscribe(self, event: ListenStarted) -> Subscription:
        subscription = Subscription(self, event.operation_id)
        self._subscriptions[event.operation_id] = subscription
        try:
            self.feed(event)
        except BaseException:
            del self._subscriptions[event.operation_id]
            raise
        return subscription

    def _carry_out(self, effect: ClientEffect) -> None:
        match effect:
            case Frame():
                if self._transport is not None:
                    self._transport.send(effect)
            case CloseStream(call_id):
                if self._transport is not None:
                    self._transport.close_stream(call_id)
            case CloseConnection(reason):
                if self._transport is not None:
                    self._transport.end(reason)
            case LogObserved():
                self._pass_on_log(effect)
            case Report(severity, message):
                _log.log(_LEVELS[severity], "%s", message)
            case OperationEnded(operation_id, _):
                ended = self._pending.pop(operation_id, None) or self._subscriptions.pop(operation_id, None)
                if ended is not None:
                    ended.notice(effect)
            case StateObserved(operation_id, _):
                follower = self._pending.get(operation_id) or self._subscriptions.get(operation_id)
                if follower is not None:
                    follower.notice(effect)
            case AskInput() | WithdrawInput() | TaskCreated() | ProgressObserved():
                pending = self._pending.get(effect.operation_id)
                if pending is not None:
                    pending.notice(effect)
            case ListenAcknowledged() | TaskDropped() | ListChangeObserved() | ResourceUpdateObserved():
                subscription = self._subscriptions.get(effect.operation_id)
                if subscription is not None:
                    subscription.notice(effect)

    def _pass_on_log(self, effect: LogObserved) -> None:
        if self._on_log is None:
            _log.info("%s: %s", effect.logger or "server", effect.data)
            return
        try:
            self._on_log(effect)
        except Exception:
            _log.exception("a handler of log messages failed")


def _now() -> Instant:
    return Instant(wall_ms=time.time_ns() // 1_000_000, monotonic_ms=int(anyio.current_time() * 1000))
