"""subscriptions/listen: acknowledged first, then the newest state of each task, until there is nothing left to tell.

A reader that keeps up gets each message as it comes. For one that does not, a subscription keeps what the messages
would be about, and sends the newest of each when there is room again: memory per task, not per change.

Source: subscriptions; tasks, Task Status Notifications; DECISIONS D19 to D22 and D44.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

from mcp_tasks_core.capabilities import META_SERVER_INFO
from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, StreamId, TaskId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.agreement import Room, Terms
from mcp_tasks_core.server.effects import CutStream, Frame, Severity
from mcp_tasks_core.server.events import ListChanged, ListKind, ResourceUpdated, StreamBlocked
from mcp_tasks_core.server.exchanges import Exchange, ExchangeTable
from mcp_tasks_core.server.machine import Machine
from mcp_tasks_core.server.native import NativeSources
from mcp_tasks_core.server.replies import Replies
from mcp_tasks_core.server.storing import Refusal, Storing
from mcp_tasks_core.server.subscription import Channel, Subject, Subscription, WatchedTask, ending_of_update
from mcp_tasks_core.server.watched import Listeners, WatchedTasks

_T = TypeVar("_T")

_ALL_TOLD = "nothing is left to tell"
_SHUTDOWN = "the server is about to end"
_LONG_ENOUGH = "the subscription has lasted as long as one may"


class Subscriptions:
    """Every subscription of a server, and what they wait for."""

    def __init__(
        self, machine: Machine, storing: Storing, native: NativeSources, exchanges: ExchangeTable, replies: Replies
    ) -> None:
        self._machine = machine
        self._exchanges = exchanges
        self._replies = replies
        self._terms = Terms(machine.config)
        self._room = Room(machine.limits)
        listeners = Listeners(
            admitted=self._admitted,
            refused=self._refused,
            changed=self._changed,
            gone=self._gone,
            settled=self._settled,
        )
        self.tasks = WatchedTasks(machine, storing, native, listeners)
        info = machine.config.server_info
        meta = b"" if info is None else b',"' + META_SERVER_INFO.encode("ascii") + b'":' + machine.codec.encode(info)
        self._server_info = meta
        self._burst_bytes = machine.limits.subscription_burst_bytes_max
        self._channels: dict[StreamId, Channel] = {}
        self._of_list: dict[ListKind, dict[Subscription, None]] = {kind: {} for kind in ListKind}
        self._of_uri: dict[str, dict[Subscription, None]] = {}
        # Each in the order in which they come due.
        self._ends_ms: OrderedDict[Subscription, int] = OrderedDict()
        self._given_up_ms: OrderedDict[Channel, int] = OrderedDict()
        self._paced_ms: OrderedDict[Channel, int] = OrderedDict()  # what had its burst, and goes on a moment later
        self._shutting_down = False
        self._open = 0

    # --- opening

    def listen(self, exchange: Exchange, params: JSONObject) -> None:
        """Open a subscription.

        Raises:
            Refusal: this listen cannot be.
        """
        agreement = self._terms.of(params, declares_tasks=exchange.meta.capabilities.declares_tasks)
        stream_id, limits = exchange.stream_id, self._machine.limits
        channel = self._channels.get(stream_id)
        if channel is not None and len(channel.subscriptions) >= limits.subscriptions_per_stream_max:
            raise Refusal(faults.TOO_MANY_SUBSCRIPTIONS)
        task_ids = agreement.task_ids or ()
        self._room.take(exchange.owner, agreement.asked)
        if channel is None:
            channel = self._channels[stream_id] = Channel(stream_id)
        exchange.forget_what_was_said()
        subscription = channel.subscriptions[exchange] = Subscription(exchange, channel, agreement)
        self._ends_ms[subscription] = self._machine.now.monotonic_ms + limits.subscription_duration_ms
        self._open += 1
        subscription.joining = len(task_ids) + 1
        for task_id in task_ids:
            if subscription.ended:  # the store does not answer
                return
            self.tasks.join(task_id, subscription)
        self._joined(subscription)

    def _admitted(self, subscription: Subscription, watched: WatchedTask) -> None:
        subscription.tasks[watched] = None
        self._joined(subscription)

    def _refused(self, subscription: Subscription, watched: WatchedTask, error: ErrorObject | None) -> None:
        if error is None:
            self._joined(subscription)
        else:
            self.forget(subscription.exchange)
            self._replies.error(subscription.exchange, error)

    def _joined(self, subscription: Subscription) -> None:
        """Nothing of it is sent before all of its tasks were looked for: what is agreed to is told at once."""
        subscription.joining -= 1
        if subscription.joining == 0 and not subscription.ended:
            self._acknowledge(subscription)

    def _acknowledge(self, subscription: Subscription) -> None:
        agreement = subscription.agreement
        by_id: dict[TaskId, WatchedTask] = {watched.task_id: watched for watched in subscription.tasks}
        agreed = self._machine.codec.encode(agreement.to_wire(by_id))
        self._send(subscription.channel, subscription.acknowledgement(agreed))
        subscription.open = True
        for kind in agreement.lists:
            self._of_list[kind][subscription] = None
        for uri in agreement.uris or ():
            self._of_uri.setdefault(uri, {})[subscription] = None
        subscription.waiting = {by_id[task_id]: None for task_id in agreement.task_ids or () if task_id in by_id}
        subscription.agreement = agreement.without_task_ids()
        if self._shutting_down or subscription.is_spent:
            subscription.ending = _SHUTDOWN if self._shutting_down else _ALL_TOLD
        self._go_on(subscription)

    # --- what happens

    def stream_blocked(self, event: StreamBlocked) -> None:
        channel = self._channels.get(event.stream_id)
        if channel is None or (channel.blocked and not event.progressed):
            return
        channel.blocked = True
        channel.flowing = False
        self._paced_ms.pop(channel, None)
        self._given_up_ms.pop(channel, None)
        self._given_up_ms[channel] = self._machine.now.monotonic_ms + self._machine.limits.slow_reader_ms

    def stream_unblocked(self, stream_id: StreamId) -> None:
        channel = self._channels.get(stream_id)
        if channel is not None and channel.blocked:
            channel.blocked = False
            self._given_up_ms.pop(channel, None)
            self._flow(channel)

    def list_changed(self, event: ListChanged) -> None:
        if not isinstance(event.kind, ListKind):
            raise LocalProtocolError(f"a list is one of {', '.join(map(str, ListKind))}, not {event.kind!r}")
        for subscription in list(self._of_list[event.kind]):
            if event.owner is None or event.owner == subscription.exchange.owner:
                if subscription.channel.flowing:
                    self._send(subscription.channel, subscription.list_changed(event.kind))
                else:
                    subscription.waiting[event.kind] = None

    def resource_updated(self, event: ResourceUpdated) -> None:
        listeners = self._of_uri.get(event.uri)
        if listeners is None:
            return
        ending = ending_of_update(self._machine.codec.encode(event.uri))
        for subscription in list(listeners):
            if event.owner is None or event.owner == subscription.exchange.owner:
                if subscription.channel.flowing:
                    self._send(subscription.channel, subscription.resource_updated(ending))
                else:
                    subscription.waiting[event.uri] = None

    def shut_down(self) -> None:
        """End all of them gracefully; those that are being opened right after their first states."""
        self._shutting_down = True
        for stream_id in list(self._channels):
            self.end_stream(stream_id)

    def end_stream(self, stream_id: StreamId) -> None:
        """The same for those of one stream."""
        channel = self._channels.get(stream_id)
        for subscription in [] if channel is None else list(channel.subscriptions.values()):
            self._end_soon(subscription, _SHUTDOWN)

    def _changed(self, watched: WatchedTask) -> None:
        """There is a newer state of a task: what many listeners cost is spent here."""
        ending, is_terminal, doubted = watched.ending, watched.is_terminal, watched.doubted
        assert ending is not None
        listeners = list(watched.listeners) if is_terminal else watched.listeners
        for subscription in listeners:
            if subscription.open:
                if doubted and subscription in doubted:
                    continue
                if subscription.channel.flowing:
                    self._send(subscription.channel, subscription.task_state(ending))
                    subscription.tasks[watched] = ending
                    if is_terminal:
                        self._told_all(subscription, watched)
                else:
                    subscription.waiting[watched] = None

    def _settled(self, subscription: Subscription, watched: WatchedTask) -> None:
        """It may go on to watch the task: tell it what happened while that was not certain."""
        if subscription.open and watched in subscription.tasks:
            subscription.waiting[watched] = None
            if subscription.channel.flowing:
                self._go_on(subscription)

    # --- sending

    def _send(self, channel: Channel, payload: tuple[bytes, ...]) -> None:
        """Send a message now. A stream that had its burst pauses until it is seen whether its reader takes that."""
        machine = self._machine
        machine.effects.append(Frame(channel.stream_id, payload, False))
        now_ms = machine.now.monotonic_ms
        if channel.filled_ms != now_ms:
            channel.filled_ms = now_ms
            channel.left_bytes = self._burst_bytes
        channel.left_bytes -= len(payload[-1])
        if channel.left_bytes < 0 and channel.flowing:
            channel.flowing = False
            self._paced_ms[channel] = now_ms + 1

    def _tell(self, subscription: Subscription, subject: Subject) -> None:
        """Send the newest there is to say about a subject, unless that was said before."""
        if isinstance(subject, ListKind):
            self._send(subscription.channel, subscription.list_changed(subject))
        elif isinstance(subject, str):
            ending = ending_of_update(self._machine.codec.encode(subject))
            self._send(subscription.channel, subscription.resource_updated(ending))
        elif subject in subscription.tasks and not (subject.doubted and subscription in subject.doubted):
            state = subject.ending
            assert state is not None
            if subscription.tasks[subject] != state:
                self._send(subscription.channel, subscription.task_state(state))
                subscription.tasks[subject] = state
            if subject.is_terminal:
                self._told_all(subscription, subject)

    def _flow(self, channel: Channel) -> None:
        """There is room again: send what waits, first on those subscriptions that had their turn longest ago."""
        channel.flowing = True
        for exchange, subscription in list(channel.subscriptions.items()):
            if not channel.flowing:
                break
            if subscription.waiting and subscription.open:
                del channel.subscriptions[exchange]
                channel.subscriptions[exchange] = subscription
                self._go_on(subscription)

    def _go_on(self, subscription: Subscription) -> None:
        """Send what waits as long as there is room, then end if that is all."""
        waiting, channel = subscription.waiting, subscription.channel
        while waiting and channel.flowing and not subscription.ended:
            subject = next(iter(waiting))
            del waiting[subject]
            self._tell(subscription, subject)
        if not waiting:
            subscription.waiting = {}  # one that was emptied stays as large as it was
        if subscription.ending and not waiting and not subscription.ended:
            self._end(subscription)

    # --- ending

    def _told_all(self, subscription: Subscription, watched: WatchedTask) -> None:
        """Nothing more will come of this task."""
        del subscription.tasks[watched]
        subscription.waiting.pop(watched, None)
        self.tasks.leave(watched, subscription)
        if subscription.is_spent and subscription.open:  # others may be looked for yet
            self._end_soon(subscription, _ALL_TOLD)

    def _gone(self, subscription: Subscription, watched: WatchedTask, reason: str | None) -> None:
        if reason is not None and subscription.open:
            self._drop(subscription, reason)
        elif watched in subscription.tasks:
            self._told_all(subscription, watched)

    def _end_soon(self, subscription: Subscription, reason: str) -> None:
        """End gracefully once everything that waits was sent."""
        subscription.ending = subscription.ending or reason
        if subscription.open and not subscription.waiting and not subscription.ended:
            self._end(subscription)

    def _end(self, subscription: Subscription) -> None:
        exchange, reason = subscription.exchange, subscription.ending
        assert reason is not None
        self.forget(exchange)
        self._exchanges.remove(exchange)
        self._machine.effects.append(Frame(exchange.stream_id, subscription.result(self._server_info), True))
        if not exchange.own_stream:
            self._tell_cancelled(subscription, reason)

    def _drop(self, subscription: Subscription, reason: str) -> None:
        """End abnormally: no result; the client is to see that something is wrong, and look again."""
        exchange = subscription.exchange
        self.forget(exchange)
        self._exchanges.remove(exchange)
        self._machine.report(Severity.WARNING, f"a subscription on stream {exchange.stream_id} was dropped: {reason}")
        if exchange.own_stream:
            self._machine.emit(CutStream(exchange.stream_id, reason))
        else:
            self._tell_cancelled(subscription, reason)

    def _tell_cancelled(self, subscription: Subscription, reason: str) -> None:
        payload = subscription.cancelled(self._machine.codec.encode(reason))
        self._machine.effects.append(Frame(subscription.exchange.stream_id, payload, False))

    def forget(self, exchange: Exchange) -> None:
        """Nothing more is sent for this listen, whoever ended it. Its tasks go on. Harmless for other requests."""
        channel = self._channels.get(exchange.stream_id)
        subscription = None if channel is None else channel.subscriptions.pop(exchange, None)
        if channel is None or subscription is None:
            return
        subscription.ended = True
        self._open -= 1
        self._room.give_back(exchange.owner, subscription.asked)
        self._ends_ms.pop(subscription, None)
        for kind in subscription.agreement.lists:
            self._of_list[kind].pop(subscription, None)
        for uri in subscription.agreement.uris or ():
            of_uri = self._of_uri.get(uri, {})
            of_uri.pop(subscription, None)
            if not of_uri:
                self._of_uri.pop(uri, None)
        for watched in list(subscription.tasks):
            self.tasks.leave(watched, subscription)
        subscription.tasks.clear()
        subscription.waiting.clear()
        if not channel.subscriptions:
            del self._channels[channel.stream_id]
            self._given_up_ms.pop(channel, None)
            self._paced_ms.pop(channel, None)

    # --- time

    @property
    def deadline_ms(self) -> int | None:
        earliest = self.tasks.deadline_ms
        for table in (self._ends_ms, self._given_up_ms, self._paced_ms):
            moment = next(iter(table.values()), None)
            if moment is not None and (earliest is None or moment < earliest):
                earliest = moment
        return earliest

    def tick(self) -> None:
        now_ms = self._machine.now.monotonic_ms
        for channel in _due(self._given_up_ms, now_ms):
            self._give_up(channel)
        for subscription in _due(self._ends_ms, now_ms):
            self._end_soon(subscription, _LONG_ENOUGH)
        for channel in _due(self._paced_ms, now_ms):
            self._flow(channel)
        self.tasks.tick()

    def _give_up(self, channel: Channel) -> None:
        """Drop what a reader that takes nothing has subscribed to."""
        slow_ms = self._machine.limits.slow_reader_ms
        for subscription in list(channel.subscriptions.values()):
            if subscription.open:
                self._drop(subscription, f"its reader took nothing for {slow_ms} ms")
        if channel.subscriptions:  # what is not acknowledged yet cannot end before that
            self._given_up_ms[channel] = self._machine.now.monotonic_ms + slow_ms

    @property
    def open_count(self) -> int:
        """How many subscriptions there are."""
        return self._open


def _due(table: OrderedDict[_T, int], now_ms: int) -> list[_T]:
    """What has come due, taken out of a table in which things stand in the order in which they do."""
    due: list[_T] = []
    while table:
        first, at_ms = next(iter(table.items()))
        if at_ms > now_ms:
            break
        del table[first]
        due.append(first)
    return due
