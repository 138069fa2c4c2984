"""tasks/get, tasks/update and tasks/cancel, on managed records and on native sources.

Source: tasks, Task Polling; tasks, Task Update Requests; tasks, Task Cancellation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mcp_tasks_core.access import Access
from mcp_tasks_core.errors import INTERNAL_ERROR
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.lifecycle import Answer, apply
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import SourceOperation
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.server.machine import Machine, Procedure
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.replies import Replies
from mcp_tasks_core.server.states import TaskState
from mcp_tasks_core.server.storing import Change, Refusal, Step, Storing
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.tasks import TaskRecord


class TaskMethods:
    """The three methods of the extension, each a procedure of one exchange.

    A ``Refusal`` that a method raises, at once or in its procedure, is its answer.
    """

    def __init__(self, machine: Machine, storing: Storing, native: NativeSources, work: Work, replies: Replies) -> None:
        self._machine = machine
        self._storing = storing
        self._native = native
        self._work = work
        self._replies = replies
        self._sources = machine.config.source_table
        self.ignored_answers = 0

    # --- tasks/get

    def get(self, exchange: Exchange, params: JSONObject) -> None:
        task_id = self._admitted(exchange, params)
        self._machine.run(self._replies.answering(exchange, self._get(exchange, task_id)), exchange)

    def _get(self, exchange: Exchange, task_id: TaskId) -> Procedure:
        source = self._sources.source_of(task_id)
        if source is not None:
            shown = yield from self._native.state(source, task_id, exchange.owner, Access.READ)
            self._replies.result(exchange, {"resultType": "complete", **shown})
            return
        state = yield from self._permitted(exchange, task_id, Access.READ)
        self._replies.body(exchange, self._machine.states.body(state))

    # --- tasks/update

    def update(self, exchange: Exchange, params: JSONObject) -> None:
        task_id = self._admitted(exchange, params)
        responses = params.get("inputResponses")
        if type(responses) is not dict:
            raise Refusal(faults.invalid_params("params.inputResponses: an object of answers by their keys"))
        source = self._sources.source_of(task_id)
        if source is None:
            procedure = self._update(exchange, task_id, responses)
        else:
            procedure = self._update_native(exchange, source, task_id, responses)
        self._machine.in_order(task_id, self._replies.answering(exchange, procedure), exchange)

    def _update(self, exchange: Exchange, task_id: TaskId, responses: JSONObject) -> Procedure:
        accepted: Mapping[InputKey, JSONObject] = {}

        def decide(record: TaskRecord) -> TaskRecord:
            nonlocal accepted
            accepted = self._checked({key: entry.request for key, entry in record.outstanding.items()}, responses)
            return apply(record, Answer(accepted), self._machine.now.wall_ms)

        yield from self._permitted(exchange, task_id, Access.ANSWER)
        change = yield from self._change(task_id, decide)
        self.ignored_answers += len(responses) - len(accepted)
        self._replies.body(exchange, self._replies.acknowledgement)
        self._work.deliver(change.after)

    def _change(self, task_id: TaskId, decide: Callable[[TaskRecord], TaskRecord]) -> Step[Change]:
        """Change the task for a client.

        Raises:
            Refusal: there is no such task, or the store does not answer. It may have stored the change all the
                same, so the work gets to see what the store holds once it answers again.
        """
        try:
            change = yield from self._storing.change(task_id, decide)
        except Refusal as refusal:
            if refusal.error.code == INTERNAL_ERROR:
                self._work.look_again(task_id)
            raise
        if change is None:
            raise Refusal(faults.TASK_NOT_FOUND)
        return change

    def _checked(
        self, questions: Mapping[InputKey, JSONObject], responses: JSONObject
    ) -> Mapping[InputKey, JSONObject]:
        """The answers that count: unknown keys dropped first, then every other one checked, all or nothing.

        Raises:
            Refusal: an answer to an outstanding question is no answer to it.
        """
        answers = {InputKey(key): answer for key, answer in responses.items() if key in questions}
        for key, answer in answers.items():
            self._storing.check_answer(key, questions[key], answer)
        return answers

    def _update_native(self, exchange: Exchange, source: str, task_id: TaskId, responses: JSONObject) -> Procedure:
        state = yield from self._native.state(source, task_id, exchange.owner, Access.ANSWER)
        questions = state.get("inputRequests", {}) if state["status"] == "input_required" else {}
        answers = self._checked(questions, responses)
        self.ignored_answers += len(responses) - len(answers)
        if answers:
            yield from self._native.tell(source, SourceOperation.ANSWER, task_id, exchange.owner, answers)
        self._replies.body(exchange, self._replies.acknowledgement)

    # --- tasks/cancel

    def cancel(self, exchange: Exchange, params: JSONObject) -> None:
        task_id = self._admitted(exchange, params)
        source = self._sources.source_of(task_id)
        if source is None:
            procedure = self._cancel(exchange, task_id)
        else:
            procedure = self._cancel_native(exchange, source, task_id)
        self._machine.in_order(task_id, self._replies.answering(exchange, procedure), exchange)

    def _cancel(self, exchange: Exchange, task_id: TaskId) -> Procedure:
        yield from self._permitted(exchange, task_id, Access.CANCEL)
        change = yield from self._change(task_id, self._work.cancelled)
        self._replies.body(exchange, self._replies.acknowledgement)
        if not change.after.is_terminal:
            self._work.stop(change.after, "the client cancelled the task")

    def _cancel_native(self, exchange: Exchange, source: str, task_id: TaskId) -> Procedure:
        state = yield from self._native.state(source, task_id, exchange.owner, Access.CANCEL)
        if state["status"] in ("working", "input_required"):
            yield from self._native.tell(source, SourceOperation.CANCEL, task_id, exchange.owner)
        self._replies.body(exchange, self._replies.acknowledgement)

    # --- what the three share

    def _admitted(self, exchange: Exchange, params: JSONObject) -> TaskId:
        """The task's id, once the caller declared the extension and the id is one.

        Raises:
            Refusal: -32021 before anything else is looked at, then -32602.
        """
        if not exchange.meta.capabilities.declares_tasks:
            raise Refusal(faults.TASKS_NOT_DECLARED)
        task_id = params.get("taskId")
        if type(task_id) is not str:
            raise Refusal(faults.invalid_params("params.taskId: a string, the id of a task"))
        if len(task_id) > self._machine.limits.identifier_chars_max:
            raise Refusal(faults.TASK_NOT_FOUND)
        return TaskId(task_id)

    def _permitted(self, exchange: Exchange, task_id: TaskId, access: Access) -> Step[TaskState]:
        """The task's state, for callers who may touch it; for all others there is none.

        Raises:
            Refusal: unknown, gone, expired or foreign.
        """
        row = yield from self._storing.load_row(task_id)
        if row is None or self._storing.is_foreign(row, exchange.owner):
            raise Refusal(faults.TASK_NOT_FOUND)
        state = self._storing.state_of(row)
        if not (yield from self._storing.may_access(exchange.owner, access, task_id, state.record.owner)):
            raise Refusal(faults.TASK_NOT_FOUND)
        if state.record.expired:
            raise Refusal(faults.TASK_EXPIRED)
        return state
