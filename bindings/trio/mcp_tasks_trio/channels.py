"""How a running body reaches its caller: inline through the call itself, in a task through the task's record.

Both speak to the protocol core with events; neither waits for anything but the answers to questions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel
import attrs

from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    ErrorObject,
    LocalProtocolError,
)
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue, TaskId, Ticket
from mcp_tasks_core.server.effects import CallContext
from mcp_tasks_core.server.events import (
    UNCHANGED,
    Asked,
    CallLogged,
    CallProgressed,
    InputNeeded,
    InputWithdrawn,
    Outcome,
    Raised,
    ServerEvent,
    Unchanged,
    WorkProgressed,
    WorkRetimed,
)
from mcp_tasks_trio.tool_errors import BodyUnwound, CallCancelled, InputUnavailable

Feed = Callable[[ServerEvent], None]
CheckAnswer = Callable[[JSONObject, JSONValue], "str | None"]

LOG_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The levels of a log message, the least severe first, and what they are in Python's logging."""

_END_SECONDS: Final = 1.0  # for the end of the server to reach work that asks just then
_TURNS_FOR_SIBLINGS: Final = 3  # turns of the loop in which tasks that run beside the asking one may ask, too

_work_log = logging.getLogger("mcp_tasks_trio.work")


class Channel(Protocol):
    """What a context stands on."""

    call: CallContext
    task_id: TaskId | None
    attempt: int
    cancel_requested: bool

    @property
    def answers(self) -> Mapping[str, JSONObject]:
        """Answers that are there already, raw, by key."""

    async def ask(self, requests: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        """The answers to these questions, raw, by key."""

    def progress(self, progress: float | None, total: float | None, message: str | None) -> None: ...

    def log(self, level: str, data: JSONValue, logger: str | None) -> None: ...

    def retime(
        self, *, ttl_ms: int | None | Unchanged = UNCHANGED, poll_interval_ms: int | None | Unchanged = UNCHANGED
    ) -> None: ...


class InlineChannel:
    """Reaches the caller of a request that is being answered.

    A question without an answer at hand ends the body: the request is answered with the question, and the body
    runs again when the answer comes with the retry. Source: mrtr, Basic Workflow.

    Args:
        may_ask: the request is of a kind that may be answered with a question.
    """

    task_id: TaskId | None = None
    attempt = 1

    def __init__(
        self, feed: Feed, ticket: Ticket, call: CallContext, check_answer: CheckAnswer, *, may_ask: bool = True
    ) -> None:
        self.call = call
        self.cancel_requested = False
        self.settled: dict[str, tuple[JSONObject, JSONObject]] = {}
        self._feed = feed
        self._ticket = ticket
        self._check_answer = check_answer
        self._may_ask = may_ask
        self._asked: dict[str, JSONObject] = {}
        self._fault: ErrorObject | None = None
        self._open = True

    @property
    def answers(self) -> Mapping[str, JSONObject]:
        return {str(key): answer for key, answer in self.call.answers.items()}

    @property
    def verdict(self) -> Outcome | None:
        """What the call is answered with whatever else its body does; ``None`` when that is the body's to say."""
        if self._fault is not None:
            return Raised(self._fault)
        if self._asked:
            return Asked({InputKey(key): request for key, request in self._asked.items()})
        return None

    async def ask(self, requests: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        self._check_may_ask()
        for key, request in requests.items():
            check_key(key)
            check_declared(self.call.capabilities, request)
            known = self._asked.get(key) or self.settled.get(key, (None, None))[0]
            if known is not None and known != request:
                raise LocalProtocolError(f"the key {key!r} already names another question of this call")
        found = {key: answer for key, request in requests.items() if (answer := self._answer_to(key, request))}
        missing = {key: request for key, request in requests.items() if key not in found}
        if not missing:
            return found
        self._asked.update(missing)
        for _ in range(_TURNS_FOR_SIBLINGS):
            await anyio.lowlevel.checkpoint()
        raise BodyUnwound

    def _check_may_ask(self) -> None:
        if self.cancel_requested:
            raise CallCancelled
        if not self._open:
            raise LocalProtocolError("the call has ended; nothing more can be asked")
        if not self._may_ask:
            raise LocalProtocolError("only tools/call, prompts/get and resources/read may ask questions")
        if self._fault is not None:
            raise BodyUnwound

    def _answer_to(self, key: str, request: JSONObject) -> JSONObject | None:
        answer = self.call.answers.get(InputKey(key))
        if answer is None:
            return None
        problem = self._check_answer(request, answer)
        if problem is not None:
            self._fault = ErrorObject(INVALID_PARAMS, f"inputResponses[{key!r}]: {problem}")
            raise BodyUnwound
        self.settled[key] = (request, answer)
        return answer

    def progress(self, progress: float | None, total: float | None, message: str | None) -> None:
        # A message without a number has no place in notifications/progress.
        if self._open and progress is not None:
            self._feed(CallProgressed(ticket=self._ticket, progress=progress, total=total, message=message))

    def log(self, level: str, data: JSONValue, logger: str | None) -> None:
        if self._open:
            self._feed(CallLogged(ticket=self._ticket, level=level, data=data, logger=logger))

    def retime(
        self, *, ttl_ms: int | None | Unchanged = UNCHANGED, poll_interval_ms: int | None | Unchanged = UNCHANGED
    ) -> None:
        """There is no task whose time it could be."""

    def cancel(self) -> None:
        self.cancel_requested = True

    def close(self) -> None:
        """The call has its answer: what a body left running says from now on is lost."""
        self._open = False


@attrs.define(eq=False)
class _Waiter:
    """Some who wait for the answer to one question."""

    request: JSONObject
    done: anyio.Event = attrs.field(factory=anyio.Event)
    waiting: int = 0
    answer: JSONObject | None = None
    error: BaseException | None = None


class WorkChannel:
    """Reaches the record of a task.

    Args:
        foreground: questions that were answered before the task existed, by key; asking one of them again gives
            the answer without troubling the client.
        attempt: 1 for the process that the task was made in, 2 for the one that runs its work after that.
    """

    def __init__(
        self,
        feed: Feed,
        task_id: TaskId,
        call: CallContext,
        foreground: Mapping[str, tuple[JSONObject, JSONObject]],
        attempt: int = 1,
    ) -> None:
        self.call = call
        self.attempt = attempt
        self.task_id: TaskId | None = task_id
        self.cancel_requested = False
        self.own_task_id = task_id
        self._feed = feed
        self._foreground = foreground
        self._waiters: dict[str, _Waiter] = {}
        self._open = True
        self._server_ends = False

    @property
    def answers(self) -> Mapping[str, JSONObject]:
        return {key: answer for key, (_, answer) in self._foreground.items()}

    async def ask(self, requests: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
        if self._server_ends:
            # The server's end reaches it in a moment, and a failure would become the task's outcome. Not so inside of a
            # scope that shields itself from being cancelled, which would wait for ever.
            await anyio.sleep(_END_SECONDS)
            raise LocalProtocolError("the server ends; nothing more can be asked")
        if not self._open:
            raise LocalProtocolError("the work has ended; nothing more can be asked")
        for key in requests:
            check_key(key)
        found: dict[str, JSONObject] = {}
        waiters: dict[str, _Waiter] = {}
        try:
            for key, request in requests.items():
                settled = self._foreground.get(key)
                if settled is not None and settled[0] == request:
                    found[key] = settled[1]
                else:
                    waiters[key] = self._wait_for(key, request)
            for key, waiter in waiters.items():
                await waiter.done.wait()
                if waiter.error is not None:
                    raise waiter.error
                assert waiter.answer is not None
                found[key] = waiter.answer
        finally:
            for key, waiter in waiters.items():
                self._leave(key, waiter)
        return {key: found[key] for key in requests}

    def _wait_for(self, key: str, request: JSONObject) -> _Waiter:
        if self.cancel_requested:
            raise CallCancelled
        waiter = self._waiters.get(key)
        if waiter is not None and waiter.request == request:
            waiter.waiting += 1
            return waiter
        if waiter is not None:
            raise LocalProtocolError(f"the key {key!r} already names another question of this task")
        waiter = self._waiters[key] = _Waiter(request)
        waiter.waiting = 1
        try:
            self._feed(InputNeeded(self.own_task_id, InputKey(key), request))
        except BaseException:
            del self._waiters[key]
            raise
        return waiter

    def _leave(self, key: str, waiter: _Waiter) -> None:
        waiter.waiting -= 1
        if waiter.waiting or self._waiters.get(key) is not waiter:
            return
        del self._waiters[key]
        if not waiter.done.is_set() and not self.cancel_requested and self._open:
            self._feed(InputWithdrawn(self.own_task_id, InputKey(key)))

    def deliver(self, key: InputKey, answer: JSONObject) -> None:
        waiter = self._waiters.get(key)
        if waiter is not None:
            waiter.answer = answer
            waiter.done.set()

    def refuse(self, key: InputKey, error: ErrorObject) -> None:
        waiter = self._waiters.get(key)
        if waiter is not None:
            waiter.error = InputUnavailable.of(error)
            waiter.done.set()

    def progress(self, progress: float | None, total: float | None, message: str | None) -> None:
        if self._open:
            self._feed(WorkProgressed(task_id=self.own_task_id, progress=progress, total=total, message=message))

    def log(self, level: str, data: JSONValue, logger: str | None) -> None:
        # A task has no request in progress that log messages could belong to: they go to the server's own log.
        _work_log.log(LOG_LEVELS[level], "%s: %s", logger or self.own_task_id, data)

    def retime(
        self, *, ttl_ms: int | None | Unchanged = UNCHANGED, poll_interval_ms: int | None | Unchanged = UNCHANGED
    ) -> None:
        if self._open:
            self._feed(WorkRetimed(task_id=self.own_task_id, ttl_ms=ttl_ms, poll_interval_ms=poll_interval_ms))

    def cancel(self, *, wake: bool) -> None:
        """The work is to stop.

        Args:
            wake: whoever waits for an answer gets none; where the work is a thread, no cancelled scope reaches it.
        """
        self.cancel_requested = True
        for waiter in self._waiters.values() if wake else ():
            if not waiter.done.is_set():
                waiter.error = CallCancelled()
                waiter.done.set()

    def close(self) -> None:
        """The work has ended: what it left running says from now on is lost."""
        self._open = False

    def end_with_server(self) -> None:
        """The server ends, and the work is about to be cancelled: what it says from now on is lost."""
        self._open = False
        self._server_ends = True


def check_key(key: Any) -> None:
    if not isinstance(key, str) or not key:
        raise LocalProtocolError(f"a question's key is a string of 1 character or more, not {key!r}")


def check_declared(capabilities: ClientCapabilities, request: JSONObject) -> None:
    """Refuse a question of a kind that the client did not declare. Source: mrtr, Server Requirements.

    Raises:
        InputUnavailable: with -32021 and what would have been needed.
    """
    missing = capabilities.missing_for(request)
    if missing is not None:
        raise InputUnavailable(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"the client did not declare what {request.get('method')} needs",
            {"requiredCapabilities": missing},
        )
