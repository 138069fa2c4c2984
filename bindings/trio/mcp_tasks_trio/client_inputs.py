"""A server's question as a handler sees it, and how handlers are called.

Source: elicitation; sampling; roots; tasks, Task Update Requests.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio.to_thread
import attrs

from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId


class NobodyToAsk(Exception):
    """Raised by a handler that cannot answer and may not decide: the call ends with ``InputUnhandled``.

    The question stays open at the server; nothing is answered in the person's name.
    """


@attrs.frozen(kw_only=True)
class InputRequest:
    """One question of a server.

    Args:
        key: names the question, within its task for the task's whole life.
        method: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.
        params: raw.
        raw: the whole input request.
        task_id: the task that asks; ``None`` where the call is no task yet.
    """

    key: InputKey
    method: str
    params: JSONObject
    raw: JSONObject
    task_id: TaskId | None

    @property
    def message(self) -> str | None:
        """What an elicitation says to the person."""
        return self.params.get("message")

    @property
    def requested_schema(self) -> JSONObject | None:
        """The flat JSON Schema of a form; ``None`` for anything else."""
        return self.params.get("requestedSchema")

    @property
    def url(self) -> str | None:
        """The whole URL that a person is asked to open. Show it and ask for consent; fetch nothing before."""
        return self.params.get("url") if self.params.get("mode") == "url" else None

    def accept(self, content: JSONObject | None = None) -> JSONObject:
        """The answer to an elicitation that the person accepted: a form with its content, a URL without."""
        return {"action": "accept"} if content is None else {"action": "accept", "content": content}

    def decline(self) -> JSONObject:
        """The answer to an elicitation that the person said no to."""
        return {"action": "decline"}

    def cancel(self) -> JSONObject:
        """The answer to an elicitation that the person dismissed without deciding."""
        return {"action": "cancel"}


InputHandler: TypeAlias = Callable[[InputRequest], "JSONObject | Awaitable[JSONObject]"]
"""Answers a question. An ``async`` one runs on the loop; any other one in a worker thread, for it may block."""


async def ask_handler(handler: InputHandler, request: InputRequest) -> Any:
    """The handler's answer, whichever kind of function it is."""
    called = handler.func if isinstance(handler, functools.partial) else handler
    call = getattr(called, "__call__", None)  # noqa: B004 - an object with an async __call__ is asked for it
    if inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(call):
        answer: Any = handler(request)
    else:
        # A person at a prompt cannot be interrupted; the thread is left behind when nobody waits for it any more.
        answer = await anyio.to_thread.run_sync(handler, request, abandon_on_cancel=True)
    return await answer if inspect.isawaitable(answer) else answer
