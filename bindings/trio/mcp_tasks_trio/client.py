"""The client that applications use, on trio and asyncio: every decision is the protocol core's.

Source: basic; tools; tasks.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Any, Final

from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.events import (
    DiscoverStarted,
    ListenStarted,
    ObservationStarted,
    OnTimeout,
    RequestSubmitted,
    ToolCallStarted,
    ToolsListStarted,
)
from mcp_tasks_core.client.outcomes import Answered, Discovered, Outcome, ToolsListed
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_trio.background import start_in_background
from mcp_tasks_trio.client_connection import ClientConnection, Transport
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

DEFAULT_CLIENT_INFO: Final[JSONObject] = {"name": "mcp-tasks", "version": "0.1.0"}
DEFAULT_CAPABILITIES: Final[JSONObject] = {"elicitation": {"form": {}}}


class Client(ClientConnection):
    """One connection to one server.

    It belongs to no task: it may be used from any, and closed from another one than it was opened in.

    Args:
        on_log: called with each log message that a request asked for; it must not wait.
    """

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
        subscription = self._subscribe(event)
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
