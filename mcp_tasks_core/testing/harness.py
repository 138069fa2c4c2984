"""A server's protocol core on a bench: a scripted application, a scripted store, a clock that the test moves.

Everything runs in the calling thread and at once, so a test reads as a list of what happened::

    server = ServerHarness(tools={"slow": lambda call: Defer(ttl_ms=60_000)})
    handle = server.request("tools/call", name="slow", arguments={})["result"]
    server.complete(handle["taskId"], {"content": []})
    assert server.request("tasks/get", taskId=handle["taskId"])["result"]["status"] == "completed"

A run is a function of what the test does: there is no entropy but a counter, and no clock but ``advance``.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import (
    InputKey,
    Instant,
    JSONObject,
    JSONValue,
    RequestId,
    Revision,
    StreamId,
    TaskId,
    key_of_request_id,
)
from mcp_tasks_core.lifecycle import TaskInput, apply
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import (
    AskSource,
    Authorize,
    CallMethod,
    CutStream,
    DeleteTask,
    Frame,
    HoldLease,
    InvokeTool,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    ServerEffect,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    AccessDecided,
    Asked,
    ChangesListed,
    Deferral,
    DueListed,
    InputNeeded,
    LeaseHeld,
    MessageReceived,
    MethodAnswered,
    OrphansListed,
    Outcome,
    Raised,
    Returned,
    ServerEvent,
    SourceAnswered,
    SourceAnswerKind,
    StoreConflicted,
    StoreFailed,
    StreamClosed,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
    Ticked,
    ToolAnswered,
    ToolDeferred,
    WorkCompleted,
    WorkProgressed,
)
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_core.store import (
    CapacityExceeded,
    MemoryTaskStore,
    SharedTaskStore,
    StoreError,
    StoreUncertain,
    TaskStore,
)
from mcp_tasks_core.tasks import TaskRecord
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.listening import Listening, subscription_of
from mcp_tasks_core.testing.messages import as_bytes, request_message, request_meta

START: Final = Instant(wall_ms=1_785_232_800_000, monotonic_ms=1_000_000)  # 2026-07-28T10:00:00Z
STREAM: Final = StreamId(1)
_TICKS_MAX: Final = 100_000

E = TypeVar("E", bound=ServerEffect)
StoreEffect: TypeAlias = LoadTask | StoreTask | ListDue | DeleteTask | HoldLease | ListOrphans | ListChanges


class Held:
    """What a scripted tool, method, source or rule gives to answer later, or never."""


HELD: Final = Held()


@attrs.frozen(kw_only=True)
class Defer:
    """What a scripted tool gives to make its call a task; members as in ``ToolDeferred``."""

    deferral: Deferral = Deferral.START
    task_id: str | None = None
    ttl_ms: int | None = 3_600_000
    poll_interval_ms: int | None = None
    status_message: str | None = None
    detach_on_disconnect: bool = False
    answered: Mapping[InputKey, tuple[JSONObject, JSONObject]] = attrs.field(factory=dict)


Reply: TypeAlias = Outcome | Defer | Held | JSONObject
Call: TypeAlias = InvokeTool | CallMethod
Script: TypeAlias = Callable[[Any], Reply]
"""A tool or method: gets the effect that hands it out, gives a result, an outcome, ``Defer`` or ``HELD``."""

SourceScript: TypeAlias = Callable[[AskSource], SourceAnswered | Held]
AccessScript: TypeAlias = Callable[[Authorize], "bool | Held"]


class NoAnswer(AssertionError):
    """A request was not answered, or not by exactly one frame."""


class ServerHarness:
    """Runs one ``ServerProtocol`` and does for it what a runner would do.

    Args:
        config: how the core behaves; where ``None``, a server that has exactly the scripted tools and methods.
        tools: what each tool does when it is called.
        methods: what each method of the application does.
        sources: what each native source answers.
        access: decides where the config says ``AccessRule.ASK``; allows the owner where ``None``.
        store: where tasks are kept; an empty ``MemoryTaskStore`` where ``None``. A configured ``executor`` needs a
            ``SharedTaskStore``, such as ``SharedMemoryTaskStore``.
        now: where the clocks begin.
        seed: what the entropy is made of; harnesses that share a store need one each.
    """

    def __init__(
        self,
        config: ServerConfig | None = None,
        *,
        tools: Mapping[str, Script] | None = None,
        methods: Mapping[str, Script] | None = None,
        sources: Mapping[str, SourceScript] | None = None,
        access: AccessScript | None = None,
        store: TaskStore | None = None,
        now: Instant = START,
        seed: str = "",
    ) -> None:
        self.tools = dict(tools or {})
        self.methods = dict(methods or {})
        self.sources = dict(sources or {})
        self.access = access
        self.config = self._default_config() if config is None else config
        self.store: TaskStore = MemoryTaskStore() if store is None else store
        self.protocol = ServerProtocol(self.config)
        self.now = now
        self.effects: list[ServerEffect] = []
        self.sent: list[Frame] = []
        self.calls: list[Call] = []
        self._listenings: dict[StreamId, dict[tuple[bool, RequestId], Listening]] = {}
        self.before_store: Callable[[StoreEffect], None] | None = None
        self._faults: dict[type[StoreEffect], deque[StoreFault | None]] = {}
        self._held: deque[Callable[[], ServerEvent]] = deque()
        self._events: deque[ServerEvent] = deque()
        self._running = False
        self._ids = 0
        self._entropy = 0
        self._seed = seed

    def _default_config(self) -> ServerConfig:
        entries = [ToolEntry(definition={"name": name, "inputSchema": {"type": "object"}}) for name in self.tools]
        return ServerConfig(
            server_info={"name": "bench", "version": "1"}, tools=entries, methods=frozenset(self.methods)
        )

    # --- what a client does

    def request(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        id: RequestId | None = None,  # noqa: A002 - the wire's own word
        stream: StreamId = STREAM,
        owner: Owner = LOCAL_OWNER,
        capabilities: Mapping[str, Any] | None = None,
        declare_tasks: bool = True,
        meta: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> JSONObject:
        """Send a request and give its one answer, decoded.

        Args:
            params: the params, to which ``_meta`` is added; or name them as keyword arguments.
            capabilities: what the client declares beside tasks; by default every kind of input.
            meta: more members of ``_meta``.

        Raises:
            NoAnswer: it was not answered, or more than once.
        """
        before = len(self.sent)
        request_id = self.begin(
            method,
            params,
            id=id,
            stream=stream,
            owner=owner,
            capabilities=capabilities,
            declare_tasks=declare_tasks,
            meta=meta,
            **members,
        )
        answers = _answers_among(self.sent[before:], request_id, stream)
        if len(answers) != 1:
            raise NoAnswer(f"{method} got {len(answers)} answers: {answers!r}")
        return answers[0]

    def begin(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        id: RequestId | None = None,  # noqa: A002 - the wire's own word
        stream: StreamId = STREAM,
        owner: Owner = LOCAL_OWNER,
        capabilities: Mapping[str, Any] | None = None,
        declare_tasks: bool = True,
        meta: Mapping[str, Any] | None = None,
        own_stream: bool = False,
        **members: Any,
    ) -> RequestId:
        """Send a request, answered or not; gives its id. Arguments as for ``request``.

        Args:
            own_stream: the stream is this request's alone.
        """
        if id is None:
            id = self.next_id()  # noqa: A001 - the wire's own word
        own_meta = request_meta(capabilities=capabilities, tasks=declare_tasks, **(meta or {}))
        message = request_message(id, method, {"_meta": own_meta, **(params or {}), **members})
        self.send(as_bytes(message), stream=stream, owner=owner, own_stream=own_stream)
        return id

    def next_id(self) -> int:
        """A request id that was not used here."""
        self._ids += 1
        return self._ids

    def listen(
        self,
        *task_ids: str,
        id: RequestId | None = None,  # noqa: A002 - the wire's own word
        stream: StreamId = STREAM,
        owner: Owner = LOCAL_OWNER,
        own_stream: bool = False,
        declare_tasks: bool = True,
        **notifications: Any,
    ) -> Listening:
        """Open a subscription, whose every message is judged as it comes; see ``Listening``.

        Args:
            task_ids: tasks to listen to, if any.
            notifications: other members of the filter, in wire names.
        """
        if id is None:
            id = self.next_id()  # noqa: A001 - the wire's own word
        asked = {**({"taskIds": list(task_ids)} if task_ids else {}), **notifications}
        listening = self.expect(Listening(id, stream, asked))
        self.begin(
            "subscriptions/listen",
            {"notifications": asked},
            id=id,
            stream=stream,
            owner=owner,
            own_stream=own_stream,
            declare_tasks=declare_tasks,
        )
        return listening

    def notify(self, method: str, params: JSONObject, *, stream: StreamId = STREAM) -> list[JSONObject]:
        """Send a notification; gives the frames that came of it."""
        return self.send(as_bytes({"jsonrpc": "2.0", "method": method, "params": params}), stream=stream)

    def cancel_request(self, request_id: JSONValue, *, stream: StreamId = STREAM) -> list[JSONObject]:
        """Send ``notifications/cancelled`` for a request; gives the frames that came of it."""
        return self.notify("notifications/cancelled", {"requestId": request_id}, stream=stream)

    def expect(self, listening: Listening) -> Listening:
        """From now on the messages of this subscription are judged, however its listen request is sent."""
        of_stream = self._listenings.setdefault(listening.stream_id, {})
        of_stream[key_of_request_id(listening.request_id)] = listening
        return listening

    def send(
        self, raw: bytes, *, stream: StreamId = STREAM, owner: Owner = LOCAL_OWNER, own_stream: bool = False
    ) -> list[JSONObject]:
        """Hand in the bytes of one message; gives the frames that came of it, decoded."""
        return self._frames_of(lambda: self.feed(MessageReceived(stream, raw, owner, own_stream=own_stream)))

    def close_stream(self, stream: StreamId = STREAM) -> None:
        self.feed(StreamClosed(stream))

    # --- what was sent

    @property
    def frames(self) -> list[JSONObject]:
        """Every frame so far, decoded, in order."""
        return [decoded(frame) for frame in self.sent]

    def answers_to(self, request_id: RequestId, *, stream: StreamId = STREAM) -> list[JSONObject]:
        """The answers to a request so far: none or one, unless its id was used again."""
        return _answers_among(self.sent, request_id, stream)

    def notifications(self, method: str) -> list[JSONObject]:
        """The params of every notification of this method so far."""
        return [frame["params"] for frame in self.frames if frame.get("method") == method]

    def effects_of(self, kind: type[E]) -> list[E]:
        """The effects of one kind so far, in order."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def forget(self) -> None:
        """Forget the effects and frames so far, so that a test sees what comes next alone."""
        self.effects.clear()
        self.sent.clear()

    # --- what the application does

    def answer(self, call: Call, reply: Reply) -> list[JSONObject]:
        """Answer a call that was held; gives the frames that came of it."""
        event = self._event_of(call, reply)
        return [] if event is None else self._frames_of(lambda: self.feed(event))

    def complete(self, task_id: str, result: JSONObject) -> None:
        """The work behind a task has a result."""
        self.feed(WorkCompleted(TaskId(task_id), Returned(result)))

    def fail(self, task_id: str, code: int, message: str, data: JSONValue = None) -> None:
        """The work behind a task ends in a JSON-RPC error."""
        self.feed(WorkCompleted(TaskId(task_id), Raised(ErrorObject(code, message, data))))

    def ask(self, task_id: str, key: str, request: JSONObject) -> None:
        """The work behind a task asks a question."""
        self.feed(InputNeeded(TaskId(task_id), InputKey(key), request))

    def progress(self, task_id: str, message: str) -> None:
        """The work behind a task says how far it is."""
        self.feed(WorkProgressed(task_id=TaskId(task_id), message=message))

    def entropy(self, size: int = 24) -> bytes:
        """Bytes that look random, each time others."""
        self._entropy += 1
        return hashlib.sha256(f"{self._entropy} {self._seed}".encode()).digest()[:size]

    # --- what the store does

    def script(self, kind: type[StoreEffect], *faults: StoreFault | None) -> None:
        """What the next calls of this kind do wrong, one after the other; ``None`` for nothing."""
        self._faults.setdefault(kind, deque()).extend(faults)

    def release(self) -> list[JSONObject]:
        """Let the answer that was held longest come; gives the frames that came of it.

        Raises:
            IndexError: nothing is held.
        """
        answer = self._held.popleft()
        return self._frames_of(lambda: self.feed(answer()))

    @property
    def held(self) -> int:
        """How many answers of the store are held."""
        return len(self._held)

    def record(self, task_id: str) -> TaskRecord:
        """What the store holds of a task.

        Raises:
            LookupError: it holds nothing.
        """
        row = self.store.load(TaskId(task_id))
        if row is None:
            raise LookupError(f"there is no task {task_id}")
        return decode_record(row.payload)

    def change_elsewhere(self, task_id: str, task_input: TaskInput) -> None:
        """Another process changes the task in the shared store, unseen by this one."""
        row = self.store.load(TaskId(task_id))
        assert row is not None
        changed = apply(decode_record(row.payload), task_input, self.now.wall_ms)
        assert self.store.swap(row_of(changed, Revision(row.revision + 1), self.config.limits))

    # --- time

    def advance(self, duration_ms: int) -> None:
        """Let both clocks run, with a tick at every moment that the core asks for.

        Raises:
            AssertionError: the core asks for ticks without end.
        """
        until_ms = self.now.monotonic_ms + duration_ms
        for _ in range(_TICKS_MAX):
            deadline_ms = self.protocol.deadline
            if deadline_ms is None or deadline_ms > until_ms:
                break
            self._move_to(max(self.now.monotonic_ms, deadline_ms))
            self.feed(Ticked())
        else:
            raise AssertionError(f"{_TICKS_MAX} ticks within {duration_ms} ms")
        self._move_to(until_ms)

    def _move_to(self, monotonic_ms: int) -> None:
        wall_ms = self.now.wall_ms + monotonic_ms - self.now.monotonic_ms
        self.now = Instant(wall_ms=wall_ms, monotonic_ms=monotonic_ms)

    # --- the loop

    def feed(self, event: ServerEvent) -> Sequence[ServerEffect]:
        """Hand one event in and carry out whatever comes of it; gives the effects of this event alone."""
        effects = list(self.protocol.handle(event, self.now))
        self._carry_out(effects)
        if not self._running:
            self._running = True
            try:
                while self._events:
                    self._carry_out(self.protocol.handle(self._events.popleft(), self.now))
            finally:
                self._running = False
        return effects

    def _carry_out(self, effects: Sequence[ServerEffect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            event: ServerEvent | None = None
            match effect:
                case Frame():
                    self.sent.append(effect)
                    self._show_listeners(effect)
                case CutStream():
                    for listening in self._listenings.get(effect.stream_id, {}).values():
                        listening.take_cut()
                case LoadTask() | StoreTask() | ListDue() | DeleteTask() | HoldLease() | ListOrphans() | ListChanges():
                    event = self._answer_of_store(effect)
                case InvokeTool():
                    self.calls.append(effect)
                    event = self._event_of(effect, self.tools[effect.name](effect))
                case CallMethod():
                    self.calls.append(effect)
                    event = self._event_of(effect, self.methods[effect.method](effect))
                case Authorize():
                    event = self._decision_on(effect)
                case AskSource():
                    answer = self.sources[effect.source](effect)
                    event = None if isinstance(answer, Held) else answer
                case _:
                    pass
            if event is not None:
                self._events.append(event)

    def _show_listeners(self, frame: Frame) -> None:
        listenings = self._listenings.get(frame.stream_id)
        if listenings:
            message = decoded(frame)
            request_id = subscription_of(message)
            listening = None if request_id is None else listenings.get(key_of_request_id(request_id))
            if listening is not None:
                listening.take(message)

    def _event_of(self, call: Call, reply: Reply) -> ServerEvent | None:
        match reply:
            case Held():
                return None
            case Defer():
                entropy = b"" if reply.deferral is Deferral.CLAIM else self.entropy()
                members = attrs.asdict(reply, recurse=False)
                return ToolDeferred(ticket=call.ticket, entropy=entropy, **members)
            case Returned() | Raised() | Asked():
                outcome: Outcome = reply
            case _:
                outcome = Returned(reply)
        if isinstance(call, InvokeTool):
            return ToolAnswered(call.ticket, outcome)
        return MethodAnswered(call.ticket, outcome)

    def _decision_on(self, effect: Authorize) -> ServerEvent | None:
        allowed = effect.caller == effect.owner if self.access is None else self.access(effect)
        return None if isinstance(allowed, Held) else AccessDecided(effect.ticket, allowed)

    def _answer_of_store(self, effect: StoreEffect) -> ServerEvent | None:
        if self.before_store is not None:
            self.before_store(effect)
        faults = self._faults.get(type(effect))
        fault = faults.popleft() if faults else None
        if fault is None:
            return self._perform(effect)
        made = self._perform(effect) if fault.is_made else None
        match fault:
            case StoreFault.FAIL | StoreFault.FULL:
                return StoreFailed(effect.ticket, fault.value, full=fault is StoreFault.FULL)
            case StoreFault.CONFLICT:
                return StoreConflicted(effect.ticket)
            case StoreFault.UNCERTAIN_LOST | StoreFault.UNCERTAIN_MADE:
                return StoreFailed(effect.ticket, fault.value, uncertain=True)
            case StoreFault.LATE:
                assert made is not None
                answer = made
                self._held.append(lambda: answer)
            case StoreFault.SLOW:
                self._held.append(lambda: self._perform(effect))
            case StoreFault.SLOW_UNCERTAIN:
                self._held.append(lambda: self._perform_unseen(effect))
            case StoreFault.BLIND:
                return TaskLoaded(effect.ticket, None)
            case StoreFault.DROPPED_LOST | StoreFault.DROPPED_MADE:
                pass
        return None

    def _perform_unseen(self, effect: StoreEffect) -> ServerEvent:
        self._perform(effect)
        return StoreFailed(effect.ticket, StoreFault.SLOW_UNCERTAIN.value, uncertain=True)

    def _perform(self, effect: StoreEffect) -> ServerEvent:
        """What a runner does with a store: exceptions become events."""
        try:
            match effect:
                case LoadTask(ticket, task_id):
                    return TaskLoaded(ticket, self.store.load(task_id))
                case StoreTask(ticket, row):
                    done = self.store.create(row) if row.revision == 1 else self.store.swap(row)
                    return TaskStored(ticket) if done else StoreConflicted(ticket)
                case ListDue(ticket, until_ms, limit):
                    return DueListed(ticket, self.store.list_due(until_ms, limit))
                case DeleteTask(ticket, task_id, revision):
                    self.store.delete(task_id, revision)
                    return TaskDeleted(ticket)
                case HoldLease() | ListOrphans() | ListChanges():
                    return self._perform_shared(effect)
        except CapacityExceeded as problem:
            return StoreFailed(effect.ticket, str(problem), full=True)
        except StoreUncertain as problem:
            return StoreFailed(effect.ticket, str(problem), uncertain=True)
        except StoreError as problem:
            return StoreFailed(effect.ticket, str(problem))

    def _perform_shared(self, effect: HoldLease | ListOrphans | ListChanges) -> ServerEvent:
        store = cast(SharedTaskStore, self.store)
        match effect:
            case HoldLease(ticket, executor, until_ms):
                store.hold_lease(executor, until_ms)
                return LeaseHeld(ticket)
            case ListOrphans(ticket, now_ms, limit):
                return OrphansListed(ticket, store.list_orphans(now_ms, limit))
            case ListChanges(ticket, after, limit):
                position, task_ids = store.list_changes(after, limit)
                return ChangesListed(ticket, position, task_ids)

    def _frames_of(self, act: Callable[[], object]) -> list[JSONObject]:
        before = len(self.sent)
        act()
        return [decoded(frame) for frame in self.sent[before:]]


def decoded(frame: Frame) -> JSONObject:
    """A frame's message."""
    message: JSONObject = json.loads(b"".join(frame.payload))
    return message


def _answers_among(frames: Sequence[Frame], request_id: RequestId, stream: StreamId) -> list[JSONObject]:
    messages = [decoded(frame) for frame in frames if frame.stream_id == stream]
    return [m for m in messages if "method" not in m and _same_id(m.get("id"), request_id)]


def _same_id(found: object, wanted: RequestId) -> bool:
    return type(found) is type(wanted) and found == wanted


def source_state(owner: Owner, state: JSONObject) -> Callable[[AskSource], SourceAnswered]:
    """A native source that has one task in one state, and accepts every answer and cancel."""

    def answer(ask: AskSource) -> SourceAnswered:
        if ask.task_id != state.get("taskId"):
            return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.UNKNOWN)
        if ask.operation.value == "read":
            return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.STATE, owner=owner, state=state)
        return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.ACCEPTED)

    return answer
