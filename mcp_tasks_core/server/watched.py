"""Tasks that somebody listens to: the newest state that is known of each, and when it is looked at next.

Hints tell that a look is worth it, nothing else: what is shown is what was read, or what this process itself has just
stored. One look at a task at a time, so that states come in the order in which they were; and one at the latest after
``reconcile_interval_ms``, so that a lost hint costs no more than that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

import attrs

from mcp_tasks_core.access import Access, AccessRule, Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import Severity
from mcp_tasks_core.server.machine import Machine, Procedure
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.states import members_of
from mcp_tasks_core.server.storing import Refusal, Step, Storing
from mcp_tasks_core.server.subscription import ENVELOPE_BYTES, Subscription, WatchedTask
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TERMINAL
from mcp_tasks_core.wire.json import JsonError
from mcp_tasks_core.wire.timestamps import read_timestamp

_FORBIDDEN = "it may not see the task any longer"
_LOOKS_AT_ONCE_MAX = 256  # tasks that one tick begins to read again; the next ones follow with the next tick


@attrs.frozen
class Seen:
    """A state as it is sent: its encoded members, without the braces around them."""

    members: bytes
    is_terminal: bool
    revision: int
    born_ms: int = 0
    payload_hash: int = 0
    updated_ms: int = 0


@attrs.frozen
class Found:
    """A task that is there. Whose it is decides who may see it, before anybody looks into it.

    Args:
        look: its state, ``None`` where its time is over; raises ``Refusal`` where it cannot be shown.
    """

    owner: Owner
    look: Callable[[], Seen | None]


@attrs.frozen(kw_only=True)
class Listeners:
    """What is done about what a look found.

    Args:
        admitted: the task is this new listener's to watch.
        refused: it is not, or there is no such task; or, with an error, nobody can say.
        changed: there is a newer state.
        gone: it is no more, or, with a reason, this listener may not have it any longer.
        settled: this listener, who was doubted, may go on: what changed meanwhile is still to be told.
    """

    admitted: Callable[[Subscription, WatchedTask], None]
    refused: Callable[[Subscription, WatchedTask, ErrorObject | None], None]
    changed: Callable[[WatchedTask], None]
    gone: Callable[[Subscription, WatchedTask, str | None], None]
    settled: Callable[[Subscription, WatchedTask], None]


class WatchedTasks:
    """All of them, by id. An engine of the application's own is asked for each caller, as it may answer by caller."""

    def __init__(self, machine: Machine, storing: Storing, native: NativeSources, listeners: Listeners) -> None:
        self._machine = machine
        self._storing = storing
        self._native = native
        self._tell = listeners
        self._sources = machine.config.source_table
        self._asks = machine.config.access is AccessRule.ASK
        self._interval_ms = machine.limits.reconcile_interval_ms
        self._managed: dict[TaskId, WatchedTask] = {}
        self._of_engines: dict[TaskId, dict[Owner, WatchedTask]] = {}
        # In the order in which they come due. What has left the front of an ordinary dict costs a step at each look.
        self._next_look_ms: OrderedDict[WatchedTask, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._managed) + sum(map(len, self._of_engines.values()))

    # --- who watches

    def join(self, task_id: TaskId, subscription: Subscription) -> None:
        """Look whether this listener may watch that task; ``admitted`` or ``refused`` is told, perhaps at once."""
        watched = self._entry(task_id, subscription.exchange.owner)
        watched.joining.append(subscription)
        self._look(watched)

    def _entry(self, task_id: TaskId, caller: Owner) -> WatchedTask:
        source = self._sources.source_of(task_id)
        callers = {} if source is None else self._of_engines.setdefault(task_id, {})
        watched = self._managed.get(task_id) if source is None else callers.get(caller)
        if watched is None:
            watched = WatchedTask(task_id, source, caller)
            if source is None:
                self._managed[task_id] = watched
            else:
                callers[caller] = watched
        return watched

    def leave(self, watched: WatchedTask, subscription: Subscription) -> None:
        """This listener needs the task no more."""
        watched.listeners.pop(subscription, None)
        self._forget_unwatched(watched)

    def _forget_unwatched(self, watched: WatchedTask) -> None:
        if watched.listeners or watched.joining or watched.looking or watched.asking:
            return
        self._next_look_ms.pop(watched, None)
        if watched.source is None:
            if self._managed.get(watched.task_id) is watched:
                del self._managed[watched.task_id]
            return
        callers = self._of_engines.get(watched.task_id)
        if callers is not None and callers.get(watched.caller) is watched:
            del callers[watched.caller]
            if not callers:
                del self._of_engines[watched.task_id]

    # --- hints, and what this process itself has stored

    def changed(self, task_id: TaskId) -> None:
        """Somebody may have changed this task. Harmless when lost, repeated or untrue."""
        watched = self._managed.get(task_id)
        watched_by_callers = [] if watched is None else [watched]
        watched_by_callers += self._of_engines.get(task_id, {}).values()
        for one in watched_by_callers:
            one.hinted = True
            self._look(one)

    def stored(self, row: StoredTask) -> None:
        """This row was stored just now: its state needs no reading."""
        watched = self._managed.get(row.task_id)
        if watched is None:
            return
        try:
            seen = self._seen(row)
        except Refusal:
            return  # told to the log; a look follows in its time
        if seen is not None and not self._is_too_large(watched, seen):
            self._show(watched, seen)

    # --- time

    @property
    def deadline_ms(self) -> int | None:
        return next(iter(self._next_look_ms.values()), None)

    def tick(self) -> None:
        """Look again at what was not looked at for an interval."""
        now_ms, table = self._machine.now.monotonic_ms, self._next_look_ms
        for _ in range(_LOOKS_AT_ONCE_MAX):
            watched = next(iter(table), None)
            if watched is None or table[watched] > now_ms:
                break
            del table[watched]
            watched.hinted = watched.rechecks = True
            self._look(watched)

    # --- looking

    def _look(self, watched: WatchedTask) -> None:
        if watched.looking:
            watched.again = True
        else:
            watched.looking = True
            self._machine.run(self._looks(watched))

    def _looks(self, watched: WatchedTask) -> Procedure:
        """Look until nothing has been asked since the last look began."""
        while True:
            watched.again = False
            joining, watched.joining = watched.joining, []
            rechecks, watched.rechecks = watched.rechecks, False
            yield from self._look_once(watched, joining, rechecks)
            if not watched.joining and not watched.again:
                break
        watched.looking = False
        if not watched.listeners or watched.is_terminal:
            self._next_look_ms.pop(watched, None)
        elif watched not in self._next_look_ms:  # no hint puts off the look that asks for permission anew
            self._next_look_ms[watched] = self._machine.now.monotonic_ms + self._interval_ms
        self._forget_unwatched(watched)

    def _look_once(self, watched: WatchedTask, joining: list[Subscription], rechecks: bool) -> Step[None]:
        hinted, watched.hinted = watched.hinted, False
        try:
            found = yield from self._find(watched)
        except Refusal as refusal:
            self._refuse(watched, joining, refusal.error)
            return
        if found is None:
            self._refuse(watched, joining, None)
            self._tell_gone(watched)
            return
        if rechecks:
            self._recheck(watched, found.owner)
        admitted = self._admit(watched, joining, found.owner)
        if not admitted and not (hinted and watched.listeners):
            return  # somebody else's task is not looked into for somebody who may not see it
        try:
            seen = found.look()
        except Refusal as refusal:
            self._refuse(watched, admitted, refusal.error)
            return
        if seen is None:
            self._refuse(watched, admitted, None)
            self._tell_gone(watched)
            return
        if self._is_too_large(watched, seen, admitted):
            self._refuse(watched, admitted, None)
            return
        self._show(watched, seen)
        if seen.born_ms < watched.born_ms:  # another task has taken the id meanwhile, and it may be somebody else's
            watched.joining.extend(admitted)
            return
        for subscription in admitted:
            watched.listeners[subscription] = None
            self._tell.admitted(subscription, watched)

    def _tell_gone(self, watched: WatchedTask) -> None:
        """There is no such task. An end that is known is told all the same to those who wait for room to be told."""
        if not watched.is_terminal:
            for listener in list(watched.listeners):
                self._tell.gone(listener, watched, None)

    # --- who may watch

    def _admit(self, watched: WatchedTask, joining: list[Subscription], owner: Owner) -> list[Subscription]:
        """Those who may watch a task of this owner; others are refused, or the application is asked about them."""
        admitted: list[Subscription] = []
        for subscription in joining:
            if subscription.ended:
                continue
            permitted = None if watched.permitted is None else watched.permitted.pop(subscription, None)
            if self._asks and permitted != owner:
                self._ask(watched, self._joins(watched, subscription, owner))
            elif self._asks or subscription.exchange.owner == owner:
                admitted.append(subscription)
            else:
                self._refuse(watched, [subscription], None)
        return admitted

    def _recheck(self, watched: WatchedTask, owner: Owner) -> None:
        """Part with the listeners that may not see the task any longer; those who are asked about wait for it."""
        for listener in list(watched.listeners):
            if not listener.open:
                continue  # it was permitted a moment ago, and its first state is to follow its acknowledgement
            if self._asks:
                doubted = watched.doubted = {} if watched.doubted is None else watched.doubted
                if listener not in doubted:
                    doubted[listener] = None
                    self._ask(watched, self._stays(watched, listener, owner))
            elif listener.exchange.owner != owner:
                self._tell.gone(listener, watched, _FORBIDDEN)

    def _ask(self, watched: WatchedTask, procedure: Procedure) -> None:
        """Ask the application, for as long as it takes: nobody else waits for what it says of this one."""
        watched.asking += 1
        self._machine.run(procedure)

    def _joins(self, watched: WatchedTask, subscription: Subscription, owner: Owner) -> Procedure:
        error: ErrorObject | None = None
        allowed = False
        try:
            allowed = yield from self._may_watch(watched, subscription, owner)
        except Refusal as refusal:
            error = refusal.error
        watched.asking -= 1
        if allowed and not subscription.ended:
            watched.permitted = {} if watched.permitted is None else watched.permitted
            watched.permitted[subscription] = owner
            watched.joining.append(subscription)  # to see what it has become meanwhile, and whose it is
            self._look(watched)
            return
        self._refuse(watched, [subscription], error)
        self._forget_unwatched(watched)

    def _stays(self, watched: WatchedTask, listener: Subscription, owner: Owner) -> Procedure:
        """No decision is no permission."""
        try:
            allowed = yield from self._may_watch(watched, listener, owner)
        except Refusal:
            allowed = False
        watched.asking -= 1
        if watched.doubted is not None:
            watched.doubted.pop(listener, None)
        if listener in watched.listeners:
            if allowed:
                self._tell.settled(listener, watched)
            else:
                self._tell.gone(listener, watched, _FORBIDDEN)
        self._forget_unwatched(watched)

    def _may_watch(self, watched: WatchedTask, subscription: Subscription, owner: Owner) -> Step[bool]:
        caller = subscription.exchange.owner
        return (yield from self._storing.may_access(caller, Access.READ, watched.task_id, owner))

    def _refuse(self, watched: WatchedTask, joining: Iterable[Subscription], error: ErrorObject | None) -> None:
        for subscription in joining:
            if not subscription.ended:
                self._tell.refused(subscription, watched, error)

    # --- reading

    def _find(self, watched: WatchedTask) -> Step[Found | None]:
        """The task, not looked into yet; ``None`` where there is none.

        Raises:
            Refusal: nobody can say.
        """
        if watched.source is None:
            row = yield from self._storing.load_row(watched.task_id)
            return None if row is None else Found(Owner(*row.owner), lambda: self._seen_again(watched, row))
        source = watched.source
        try:
            owner, state = yield from self._native.read(source, watched.task_id, watched.caller)
        except Refusal as refusal:
            if refusal.error is faults.TASK_NOT_FOUND:
                return None
            raise
        return Found(owner, lambda: self._seen_at(source, watched, state))

    def _seen_again(self, watched: WatchedTask, row: StoredTask) -> Seen | None:
        """What is in a row; where nothing has happened since, without decoding it once more."""
        if (
            watched.ending is not None
            and row.revision == watched.revision
            and hash(row.payload) == watched.payload_hash
        ):
            return Seen(b"", watched.is_terminal, row.revision, watched.born_ms)
        return self._seen(row)

    def _seen(self, row: StoredTask) -> Seen | None:
        state = self._storing.state_of(row)
        if state.record.expired:
            return None
        members, record = self._machine.states.members(state), state.record
        return Seen(members, record.is_terminal, row.revision, record.created_at_ms, hash(row.payload))

    def _seen_at(self, source: str, watched: WatchedTask, state: JSONObject) -> Seen:
        fit = self._native.fit(source, watched.task_id, state)
        try:
            members = members_of(fit, self._machine.codec)
        except JsonError as problem:
            self._machine.report(Severity.ERROR, f"task {watched.task_id} of {source} cannot be sent: {problem}")
            raise Refusal(faults.INTERNAL) from problem
        updated_ms = read_timestamp(fit["lastUpdatedAt"])
        return Seen(members, fit["status"] in TERMINAL, watched.revision + 1, updated_ms=updated_ms)

    def _is_too_large(self, watched: WatchedTask, seen: Seen, joining: Collection[Subscription] = ()) -> bool:
        """Whether a message with this state would be larger than one may be: its listeners are sent away to poll it."""
        limit_bytes = self._machine.limits.frame_bytes_max
        if 2 * len(seen.members) < limit_bytes:
            return False
        longest = max((len(one.exchange.id_bytes) for one in [*watched.listeners, *joining]), default=0)
        if len(seen.members) + longest + ENVELOPE_BYTES <= limit_bytes:
            return False
        self._machine.report(Severity.ERROR, f"the state of task {watched.task_id} is too large to be pushed")
        for listener in list(watched.listeners):
            self._tell.gone(listener, watched, f"the state of a task has more than {limit_bytes} bytes")
        return True

    def _show(self, watched: WatchedTask, seen: Seen) -> None:
        """Tell of a state, unless it is no newer than what is known, or says nothing else."""
        if seen.born_ms > watched.born_ms:
            self._begin_anew(watched, seen.born_ms)
        if seen.born_ms < watched.born_ms or seen.revision <= watched.revision or watched.is_terminal:
            return
        if seen.updated_ms < watched.updated_ms:
            return  # an engine that answers from a copy of its own may be behind itself
        watched.updated_ms = seen.updated_ms
        watched.revision = seen.revision
        watched.payload_hash = seen.payload_hash
        ending = b"}," + seen.members + b"}}"
        if ending != watched.ending:
            watched.ending = ending
            watched.is_terminal = seen.is_terminal
            self._tell.changed(watched)

    def _begin_anew(self, watched: WatchedTask, born_ms: int) -> None:
        """What was known is of a task that is no more: this one has taken its id since."""
        for listener in list(watched.listeners):
            self._tell.gone(listener, watched, None)
        watched.born_ms = born_ms
        watched.revision = 0
        watched.payload_hash = 0
        watched.ending = None
        watched.is_terminal = False
