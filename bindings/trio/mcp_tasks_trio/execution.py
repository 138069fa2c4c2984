"""Runs what the protocol core asks of the application: tools, gates and methods.

Work behind a task runs beside the request that made it, in the server's own task group: it outlives the request
and its stream, and ends with the server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import anyio
import attrs
from anyio.abc import TaskGroup

from mcp_tasks_core.errors import INTERNAL_ERROR, INVALID_PARAMS, ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject, StreamId, TaskId, Ticket
from mcp_tasks_core.server.effects import (
    AbandonWork,
    CallContext,
    CallMethod,
    CancelCall,
    DeliverInput,
    InvokeTool,
    OrphanLeft,
    RefuseInput,
    ResumeWork,
    StartWork,
    StopWork,
)
from mcp_tasks_core.server.events import (
    Deferral,
    MethodAnswered,
    Outcome,
    Raised,
    Returned,
    ToolAnswered,
    ToolDeferred,
    WorkCompleted,
    WorkReleased,
    WorkStopped,
)
from mcp_tasks_trio.application import Application, Method
from mcp_tasks_trio.channels import Channel, CheckAnswer, Feed, InlineChannel, WorkChannel
from mcp_tasks_trio.context import (
    GateContext,
    GatedCall,
    MethodContext,
    SyncGateContext,
    SyncMethodContext,
    SyncToolContext,
    ToolContext,
)
from mcp_tasks_trio.durations import optional_duration_ms
from mcp_tasks_trio.endings import as_error, settle
from mcp_tasks_trio.orphans import OrphanedTask
from mcp_tasks_trio.results import error_to_wire, json_object, to_wire
from mcp_tasks_trio.signatures import ArgumentsRefused
from mcp_tasks_trio.threads import LoopCalls, WorkerThreads
from mcp_tasks_trio.tools import Function, TaskClaim, Tool, is_async

_log = logging.getLogger("mcp_tasks_trio")


class _Deferred:
    """A gate's verdict: the call becomes a task."""


class _Released:
    """The application's verdict on an orphan: the task stays as it is."""


_DEFERRED: Final = _Deferred()
_RELEASED: Final = _Released()
_NO_STREAM: Final = StreamId(0)  # work that is resumed was asked for on a stream of another process
_Ending: TypeAlias = "Outcome | TaskClaim | _Deferred"
_WorkEnding: TypeAlias = "_Ending | _Released"


@attrs.define(eq=False)
class _Call:
    """A request that is being answered, or a call that waits for its record."""

    channel: InlineChannel
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)

    def cancel(self) -> None:
        self.channel.cancel()
        # A thread cannot be cancelled: it is told, and left to itself.
        self.scope.cancel()


@attrs.define(eq=False)
class _Work:
    """Work behind a task."""

    channel: WorkChannel
    in_thread: bool
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)

    def stop(self) -> None:
        self.channel.cancel(wake=self.in_thread)
        if not self.in_thread:
            self.scope.cancel()


@attrs.frozen
class _Prepared:
    """A call whose arguments were read."""

    tool: Tool
    arguments: Mapping[str, Any]
    context: CallContext


class Execution:
    """Runs one application for one protocol core.

    Args:
        feed: takes what happened to the core.
        task_group: of the server: everything ends with it.
        entropy: random bytes, as many as asked for.
        task_id_bytes: how many of them make a task's id.
    """

    def __init__(
        self,
        application: Application,
        feed: Feed,
        task_group: TaskGroup,
        threads: WorkerThreads,
        check_answer: CheckAnswer,
        entropy: Callable[[int], bytes],
        task_id_bytes: int,
    ) -> None:
        self._application = application
        self._feed = feed
        self._task_group = task_group
        self._check_answer = check_answer
        self._entropy = entropy
        self._task_id_bytes = task_id_bytes
        self._threads = threads
        self._loop = LoopCalls(task_group)
        self._calls: dict[Ticket, _Call] = {}
        self._deferred: dict[Ticket, tuple[_Prepared, InlineChannel | None]] = {}
        self._works: dict[TaskId, _Work] = {}

    @property
    def works_running(self) -> int:
        """Tasks whose work runs."""
        return len(self._works)

    def end(self) -> None:
        """The server ends, and all work with it: what stops because of that takes back none of its questions, which
        whoever runs it again asks anew."""
        for work in self._works.values():
            work.channel.end_with_server()

    # --- calls that are answered inline, and gates

    def invoke_tool(self, effect: InvokeTool) -> None:
        tool = self._application.tools.get(effect.name)
        if tool is None:
            error = ErrorObject(INVALID_PARAMS, f"Unknown tool: {effect.name}")
            self._feed(ToolAnswered(effect.ticket, Raised(error)))
            return
        try:
            arguments = tool.arguments.read(effect.arguments)
        except ArgumentsRefused as refusal:
            text = f"Invalid arguments for tool {tool.name}: {refusal}"
            self._feed(ToolAnswered(effect.ticket, Returned(error_to_wire(text))))
            return
        prepared = _Prepared(tool, arguments, effect.context)
        gates = self._application.gates_of(tool)
        if not gates and self._defers(prepared):
            self._defer(effect.ticket, prepared, None)
            return
        call = self._open_call(effect.ticket, effect.context, may_ask=True)
        self._task_group.start_soon(self._run_tool, effect.ticket, call, prepared, gates, effect.arguments)

    def call_method(self, effect: CallMethod) -> None:
        method = self._application.methods[effect.method]
        call = self._open_call(effect.ticket, effect.context, may_ask=method.may_ask)
        self._task_group.start_soon(self._run_method, effect.ticket, call, method, effect.params)

    def cancel_call(self, effect: CancelCall) -> None:
        call = self._calls.get(effect.ticket)
        if call is not None:
            call.cancel()

    def _open_call(self, ticket: Ticket, context: CallContext, *, may_ask: bool) -> _Call:
        channel = InlineChannel(self._feed, ticket, context, self._check_answer, may_ask=may_ask)
        call = self._calls[ticket] = _Call(channel)
        return call

    def _defers(self, prepared: _Prepared) -> bool:
        return prepared.context.may_defer and prepared.tool.terms.mode != "never"

    def _defer(self, ticket: Ticket, prepared: _Prepared, channel: InlineChannel | None) -> None:
        self._deferred[ticket] = (prepared, channel)
        terms = prepared.tool.terms
        self._answer(
            ToolDeferred(
                ticket=ticket,
                deferral=Deferral.START,
                entropy=self._entropy(self._task_id_bytes),
                ttl_ms=terms.ttl_ms,
                poll_interval_ms=terms.poll_interval_ms,
                detach_on_disconnect=terms.detach_on_disconnect,
                answered={InputKey(key): pair for key, pair in ({} if channel is None else channel.settled).items()},
            )
        )

    async def _run_tool(
        self, ticket: Ticket, call: _Call, prepared: _Prepared, gates: list[Function], raw_arguments: JSONObject
    ) -> None:
        tool = prepared.tool

        async def steps() -> _Ending:
            gated = GatedCall(tool.name, prepared.arguments, raw_arguments, self._defers(prepared))
            for gate in gates:
                await self._pass_gate(gate, call.channel, gated)
            if gated.becomes_task:
                return _DEFERRED
            value = await self._run_body(prepared, call.channel)
            if isinstance(value, TaskClaim):
                return value
            return Returned(to_wire(value, tool.output))

        value = await settle(f"Tool {tool.name}", call.scope, call.channel, steps)
        if self._close_call(ticket, call) or value is None:
            return
        verdict = call.channel.verdict
        if verdict is not None:
            self._answer(ToolAnswered(ticket, verdict))
        elif isinstance(value, _Deferred):
            self._defer(ticket, prepared, call.channel)
        elif isinstance(value, TaskClaim):
            self._answer(self._claimed(ticket, prepared, value))
        else:
            self._answer(ToolAnswered(ticket, value))

    def _claimed(self, ticket: Ticket, prepared: _Prepared, claim: TaskClaim) -> ToolAnswered | ToolDeferred:
        if not prepared.context.may_defer:
            _log.error(
                "Tool %s claims the task %s for a caller that did not declare tasks", prepared.tool.name, claim.task_id
            )
            return ToolAnswered(ticket, Returned(error_to_wire(f"Tool {prepared.tool.name} failed")))
        return ToolDeferred(
            ticket=ticket,
            deferral=Deferral.CLAIM,
            task_id=claim.task_id,
            ttl_ms=optional_duration_ms(claim.ttl, "ttl"),
            poll_interval_ms=optional_duration_ms(claim.poll_interval, "poll_interval"),
            status_message=claim.status_message,
            detach_on_disconnect=prepared.tool.terms.detach_on_disconnect,
        )

    async def _run_method(self, ticket: Ticket, call: _Call, method: Method, params: JSONObject) -> None:
        async def steps() -> _Ending:
            context: MethodContext | SyncMethodContext
            if method.is_async:
                context = MethodContext(call.channel, method.name)
            else:
                context = SyncMethodContext(call.channel, self._loop, method.name)
            result = await self._threads.call(method.function, method.is_async, params, context)
            return Returned(json_object(result))

        value = await settle(method.name, call.scope, call.channel, steps, fail=as_error)
        if self._close_call(ticket, call) or value is None:
            return
        self._answer(MethodAnswered(ticket, call.channel.verdict or cast("Outcome", value)))

    def _close_call(self, ticket: Ticket, call: _Call) -> bool:
        """Forget the call; ``True`` when it was cancelled, so that nobody waits for its answer."""
        del self._calls[ticket]
        call.channel.close()
        return call.channel.cancel_requested

    def _answer(self, event: ToolAnswered | ToolDeferred | MethodAnswered) -> None:
        """Tell the core; what it refuses of the application's is an internal error to the caller."""
        try:
            self._feed(event)
        except LocalProtocolError:
            _log.exception("What the application answered may not be")
            refused = Raised(ErrorObject(INTERNAL_ERROR, "Internal error"))
            answer = MethodAnswered if isinstance(event, MethodAnswered) else ToolAnswered
            self._feed(answer(event.ticket, refused))

    # --- work behind tasks

    def start_work(self, effect: StartWork) -> None:
        prepared, foreground = self._deferred.pop(effect.ticket)
        settled = foreground.settled if foreground is not None else {}
        channel = WorkChannel(self._feed, effect.task_id, prepared.context, settled)
        self._start_work(channel, prepared)

    def _start_work(self, channel: WorkChannel, prepared: _Prepared) -> None:
        work = self._open_work(channel, prepared.tool.is_async)
        tool = prepared.tool

        async def steps() -> _Ending:
            return Returned(to_wire(await self._run_body(prepared, channel), tool.output))

        self._task_group.start_soon(self._run_work, work, f"Tool {tool.name}", steps)

    def _open_work(self, channel: WorkChannel, is_async: bool) -> _Work:
        """Work that is about to run. An earlier run, of before the task was another process's, is cut off."""
        lingering = self._works.get(channel.own_task_id)
        if lingering is not None:
            lingering.stop()
            lingering.channel.close()
        work = self._works[channel.own_task_id] = _Work(channel, in_thread=not is_async)
        return work

    def resume_work(self, effect: ResumeWork) -> None:
        """Run the work of a task whose process died. Its gates were passed then, and are not asked again."""
        channel = self._channel_of(effect)
        tool = self._application.tools.get(effect.name)
        try:
            if tool is None:
                raise ArgumentsRefused("there is no such tool any longer")
            prepared = _Prepared(tool, tool.arguments.read(effect.arguments), channel.call)
        except ArgumentsRefused as refusal:
            _log.error("The work of task %s cannot be resumed: %s", effect.task_id, refusal)
            error = ErrorObject(INTERNAL_ERROR, f"Tool {effect.name} cannot be resumed")
            self._feed(WorkCompleted(effect.task_id, Raised(error)))
            return
        self._start_work(channel, prepared)

    def tell_of_orphan(self, effect: OrphanLeft) -> None:
        """Have the application decide on a task whose process died."""
        handler = self._application.orphan_handler
        tool = self._application.tools.get(effect.name)
        if handler is None or tool is None:
            _log.warning(
                "Task %s was left by a process that died; its tool leaves it to the application, which has "
                "no on_orphan",
                effect.task_id,
            )
            self._feed(WorkReleased(effect.task_id))
            return
        orphan = OrphanedTask(
            task_id=effect.task_id,
            tool_name=effect.name,
            arguments=effect.arguments,
            owner=effect.owner,
            meta=effect.meta,
            attempt=effect.attempt,
        )
        handler_is_async = is_async(handler)
        work = self._open_work(self._channel_of(effect), handler_is_async)

        async def steps() -> _WorkEnding:
            value = await self._threads.call(handler, handler_is_async, orphan)
            return _RELEASED if value is None else Returned(to_wire(value, tool.output))

        self._task_group.start_soon(self._run_work, work, "on_orphan", steps)

    def _channel_of(self, effect: ResumeWork) -> WorkChannel:
        call = CallContext(
            stream_id=_NO_STREAM,
            request_id=effect.task_id,
            owner=effect.owner,
            meta=effect.meta,
            capabilities=effect.capabilities,
        )
        answered = {
            str(key): (entry.request, entry.answer)
            for key, entry in effect.answered.items()
            if entry.answer is not None
        }
        return WorkChannel(self._feed, effect.task_id, call, answered, effect.attempt)

    def abandon_work(self, effect: AbandonWork) -> None:
        self._deferred.pop(effect.ticket, None)

    def stop_work(self, effect: StopWork) -> None:
        work = self._works.get(effect.task_id)
        if work is not None:
            work.stop()

    def deliver_input(self, effect: DeliverInput) -> None:
        work = self._works.get(effect.task_id)
        if work is not None:
            work.channel.deliver(effect.key, effect.answer)

    def refuse_input(self, effect: RefuseInput) -> None:
        work = self._works.get(effect.task_id)
        if work is not None:
            work.channel.refuse(effect.key, effect.error)

    async def _run_work(self, work: _Work, what: str, steps: Callable[[], Awaitable[_WorkEnding]]) -> None:
        task_id = work.channel.own_task_id
        value = await settle(what, work.scope, work.channel, steps)
        work.channel.close()
        if self._works.get(task_id) is not work:
            return  # The task is another run's by now.
        del self._works[task_id]
        if isinstance(value, _Released):
            self._feed(WorkReleased(task_id))
        else:
            outcome = value if isinstance(value, Returned | Raised) else WorkStopped()
            self._feed(WorkCompleted(task_id, outcome))

    # --- what calls and work share

    async def _run_body(self, prepared: _Prepared, channel: Channel) -> Any:
        tool = prepared.tool
        arguments = dict(prepared.arguments)
        if tool.context_parameter is not None:
            arguments[tool.context_parameter] = (
                ToolContext(channel, tool.name) if tool.is_async else SyncToolContext(channel, self._loop, tool.name)
            )
        return await self._threads.call(tool.function, tool.is_async, **arguments)

    async def _pass_gate(self, gate: Function, channel: InlineChannel, gated: GatedCall) -> None:
        if is_async(gate):
            await self._threads.call(gate, True, GateContext(channel, gated))
        else:
            await self._threads.call(gate, False, SyncGateContext(channel, self._loop, gated))
