"""The server's protocol core: events in, effects out.

One ``ServerProtocol`` serves any number of streams. It never waits and never does I/O; what it needs it asks for
with an effect, and the answer comes back as an event with the effect's ticket. A peer can never make ``handle``
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Instant, JSONObject, StreamId, TaskId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.calls import Calls
from mcp_tasks_core.server.catalogue import Catalogue, UnknownCursor, discover_result
from mcp_tasks_core.server.config import ServerConfig, ToolEntry, check_tools
from mcp_tasks_core.server.effects import Acknowledge, CancelCall, ServerEffect, Severity
from mcp_tasks_core.server.events import (
    AccessDecided,
    CallLogged,
    CallProgressed,
    ChangesListed,
    DueListed,
    InputNeeded,
    InputWithdrawn,
    LeaseHeld,
    ListChanged,
    ListKind,
    MessageReceived,
    MessageRefused,
    MethodAnswered,
    OrphansListed,
    ResourceUpdated,
    ServerEvent,
    ShutdownBegan,
    SourceAnswered,
    StoreConflicted,
    StoreFailed,
    StreamBlocked,
    StreamClosed,
    StreamEnding,
    StreamUnblocked,
    TaskChanged,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
    Ticked,
    ToolAnswered,
    ToolDeferred,
    ToolsReplaced,
    WorkCompleted,
    WorkProgressed,
    WorkReleased,
    WorkRetimed,
)
from mcp_tasks_core.server.exchanges import Exchange, ExchangeTable, OpenExchange
from mcp_tasks_core.server.expiry import Expiry
from mcp_tasks_core.server.lease import Lease
from mcp_tasks_core.server.machine import Machine
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.negotiation import Admitted, Ignored, Refused, admit, fault_of_parameters, read
from mcp_tasks_core.server.notices import log_params, progress_params
from mcp_tasks_core.server.replies import Replies
from mcp_tasks_core.server.rounds import Rounds
from mcp_tasks_core.server.sharing import Sharing
from mcp_tasks_core.server.storing import Refusal, Storing
from mcp_tasks_core.server.subscriptions import Subscriptions
from mcp_tasks_core.server.task_methods import TaskMethods
from mcp_tasks_core.server.work import Work
from mcp_tasks_core.wire.jsonrpc import Notification, Request, encode_id

_ANSWERS: Final = frozenset(
    {
        TaskLoaded,
        TaskStored,
        StoreConflicted,
        StoreFailed,
        DueListed,
        TaskDeleted,
        LeaseHeld,
        OrphansListed,
        ChangesListed,
        AccessDecided,
        SourceAnswered,
    }
)
_Method = Callable[[Exchange, JSONObject], None]


class ServerProtocol:
    """MCP with tasks, from the server's side, for one application.

    Args:
        config: how it behaves; see ``ServerConfig``.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._machine = Machine(config)
        self._exchanges = ExchangeTable()
        self._expiry = Expiry(self._machine)
        self._replies = Replies(self._machine, self._exchanges)
        self._storing = Storing(self._machine, self._expiry.note)
        self._work = Work(self._machine, self._storing)
        native = NativeSources(self._machine, self._storing)
        rounds = Rounds(self._machine, self._storing)
        lease = Lease(self._machine, self._storing)
        self._calls = Calls(self._machine, self._storing, native, self._work, self._replies, rounds, lease)
        self._tasks = TaskMethods(self._machine, self._storing, native, self._work, self._replies)
        self._subscriptions = Subscriptions(self._machine, self._storing, native, self._exchanges, self._replies)
        self._storing.note_state = self._subscriptions.tasks.stored
        self._sharing = Sharing(self._machine, self._storing, self._work, lease, self._expiry, self._changed)
        self._replace_tools(config.tools or ())
        self._discovered = self._machine.codec.encode(self._replies.with_server_info(discover_result(config)))
        self._methods = self._method_table()

    def _method_table(self) -> Mapping[str, _Method]:
        """Every method that is served here; each other one is -32601."""
        methods: dict[str, _Method] = {"server/discover": self._discover}
        if self._config.tools is not None:
            methods["tools/list"] = self._list_tools
            methods["tools/call"] = self._call_tool
        if self._config.tasks:
            methods["tasks/get"] = self._tasks.get
            methods["tasks/update"] = self._tasks.update
            methods["tasks/cancel"] = self._tasks.cancel
        if self._config.subscriptions:
            methods["subscriptions/listen"] = self._subscriptions.listen
        for name in self._config.methods:
            methods[name] = self._call_method
        return methods

    # --- the public face

    def handle(self, event: ServerEvent, now: Instant) -> Sequence[ServerEffect]:
        """What is to be done about an event.

        Raises:
            LocalProtocolError: the caller broke the rules of this interface, such as a ticket that was never
                issued or a deferral where no task may be; nothing was changed. Never because of a peer.
        """
        machine = self._machine
        machine.begin(now)
        kind = type(event)
        if kind is MessageReceived:
            self._received(event)  # type: ignore[arg-type]
        elif kind in _ANSWERS:
            machine.resume(event)
        else:
            self._other(event)
        return machine.effects

    @property
    def deadline(self) -> int | None:
        """Monotonic milliseconds at which ``Ticked`` is wanted next, ``None`` for never. Any event may change it."""
        earliest = self._machine.next_expiry_ms
        for moment in (
            self._work.deadline_ms,
            self._expiry.deadline_ms,
            self._sharing.deadline_ms,
            self._subscriptions.deadline_ms,
        ):
            if moment is not None and (earliest is None or moment < earliest):
                earliest = moment
        return earliest

    @property
    def open_exchanges(self) -> Sequence[OpenExchange]:
        """The requests in progress and what each waits for, for people who debug."""
        return [
            OpenExchange(
                stream_id=exchange.stream_id,
                request_id=exchange.request_id,
                method=exchange.method,
                owner=exchange.owner,
                ticket=exchange.ticket,
                waits_for=() if exchange.ticket is None else self._machine.waits_for(exchange.ticket),
            )
            for exchange in self._exchanges.all()
        ]

    @property
    def open_tickets(self) -> int:
        """How many effects still want an answer."""
        return self._machine.open_tickets

    @property
    def open_requests(self) -> int:
        """How many requests in progress there are that are no subscription."""
        return len(self._exchanges) - self._subscriptions.open_count

    @property
    def open_subscriptions(self) -> int:
        """How many subscriptions are open, or being opened."""
        return self._subscriptions.open_count

    @property
    def watched_tasks(self) -> int:
        """How many tasks are watched by subscriptions."""
        return len(self._subscriptions.tasks)

    @property
    def busy_tasks(self) -> int:
        """How many tasks a change is being made to; of each, something that happened is yet to be stored."""
        return self._machine.busy_tasks

    @property
    def ignored_answers(self) -> int:
        """Answers that counted for nothing, because their key was unknown, answered or withdrawn (DECISIONS D6)."""
        return self._tasks.ignored_answers

    # --- events

    def _other(self, event: ServerEvent) -> None:
        match event:
            case ToolAnswered() | MethodAnswered():
                self._machine.resume(event)
            case ToolDeferred():
                exchange = self._machine.exchange_of(event.ticket)
                if exchange is not None:
                    self._calls.check_deferral(exchange, event)
                self._machine.resume(event)
            case CallProgressed():
                self._call_progressed(event)
            case CallLogged():
                self._call_logged(event)
            case WorkProgressed():
                self._work.progressed(event)
            case InputNeeded():
                self._work.input_needed(event)
            case InputWithdrawn():
                self._work.input_withdrawn(event)
            case WorkRetimed():
                self._work.retimed(event)
            case WorkReleased():
                self._work.released(event)
            case WorkCompleted():
                self._work.completed(event)
            case MessageRefused():
                self._replies.refuse(event.stream_id, None, event.error)
            case StreamClosed():
                for exchange in self._exchanges.of_stream(event.stream_id):
                    self._abandon(exchange, "the stream was closed")
            case StreamBlocked():
                self._subscriptions.stream_blocked(event)
            case StreamUnblocked():
                self._subscriptions.stream_unblocked(event.stream_id)
            case StreamEnding():
                self._subscriptions.end_stream(event.stream_id)
            case ShutdownBegan():
                self._subscriptions.shut_down()
            case ListChanged():
                self._subscriptions.list_changed(event)
            case ResourceUpdated():
                self._subscriptions.resource_updated(event)
            case ToolsReplaced():
                if self._config.tools is None:
                    raise LocalProtocolError("a server that was configured without tools has none to replace")
                check_tools(event.tools, tasks=self._config.tasks)
                self._replace_tools(event.tools)
                self._subscriptions.list_changed(ListChanged(ListKind.TOOLS))
            case TaskChanged():
                self._changed(event.task_id)
            case Ticked():
                self._machine.expire()
                self._work.tick()
                self._expiry.tick(self._storing, self._work)
                self._sharing.tick()
                self._subscriptions.tick()
            case _:
                raise LocalProtocolError(f"{event!r} is no event that a server can handle")

    def _changed(self, task_id: TaskId) -> None:
        """Somebody may have changed this task."""
        self._work.reconcile(task_id)
        self._subscriptions.tasks.changed(task_id)

    def _received(self, event: MessageReceived) -> None:
        stream_id = event.stream_id
        message = read(event.payload, self._machine.codec, self._machine.limits)
        if type(message) is Request:
            self._requested(event, message)
        elif type(message) is Notification:
            self._notified(stream_id, message)
            self._machine.emit(Acknowledge(stream_id, True))
        elif type(message) is Refused:
            self._replies.refuse(stream_id, message.request_id, message.error, message.method)
        elif type(message) is Ignored:
            self._machine.report(Severity.WARNING, f"ignored on stream {stream_id}: {message.reason}")
            self._machine.emit(Acknowledge(stream_id, False))

    def _requested(self, event: MessageReceived, request: Request) -> None:
        stream_id = event.stream_id
        if self._exchanges.find(stream_id, request.id) is not None:
            self._replies.refuse(stream_id, request.id, faults.DUPLICATE_ID, request.method)
            return
        headers, required = event.headers, self._config.task_name_required
        verdict = admit(request, self._methods, headers, task_name_required=required)
        if type(verdict) is Refused:
            self._replies.refuse(stream_id, verdict.request_id, verdict.error, verdict.method)
            return
        assert type(verdict) is Admitted
        if self._exchanges.count(stream_id) >= self._machine.limits.open_exchanges_per_stream_max:
            self._replies.refuse(stream_id, request.id, faults.TOO_MANY_REQUESTS, request.method)
            return
        id_bytes = encode_id(request.id, self._machine.codec)
        exchange = Exchange(
            stream_id, request.id, id_bytes, request.method, event.owner, verdict.meta, headers, event.own_stream
        )
        self._exchanges.add(exchange)
        try:
            self._methods[request.method](exchange, request.params)
        except Refusal as refusal:
            self._replies.error(exchange, refusal.error)

    def _notified(self, stream_id: StreamId, notification: Notification) -> None:
        """Cancel what the client cancels; anything else a notification may say is ignored. Source: cancellation."""
        if notification.method != "notifications/cancelled":
            return
        request_id: Any = notification.params.get("requestId")
        if type(request_id) is not str and type(request_id) is not int:
            return
        exchange = self._exchanges.find(stream_id, request_id)
        if exchange is not None:
            self._abandon(exchange, "the client cancelled the request")

    def _abandon(self, exchange: Exchange, reason: str) -> None:
        """Send nothing more for this request. A call is stopped; what is being stored goes on to its end."""
        self._exchanges.remove(exchange)
        self._subscriptions.forget(exchange)
        ticket = exchange.invocation
        if ticket is not None:
            self._machine.drop(ticket)
            self._machine.emit(CancelCall(ticket, reason))

    # --- what an open call says

    def _call_progressed(self, event: CallProgressed) -> None:
        exchange = self._machine.exchange_of(event.ticket)
        if exchange is None or exchange.invocation != event.ticket:
            return
        params = progress_params(exchange, event)
        if params is not None:
            self._replies.notify(exchange, "notifications/progress", params)

    def _call_logged(self, event: CallLogged) -> None:
        exchange = self._machine.exchange_of(event.ticket)
        params = log_params(exchange, event)
        if exchange is not None and params is not None:
            self._replies.notify(exchange, "notifications/message", params)

    # --- methods that the core serves

    def _replace_tools(self, tools: Sequence[ToolEntry]) -> None:
        self._catalogue = Catalogue(tools, per_page=self._config.limits.tools_per_page)
        self._sharing.catalogue = self._catalogue

    def _discover(self, exchange: Exchange, params: JSONObject) -> None:
        self._replies.body(exchange, self._discovered)

    def _list_tools(self, exchange: Exchange, params: JSONObject) -> None:
        cursor = params.get("cursor")
        try:
            if "cursor" in params and type(cursor) is not str:
                raise UnknownCursor
            page = self._catalogue.page(cursor, self._config)
        except UnknownCursor as problem:
            message = "params.cursor: a string that an earlier tools/list gave as nextCursor"
            raise Refusal(faults.invalid_params(message)) from problem
        self._replies.result(exchange, page)

    def _call_tool(self, exchange: Exchange, params: JSONObject) -> None:
        name = params.get("name")
        if type(name) is not str:
            raise Refusal(faults.invalid_params("params.name: a string, the name of a tool"))
        tool = self._catalogue.find(name)
        if tool is None:
            raise Refusal(faults.invalid_params(f"Unknown tool: {name}"))
        arguments = params.get("arguments", {})
        if exchange.headers is not None and type(arguments) is dict:
            fault = fault_of_parameters(self._catalogue.header_parameters(name), arguments, exchange.headers)
            if fault is not None:
                raise Refusal(fault)
        if tool.requires_task and not exchange.meta.capabilities.declares_tasks:
            raise Refusal(faults.TASKS_NOT_DECLARED)
        if type(arguments) is not dict:
            raise Refusal(faults.invalid_params("params.arguments: an object"))
        procedure = self._calls.call_tool(exchange, params, name, arguments)
        self._machine.run(self._replies.answering(exchange, procedure), exchange)

    def _call_method(self, exchange: Exchange, params: JSONObject) -> None:
        procedure = self._calls.call_method(exchange, params)
        self._machine.run(self._replies.answering(exchange, procedure), exchange)
