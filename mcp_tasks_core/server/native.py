"""Tasks that live in an engine of the application's own: asked about, checked, never stored here."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_tasks_core.access import Access, Owner
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import AskSource, Severity, SourceOperation
from mcp_tasks_core.server.events import SourceAnswered, SourceAnswerKind
from mcp_tasks_core.server.machine import Expired, Machine, Need
from mcp_tasks_core.server.storing import Refusal, Step, Storing
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.methods import decode_task

_NO_ANSWERS: Mapping[InputKey, JSONObject] = {}


class NativeSources:
    """The application's engines as procedures see them. Whatever they say is checked before it is sent."""

    def __init__(self, machine: Machine, storing: Storing) -> None:
        self._machine = machine
        self._storing = storing

    def state(self, source: str, task_id: TaskId, caller: Owner, access: Access) -> Step[JSONObject]:
        """The task as tasks/get shows it, for callers who may touch it.

        Raises:
            Refusal: there is none for this caller, or the source cannot say.
        """
        answer = yield self._need(source, SourceOperation.READ, task_id, caller, _NO_ANSWERS)
        self._check(source, task_id, answer, SourceAnswerKind.STATE)
        owner, state = answer.owner, answer.state
        if owner is None or not isinstance(state, dict):
            raise self._unfit(source, task_id, "a state needs an owner and an object")
        if not (yield from self._storing.may_access(caller, access, task_id, owner)):
            raise Refusal(faults.TASK_NOT_FOUND)
        try:
            decode_task(state, "state")
        except DecodeError as problem:
            raise self._unfit(source, task_id, str(problem)) from problem
        if state["taskId"] != task_id:
            raise self._unfit(source, task_id, f"the state is that of the task {state['taskId']!r}")
        return state

    def tell(
        self,
        source: str,
        operation: SourceOperation,
        task_id: TaskId,
        caller: Owner,
        answers: Mapping[InputKey, JSONObject] = _NO_ANSWERS,
    ) -> Step[None]:
        """Hand answers or a cancel to the source; returns once it has accepted them.

        Raises:
            Refusal: there is no such task any longer, or the source cannot say.
        """
        answer = yield self._need(source, operation, task_id, caller, answers)
        self._check(source, task_id, answer, SourceAnswerKind.ACCEPTED)

    def _need(
        self,
        source: str,
        operation: SourceOperation,
        task_id: TaskId,
        caller: Owner,
        answers: Mapping[InputKey, JSONObject],
    ) -> Need:
        return Need(
            lambda ticket: AskSource(
                ticket=ticket, source=source, operation=operation, task_id=task_id, caller=caller, answers=answers
            ),
            (SourceAnswered,),
            self._machine.limits.answer_wait_ms,
        )

    def _check(self, source: str, task_id: TaskId, answer: SourceAnswered | Expired, wanted: SourceAnswerKind) -> None:
        if isinstance(answer, Expired):
            raise self._unfit(source, task_id, f"no answer within {answer.wait_ms} ms")
        if answer.kind is SourceAnswerKind.UNKNOWN:
            raise Refusal(faults.TASK_NOT_FOUND)
        if answer.kind is SourceAnswerKind.FAILED:
            self._machine.report(Severity.ERROR, f"the source {source} failed for task {task_id}: {answer.reason}")
            raise Refusal(faults.STORE_UNAVAILABLE)
        if answer.kind is not wanted:
            raise self._unfit(source, task_id, f"it answered {answer.kind.value}, not {wanted.value}")

    def _unfit(self, source: str, task_id: TaskId, problem: str) -> Refusal:
        self._machine.report(Severity.ERROR, f"the source {source} cannot be used for task {task_id}: {problem}")
        return Refusal(faults.INTERNAL)
