"""One subscription as its caller sees it: listens, takes what comes, and listens again when a stream ends too early.

Every method is told what happened and says what to do about it. Nothing here knows of frames, ids or streams.

Source: subscriptions; tasks, Task Notifications; cancellation.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.client.calls import (
    LISTEN,
    TASKS_GET,
    OpenCall,
    Purpose,
    Reply,
    Silent,
    StreamLost,
    Succeeded,
)
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.events import ListenStarted, ListKind
from mcp_tasks_core.client.outcomes import (
    Disconnected,
    InvalidResponse,
    ListenEnded,
    NoSubscriptions,
    NotAcknowledged,
    RemoteError,
    UnsupportedVersion,
)
from mcp_tasks_core.client.polling import is_older
from mcp_tasks_core.client.relistening import RetryBudget
from mcp_tasks_core.client.rereading import ReadPlan
from mcp_tasks_core.client.states import State, StateProblem, WarnedOnce, problem_with_contents, read_state
from mcp_tasks_core.client.steps import (
    Agree,
    Drop,
    End,
    Note,
    SendTask,
    Show,
    Step,
    TellListChange,
    TellResourceUpdate,
    Warn,
)
from mcp_tasks_core.client.subscriptions import (
    Acknowledged,
    ListTold,
    Notice,
    ResourceTold,
    TaskTold,
    Unknown,
    Unreadable,
    problem_with_agreement,
)
from mcp_tasks_core.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_tasks_core.identifiers import JSONObject, JSONValue, TaskId
from mcp_tasks_core.tasks import DetailedTask
from mcp_tasks_core.wire.converter import encode
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter

_Failure: TypeAlias = Disconnected | RemoteError
_ENDED: Final = Disconnected(reason="the server ended the subscription")


@attrs.define(kw_only=True)
class _Present:
    """The listen that is open now.

    Args:
        agreed: ``None`` before the acknowledgement.
        task_ids: those that were agreed to.
        brought: a state that its caller did not know yet.
    """

    asked: SubscriptionFilter
    agreed: SubscriptionFilter | None = None
    task_ids: frozenset[TaskId] = frozenset()
    acknowledged_ms: int = 0
    brought: bool = False


class Listening:
    """The state of one subscription, over all the listens that it takes.

    Args:
        wanted: what the caller wants to hear of.
    """

    def __init__(self, wanted: ListenStarted, config: ClientConfig) -> None:
        self._wanted = wanted
        self._config = config
        self._limits = config.client_limits
        self._watched: dict[TaskId, None] = dict.fromkeys(wanted.task_ids)
        self._newest: dict[TaskId, DetailedTask] = {}
        self._ended: list[DetailedTask] = []
        self._not_agreed: dict[TaskId, None] = {}
        self._others_are_open = self._wants_others
        self._present: _Present | None = None
        self._was_agreed = False
        self._budget = RetryBudget(self._limits, wanted.jitter_permille)
        self._loss_was_told = self._return_was_told = False
        self._listen_at_ms: int | None = None
        self._reads = ReadPlan(self._limits)
        self._warned = WarnedOnce(self._limits.state_warnings_max)

    @property
    def deadline_ms(self) -> int | None:
        """When ``time_passed`` has something to do."""
        moments = (self._listen_at_ms if self._reads.is_idle else None, self._reads.earliest_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    # --- what happened

    def begin(self) -> list[Step]:
        return [self._listen()]

    def heard(self, notice: Notice, now_ms: int) -> list[Step]:
        """A notification that carries the id of the open listen."""
        present = self._present
        assert present is not None
        if isinstance(notice, Unreadable):
            return [self._invalid(notice.reason)]
        if isinstance(notice, Acknowledged):
            return self._acknowledged(present, notice.agreed, now_ms)
        if present.agreed is None:
            return [self._invalid("a notification came before the acknowledgement")]
        if isinstance(notice, Unknown):
            return [Warn(f"a notification of an unknown kind, {notice.method[:80]!r}, was ignored")]
        return self._told(present, present.agreed, notice, now_ms)

    def replied(self, call: OpenCall, reply: Reply, now_ms: int) -> list[Step]:
        if isinstance(reply, UnsupportedVersion | InvalidResponse):
            return [End(reply)]
        if call.purpose is Purpose.LISTEN:
            return self._listen_replied(reply, now_ms)
        return self._read(call.params["taskId"], reply, now_ms) + self._go_on(now_ms)

    def time_passed(self, now_ms: int) -> list[Step]:
        return self._go_on(now_ms)

    # --- listens

    @property
    def _wants_others(self) -> bool:
        wanted = self._wanted
        return wanted.tools or wanted.prompts or wanted.resources or bool(wanted.resource_uris)

    def _listen(self) -> SendTask:
        wanted = self._wanted
        asked = SubscriptionFilter(
            tools_list_changed=wanted.tools or None,
            prompts_list_changed=wanted.prompts or None,
            resources_list_changed=wanted.resources or None,
            resource_subscriptions=wanted.resource_uris or None,
            task_ids=tuple(self._watched) or None,
        )
        self._present = _Present(asked=asked)
        self._listen_at_ms = None
        return SendTask(Purpose.LISTEN, LISTEN, {"notifications": encode(asked)})

    def _acknowledged(self, present: _Present, agreed: SubscriptionFilter, now_ms: int) -> list[Step]:
        problem = problem_with_agreement(agreed, present.asked)
        if present.agreed is not None:
            problem = "the subscription was acknowledged twice"
        if problem is not None:
            return [self._invalid(problem)]
        present.agreed, present.acknowledged_ms = agreed, now_ms
        present.task_ids = frozenset(agreed.task_ids or ())
        left_out = tuple(task_id for task_id in self._watched if task_id not in present.task_ids)
        for task_id in left_out:
            self._leave(task_id)
        self._others_are_open = bool(_lists_of(agreed) or agreed.resource_subscriptions)
        steps: list[Step] = [Agree(agreed, left_out)]
        if self._loss_was_told and not self._return_was_told:
            self._return_was_told = True
            steps.insert(0, Warn("listening again"))
        if self._was_agreed:
            steps += [Drop(task_id) for task_id in left_out]
            # What changed while nobody listened is told by nobody.
            steps += [TellListChange(kind) for kind in _lists_of(agreed)]
            steps += [TellResourceUpdate(uri) for uri in dict.fromkeys(agreed.resource_subscriptions or ())]
        self._was_agreed = True
        self._reads.stream_began(self._watched, now_ms)
        return steps + self._end_if_over()

    def _told(
        self, present: _Present, agreed: SubscriptionFilter, notice: TaskTold | ListTold | ResourceTold, now_ms: int
    ) -> list[Step]:
        match notice:
            case TaskTold(state):
                task_id = state.task.task_id
                if task_id not in present.task_ids:
                    return [self._invalid(f"a state of task {task_id[:80]!r}, which was not agreed to")]
                if task_id in self._not_agreed:
                    return [Note(f"task {task_id!r}: a state of a task that was gone was dropped")]
                return self._saw(state, now_ms, LISTEN)
            case ListTold(kind):
                if kind not in _lists_of(agreed):
                    return [self._invalid(f"a change of the list of {kind.value}, which was not agreed to")]
                return [TellListChange(kind)]
            case ResourceTold(uri):
                if not agreed.resource_subscriptions:
                    return [self._invalid("an update of a resource, and none was agreed to")]
                return [TellResourceUpdate(uri)]

    def _listen_replied(self, reply: Succeeded | RemoteError | Silent | StreamLost, now_ms: int) -> list[Step]:
        present = self._present
        assert present is not None
        match reply:
            case Succeeded() if present.agreed is None:
                return [self._invalid("the subscription ended with a result before it was acknowledged")]
            case Succeeded():
                return self._listen_later(_ENDED, now_ms)
            case RemoteError(code=code, message=message) if code == METHOD_NOT_FOUND and present.agreed is None:
                return [End(NoSubscriptions(message=message))]
            case RemoteError(code=code, data=data):
                # A server that could serve it before may only be out of order for a while.
                may_pass = _is_retryable(data) or (self._was_agreed and code == INTERNAL_ERROR)
                return self._listen_later(reply, now_ms) if may_pass else [End(reply)]
            case Silent() if not self._was_agreed:
                return [End(NotAcknowledged(waited_ms=self._limits.listen_ack_timeout_ms))]
            case Silent():
                return self._listen_later(Disconnected(reason="the server did not acknowledge it in time"), now_ms)
            case StreamLost(_, reason, cause, refused):
                lost = Disconnected(reason=reason, cause=cause)
                return [End(lost)] if refused else self._listen_later(lost, now_ms)

    def _listen_later(self, failure: _Failure, now_ms: int) -> list[Step]:
        """The listen is over and the subscription is not: look at the tasks, then listen anew, within the budget."""
        present, self._present = self._present, None
        assert present is not None
        lasted_ms = None if present.agreed is None else now_ms - present.acknowledged_ms
        self._budget.stream_ended(lasted_ms, brought=present.brought, orderly=failure is _ENDED)
        if self._budget.is_used_up:
            return [End(failure)]
        wait_ms = self._budget.wait_ms(self._reads.shortest_interval_ms())
        self._listen_at_ms = now_ms + wait_ms
        self._reads.stream_ended(self._watched)
        why = failure.reason if isinstance(failure, Disconnected) else f"error {failure.code}: {failure.message}"
        return [*self._tell_loss(why, wait_ms), *self._go_on(now_ms)]

    def _tell_loss(self, why: str, wait_ms: int) -> list[Step]:
        """Once, however many attempts it takes; once more when a stream has lasted in between."""
        details = Note(f"the subscription is asked for again in {wait_ms} ms: {why}")
        if self._budget.was_steady:
            self._loss_was_told = self._return_was_told = False
        if self._loss_was_told or not self._budget.has_failed:
            return [details]
        self._loss_was_told = True
        return [Warn(f"lost the subscription, retrying: {why}"), details]

    # --- reads of single tasks

    def _go_on(self, now_ms: int) -> list[Step]:
        """Send what may be sent now: reads, and the next listen when there is nothing left to read."""
        steps: list[Step] = [
            SendTask(Purpose.POLL, TASKS_GET, {"taskId": task_id}) for task_id in self._reads.take(now_ms)
        ]
        is_due = self._listen_at_ms is not None and self._listen_at_ms <= now_ms
        if is_due and self._reads.is_idle:
            steps.append(self._listen())
        return steps

    def _read(self, task_id: TaskId, reply: Succeeded | RemoteError | Silent | StreamLost, now_ms: int) -> list[Step]:
        self._reads.finished(task_id)
        match reply:
            case Succeeded(_, result):
                self._budget.read_succeeded()
                return self._read_state(task_id, result, now_ms)
            case RemoteError(code=code) if code == INVALID_PARAMS and task_id in self._watched:
                # The request says nothing but the id: it is the task that is not there.
                self._leave(task_id)
                return [Drop(task_id), *self._end_if_over()]
            case RemoteError(code=code, message=message):
                reason = f"error {code}: {message}"
            case Silent():
                reason = "the server did not answer tasks/get in time"
                self._reads.nothing_gets_through(now_ms)
            case StreamLost(_, reason):
                self._reads.nothing_gets_through(now_ms)
        if task_id in self._watched:
            self._reads.read_failed(task_id, now_ms)
        return [Note(f"task {task_id!r} could not be read: {reason}")]

    def _read_state(self, task_id: TaskId, result: JSONObject, now_ms: int) -> list[Step]:
        state = read_state(result, self._config.lenient)
        if isinstance(state, StateProblem):
            return [self._invalid(state.reason, TASKS_GET, task_id)]
        if state.task.task_id != task_id:
            return [self._invalid(f"it describes task {state.task.task_id[:80]!r}", TASKS_GET, task_id)]
        if task_id in self._not_agreed:
            return []
        return self._saw(state, now_ms, TASKS_GET)

    def _leave(self, task_id: TaskId) -> None:
        """The server does not tell of this task, or no longer."""
        del self._watched[task_id]
        self._not_agreed[task_id] = None
        self._reads.forget(task_id)

    # --- states

    def _saw(self, state: State, now_ms: int, method: str) -> list[Step]:
        task = state.task
        steps: list[Step] = [Warn(f"task {task.task_id!r}: {text}") for text in self._warned.new(state.warnings)]
        if task.task_id in self._watched:
            self._reads.saw(task, now_ms)
        newest = self._newest.get(task.task_id)
        if task == newest:
            return steps
        if newest is not None and is_older(task, newest):
            if newest.is_terminal and task.is_terminal and newest.status is not task.status:
                text = f"task {task.task_id!r} was {newest.status.value} at first and is {task.status.value} now"
                return [*steps, self._invalid(text, method, task.task_id)]
            return [*steps, Warn(f"task {task.task_id!r}: a sighting older than the newest one was dropped")]
        # Questions are for whoever made the call: here they are only shown, whatever kind they are of.
        problem = problem_with_contents(task, None, self._config.limits)
        if problem is not None:
            return [*steps, self._invalid(f"task {task.task_id!r}: {problem}", method, task.task_id)]
        self._newest[task.task_id] = task
        if self._present is not None:
            self._present.brought = True
        steps.append(Show(task))
        if task.is_terminal and task.task_id in self._watched:
            del self._watched[task.task_id]
            self._reads.forget(task.task_id)
            self._ended.append(task)
            steps += self._end_if_over()
        return steps

    def _end_if_over(self) -> list[Step]:
        if self._watched or self._others_are_open:
            return []
        return [End(ListenEnded(tasks=tuple(self._ended), not_agreed=tuple(self._not_agreed)))]

    def _invalid(self, reason: str, method: str = LISTEN, task_id: TaskId | None = None) -> End:
        return End(InvalidResponse(reason=reason, method=method, task_id=task_id))


def _lists_of(agreed: SubscriptionFilter) -> list[ListKind]:
    flags = {
        ListKind.TOOLS: agreed.tools_list_changed,
        ListKind.PROMPTS: agreed.prompts_list_changed,
        ListKind.RESOURCES: agreed.resources_list_changed,
    }
    return [kind for kind, flag in flags.items() if flag]


def _is_retryable(data: JSONValue) -> bool:
    """Whether the server says that the same may succeed later. Source: basic, Error Responses."""
    return type(data) is dict and data.get("retryable") is True
