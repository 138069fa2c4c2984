"""Task engines and access rules of the application's own: asked in the loop or in worker threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from anyio.abc import TaskGroup

from mcp_tasks_core.server.effects import AskSource, Authorize, SourceOperation
from mcp_tasks_core.server.events import AccessDecided, SourceAnswered, SourceAnswerKind, TaskChanged
from mcp_tasks_trio.application import Application
from mcp_tasks_trio.change_feeds import follow_all
from mcp_tasks_trio.channels import Feed
from mcp_tasks_trio.results import json_object
from mcp_tasks_trio.task_backends import EngineTask, TaskBackend
from mcp_tasks_trio.threads import WorkerThreads
from mcp_tasks_trio.tools import Function, is_async

_log = logging.getLogger("mcp_tasks_trio")


class OwnEngines:
    """Asks what only the application knows.

    Args:
        feed: takes the answers to the core.
        task_group: of the server.
    """

    def __init__(self, application: Application, feed: Feed, task_group: TaskGroup, threads: WorkerThreads) -> None:
        self._application = application
        self._feed = feed
        self._task_group = task_group
        self._threads = threads

    def ask_source(self, effect: AskSource) -> None:
        self._task_group.start_soon(self._run_source, effect)

    async def _run_source(self, effect: AskSource) -> None:
        backend = self._application.sources[effect.source]
        try:
            answer = await self._source_answer(backend, effect)
        except Exception as error:
            _log.exception("The task engine %r failed to %s %s", effect.source, effect.operation.value, effect.task_id)
            answer = SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.FAILED, reason=repr(error))
        self._feed(answer)

    async def _source_answer(self, backend: TaskBackend, effect: AskSource) -> SourceAnswered:
        ticket = effect.ticket
        if effect.operation is SourceOperation.READ:
            task = await self._either(backend.read, effect.task_id)
            if task is None:
                return SourceAnswered(ticket=ticket, kind=SourceAnswerKind.UNKNOWN)
            assert isinstance(task, EngineTask)
            state = json_object(task.state)
            return SourceAnswered(ticket=ticket, kind=SourceAnswerKind.STATE, owner=task.owner, state=state)
        if effect.operation is SourceOperation.ANSWER:
            known = await self._either(backend.answer, effect.task_id, effect.answers)
        else:
            known = await self._either(backend.cancel, effect.task_id)
        return SourceAnswered(ticket=ticket, kind=SourceAnswerKind.ACCEPTED if known else SourceAnswerKind.UNKNOWN)

    def follow_changes(self, take: Callable[[Sequence[TaskChanged]], None]) -> None:
        """Let the engines say which tasks have changed, for as long as the server runs.

        Args:
            take: takes what they say, in the event loop.
        """
        backends = {id(backend): (prefix, backend) for prefix, backend in self._application.sources.items()}
        self._task_group.start_soon(follow_all, list(backends.values()), take)

    def authorize(self, effect: Authorize) -> None:
        self._task_group.start_soon(self._run_authorize, effect)

    async def _run_authorize(self, effect: Authorize) -> None:
        rule = self._application.authorize
        assert rule is not None
        try:
            allowed = await self._either(rule, effect.caller, effect.access, effect.task_id, effect.owner)
        except Exception:
            _log.exception("The access rule failed for %s; access is denied", effect.task_id)
            allowed = False
        self._feed(AccessDecided(effect.ticket, allowed is True))

    async def _either(self, function: Function, /, *args: Any) -> Any:
        """The result of a function that may be asynchronous; others run in a worker thread."""
        return await self._threads.call(function, is_async(function), *args)
