"""One subscription as its caller sees it: listens, takes what comes, and listens again when a stream ends too early.

Every method is told what happened and says what to do about it. Nothing here knows of frames, ids or streams.

Source: subscriptions; tasks, Task Notifications; cancellation.
"""

from __future__ import annotations

from collections import deque
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
    RemoteError,
    TimedOut,
    UnsupportedVersion,
)
from mcp_tasks_core.client.polling import is_older
from mcp_tasks_core.client.states import State, StateProblem, read_state
from mcp_tasks_core.client.steps import Agree, End, SendTask, Show, Step, TellListChange, TellResourceUpdate, Warn
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
from mcp_tasks_core.errors import METHOD_NOT_FOUND
from mcp_tasks_core.identifiers import JSONValue, TaskId
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
        brought: something that its caller did not know yet.
        unseen: watched tasks of which it has shown nothing yet.
    """

    asked: SubscriptionFilter
    agreed: SubscriptionFilter | None = None
    task_ids: frozenset[TaskId] = frozenset()
    acknowledged_ms: int = 0
    brought: bool = False
    unseen: set[TaskId] = attrs.field(factory=set)


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
        self._not_agreed: list[TaskId] = []
        self._others_are_open = self._wants_others
        self._present: _Present | None = None
        self._was_agreed = False
        self._failures = 0
        self._listen_at_ms: int | None = None
        self._snapshot_at_ms: int | None = None
        self._to_read: deque[TaskId] = deque()
        self._reading: set[TaskId] = set()
        self._warned: set[str] = set()

    @property
    def deadline_ms(self) -> int | None:
        """When ``time_passed`` has something to do."""
        waits_for_reads = self._to_read or self._reading
        moments = (None if waits_for_reads else self._listen_at_ms, self._snapshot_at_ms)
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
        return self._told(present, present.agreed, notice)

    def replied(self, call: OpenCall, reply: Reply, now_ms: int) -> list[Step]:
        if isinstance(reply, UnsupportedVersion | InvalidResponse):
            return [End(reply)]
        if call.purpose is Purpose.LISTEN:
            return self._listen_replied(reply, now_ms)
        return self._read(call.params["taskId"], reply) + self._go_on(now_ms)

    def time_passed(self, now_ms: int) -> list[Step]:
        if self._snapshot_at_ms is not None and self._snapshot_at_ms <= now_ms:
            self._snapshot_at_ms = None
            if self._present is not None:
                self._plan_reads(self._present.unseen)
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
            del self._watched[task_id]
        self._not_agreed += left_out
        self._others_are_open = bool(_lists_of(agreed) or agreed.resource_subscriptions)
        steps: list[Step] = [Agree(agreed, left_out)]
        if self._was_agreed:
            # What changed while nobody listened is told by nobody.
            steps += [TellListChange(kind) for kind in _lists_of(agreed)]
            steps += [TellResourceUpdate(uri) for uri in dict.fromkeys(agreed.resource_subscriptions or ())]
        self._was_agreed = True
        present.unseen = set(self._watched)
        self._snapshot_at_ms = now_ms + self._limits.listen_snapshot_ms if present.unseen else None
        return steps + self._end_if_over()

    def _told(
        self, present: _Present, agreed: SubscriptionFilter, notice: TaskTold | ListTold | ResourceTold
    ) -> list[Step]:
        match notice:
            case TaskTold(state):
                task_id = state.task.task_id
                if task_id not in present.task_ids:
                    return [self._invalid(f"a state of task {task_id[:80]!r}, which was not agreed to")]
                return self._saw(state)
            case ListTold(kind):
                if kind not in _lists_of(agreed):
                    return [self._invalid(f"a change of the list of {kind.value}, which was not agreed to")]
                present.brought = True
                return [TellListChange(kind)]
            case ResourceTold(uri):
                if not agreed.resource_subscriptions:
                    return [self._invalid("an update of a resource, and none was agreed to")]
                present.brought = True
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
            case RemoteError(data=data):
                return self._listen_later(reply, now_ms) if _is_retryable(data) else [End(reply)]
            case Silent() if not self._was_agreed:
                return [End(TimedOut(method=LISTEN))]
            case Silent():
                return self._listen_later(Disconnected(reason="the server did not acknowledge it in time"), now_ms)
            case StreamLost(_, reason, cause, refused):
                lost = Disconnected(reason=reason, cause=cause)
                return [End(lost)] if refused else self._listen_later(lost, now_ms)

    def _listen_later(self, failure: _Failure, now_ms: int) -> list[Step]:
        """The listen is over and the subscription is not: look at the tasks, then listen anew, within the budget."""
        present, self._present = self._present, None
        self._snapshot_at_ms = None
        assert present is not None
        lasted_ms = now_ms - present.acknowledged_ms
        if present.agreed is not None and (present.brought or lasted_ms >= self._limits.listen_steady_ms):
            self._failures = 0
        else:
            self._failures += 1
        if self._failures >= self._limits.listen_failures_max:
            return [End(failure)]
        wait_ms = self._wait_ms()
        self._listen_at_ms = now_ms + wait_ms
        self._plan_reads(set(self._watched))
        if failure is _ENDED and not self._failures:
            return self._go_on(now_ms)  # servers limit how long a subscription lasts
        why = failure.reason if isinstance(failure, Disconnected) else f"error {failure.code}: {failure.message}"
        return [Warn(f"a subscription is asked for again in {wait_ms} ms: {why}"), *self._go_on(now_ms)]

    def _wait_ms(self) -> int:
        limits = self._limits
        wait_ms = min(limits.listen_backoff_ms << max(0, self._failures - 1), limits.listen_backoff_ms_max)
        return max(1, wait_ms - wait_ms * self._wanted.jitter_permille // 2_000)

    # --- reads of single tasks

    def _plan_reads(self, task_ids: set[TaskId]) -> None:
        self._to_read = deque(i for i in self._watched if i in task_ids and i not in self._reading)

    def _go_on(self, now_ms: int) -> list[Step]:
        """Send what may be sent now: reads, and the next listen when there is nothing left to read."""
        steps: list[Step] = []
        while self._to_read and len(self._reading) < self._limits.listen_reads_max:
            task_id = self._to_read.popleft()
            if task_id in self._watched:
                self._reading.add(task_id)
                steps.append(SendTask(Purpose.POLL, TASKS_GET, {"taskId": task_id}))
        is_due = self._listen_at_ms is not None and self._listen_at_ms <= now_ms
        if is_due and not self._reading:
            steps.append(self._listen())
        return steps

    def _read(self, task_id: TaskId, reply: Succeeded | RemoteError | Silent | StreamLost) -> list[Step]:
        self._reading.discard(task_id)
        match reply:
            case Succeeded(_, result):
                state = read_state(result, self._config.lenient)
                if isinstance(state, StateProblem):
                    return [self._invalid(state.reason, TASKS_GET)]
                if state.task.task_id != task_id:
                    return [self._invalid(f"it describes task {state.task.task_id[:80]!r}", TASKS_GET)]
                return self._saw(state)
            case RemoteError(code=code, message=message):
                # If the server no longer knows it, the next acknowledgement says so.
                return [Warn(f"task {task_id!r} could not be read: error {code}: {message}")]
            case Silent():
                reason = "the server did not answer tasks/get in time"
            case StreamLost(_, reason):
                pass
        # Nothing gets through; the others would only fail, too. The next listen shows every state anew.
        self._to_read.clear()
        return [Warn(f"task {task_id!r} could not be read: {reason}")]

    # --- states

    def _saw(self, state: State) -> list[Step]:
        task = state.task
        steps: list[Step] = [
            Warn(f"task {task.task_id!r}: {text}") for text in state.warnings if text not in self._warned
        ]
        self._warned.update(state.warnings)
        if self._present is not None:
            self._present.unseen.discard(task.task_id)
        newest = self._newest.get(task.task_id)
        if task == newest:
            return steps
        if newest is not None and is_older(task, newest):
            if newest.is_terminal and task.is_terminal and newest.status is not task.status:
                text = f"task {task.task_id!r} was {newest.status.value} at first and is {task.status.value} now"
                return [*steps, self._invalid(text)]
            return [*steps, Warn(f"task {task.task_id!r}: a sighting older than the newest one was dropped")]
        self._newest[task.task_id] = task
        if self._present is not None:
            self._present.brought = True
        steps.append(Show(task))
        if task.is_terminal and task.task_id in self._watched:
            del self._watched[task.task_id]
            self._ended.append(task)
            steps += self._end_if_over()
        return steps

    def _end_if_over(self) -> list[Step]:
        if self._watched or self._others_are_open:
            return []
        return [End(ListenEnded(tasks=tuple(self._ended), not_agreed=tuple(self._not_agreed)))]

    def _invalid(self, reason: str, method: str = LISTEN) -> End:
        return End(InvalidResponse(reason=reason, method=method))


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
