"""Task engines and access rules of the application's own: asked in the loop or in worker threads of their own.

One listen may ask for a thousand tasks. What waits for its turn here holds up no tool, no access rule and no other
engine, and other callers of the same one have their turns between.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from mcp_tasks_core.access import Owner
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

# At the same time, asynchronous or not: of one engine, and of the access rule. As many as a service behind them
# commonly takes from one client, and few enough threads to have for each.
READS_AT_ONCE: Final = 32
CHANGES_AT_ONCE: Final = 32
RULES_AT_ONCE: Final = 32


class Turns:
    """Calls of one kind, so many at a time: in the loop, or in threads that nothing else uses.

    Callers that wait take turns, however much each of them asks for.

    Args:
        limit: calls at the same time, 1 or more.
    """

    def __init__(self, limit: int) -> None:
        self._threads = WorkerThreads(limit)
        self._free = limit
        self._waiting: dict[Owner, deque[anyio.Event]] = {}  # whose turn is next comes first

    async def call(self, caller: Owner, function: Function, /, *args: Any) -> Any:
        """What the function gives, once its caller had a turn."""
        if self._free:
            self._free -= 1
        else:
            turn = anyio.Event()
            self._waiting.setdefault(caller, deque()).append(turn)
            await turn.wait()  # ends early with the server alone, and then nobody takes a turn any longer
        try:
            return await self._threads.call(function, is_async(function), *args)
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if not self._waiting:
            self._free += 1
            return
        caller = next(iter(self._waiting))
        turns = self._waiting.pop(caller)
        turns.popleft().set()
        if turns:
            self._waiting[caller] = turns  # behind all others


class _EngineTurns:
    """What one engine is asked for. Its answers and cancels do not wait behind its reads."""

    def __init__(self) -> None:
        self.reads = Turns(READS_AT_ONCE)
        self.changes = Turns(CHANGES_AT_ONCE)


class OwnEngines:
    """Asks what only the application knows.

    Args:
        feed: takes the answers to the core.
        task_group: of the server.
    """

    def __init__(self, application: Application, feed: Feed, task_group: TaskGroup) -> None:
        self._application = application
        self._feed = feed
        self._task_group = task_group
        # By identity: an engine that is there under two prefixes is one engine.
        self._turns = {id(backend): _EngineTurns() for backend in application.sources.values()}
        self._rules = Turns(RULES_AT_ONCE)

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
        ticket, turns = effect.ticket, self._turns[id(backend)]
        if effect.operation is SourceOperation.READ:
            task = await turns.reads.call(effect.caller, backend.read, effect.task_id)
            if task is None:
                return SourceAnswered(ticket=ticket, kind=SourceAnswerKind.UNKNOWN)
            assert isinstance(task, EngineTask)
            state = json_object(task.state)
            return SourceAnswered(ticket=ticket, kind=SourceAnswerKind.STATE, owner=task.owner, state=state)
        if effect.operation is SourceOperation.ANSWER:
            known = await turns.changes.call(effect.caller, backend.answer, effect.task_id, effect.answers)
        else:
            known = await turns.changes.call(effect.caller, backend.cancel, effect.task_id)
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
            allowed = await self._rules.call(
                effect.caller, rule, effect.caller, effect.access, effect.task_id, effect.owner
            )
        except Exception:
            _log.exception("The access rule failed for %s; access is denied", effect.task_id)
            allowed = False
        self._feed(AccessDecided(effect.ticket, allowed is True))
