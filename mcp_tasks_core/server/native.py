"""Tasks that live in an engine of the application's own: asked about, checked, never stored here."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_tasks_core.access import Access, Owner
from mcp_tasks_core.errors import ErrorObject, problem_with_error
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import AskSource, Severity, SourceOperation
from mcp_tasks_core.server.events import SourceAnswered, SourceAnswerKind
from mcp_tasks_core.server.machine import Expired, Machine, Need
from mcp_tasks_core.server.results import UnfitResult, tool_result
from mcp_tasks_core.server.storing import Refusal, Step, Storing
from mcp_tasks_core.tasks import CompletedTask, FailedTask, InputRequiredTask
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.methods import check_input_request, decode_task, read_timestamp

_NO_ANSWERS: Mapping[InputKey, JSONObject] = {}


_PAYLOADS: Mapping[str, str] = {"input_required": "inputRequests", "completed": "result", "failed": "error"}


def _fit_state(state: JSONObject, task_id: TaskId) -> JSONObject:
    """A source's state as tasks/get may show it: the payload of its status and of no other, no resultType.

    Raises:
        DecodeError, UnfitResult: it may not be shown.
    """
    task = decode_task(state, "state")
    if task.task_id != task_id:
        raise UnfitResult(f"the state is that of the task {task.task_id!r}")
    if read_timestamp(task.last_updated_at) < read_timestamp(task.created_at):
        raise UnfitResult("lastUpdatedAt is before createdAt")
    payload = _PAYLOADS.get(task.status)
    left_out = {"resultType", *_PAYLOADS.values()} - {payload}
    fit = {name: value for name, value in state.items() if name not in left_out}
    if isinstance(task, InputRequiredTask):
        if not task.input_requests:
            raise UnfitResult("an input_required task has one input request or more")
        for key, request in task.input_requests.items():
            problem = check_input_request(request)
            if problem is not None:
                raise UnfitResult(f"the question {key!r}: {problem}")
    elif isinstance(task, CompletedTask):
        fit["result"] = tool_result(task.result)
    elif isinstance(task, FailedTask):
        error = ErrorObject(task.error["code"], task.error["message"], task.error.get("data"))
        problem = problem_with_error(error)
        if problem is not None:
            raise UnfitResult(problem)
    return fit


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
        owner, state = yield from self.read(source, task_id, caller)
        if not (yield from self._storing.may_access(caller, access, task_id, owner)):
            raise Refusal(faults.TASK_NOT_FOUND)
        return self.fit(source, task_id, state)

    def read(self, source: str, task_id: TaskId, caller: Owner) -> Step[tuple[Owner, JSONObject]]:
        """Whose task it is, and what the source says of it: for nobody's eyes before ``fit`` has passed it.

        Raises:
            Refusal: there is none, or the source cannot say.
        """
        answer = yield self._need(source, SourceOperation.READ, task_id, caller, _NO_ANSWERS)
        self._check(source, task_id, answer, SourceAnswerKind.STATE)
        owner, state = answer.owner, answer.state
        if owner is None or not isinstance(state, dict):
            raise self._unfit(source, task_id, "a state needs an owner and an object")
        return owner, state

    def fit(self, source: str, task_id: TaskId, state: JSONObject) -> JSONObject:
        """The state as tasks/get may show it.

        Raises:
            Refusal: it may not be shown.
        """
        try:
            return _fit_state(state, task_id)
        except (DecodeError, UnfitResult) as problem:
            raise self._unfit(source, task_id, str(problem)) from problem

    def announced(self, source: str, task_id: TaskId, caller: Owner) -> Step[JSONObject]:
        """The state of a task that the application has just claimed for this caller.

        Raises:
            Refusal: the source cannot say, or there is no such task for this caller: the application's mistake.
        """
        try:
            return (yield from self.state(source, task_id, caller, Access.READ))
        except Refusal as refusal:
            if refusal.error is not faults.TASK_NOT_FOUND:
                raise
            raise self._unfit(source, task_id, "it was claimed, and there is no such task for its caller") from refusal

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
