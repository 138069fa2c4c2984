"""One thing asked of a server, as its caller waits for it.

What the protocol core says about it is kept here until somebody waits: questions, the newest states, its end.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import anyio

from mcp_tasks_core.client.effects import (
    AskInput,
    OperationEnded,
    ProgressObserved,
    StateObserved,
    TaskCreated,
    WithdrawInput,
)
from mcp_tasks_core.client.events import (
    CancelRequested,
    DetachRequested,
    InputAnswered,
    InputUnanswerable,
    OperationId,
)
from mcp_tasks_core.client.outcomes import Cancelled, DetachedFromTask, Outcome, ToolResult
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.tasks import Task
from mcp_tasks_trio.client_errors import CallTimedOut, ClientError, TaskCancelled, TaskFailed, error_for
from mcp_tasks_trio.client_inputs import InputHandler, InputRequest, NobodyToAsk, ask_handler
from mcp_tasks_trio.client_results import CallToolResult

if TYPE_CHECKING:
    from mcp_tasks_trio.client_connection import ClientConnection

Notice: TypeAlias = TaskCreated | StateObserved | ProgressObserved | AskInput | WithdrawInput | OperationEnded
StateHandler: TypeAlias = Callable[[Task], "Awaitable[None] | None"]
ProgressHandler: TypeAlias = Callable[[ProgressObserved], "Awaitable[None] | None"]

# States and progress that wait for a slow handler. 256: the oldest go first, the newest ones and all questions stay.
_NEWS_MAX: Final = 256


class Pending:
    """An operation of the core, from its start to its outcome."""

    def __init__(
        self,
        client: ClientConnection,
        operation_id: OperationId,
        *,
        on_input: InputHandler | None = None,
        on_state: StateHandler | None = None,
        on_progress: ProgressHandler | None = None,
    ) -> None:
        self._client = client
        self._operation_id = operation_id
        self._on_input = on_input
        self._on_state = on_state
        self._on_progress = on_progress
        self._news: deque[TaskCreated | StateObserved | ProgressObserved] = deque(maxlen=_NEWS_MAX)
        self._asked: dict[InputKey, AskInput] = {}
        self._changed = anyio.Event()
        self._asking: InputKey | None = None
        self._asking_is_over = anyio.Event()
        self._one_waiter = anyio.Lock()
        self.ended = anyio.Event()
        self.task: Task | None = None
        self.outcome: Outcome | None = None

    @property
    def operation_id(self) -> OperationId:
        return self._operation_id

    def notice(self, notice: Notice) -> None:
        """Take in what the core says. Never waits."""
        match notice:
            case TaskCreated(_, task) | StateObserved(_, task):
                self.task = task
                self._news.append(notice)
            case ProgressObserved():
                self._news.append(notice)
            case AskInput(key=key):
                self._asked[key] = notice
            case WithdrawInput(_, key):
                self._asked.pop(key, None)
                if key == self._asking:
                    self._asking_is_over.set()
            case OperationEnded(_, outcome):
                self.outcome = outcome
                self._asked.clear()
                self._asking_is_over.set()
                self.ended.set()
            case _:
                assert_never(notice)
        self._changed.set()

    def cancel_nowait(self, *, wait_for_end: bool = False) -> None:
        """Have the server told, and wait for nothing."""
        if self.outcome is None:
            self._client.feed(CancelRequested(operation_id=self._operation_id, wait_for_end=wait_for_end))

    def detach_nowait(self) -> None:
        if self.outcome is None:
            self._client.feed(DetachRequested(self._operation_id))

    async def follow(self, until: Callable[[], bool]) -> None:
        """Hand on what happens, and have questions answered, until something is true or the operation has ended."""
        async with self._one_waiter:
            while self.outcome is None and not until():
                await self._hand_on()
                if self.outcome is None and not until():
                    if self._asked:
                        await self._answer(next(iter(self._asked.values())))
                    else:
                        await self._changed.wait()
            await self._hand_on()

    async def follow_or_cancel(self, until: Callable[[], bool]) -> None:
        """The same for a caller who owns what it waits for: if it stops waiting, for whatever reason, so does all."""
        try:
            await self.follow(until)
        except BaseException:
            self.cancel_nowait()
            raise

    async def _hand_on(self) -> None:
        self._changed = anyio.Event()
        while self._news:
            notice = self._news.popleft()
            result: Awaitable[None] | None = None
            if isinstance(notice, ProgressObserved):
                if self._on_progress is not None:
                    result = self._on_progress(notice)
            elif self._on_state is not None:
                result = self._on_state(notice.task)
            if inspect.isawaitable(result):
                await result

    async def _answer(self, ask: AskInput) -> None:
        """Have one question answered; the handler is cancelled when nobody wants its answer any more."""
        del self._asked[ask.key]
        if self._on_input is None:
            self._client.feed(InputUnanswerable(self._operation_id, ask.key))
            return
        request = InputRequest(
            key=ask.key,
            method=ask.request["method"],
            params=ask.request.get("params", {}),
            raw=ask.request,
            task_id=ask.task_id,
        )
        self._asking, self._asking_is_over = ask.key, anyio.Event()
        try:
            event = await self._event_from(self._on_input, request)
            if event is not None:
                self._client.feed(event)
        except BaseException:
            # Still open: whoever waits next has it asked again.
            if not self._asking_is_over.is_set():
                self._asked[ask.key] = ask
            raise
        finally:
            self._asking = None

    async def _event_from(
        self, handler: InputHandler, request: InputRequest
    ) -> InputAnswered | InputUnanswerable | None:
        """What came of asking: ``None`` when the question was withdrawn or the operation ended meanwhile."""
        event: InputAnswered | InputUnanswerable | None = None
        failure: BaseException | None = None

        async def stop_when_over() -> None:
            await self._asking_is_over.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(stop_when_over)
            try:
                event = InputAnswered(self._operation_id, request.key, await ask_handler(handler, request))
            except NobodyToAsk:
                event = InputUnanswerable(self._operation_id, request.key)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                # Raised outside the group, which would wrap it.
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return event


class Execution:
    """A tool call or a task that is followed in the background.

    Nothing waits for it by itself: questions are asked, and handlers called, while somebody is in ``wait``. Whoever
    stops waiting leaves the task running.
    """

    def __init__(self, pending: Pending, task_id: TaskId | None = None) -> None:
        self._pending = pending
        self._task_id = task_id

    @property
    def task_id(self) -> TaskId | None:
        """The task's id, to be kept for an observation elsewhere; ``None`` where the call was answered at once."""
        return self._task_id if self._pending.task is None else self._pending.task.task_id

    @property
    def state(self) -> Task | None:
        """The newest state that was seen; ``None`` before the first."""
        return self._pending.task

    @property
    def ended(self) -> bool:
        return self._pending.outcome is not None

    async def wait(self, timeout: float | None = None) -> CallToolResult:  # noqa: ASYNC109 - a deadline with an outcome
        """Wait for the result.

        Args:
            timeout: seconds to wait for it; the execution goes on after that and can be waited for again.

        Raises:
            CallTimedOut: the time is over.
            ClientError: it ended otherwise than with a result.
        """
        with anyio.move_on_after(None if timeout is None else checked_seconds(timeout)):
            await self._pending.follow(lambda: False)
        if self._pending.outcome is None:
            raise CallTimedOut("tasks/get", self.task_id)
        return tool_result_of(self._pending.outcome)

    async def cancel(self, *, wait_for_end: bool = False) -> None:
        """Have the server cancel it: the request if it is no task yet, else the task.

        Args:
            wait_for_end: wait until the task has ended, not only for the acknowledgement.

        Raises:
            ClientError: the server did not accept the cancellation, or nothing tells whether it did.
        """
        self._pending.cancel_nowait(wait_for_end=wait_for_end)
        await self._pending.ended.wait()
        outcome = self._pending.outcome
        error = None if outcome is None or isinstance(outcome, Cancelled) else error_for(outcome)
        if error is not None and not isinstance(error, (TaskCancelled, TaskFailed)):
            raise error

    def detach(self) -> frozenset[InputKey]:
        """Stop watching; the task runs on. Gives the questions that an observation elsewhere must not ask again.

        Raises:
            LocalProtocolError: there is no task yet.
        """
        self._pending.detach_nowait()
        outcome = self._pending.outcome
        return outcome.answered if isinstance(outcome, DetachedFromTask) else frozenset()


def tool_result_of(outcome: Outcome) -> CallToolResult:
    """The result that an outcome holds.

    Raises:
        ClientError: it holds none.
    """
    if isinstance(outcome, ToolResult):
        return CallToolResult(raw=outcome.result, task_id=outcome.from_task)
    raise error_for(outcome) or ClientError(f"not the outcome of a tool call: {outcome}")


def checked_seconds(seconds: float) -> float:
    """A timeout as callers give it.

    Raises:
        LocalProtocolError: it is no positive, finite number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise LocalProtocolError(f"a timeout is a number of seconds above 0, or None, not {seconds!r}")
    return seconds


def milliseconds(seconds: float | None) -> int | None:
    """A timeout in the core's unit, never rounded to nothing."""
    return None if seconds is None else max(1, math.ceil(checked_seconds(seconds) * 1000))
