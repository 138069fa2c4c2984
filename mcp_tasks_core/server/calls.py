"""tools/call and the application's own methods: handed out, answered, and made into tasks.

Source: tools, Calling Tools; tasks, Task Creation; mrtr, Basic Workflow.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, Revision, TaskId, Ticket
from mcp_tasks_core.lifecycle import Cancel, RequestCancel, apply
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import (
    AbandonWork,
    AdoptWork,
    CallContext,
    CallMethod,
    CancelCall,
    InvokeTool,
    ServerEffect,
    Severity,
    SourceOperation,
    StartWork,
)
from mcp_tasks_core.server.ends import status_message
from mcp_tasks_core.server.events import (
    Asked,
    Deferral,
    MethodAnswered,
    Outcome,
    Raised,
    Returned,
    StoreConflicted,
    StoreFailed,
    TaskStored,
    ToolAnswered,
    ToolDeferred,
    WorkStopped,
)
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.server.lease import Lease
from mcp_tasks_core.server.machine import Expired, Machine, Need, Procedure
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.replies import Replies
from mcp_tasks_core.server.results import ASKING_METHODS, UnfitResult, as_asked, method_result, tool_result
from mcp_tasks_core.server.rounds import Brought, Rounds
from mcp_tasks_core.server.states import TaskState
from mcp_tasks_core.server.storing import Refusal, Step, StoreAnswer, Storing, Unstorable
from mcp_tasks_core.server.work import Work, check_durations
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import InputEntry, TaskRecord, TaskStatus, handle_to_wire

_ROUND_MEMBERS = ("_meta", "inputResponses", "requestState")
_CALLER_GONE = "The caller went away before the task was announced"
_MINTING_ATTEMPTS_MAX = 64
_Finish: TypeAlias = Callable[[object], JSONObject]


class Calls:
    """Requests that the application answers."""

    def __init__(
        self,
        machine: Machine,
        storing: Storing,
        native: NativeSources,
        work: Work,
        replies: Replies,
        rounds: Rounds,
        lease: Lease,
    ) -> None:
        self._machine = machine
        self._storing = storing
        self._native = native
        self._work = work
        self._replies = replies
        self._rounds = rounds
        self._lease = lease
        self._sources = machine.config.source_table

    # --- methods of the application

    def call_method(self, exchange: Exchange, params: JSONObject) -> Procedure:
        """Have the application serve a method of its own."""
        asking = exchange.method in ASKING_METHODS
        brought = self._rounds.open(exchange, params) if asking else Brought()
        left_out = _ROUND_MEMBERS if asking else ("_meta",)
        given = {name: value for name, value in params.items() if name not in left_out}
        context = self._context(exchange, brought, may_defer=False)
        answer = yield from self._invoke(
            exchange,
            lambda ticket: CallMethod(ticket=ticket, method=exchange.method, params=given, context=context),
            (MethodAnswered,),
        )
        if answer is not None:
            config = self._machine.config
            self._answer(
                exchange, params, brought, answer.outcome, lambda result: method_result(result, exchange.method, config)
            )

    # --- tools/call

    def call_tool(self, exchange: Exchange, params: JSONObject, name: str, arguments: JSONObject) -> Procedure:
        """Run a tool. ``name`` is that of a known tool, whose need for a task the caller can meet."""
        brought = self._rounds.open(exchange, params)
        may_defer = self._machine.config.tasks and exchange.meta.capabilities.declares_tasks
        context = self._context(exchange, brought, may_defer=may_defer)
        answer = yield from self._invoke(
            exchange,
            lambda ticket: InvokeTool(ticket=ticket, name=name, arguments=arguments, context=context),
            (ToolAnswered, ToolDeferred),
        )
        if isinstance(answer, ToolAnswered):
            self._answer(exchange, params, brought, answer.outcome, tool_result)
        elif answer is not None:
            yield from self._create(exchange, params, answer)

    def _context(self, exchange: Exchange, brought: Brought, *, may_defer: bool) -> CallContext:
        return CallContext(
            stream_id=exchange.stream_id,
            request_id=exchange.request_id,
            owner=exchange.owner,
            meta=exchange.meta.raw,
            capabilities=exchange.meta.capabilities,
            may_defer=may_defer,
            answers=brought.answers,
            state=brought.state,
        )

    def _invoke(
        self, exchange: Exchange, effect: Callable[[Ticket], ServerEffect], kinds: tuple[type, ...]
    ) -> Step[Any]:
        """Hand the call out; the event that answers it, ``None`` when it took too long and got an error."""

        def issued(ticket: Ticket) -> ServerEffect:
            exchange.invocation = ticket
            return effect(ticket)

        answer = yield Need(issued, kinds, self._machine.config.call_limit_ms)
        ticket, exchange.invocation = exchange.invocation, None
        if isinstance(answer, Expired):
            assert ticket is not None
            self._machine.emit(CancelCall(ticket, f"the call took longer than {answer.wait_ms} ms"))
            self._machine.report(Severity.WARNING, f"{exchange.method} took longer than {answer.wait_ms} ms")
            self._replies.error(exchange, faults.took_too_long(answer.wait_ms))
            return None
        return answer

    def _answer(
        self, exchange: Exchange, params: JSONObject, brought: Brought, outcome: Outcome, finish: _Finish
    ) -> None:
        """Answer with what the application returned, or with -32603 where that may not be."""
        try:
            match as_asked(outcome, exchange.method):
                case Raised(error):
                    self._replies.error(exchange, error)
                case Asked() as asked:
                    self._replies.result(exchange, self._rounds.ask(exchange, params, brought, asked))
                case Returned(result):
                    self._replies.result(exchange, finish(result))
        except UnfitResult as problem:
            self._machine.report(Severity.ERROR, f"an answer to {exchange.method} cannot be sent: {problem}")
            self._replies.error(exchange, faults.INTERNAL)

    # --- a call becomes a task

    def check_deferral(self, exchange: Exchange, deferred: ToolDeferred) -> None:
        """Refuse a deferral that is the application's mistake, before it changes anything.

        Raises:
            LocalProtocolError: the caller may not get a task, or the deferral lacks what its kind needs.
        """
        if not self._machine.config.tasks or not exchange.meta.capabilities.declares_tasks:
            raise LocalProtocolError("a task was made of a call whose may_defer is false")
        check_durations(deferred.ttl_ms, deferred.poll_interval_ms)
        limits = self._machine.limits
        if deferred.deferral is Deferral.CLAIM:
            task_id = deferred.task_id
            if not isinstance(task_id, str) or not 1 <= len(task_id) <= limits.identifier_chars_max:
                raise LocalProtocolError(f"a claim needs a task_id of 1 to {limits.identifier_chars_max} characters")
        elif len(deferred.entropy) < limits.task_id_entropy_bytes_min:
            least = limits.task_id_entropy_bytes_min
            raise LocalProtocolError(f"a task's id needs {least} random bytes, not {len(deferred.entropy)}")

    def _create(self, exchange: Exchange, params: JSONObject, deferred: ToolDeferred) -> Procedure:
        """Store the task, read it back, and only then answer with its handle and let the work start."""
        try:
            claimed = deferred.task_id if deferred.deferral is Deferral.CLAIM else None
            source = None if claimed is None else self._sources.source_of(claimed)
            if source is not None:
                yield from self._announce_native(exchange, source, deferred)
            else:
                yield from self._announce(exchange, params, deferred)
        except Refusal as refusal:
            self._machine.emit(AbandonWork(deferred.ticket, refusal.error.message))
            raise

    def _announce_native(self, exchange: Exchange, source: str, deferred: ToolDeferred) -> Step[None]:
        assert deferred.task_id is not None
        task_id = deferred.task_id
        state = yield from self._native.announced(source, task_id, exchange.owner)
        if exchange.closed and not deferred.detach_on_disconnect:
            yield from self._native.tell(source, SourceOperation.CANCEL, task_id, exchange.owner)
            raise Refusal(faults.INTERNAL)
        members = {k: v for k, v in state.items() if k not in ("result", "error", "inputRequests")}
        self._replies.result(exchange, {**members, "resultType": "task"})
        self._machine.emit(AdoptWork(task_id, deferred.ticket))

    def _announce(self, exchange: Exchange, params: JSONObject, deferred: ToolDeferred) -> Step[None]:
        record = self._new_record(exchange, params, deferred)
        task_id = record.task_id
        if not self._machine.hold(task_id):
            raise self._id_taken(task_id)
        try:
            if deferred.deferral is Deferral.CLAIM and (yield from self._storing.load(task_id)) is not None:
                # An uncertain create could not tell an equal claim of before from its own.
                raise self._id_taken(task_id)
            yield from self._lease.ensure()
            row, state = yield from self._store_and_read(record)
            if exchange.closed and not deferred.detach_on_disconnect:
                yield from self._end_unannounced(task_id)
                raise Refusal(faults.INTERNAL)
            result = {"resultType": "task", **handle_to_wire(state.record)}
            self._replies.result(exchange, result)
            if deferred.deferral is not Deferral.CLAIM:  # an id of the application's own may be used for another task
                self._machine.states.remember(row, self._machine.now.monotonic_ms)
            self._begin(deferred, state.record)
            if state.record != record:
                self._work.reconcile(task_id)
        finally:
            self._machine.release(task_id)

    def _begin(self, deferred: ToolDeferred, record: TaskRecord) -> None:
        """Let the work of an announced task run; other writers may have ended the task before it was read back."""
        if record.is_terminal or record.executor != self._machine.config.executor:
            self._machine.emit(AbandonWork(deferred.ticket, "the task has ended, or is another process's by now"))
            return
        starts = deferred.deferral is Deferral.START
        self._machine.emit((StartWork if starts else AdoptWork)(record.task_id, deferred.ticket))
        self._work.started(record.task_id)

    def _new_record(self, exchange: Exchange, params: JSONObject, deferred: ToolDeferred) -> TaskRecord:
        task_id = deferred.task_id
        if deferred.deferral is not Deferral.CLAIM or task_id is None:
            task_id = self._mint(deferred.entropy)
        now_ms = self._machine.now.wall_ms
        return TaskRecord(
            task_id=task_id,
            owner=exchange.owner,
            status=TaskStatus.WORKING,
            created_at_ms=now_ms,
            last_updated_at_ms=now_ms,
            ttl_ms=deferred.ttl_ms,
            method=exchange.method,
            request=params,
            capabilities=exchange.meta.capabilities,
            poll_interval_ms=deferred.poll_interval_ms,
            status_message=status_message(self._machine, deferred.status_message),
            executor=self._machine.config.executor,
            restarts=deferred.deferral is Deferral.START,
            answered={key: InputEntry(request=q, answer=a) for key, (q, a) in deferred.answered.items()},
        )

    def _mint(self, entropy: bytes) -> TaskId:
        """An id made of these bytes, and of no native source's."""
        for _ in range(_MINTING_ATTEMPTS_MAX):
            task_id = TaskId(base64.urlsafe_b64encode(entropy).decode("ascii").rstrip("="))
            if self._sources.source_of(task_id) is None:
                return task_id
            entropy = hashlib.sha256(entropy).digest()
        self._machine.report(Severity.ERROR, "the prefixes of the native sources leave no room for ids of other tasks")
        raise Refusal(faults.INTERNAL)

    def _store_and_read(self, record: TaskRecord) -> Step[tuple[StoredTask, TaskState]]:
        """Create the record durably, and prove that a read finds it. Source: tasks, Task Creation.

        Raises:
            Refusal: either failed; a record that may be there all the same is settled as failed.
        """
        try:
            row = self._storing.row(record, Revision(1))
        except Unstorable as problem:
            self._machine.report(Severity.ERROR, str(problem))
            raise Refusal(faults.INTERNAL) from problem
        given_up = False

        def late(answer: StoreAnswer) -> None:
            # A create that was made after its caller was told that it had not: that task is never left working.
            if given_up and (isinstance(answer, TaskStored) or (isinstance(answer, StoreFailed) and answer.uncertain)):
                self._work.settle(record.task_id, Raised(faults.STORE_UNAVAILABLE))

        answer = yield self._storing.create(row, late)
        if isinstance(answer, StoreConflicted):
            raise self._id_taken(record.task_id)
        if isinstance(answer, StoreFailed) and not answer.uncertain:
            raise self._storing.trouble(f"creating task {record.task_id}", answer)
        try:
            return (yield from self._read_back(row, record, answer))
        except Refusal:
            given_up = True
            raise

    def _read_back(
        self, row: StoredTask, record: TaskRecord, answer: TaskStored | StoreFailed | Expired
    ) -> Step[tuple[StoredTask, TaskState]]:
        try:
            found = answer.found if isinstance(answer, TaskStored) else None
            if found is None or found.task_id != row.task_id:
                loaded = yield from self._storing.load(row.task_id)
            else:
                loaded = found, self._storing.state_of(found)
        except Refusal:
            self._work.settle(row.task_id, Raised(faults.STORE_UNAVAILABLE))
            raise
        if loaded is None:
            if isinstance(answer, TaskStored):
                self._machine.report(Severity.ERROR, f"task {row.task_id} was stored and cannot be read")
                self._work.settle(row.task_id, Raised(faults.STORE_UNAVAILABLE))
                raise Refusal(faults.STORE_UNAVAILABLE)
            raise self._storing.trouble(f"creating task {row.task_id}", answer)
        if not _is_one_task(record, loaded[1].record):
            raise self._id_taken(row.task_id)
        self._storing.stored(loaded[0], loaded[1].record)
        return loaded

    def _end_unannounced(self, task_id: TaskId) -> Step[None]:
        try:
            yield from self._storing.change(task_id, self._gone)
        except Refusal:
            self._work.settle(task_id, WorkStopped(_CALLER_GONE))

    def _gone(self, record: TaskRecord) -> TaskRecord:
        """The caller went away before its handle: nobody will ever ask for this task (DECISIONS D39)."""
        if record.is_terminal:
            return record
        now_ms = self._machine.now.wall_ms
        wanted = apply(record, RequestCancel(), now_ms)
        return apply(wanted, Cancel(_CALLER_GONE), now_ms)

    def _id_taken(self, task_id: TaskId) -> Refusal:
        self._machine.report(Severity.ERROR, f"there is a task {task_id} already; its id cannot be given again")
        return Refusal(faults.INTERNAL)


def _is_one_task(made: TaskRecord, found: TaskRecord) -> bool:
    """Whether what was found is what was made, whatever other writers have changed of it since."""
    same_birth = (found.owner, found.created_at_ms, found.request) == (made.owner, made.created_at_ms, made.request)
    return same_birth and (found.attempts > 1 or found.executor == made.executor)
