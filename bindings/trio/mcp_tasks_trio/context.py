"""What a tool, a gate or a method knows of its call, and how it speaks to whoever called.

Asynchronous functions get the asynchronous contexts, functions that run in worker threads the ``Sync`` ones,
whose methods block. Both work the same inline and in a task.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import anyio.lowlevel
import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_trio import questions
from mcp_tasks_trio.channels import LOG_LEVELS, Channel
from mcp_tasks_trio.durations import optional_duration_ms
from mcp_tasks_trio.questions import ElicitationAnswer, Question
from mcp_tasks_trio.results import UnfitResult, clean_text, json_value
from mcp_tasks_trio.threads import LoopCalls
from mcp_tasks_trio.tool_errors import CallCancelled

T = TypeVar("T")


class _CallFacts:
    """What came with a call."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def owner(self) -> Owner:
        """On whose behalf the call is made, as the transport knows it."""
        return self._channel.call.owner

    @property
    def meta(self) -> JSONObject:
        """The request's ``_meta`` as it was sent, trace context included."""
        return self._channel.call.meta

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the request declared."""
        return self._channel.call.capabilities

    @property
    def answers(self) -> Mapping[str, JSONObject]:
        """Answers that are there already, raw, by the keys of their questions."""
        return self._channel.answers

    def declares(self, request: JSONObject) -> bool:
        """Whether the client declared what this input request needs."""
        return self.capabilities.missing_for(request) is None

    @property
    def declares_form(self) -> bool:
        """Whether forms may be asked with ``elicit``."""
        return self.declares({"method": "elicitation/create", "params": {"mode": "form"}})

    @property
    def cancel_requested(self) -> bool:
        """Whether nobody waits for this call any longer, or its task is to stop."""
        return self._channel.cancel_requested

    def raise_if_cancelled(self) -> None:
        """Leave the function if the call was cancelled.

        Raises:
            CallCancelled: it was.
        """
        if self._channel.cancel_requested:
            raise CallCancelled


class _AsyncContext(_CallFacts):
    """Speaks to whoever called."""

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call is. Inline it is sent where the caller wants it, in a task it is the statusMessage.

        Others have their turn then, and a cancellation reaches the tool.

        Args:
            progress: finite, and more than the last time.
            total: finite, where it is known.
        """
        self._channel.progress(*_checked_progress(progress, total, message))
        # Work that only computes and tells of it would keep the loop from everybody, and could not be cancelled.
        await anyio.lowlevel.checkpoint()

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message to a caller that asked for messages of this level; from a task, to the server's log.

        Args:
            level: ``debug``, ``info``, ``notice``, ``warning``, ``error``, ``critical``, ``alert`` or ``emergency``.
            data: anything that has a JSON form.
        """
        self._channel.log(*_checked_log(level, data, logger))
        await anyio.lowlevel.checkpoint()

    async def ask(self, requests: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        """Ask several questions at once: raw input requests by key, raw answers by the same keys.

        Raises:
            InputUnavailable: the client did not declare one of the kinds.
        """
        return await self._channel.ask(requests)

    async def elicit(
        self,
        key: str,
        message: str,
        schema: Mapping[str, Any] | type,
        required: Sequence[str] | None = None,
    ) -> ElicitationAnswer:
        """Ask a person to fill in a form.

        Args:
            key: names the question; the same key is always the same question.
            schema: the form's properties by name, a whole object schema, or a class with plain fields.
            required: the properties that must be given; ``None`` for all without a default.

        Raises:
            InputUnavailable: the client did not declare form elicitation.
        """
        return await self._ask_one(key, questions.form(message, schema, required))

    async def elicit_url(self, key: str, message: str, url: str) -> ElicitationAnswer:
        """Ask a person to open a page; use it for anything secret, which must not pass through the client.

        Raises:
            InputUnavailable: the client did not declare URL elicitation.
        """
        return await self._ask_one(key, questions.visit(message, url))

    async def sample(
        self,
        key: str,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: Mapping[str, Any] | None = None,
    ) -> JSONObject:
        """Have the client's model write a message; gives the ``CreateMessageResult``, raw.

        Raises:
            InputUnavailable: the client did not declare sampling, or sampling with tools.
        """
        question = questions.sampling(
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=model_preferences,
            metadata=metadata,
            tools=tools,
            tool_choice=tool_choice,
        )
        return await self._ask_one(key, question)

    async def list_roots(self, key: str = "roots") -> list[JSONObject]:
        """The directories and files that the client lets servers know of, raw.

        Raises:
            InputUnavailable: the client did not declare roots.
        """
        return await self._ask_one(key, questions.roots())

    async def _ask_one(self, key: str, question: Question[T]) -> T:
        answers = await self._channel.ask({key: question.request})
        return question.read(answers[key])


class _SyncContext(_CallFacts):
    """Speaks to whoever called, from a worker thread: every method blocks until it is done."""

    def __init__(self, channel: Channel, loop: LoopCalls) -> None:
        super().__init__(channel)
        self._loop = loop

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As ``ToolContext.progress``."""
        self._loop.post(self._channel.progress, *_checked_progress(progress, total, message))

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """As ``ToolContext.log``."""
        self._loop.post(self._channel.log, *_checked_log(level, data, logger))

    def ask(self, requests: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        """As ``ToolContext.ask``."""
        return self._loop.run(lambda: self._channel.ask(requests))

    def elicit(
        self,
        key: str,
        message: str,
        schema: Mapping[str, Any] | type,
        required: Sequence[str] | None = None,
    ) -> ElicitationAnswer:
        """As ``ToolContext.elicit``."""
        return self._ask_one(key, questions.form(message, schema, required))

    def elicit_url(self, key: str, message: str, url: str) -> ElicitationAnswer:
        """As ``ToolContext.elicit_url``."""
        return self._ask_one(key, questions.visit(message, url))

    def sample(
        self,
        key: str,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: Mapping[str, Any] | None = None,
    ) -> JSONObject:
        """As ``ToolContext.sample``."""
        question = questions.sampling(
            messages,
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=model_preferences,
            metadata=metadata,
            tools=tools,
            tool_choice=tool_choice,
        )
        return self._ask_one(key, question)

    def list_roots(self, key: str = "roots") -> list[JSONObject]:
        """As ``ToolContext.list_roots``."""
        return self._ask_one(key, questions.roots())

    def _ask_one(self, key: str, question: Question[T]) -> T:
        return question.read(self.ask({key: question.request})[key])


class _ToolFacts(_CallFacts):
    tool_name: str

    @property
    def task_id(self) -> TaskId | None:
        """The task whose work this is, ``None`` where the call is answered inline."""
        return self._channel.task_id

    @property
    def attempt(self) -> int:
        """1, and one more each time that another process runs the work of the task again after one has died."""
        return self._channel.attempt


class ToolContext(_AsyncContext, _ToolFacts):
    """For an asynchronous tool: a parameter annotated with it receives it, whatever its name.

    A function that is not asynchronous gets a ``SyncToolContext`` in its place.
    """

    def __init__(self, channel: Channel, tool_name: str) -> None:
        super().__init__(channel)
        self.tool_name = tool_name

    async def status(self, message: str) -> None:
        """Set a task's statusMessage; inline there is no such thing, and it is dropped."""
        self._channel.progress(None, None, _checked_message(message))
        await anyio.lowlevel.checkpoint()

    async def keep_for(self, ttl: timedelta | None) -> None:
        """Change how long the task is kept; inline there is no task, and nothing happens.

        Args:
            ttl: counted from the task's creation, not from now; 1 ms or more, in whole milliseconds. A task that is
                unfinished when it is over fails. ``None`` for without limit.

        Raises:
            LocalProtocolError: it is no such duration.
        """
        self._channel.retime(ttl_ms=optional_duration_ms(ttl, "ttl"))

    async def poll_every(self, interval: timedelta | None) -> None:
        """Change how often clients are told to poll the task; inline there is no task, and nothing happens.

        Args:
            interval: 1 ms or more, in whole milliseconds; ``None`` to suggest nothing.

        Raises:
            LocalProtocolError: it is no such duration.
        """
        self._channel.retime(poll_interval_ms=optional_duration_ms(interval, "interval"))


class SyncToolContext(_SyncContext, _ToolFacts):
    """For a tool that runs in a worker thread."""

    def __init__(self, channel: Channel, loop: LoopCalls, tool_name: str) -> None:
        super().__init__(channel, loop)
        self.tool_name = tool_name

    def status(self, message: str) -> None:
        """As ``ToolContext.status``."""
        self._loop.post(self._channel.progress, None, None, _checked_message(message))

    def keep_for(self, ttl: timedelta | None) -> None:
        """As ``ToolContext.keep_for``."""
        self._loop.post(functools.partial(self._channel.retime, ttl_ms=optional_duration_ms(ttl, "ttl")))

    def poll_every(self, interval: timedelta | None) -> None:
        """As ``ToolContext.poll_every``."""
        interval_ms = optional_duration_ms(interval, "interval")
        self._loop.post(functools.partial(self._channel.retime, poll_interval_ms=interval_ms))


@attrs.frozen
class GatedCall:
    """A call that is about to run.

    Args:
        arguments: the values as the tool gets them, by parameter.
        raw_arguments: what the client sent.
        becomes_task: the call is to become a task.
    """

    tool_name: str
    arguments: Mapping[str, Any]
    raw_arguments: JSONObject
    becomes_task: bool


class _GateFacts(_CallFacts):
    gated: GatedCall

    @property
    def tool_name(self) -> str:
        """The tool that is about to run."""
        return self.gated.tool_name

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The values as the tool gets them, by parameter."""
        return self.gated.arguments

    @property
    def raw_arguments(self) -> JSONObject:
        """The arguments as the client sent them."""
        return self.gated.raw_arguments

    @property
    def becomes_task(self) -> bool:
        """Whether the call is to become a task."""
        return self.gated.becomes_task


class GateContext(_AsyncContext, _GateFacts):
    """For an asynchronous gate: a call that is about to run, before anything of it exists."""

    def __init__(self, channel: Channel, gated: GatedCall) -> None:
        super().__init__(channel)
        self.gated = gated


class SyncGateContext(_SyncContext, _GateFacts):
    """For a gate that is not asynchronous."""

    def __init__(self, channel: Channel, loop: LoopCalls, gated: GatedCall) -> None:
        super().__init__(channel, loop)
        self.gated = gated


class MethodContext(_AsyncContext):
    """For an asynchronous method of the application's own. Only prompts/get and resources/read may ask questions."""

    def __init__(self, channel: Channel, method: str) -> None:
        super().__init__(channel)
        self.method = method


class SyncMethodContext(_SyncContext):
    """For a method that is not asynchronous."""

    def __init__(self, channel: Channel, loop: LoopCalls, method: str) -> None:
        super().__init__(channel, loop)
        self.method = method


def _checked_progress(progress: object, total: object, message: str | None) -> tuple[float, float | None, str | None]:
    numbers: list[Any] = []
    for name, value in (("progress", progress), ("total", total)):
        if value is None and name == "total":
            numbers.append(None)
        elif _is_finite_number(value):
            numbers.append(value)
        else:
            raise LocalProtocolError(f"{name} is a finite number, not {value!r}")
    first, second = numbers
    return first, second, None if message is None else _checked_message(message)


def _checked_message(message: object) -> str:
    if not isinstance(message, str):
        raise LocalProtocolError(f"message is a text, not {message!r}")
    return clean_text(message)


def _is_finite_number(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _checked_log(level: str, data: Any, logger: str | None) -> tuple[str, Any, str | None]:
    if level not in LOG_LEVELS:
        raise LocalProtocolError(f"level is one of {', '.join(LOG_LEVELS)}; not {level!r}")
    try:
        return level, json_value(data), logger
    except UnfitResult as error:
        raise LocalProtocolError(f"the data of a log message: {error}") from None
