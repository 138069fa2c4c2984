"""Carries out what a server's protocol core wants done, and tells it what happened.

All of it happens in one thread and without waiting: an effect whose answer is at hand, such as a row of a store
in memory, is answered in the same turn. What takes time goes to tasks and worker threads and comes back as
events.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Sized
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Instant, StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.effects import (
    AbandonWork,
    Acknowledge,
    AdoptWork,
    AskSource,
    Authorize,
    CallMethod,
    CancelCall,
    CutStream,
    DeliverInput,
    Frame,
    InvokeTool,
    OrphanLeft,
    PublishChange,
    RefuseInput,
    Report,
    ResumeWork,
    ServerEffect,
    Severity,
    StartWork,
    StopWork,
)
from mcp_tasks_core.server.events import (
    ServerEvent,
    StreamClosed,
    Ticked,
)
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_core.store import TaskStore
from mcp_tasks_trio.application import Application
from mcp_tasks_trio.core_timer import CoreTimer
from mcp_tasks_trio.execution import Execution
from mcp_tasks_trio.own_engines import OwnEngines
from mcp_tasks_trio.process_lease import ProcessLease
from mcp_tasks_trio.sinks import Sink
from mcp_tasks_trio.store_answers import shared_store
from mcp_tasks_trio.store_calls import StoreCalls
from mcp_tasks_trio.store_start import START_WAIT_SECONDS, ask_when_free, checked_wait
from mcp_tasks_trio.threads import WorkerThreads

_log = logging.getLogger("mcp_tasks_trio")

# Frames of one event for so many streams leave while the next ones are made: in memory that is still warm.
_SINKS_AT_ONCE: Final = 32
_EXECUTOR_BYTES: Final = 16  # names one process on a shared store, as no other was ever named
_SEVERITIES: Final[Mapping[Severity, int]] = {Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


def system_instant() -> Instant:
    """This moment, by the system's clocks."""
    return Instant(wall_ms=time.time_ns() // 1_000_000, monotonic_ms=time.monotonic_ns() // 1_000_000)


class ServerEngine:
    """One application behind one protocol core, for any number of streams.

    Use ``running`` to run it. Every method belongs to the thread of the event loop.

    Args:
        store: where tasks are kept; the application's own when ``None``.
        clock: the moment, for tests; the system's clocks by default.
        entropy: random bytes, for tests; the system's by default.
        start_wait_seconds: how long a start may wait for a shared store that other processes keep busy; above 0.

    Raises:
        LocalProtocolError: the application cannot be served as it is, or a value cannot be.
    """

    def __init__(
        self,
        application: Application,
        *,
        store: TaskStore | None = None,
        clock: Callable[[], Instant] = system_instant,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
        start_wait_seconds: float = START_WAIT_SECONDS,
    ) -> None:
        self._application = application
        self._start_wait_seconds = checked_wait(start_wait_seconds)
        self._store = application.new_store() if store is None else store
        self._shared = shared_store(self._store)
        self._clock = clock
        self._entropy = entropy
        self._lease = None if self._shared is None else ProcessLease(self._shared, entropy(_EXECUTOR_BYTES).hex())
        # What cannot be served is told now. The keys of a shared store are asked for later, for it may block.
        self._configure([RequestStateKey("process", entropy(32))])
        self._store_reached = self._shared is None
        self._streams_opened = 0
        self._sinks: dict[StreamId, Sink] = {}
        self._dirty: set[Sink] = set()
        self._queue: deque[ServerEvent] = deque()
        self._turning = False
        self._joining = False  # more may come of this turn for the same streams, to leave together
        self._timer = CoreTimer(
            lambda: self._protocol.deadline, lambda: clock().monotonic_ms, lambda: self.feed(Ticked())
        )
        self._waiting_for_quiet: set[anyio.Event] = set()
        self._effects: Mapping[type, Callable[[Any], object]] = {}

    def _configure(self, keys: Sequence[RequestStateKey]) -> None:
        executor = None if self._lease is None else self._lease.executor
        self._config = self._application.server_config(keys, executor=executor)
        self._protocol = ServerProtocol(self._config)

    @property
    def protocol(self) -> ServerProtocol:
        return self._protocol

    @property
    def store(self) -> TaskStore:
        return self._store

    @property
    def limits(self) -> Limits:
        return self._config.limits

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ServerEngine]:
        """Serve until the block ends; then whatever still runs is cancelled.

        Raises:
            StoreBusy, StoreError: as ``reach_store``, before anything is served.
        """
        await self.reach_store()
        with self._application.announcing_to(self._config, self.feed_all):
            async with self._serving():
                yield self

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        store_calls = StoreCalls(self._store, self._lease, self._queue.append, self.feed_all)
        try:
            async with anyio.create_task_group() as task_group:
                self._begin(task_group, store_calls)
                self.feed(Ticked())
                task_group.start_soon(self._timer.run)
                try:
                    yield
                finally:
                    self._execution.end()
                    task_group.cancel_scope.cancel()
        finally:
            store_calls.end()
            # Only now has all work ended that lets itself be cancelled: another process may run it from here on.
            if self._lease is not None:
                await self._lease.end_in_time()

    @property
    def store_reached(self) -> bool:
        """Whether ``reach_store`` has nothing left to do."""
        return self._store_reached

    async def reach_store(self) -> None:
        """Ask a shared store for what comes before the first request: its keys, and the lease of this process.

        ``running`` does it where nobody did. It waits while other processes keep the store busy.

        Raises:
            StoreBusy: they did so for all of ``start_wait_seconds``.
            StoreError: the store failed.
        """
        shared, lease = self._shared, self._lease
        if self._store_reached or shared is None or lease is None:
            return
        fresh, lease_ms = self._entropy(32), self._config.limits.lease_ms

        def ask() -> list[tuple[str, bytes]]:
            kept = shared.request_state_secrets(fresh)
            lease.hold(self._clock().wall_ms + lease_ms)
            return kept

        try:
            kept = await ask_when_free(ask, blocks=self._store.blocks, wait_seconds=self._start_wait_seconds)
        except BaseException:
            await lease.end_in_time()
            raise
        self._configure([RequestStateKey(key_id, secret) for key_id, secret in kept])
        self._store_reached = True

    def _begin(self, task_group: TaskGroup, store_calls: StoreCalls) -> None:
        own = OwnEngines(self._application, self.feed, task_group)
        if self._config.subscriptions:
            own.follow_changes(self.feed_all)
        self._execution = execution = Execution(
            self._application,
            self.feed,
            task_group,
            WorkerThreads(self._application.worker_threads),
            self._config.check_answer,
            self._entropy,
            self._config.limits.task_id_entropy_bytes_min,
        )
        self._effects = {
            Frame: self._send,
            Acknowledge: self._acknowledge,
            CutStream: self._cut,
            **store_calls.effects,
            Authorize: own.authorize,
            InvokeTool: execution.invoke_tool,
            CallMethod: execution.call_method,
            CancelCall: execution.cancel_call,
            StartWork: execution.start_work,
            AdoptWork: _nothing,  # a claimed task's work is its engine's
            ResumeWork: execution.resume_work,
            OrphanLeft: execution.tell_of_orphan,
            AbandonWork: execution.abandon_work,
            DeliverInput: execution.deliver_input,
            RefuseInput: execution.refuse_input,
            StopWork: execution.stop_work,
            PublishChange: _nothing,  # the core tells its own listeners; other processes ask the store for changes
            AskSource: own.ask_source,
            Report: _report,
        }

    # --- streams

    def new_stream_id(self) -> StreamId:
        """A number for a stream, never given before."""
        self._streams_opened += 1
        return StreamId(self._streams_opened)

    def open_stream(self, sink: Sink, stream_id: StreamId | None = None) -> StreamId:
        """A new stream, whose frames go to this sink.

        Args:
            stream_id: from ``new_stream_id``, where the transport needed it before.
        """
        if stream_id is None:
            stream_id = self.new_stream_id()
        self._sinks[stream_id] = sink
        return stream_id

    def end_stream(self, stream_id: StreamId) -> None:
        """The stream's one request is answered, so that nothing more comes or goes on it."""
        self._sinks.pop(stream_id, None)

    def close_stream(self, stream_id: StreamId) -> None:
        """Nothing more can be sent on this stream: its requests are cancelled, its tasks go on."""
        if self._sinks.pop(stream_id, None) is not None:
            self.feed(StreamClosed(stream_id))

    @property
    def streams_open(self) -> int:
        return len(self._sinks)

    @property
    def busy(self) -> bool:
        """Whether a request is being answered, or work runs whose outcome a durable store is to hold, or such an
        outcome is on its way there. Subscriptions do not count: they are no answer that anybody waits for."""
        if self._protocol.open_requests > 0:
            return True
        return self._store.blocks and (self._execution.works_running > 0 or self._protocol.busy_tasks > 0)

    async def quiet(self) -> None:
        """Wait until nothing is ``busy``."""
        while self.busy:
            quiet = anyio.Event()
            self._waiting_for_quiet.add(quiet)
            try:
                await quiet.wait()
            finally:
                self._waiting_for_quiet.discard(quiet)

    # --- events in

    def feed(self, event: ServerEvent) -> None:
        """Tell the core what happened, and carry out what it wants done.

        Raises:
            LocalProtocolError: the event breaks the core's rules; nothing was changed.
        """
        if self._turning:
            self._queue.append(event)
        else:
            self._turn((event,), joining=False)

    def feed_all(self, events: Iterable[ServerEvent]) -> None:
        """Tell the core what happened, event by event, at one moment. Frames leave when all of it is done.

        Those of a single event for many streams begin to leave before that.

        Raises:
            LocalProtocolError: as ``feed``, for the first event that broke a rule.
        """
        if self._turning:
            self._queue.extend(events)
        else:
            self._turn(events, joining=not isinstance(events, Sized) or len(events) > 1)

    def _turn(self, events: Iterable[ServerEvent], *, joining: bool) -> None:
        now = self._clock()
        self._joining = joining
        handle, carry_out, queue = self._protocol.handle, self._carry_out, self._queue
        broken: LocalProtocolError | None = None
        self._turning = True
        try:
            for event in events:
                try:
                    carry_out(handle(event, now))
                except LocalProtocolError as error:
                    broken = broken or error
                except Exception:  # a fault of ours in one message must not end the others
                    _log.exception("The server failed on %s", type(event).__name__)
                while queue:
                    self._handle_queued(queue.popleft(), now)
            self._flush(now)
        finally:
            self._turning = False
            self._end_turn()
        if broken is not None:
            raise broken

    def _handle_queued(self, event: ServerEvent, now: Instant) -> None:
        try:
            self._carry_out(self._protocol.handle(event, now))
        except LocalProtocolError:
            _log.exception("What the application did is against the core's rules")
        except Exception:
            _log.exception("The server failed on %s", type(event).__name__)

    def _carry_out(self, effects: Sequence[ServerEffect]) -> None:
        table = self._effects
        for effect in effects:
            table[type(effect)](effect)

    def _flush(self, now: Instant) -> None:
        """Let the frames leave. What a stream tells of meanwhile, such as that it is blocked, is of the same turn."""
        dirty, queue = self._dirty, self._queue
        while dirty:
            dirty.pop().flush()
            while queue:
                self._handle_queued(queue.popleft(), now)

    def _end_turn(self) -> None:
        self._timer.look()
        if self._waiting_for_quiet and not self.busy:
            for quiet in self._waiting_for_quiet:
                quiet.set()

    # --- effects out

    def _send(self, frame: Frame) -> None:
        sink = self._sinks.get(frame.stream_id)
        if sink is not None:
            sink.send(frame)
            dirty = self._dirty
            dirty.add(sink)
            if len(dirty) >= _SINKS_AT_ONCE and not self._joining and not self._queue:
                while dirty:
                    dirty.pop().flush()

    def _acknowledge(self, effect: Acknowledge) -> None:
        sink = self._sinks.get(effect.stream_id)
        if sink is not None:
            sink.acknowledge(effect)
            self._dirty.add(sink)

    def _cut(self, effect: CutStream) -> None:
        sink = self._sinks.pop(effect.stream_id, None)
        if sink is not None:
            sink.cut(effect)
            self._dirty.add(sink)


def _nothing(effect: object) -> None:
    """This effect asks nothing of this runner."""


def _report(report: Report) -> None:
    _log.log(_SEVERITIES[report.severity], "%s", report.message)
