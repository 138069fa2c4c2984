"""Watching one task: polls, questions, answers and a cancel, up to the task's end.

Every method is told what happened and says what to do about it. Nothing here knows of frames, ids or streams.

Source: tasks, Task Polling, Task Update Requests and Task Cancellation.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.client.calls import (
    TASKS_CANCEL,
    TASKS_GET,
    TASKS_UPDATE,
    Purpose,
    Reply,
    Silent,
    StreamLost,
    Succeeded,
)
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.inputs import InputLedger, InputStage
from mcp_tasks_core.client.outcomes import (
    Cancelled,
    DetachedFromTask,
    InputUnhandled,
    InvalidResponse,
    RemoteError,
    TaskCancelled,
    TaskFailed,
    TaskOverdue,
    TaskUnreachable,
    ToolResult,
    UnknownOutcome,
    UnsupportedVersion,
)
from mcp_tasks_core.client.polling import PollSchedule, is_older
from mcp_tasks_core.client.states import StateProblem, WarnedOnce, problem_with_contents, read_state
from mcp_tasks_core.client.steps import Ask, End, Note, SendTask, Show, Step, Warn, Withdraw
from mcp_tasks_core.errors import INTERNAL_ERROR
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.tasks import CancelledTask, CompletedTask, DetailedTask, FailedTask, InputRequiredTask, Task


class TaskWatch:
    """The state of one watch.

    Args:
        owns: the watcher created the task, and cancels it when its own deadline passes.
        answered: questions that are not asked again.
    """

    def __init__(
        self, task_id: TaskId, config: ClientConfig, *, owns: bool, answered: Collection[InputKey] = ()
    ) -> None:
        self.task_id = task_id
        self.owns = owns
        self._config = config
        self._limits = config.client_limits
        self._inputs = InputLedger(answered, config.limits)
        self._schedule = PollSchedule(self._limits, self._limits.poll_interval_ms_default)
        self._newest: Task | None = None
        self._update_keys: tuple[InputKey, ...] = ()
        self._cancel_sent = False
        self._waits_for_end = True
        self._warned = WarnedOnce(self._limits.state_warnings_max)

    @property
    def cancel_sent(self) -> bool:
        return self._cancel_sent

    @property
    def answered_keys(self) -> frozenset[InputKey]:
        return self._inputs.answered

    @property
    def deadline_ms(self) -> int | None:
        """When ``time_passed`` has something to do."""
        moments = (self._schedule.next_poll_ms, self._schedule.overdue_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    # --- what happened

    def begin(self, handle: Task | None, now_ms: int) -> None:
        """Start from the handle, whose interval holds before the first poll, or from a bare id with a poll at once."""
        if handle is None:
            self._schedule.next_poll_ms = now_ms
            return
        self._newest = handle
        self._schedule.see(handle, now_ms)

    def time_passed(self, now_ms: int) -> list[Step]:
        overdue_ms, poll_ms = self._schedule.overdue_ms, self._schedule.next_poll_ms
        if overdue_ms is not None and overdue_ms <= now_ms and self._newest is not None:
            return [End(TaskOverdue(self._newest))]
        if poll_ms is not None and poll_ms <= now_ms:
            self._schedule.next_poll_ms = None
            return [SendTask(Purpose.POLL, TASKS_GET, {"taskId": self.task_id})]
        return []

    def replied(self, purpose: Purpose, reply: Reply, now_ms: int) -> list[Step]:
        if isinstance(reply, UnsupportedVersion):
            return [End(reply)]
        if purpose is Purpose.POLL:
            return self._polled(reply, now_ms)
        if purpose is Purpose.UPDATE:
            return self._updated(reply)
        return self._cancel_replied(reply)

    def is_asking(self, key: InputKey) -> bool | None:
        """Whether an answer to this question is awaited; ``None`` if it was never asked."""
        stage = self._inputs.stage(key)
        return None if stage is None else stage is InputStage.ASKED

    def request(self, key: InputKey) -> JSONObject | None:
        return self._inputs.request(key)

    def answer(self, key: InputKey, answer: JSONObject) -> list[Step]:
        """An answer to a question that is being asked, checked."""
        self._inputs.answer(key, answer)
        return self._send_answers()

    def leave_unanswered(self) -> list[Step]:
        return [End(InputUnhandled(task_id=self.task_id, requests=self._inputs.open_requests))]

    def cancel(self, wait_for_end: bool) -> list[Step]:
        """Tell the server once; further calls can only shorten the wait."""
        self._waits_for_end = wait_for_end
        if self._cancel_sent:
            return []
        self._cancel_sent = True
        if not wait_for_end:
            self._schedule.next_poll_ms = None
        withdrawn = [Withdraw(key) for key in self._inputs.withdraw_missing({})]
        return [*withdrawn, SendTask(Purpose.CANCEL, TASKS_CANCEL, {"taskId": self.task_id})]

    def detach(self) -> list[Step]:
        return [End(DetachedFromTask(self.task_id, self._inputs.answered))]

    # --- polls

    def _polled(self, reply: Reply, now_ms: int) -> list[Step]:
        match reply:
            case Succeeded(_, result):
                return self._saw(result, now_ms)
            case Silent():
                return self._poll_failed("the server did not answer tasks/get in time", now_ms)
            case StreamLost(_, reason, _, refused):
                return self._poll_failed(reason, now_ms, is_refused=refused)
            case RemoteError(code=code) if code == INTERNAL_ERROR:
                return self._poll_failed(reply.message, now_ms, reply)
            case RemoteError() | InvalidResponse():
                return [End(attrs.evolve(reply, task_id=self.task_id))]
            case UnsupportedVersion():
                return [End(reply)]

    def _poll_failed(
        self, reason: str, now_ms: int, error: RemoteError | None = None, *, is_refused: bool = False
    ) -> list[Step]:
        """tasks/get only reads, so it may be sent again; but not for ever.

        Args:
            is_refused: the server is there and turned the request away: waiting for it to come back is of no use.
        """
        lasted_ms = self._schedule.fail(now_ms)
        is_long = is_refused or lasted_ms >= self._limits.poll_failing_ms
        if is_long and self._schedule.failures >= self._limits.poll_failures_max:
            if error is not None:
                return [End(attrs.evolve(error, task_id=self.task_id))]
            return [End(TaskUnreachable(task_id=self.task_id, reason=reason))]
        self._plan(now_ms)
        if self._schedule.failures > 1:
            return [Note(f"task {self.task_id!r}: poll {self._schedule.failures} in a row failed: {reason}")]
        return [self._warn(f"cannot be read, retrying: {reason}")]

    def _plan(self, now_ms: int) -> None:
        if self._waits_for_end:
            self._schedule.plan(now_ms)

    def _saw(self, result: JSONObject, now_ms: int) -> list[Step]:
        steps: list[Step] = [self._warn("can be read again")] if self._schedule.failures else []
        self._schedule.failures = 0
        state = read_state(result, self._config.lenient)
        if isinstance(state, StateProblem):
            return [*steps, End(self._invalid(state.reason))]
        steps += [self._warn(text) for text in self._warned.new(state.warnings)]
        task = state.task
        if task.task_id != self.task_id:
            return [*steps, End(self._invalid(f"it describes task {task.task_id!r}"))]
        order = self._order(task)
        if order is not None:
            if isinstance(order, End):
                return [*steps, order]
            self._plan(now_ms)
            return [*steps, order]
        declared = ClientCapabilities(self._config.capabilities)
        problem = problem_with_contents(task, declared, self._config.limits)
        if problem is not None:
            return [*steps, End(self._invalid(problem))]
        if task != self._newest:
            steps.append(Show(task))
        self._newest = task
        self._schedule.see(task, now_ms)
        if not self._waits_for_end:
            self._schedule.next_poll_ms = None
        return steps + self._act_on(task)

    def _order(self, task: DetailedTask) -> Warn | End | None:
        """What keeps this sighting from following the newest one, ``None`` if nothing does.

        A terminal state ends the watch, so that the newest one is terminal only as a handle, which has no payload.
        """
        newest = self._newest
        if newest is None or not is_older(task, newest) or (newest.is_terminal and task.status is newest.status):
            return None
        if newest.is_terminal and task.is_terminal:
            return End(self._invalid(f"the task was {newest.status.value} at first and is {task.status.value} now"))
        return self._warn("a sighting older than the newest one was dropped")

    def _act_on(self, task: DetailedTask) -> list[Step]:
        match task:
            case CompletedTask():
                return [End(ToolResult(task.result, task.task_id))]
            case FailedTask():
                return [End(TaskFailed(task))]
            case CancelledTask():
                return [End(TaskCancelled(task))]
            case InputRequiredTask() if not task.input_requests:
                return self._stuck()
            case InputRequiredTask():
                self._schedule.stuck = 0
                return self._asked(task)
            case _:
                self._schedule.stuck = 0
                return [Withdraw(key) for key in self._inputs.withdraw_missing({})]

    def _stuck(self) -> list[Step]:
        self._schedule.stuck += 1
        if self._schedule.stuck < self._limits.stuck_polls_max:
            return []
        return [End(self._invalid(f"input_required without a question, {self._schedule.stuck} times in a row"))]

    def _warn(self, text: str) -> Warn:
        return Warn(f"task {self.task_id!r}: {text}")

    def _invalid(self, reason: str) -> InvalidResponse:
        return InvalidResponse(reason=reason, method=TASKS_GET, task_id=self.task_id)

    # --- questions and answers

    def _asked(self, task: InputRequiredTask) -> list[Step]:
        requests = task.input_requests
        steps: list[Step] = [
            self._warn(f"the question {key!r} was given a second meaning, which is ignored")
            for key in self._inputs.changed(requests)
        ]
        steps += [Withdraw(key) for key in self._inputs.withdraw_missing(requests)]
        lost = self._inputs.still_doubtful(requests, self._limits.update_rereads_max)
        if lost:
            return [*steps, End(UnknownOutcome(task_id=self.task_id, method=TASKS_UPDATE, keys=lost))]
        if self._cancel_sent:
            return steps
        steps += [Ask(key, request) for key, request in self._inputs.add_new(requests).items()]
        if self._inputs.is_full:
            most = self._config.limits.inputs_per_task_max
            return [End(self._invalid(f"the task asked more than {most} questions"))]
        return steps

    def _send_answers(self) -> list[Step]:
        """One update at a time; what is answered meanwhile goes with the next."""
        if self._update_keys or self._cancel_sent:
            return []
        answers = self._inputs.take_answers()
        if not answers:
            return []
        self._update_keys = tuple(answers)
        params: JSONObject = {"taskId": self.task_id, "inputResponses": answers}
        return [SendTask(Purpose.UPDATE, TASKS_UPDATE, params)]

    def _updated(self, reply: Reply) -> list[Step]:
        keys, self._update_keys = self._update_keys, ()
        match reply:
            case Succeeded():
                self._inputs.settle(keys)
                return self._send_answers()
            case Silent() | StreamLost():
                # Never sent again: whether the answers arrived is read off the next states.
                self._inputs.doubt(keys)
                text = f"no acknowledgement of the answers to {', '.join(map(repr, keys))}"
                return [self._warn(text), *self._send_answers()]
            case RemoteError() | InvalidResponse():
                return [End(attrs.evolve(reply, task_id=self.task_id))]
            case UnsupportedVersion():
                return [End(reply)]

    # --- cancel

    def _cancel_replied(self, reply: Reply) -> list[Step]:
        match reply:
            case Succeeded():
                if self._waits_for_end:
                    return []
                return [End(Cancelled(task_id=self.task_id, acknowledged=True))]
            case Silent() | StreamLost():
                if self._waits_for_end:
                    return [self._warn("no acknowledgement of tasks/cancel")]
                return [End(UnknownOutcome(task_id=self.task_id, method=TASKS_CANCEL))]
            case RemoteError() | InvalidResponse():
                return [End(attrs.evolve(reply, task_id=self.task_id))]
            case UnsupportedVersion():
                return [End(reply)]
