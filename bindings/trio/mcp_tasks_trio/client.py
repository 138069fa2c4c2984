"""The client that applications use, on trio and asyncio: every decision is the protocol core's.

Source: basic; tools; tasks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Protocol

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
    WithdrawInput,
)
from mcp_tasks_core.client.events import (
    CallId,
    ClientEvent,
    DiscoverStarted,
    ListenStarted,
    ObservationStarted,
    OnTimeout,
    OperationId,
    RequestSubmitted,
    Ticked,
    ToolCallStarted,
    ToolsListStarted,
)
from mcp_tasks_core.client.outcomes import Answered, Discovered, Outcome, ToolsListed
from mcp_tasks_core.client.protocol import ClientProtocol
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, Instant, JSONObject, TaskId
from mcp_tasks_trio.background import start_in_background
from mcp_tasks_trio.client_errors import error_for
from mcp_tasks_trio.client_execution import (
    Execution,
    Pending,
    ProgressHandler,
    StateHandler,
    milliseconds,
    tool_result_of,
)
from mcp_tasks_trio.client_inputs import InputHandler
from mcp_tasks_trio.client_listening import Subscription
from mcp_tasks_trio.client_results import CallToolResult

LogHandler = Callable[[LogObserved], None]

DEFAULT_CLIENT_INFO: Final[JSONObject] = {"name": "mcp-tasks", "version": "0.1.0"}
DEFAULT_CAPABILITIES: Final[JSONObject] = {"elicitation": {"form": {}}}

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


class Client:
    """One connection to one server.

    It belongs to no task: it may be used from any, and closed from another one than it was opened in.

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

    async def __aenter__(self) -> Client:
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

    # --- what a caller can ask for

    async def discover(self, *, timeout: float | None = None) -> Discovered:  # noqa: ASYNC109 - see call_tool
        """Ask the server what it is.

        Args:
            timeout: seconds of silence after which it counts as legacy.

        Raises:
            LegacyServer: it does not speak this revision.
            ClientError: it failed otherwise.
        """
        event = DiscoverStarted(operation_id=self._next(), timeout_ms=milliseconds(timeout))
        outcome = await self._outcome(self._start(event))
        assert isinstance(outcome, Discovered)
        self.server = outcome
        return outcome

    async def list_tools(self, *, timeout: float | None = None) -> tuple[JSONObject, ...]:  # noqa: ASYNC109
        """All tools of the server, each raw.

        Args:
            timeout: seconds for all pages together.

        Raises:
            ClientError: they could not be listed.
        """
        event = ToolsListStarted(operation_id=self._next(), timeout_ms=milliseconds(timeout))
        outcome = await self._outcome(self._start(event))
        assert isinstance(outcome, ToolsListed)
        return outcome.tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_input: InputHandler | None = None,
        on_progress: ProgressHandler | None = None,
        on_state: StateHandler | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the deadline has consequences: the server is told
        tasks: bool = True,
        meta: JSONObject | None = None,
        log_level: str | None = None,
    ) -> CallToolResult:
        """Call a tool and wait for its result, through questions and through a task.

        The call owns its task: when its timeout passes, or its scope is cancelled, the server is told to cancel it.

        Args:
            on_input: answers the server's questions, one at a time.
            on_progress: called with progress that the server reports on the call itself.
            on_state: called with the handle and each new state of a task.
            timeout: seconds for everything together.
            tasks: whether the call may become a task.
            meta: more members of ``_meta``, such as a traceparent.
            log_level: ask for log messages at this level and above.

        Raises:
            InputUnhandled: the server asks, and there is no ``on_input``.
            CallTimedOut, TaskFailed, TaskCancelled, RemoteError, InvalidResponse, ConnectionLost, UnknownOutcome:
                it ended without a result. All are ``ClientError``.
            LocalProtocolError: the call or an answer cannot be sent.
        """
        event = ToolCallStarted(
            operation_id=self._next(),
            name=name,
            arguments=dict(arguments or {}),
            meta=meta or {},
            tasks=tasks,
            timeout_ms=milliseconds(timeout),
            progress=on_progress is not None,
            log_level=log_level,
        )
        pending = self._start(event, on_input=on_input, on_progress=on_progress, on_state=on_state)
        await pending.follow_or_cancel(lambda: False)
        assert pending.outcome is not None
        return tool_result_of(pending.outcome)

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_input: InputHandler | None = None,
        on_progress: ProgressHandler | None = None,
        on_state: StateHandler | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see call_tool
        meta: JSONObject | None = None,
        log_level: str | None = None,
    ) -> Execution:
        """Call a tool and return as soon as it is a task, or has its result.

        Up to then a cancelled scope cancels the call; afterwards the task is independent of whoever waits for it.

        Args:
            timeout: seconds after which it is no longer followed; the task itself is left alone.

        Raises:
            ClientError: it ended before, without a result.
        """
        event = ToolCallStarted(
            operation_id=self._next(),
            name=name,
            arguments=dict(arguments or {}),
            meta=meta or {},
            timeout_ms=milliseconds(timeout),
            progress=on_progress is not None,
            log_level=log_level,
            on_timeout=OnTimeout.LEAVE,
        )
        pending = self._start(event, on_input=on_input, on_progress=on_progress, on_state=on_state)
        await pending.follow_or_cancel(lambda: pending.task is not None)
        if pending.task is None and pending.outcome is not None:
            tool_result_of(pending.outcome)
        return Execution(pending)

    def observe(
        self,
        task_id: str,
        *,
        on_input: InputHandler | None = None,
        on_state: StateHandler | None = None,
        timeout: float | None = None,
        answered: Collection[str] = (),
    ) -> Execution:
        """Follow a task that exists, made here or elsewhere. The end of the observation cancels nothing.

        Args:
            timeout: seconds after which it is no longer followed.
            answered: questions that were answered before and are not asked again.
        """
        event = ObservationStarted(
            operation_id=self._next(),
            task_id=TaskId(task_id),
            timeout_ms=milliseconds(timeout),
            answered=frozenset(InputKey(key) for key in answered),
        )
        return Execution(self._start(event, on_input=on_input, on_state=on_state), TaskId(task_id))

    @contextlib.asynccontextmanager
    async def listen(
        self,
        task_ids: Iterable[str] = (),
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        resource_uris: Iterable[str] = (),
        timeout: float | None = None,  # noqa: ASYNC109 - see call_tool
    ) -> AsyncIterator[Subscription]:
        """Have the server tell what changes, for as long as the block lasts. Leaving it cancels no task.

        A stream that ends too early is asked for anew, and every task is read meanwhile, so that no end is missed.

        Args:
            task_ids: tasks whose states are told.
            tools, prompts, resources: tell when these lists change.
            resource_uris: tell when these resources change.
            timeout: seconds after which it ends with ``CallTimedOut``.

        Raises:
            SubscriptionsUnsupported: the server has none.
            ClientError: the server did not agree, or broke the protocol; reading the subscription raises it, too.
            LocalProtocolError: it is to nothing, or cannot be asked for.
        """
        if isinstance(task_ids, str) or isinstance(resource_uris, str):
            raise LocalProtocolError("task_ids and resource_uris are collections of strings, not one string")
        event = ListenStarted(
            operation_id=self._next(),
            task_ids=tuple(dict.fromkeys(TaskId(task_id) for task_id in task_ids)),
            tools=tools,
            prompts=prompts,
            resources=resources,
            resource_uris=tuple(dict.fromkeys(resource_uris)),
            timeout_ms=milliseconds(timeout),
            jitter_permille=random.randint(0, 1_000),
        )
        subscription = self._subscriptions[event.operation_id] = Subscription(self, event.operation_id)
        try:
            self.feed(event)
        except BaseException:
            del self._subscriptions[event.operation_id]
            raise
        try:
            await subscription.acknowledged()
            yield subscription
        finally:
            subscription.cancel_nowait()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        on_input: InputHandler | None = None,
        on_progress: ProgressHandler | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see call_tool
        total: float | None = None,
        tasks: bool = False,
        log_level: str | None = None,
    ) -> JSONObject:
        """Send any request and wait for its raw result.

        Args:
            timeout: seconds of silence; progress starts them anew.
            total: seconds at the most, in spite of progress.
            tasks: declare the tasks extension; ``tasks/*`` always do.

        Raises:
            ClientError: there is no result.
        """
        event = RequestSubmitted(
            operation_id=self._next(),
            method=method,
            params=dict(params or {}),
            timeout_ms=milliseconds(timeout),
            total_ms=milliseconds(total),
            tasks=tasks,
            progress=on_progress is not None,
            log_level=log_level,
        )
        outcome = await self._outcome(self._start(event, on_input=on_input, on_progress=on_progress))
        assert isinstance(outcome, Answered)
        return outcome.result

    async def cancel_task(self, task_id: str, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Have the server cancel a task; its acknowledgement records intent and proves no end.

        Raises:
            ClientError: the server did not acknowledge it.
        """
        await self.request("tasks/cancel", {"taskId": task_id}, timeout=timeout)

    # --- between callers, core and transport

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

    async def _outcome(self, pending: Pending) -> Outcome:
        """Wait for a result of any kind.

        Raises:
            ClientError: it ended without one.
        """
        await pending.follow_or_cancel(lambda: False)
        assert pending.outcome is not None
        error = error_for(pending.outcome)
        if error is not None:
            raise error
        return pending.outcome

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
            case ListenAcknowledged() | ListChangeObserved() | ResourceUpdateObserved():
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


def configured(
    config: ClientConfig | None, client_info: JSONObject | None, capabilities: JSONObject | None
) -> ClientConfig:
    """The whole configuration, where one is given; else one of what is said and declared."""
    if config is not None:
        return config
    declared = DEFAULT_CAPABILITIES if capabilities is None else capabilities
    return ClientConfig(client_info=client_info, capabilities=declared)


async def set_going(client: Client, transport: Transport, *, probe: bool, probe_timeout: float | None) -> None:
    """Let the transport carry the client's messages, and ask the server whether it speaks this revision.

    Raises:
        ClientError: it does not, or could not be asked; the client is closed then.
    """
    client.attach(transport)
    start_in_background(transport.run)
    if probe:
        try:
            await client.discover(timeout=probe_timeout)
        except BaseException:
            await client.aclose()
            raise
