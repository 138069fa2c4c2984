"""tasks/get, tasks/update and tasks/cancel, on managed records and on native sources.

Source: tasks, Task Polling; tasks, Task Update Requests; tasks, Task Cancellation.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_tasks_core.access import Access
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.lifecycle import Answer, RequestCancel, apply
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import SourceOperation
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.server.machine import Machine, Procedure
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.replies import Replies
from mcp_tasks_core.server.storing import Refusal, Step, Storing, Unstorable
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.tasks import TaskRecord


class TaskMethods:
    """The three methods of the extension, each a procedure of one exchange."""

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
        try:
            task_id = self._admitted(exchange, params)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)
            return
        self._machine.run(self._get(exchange, task_id), exchange)

    def _get(self, exchange: Exchange, task_id: TaskId) -> Procedure:
        try:
            source = self._sources.source_of(task_id)
            if source is not None:
                state = yield from self._native.state(source, task_id, exchange.owner, Access.READ)
                self._replies.result(exchange, {"resultType": "complete", **state})
                return
            loaded = yield from self._storing.load(task_id)
            if loaded is None:
                raise Refusal(faults.TASK_NOT_FOUND)
            state_held = loaded[1]
            record = state_held.record
            if not (yield from self._storing.may_access(exchange.owner, Access.READ, task_id, record.owner)):
                raise Refusal(faults.TASK_NOT_FOUND)
            if record.expired:
                raise Refusal(faults.TASK_EXPIRED)
            self._replies.body(exchange, self._machine.states.body(state_held))
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)

    # --- tasks/update

    def update(self, exchange: Exchange, params: JSONObject) -> None:
        try:
            task_id = self._admitted(exchange, params)
            responses = params.get("inputResponses")
            if type(responses) is not dict:
                raise Refusal(faults.invalid_params("params.inputResponses: an object of answers by their keys"))
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)
            return
        source = self._sources.source_of(task_id)
        if source is None:
            self._machine.in_order(task_id, self._update(exchange, task_id, responses), exchange)
        else:
            self._machine.run(self._update_native(exchange, source, task_id, responses), exchange)

    def _update(self, exchange: Exchange, task_id: TaskId, responses: JSONObject) -> Procedure:
        def decide(record: TaskRecord) -> TaskRecord:
            if record.is_terminal:
                return record
            questions = {key: entry.request for key, entry in record.outstanding.items()}
            answers = self._checked(questions, responses)
            return apply(record, Answer(answers), self._machine.now.wall_ms)

        try:
            yield from self._permitted(exchange, task_id, Access.ANSWER)
            change = yield from self._storing.change(task_id, decide)
            if change is None:
                raise Refusal(faults.TASK_NOT_FOUND)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)
            return
        except Unstorable as problem:  # pragma: no cover - answers come from JSON and go back into it
            self._replies.error(exchange, faults.invalid_params(str(problem)))
            return
        self._replies.body(exchange, self._replies.acknowledgement)
        self._work.deliver(change.before, change.after)

    def _checked(
        self, questions: Mapping[InputKey, JSONObject], responses: JSONObject
    ) -> Mapping[InputKey, JSONObject]:
        """The answers that count: unknown keys dropped first, then every other one checked, all or nothing.

        Raises:
            Refusal: an answer to an outstanding question is no answer to it.
        """
        answers = {InputKey(key): answer for key, answer in responses.items() if key in questions}
        self.ignored_answers += len(responses) - len(answers)
        for key, answer in answers.items():
            problem = self._machine.config.check_answer(questions[key], answer)
            if problem is not None:
                raise Refusal(faults.invalid_params(f"params.inputResponses.{key}: {problem}"))
        return answers

    def _update_native(self, exchange: Exchange, source: str, task_id: TaskId, responses: JSONObject) -> Procedure:
        try:
            state = yield from self._native.state(source, task_id, exchange.owner, Access.ANSWER)
            questions = state.get("inputRequests", {}) if state["status"] == "input_required" else {}
            answers = self._checked(questions, responses)
            if answers:
                yield from self._native.tell(source, SourceOperation.ANSWER, task_id, exchange.owner, answers)
            self._replies.body(exchange, self._replies.acknowledgement)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)

    # --- tasks/cancel

    def cancel(self, exchange: Exchange, params: JSONObject) -> None:
        try:
            task_id = self._admitted(exchange, params)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)
            return
        source = self._sources.source_of(task_id)
        if source is None:
            self._machine.in_order(task_id, self._cancel(exchange, task_id), exchange)
        else:
            self._machine.run(self._cancel_native(exchange, source, task_id), exchange)

    def _cancel(self, exchange: Exchange, task_id: TaskId) -> Procedure:
        try:
            yield from self._permitted(exchange, task_id, Access.CANCEL)
            change = yield from self._storing.change(
                task_id, lambda record: apply(record, RequestCancel(), self._machine.now.wall_ms)
            )
            if change is None:
                raise Refusal(faults.TASK_NOT_FOUND)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)
            return
        self._replies.body(exchange, self._replies.acknowledgement)
        if not change.after.is_terminal:
            self._work.stop(task_id, "the client cancelled the task")

    def _cancel_native(self, exchange: Exchange, source: str, task_id: TaskId) -> Procedure:
        try:
            state = yield from self._native.state(source, task_id, exchange.owner, Access.CANCEL)
            if state["status"] in ("working", "input_required"):
                yield from self._native.tell(source, SourceOperation.CANCEL, task_id, exchange.owner)
            self._replies.body(exchange, self._replies.acknowledgement)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)

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

    def _permitted(self, exchange: Exchange, task_id: TaskId, access: Access) -> Step[None]:
        """Go on only for callers who may touch the task; for all others there is none.

        Raises:
            Refusal: unknown, gone, expired or foreign.
        """
        loaded = yield from self._storing.load(task_id)
        record = None if loaded is None else loaded[1].record
        if record is None or not (yield from self._storing.may_access(exchange.owner, access, task_id, record.owner)):
            raise Refusal(faults.TASK_NOT_FOUND)
        if record.expired:
            raise Refusal(faults.TASK_EXPIRED)
