"""One subscription: what it agreed to, what waits to be sent on it, and the bytes of its messages.

Whatever several listeners get is encoded once; each message adds the subscription's own id to it.

Source: subscriptions; tasks, Task Status Notifications; cancellation, Behavior Requirements.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.identifiers import StreamId, TaskId
from mcp_tasks_core.server.agreement import Agreement
from mcp_tasks_core.server.events import ListKind
from mcp_tasks_core.server.exchanges import Exchange

_ID_FOLLOWS: Final = b'"_meta":{"' + META_SUBSCRIPTION_ID.encode("ascii") + b'":'


def _notification(method: str) -> bytes:
    """The beginning of a notification, up to the subscription's id."""
    return b'{"jsonrpc":"2.0","method":"' + method.encode("ascii") + b'","params":{' + _ID_FOLLOWS


_ACKNOWLEDGED: Final = _notification("notifications/subscriptions/acknowledged")
_TASK: Final = _notification("notifications/tasks")
_CANCELLED: Final = _notification("notifications/cancelled")
_UPDATED: Final = _notification("notifications/resources/updated")
_LIST_CHANGED: Final = {kind: _notification(f"notifications/{kind.value}/list_changed") for kind in ListKind}
_END: Final = b"}}}"

ENVELOPE_BYTES: Final = len(_TASK) + len(b"},}}")
"""What a message with a task's state holds beside the state's members and the id of the listen request."""


class WatchedTask:
    """A task that one listener or more waits for.

    ``ending`` is the end of each message about its newest state, ``None`` before anything is known of it. The
    revision is that of the store, and counts among the states of one task; another one that took the id of a deleted
    one later was ``born_ms`` later. States of an application's own engine have neither.
    """

    __slots__ = (
        "again", "asking", "born_ms", "caller", "doubted", "ending", "hinted", "is_terminal", "joining", "listeners",
        "looking", "payload_hash", "permitted", "rechecks", "revision", "source", "task_id", "updated_ms",
    )  # fmt: skip

    def __init__(self, task_id: TaskId, source: str | None, caller: Owner) -> None:
        self.task_id = task_id
        self.source = source
        self.caller = caller
        self.listeners: dict[Subscription, None] = {}
        self.joining: list[Subscription] = []
        # Where the application decides: whom it permitted to join and whose task it was, which listeners it is asked
        # about again, and how many decisions are awaited.
        self.permitted: dict[Subscription, Owner] | None = None
        self.doubted: dict[Subscription, None] | None = None
        self.asking = 0
        self.revision = 0
        self.payload_hash = 0
        self.born_ms = 0
        self.updated_ms = 0
        self.ending: bytes | None = None
        self.is_terminal = False
        self.looking = False
        self.again = False  # something was asked while it is looked at
        self.hinted = False  # there may be something new in it
        self.rechecks = False  # who may see it is to be asked again


Subject: TypeAlias = WatchedTask | ListKind | str
"""What a message is about: a task, a list, or the URI of a resource. The newest message about each counts."""


class Channel:
    """One stream that carries subscriptions, and whether its reader keeps up.

    ``flowing`` while messages are sent as they come. Otherwise each subscription keeps what they would be about.
    """

    __slots__ = ("blocked", "filled_ms", "flowing", "left_bytes", "stream_id", "subscriptions")

    def __init__(self, stream_id: StreamId) -> None:
        self.stream_id = stream_id
        self.subscriptions: dict[Exchange, Subscription] = {}
        self.flowing = True
        self.blocked = False
        self.left_bytes = 0
        self.filled_ms = -1


class Subscription:
    """A ``subscriptions/listen`` request in progress. ``open`` once it is acknowledged, ``ended`` for good.

    Args:
        agreement: what it is about; the tasks in ``tasks`` are those that were found, and have not ended since.
    """

    __slots__ = (
        "agreement", "asked", "channel", "ended", "ending", "exchange", "joining", "open", "tasks", "waiting",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, channel: Channel, agreement: Agreement) -> None:
        self.exchange = exchange
        self.channel = channel
        self.agreement = agreement
        self.asked = agreement.asked
        self.tasks: dict[WatchedTask, bytes | None] = {}  # with the state that was sent last
        self.joining = 0  # tasks that are still looked for
        self.waiting: dict[Subject, None] = {}
        self.open = False
        self.ending: str | None = None  # why it ends gracefully, once nothing waits any longer
        self.ended = False

    @property
    def is_spent(self) -> bool:
        """Whether nothing can ever be sent on it any more."""
        return not self.tasks and not self.agreement.lists and not self.agreement.uris

    # --- its messages

    def acknowledgement(self, agreed: bytes) -> tuple[bytes, ...]:
        """Args: agreed: the filter, encoded."""
        return (_ACKNOWLEDGED, self.exchange.id_bytes, b'},"notifications":' + agreed + b"}}")

    def task_state(self, ending: bytes) -> tuple[bytes, ...]:
        """Args: ending: ``WatchedTask.ending``, the same bytes for every listener."""
        return (_TASK, self.exchange.id_bytes, ending)

    def list_changed(self, kind: ListKind) -> tuple[bytes, ...]:
        return (_LIST_CHANGED[kind], self.exchange.id_bytes, _END)

    def resource_updated(self, ending: bytes) -> tuple[bytes, ...]:
        """Args: ending: ``ending_of_update``, the same bytes for every listener."""
        return (_UPDATED, self.exchange.id_bytes, ending)

    def result(self, server_info: bytes) -> tuple[bytes, ...]:
        """The graceful end.

        Args:
            server_info: the member of ``_meta`` with a comma before it, or nothing.
        """
        request_id = self.exchange.id_bytes
        result = b',"result":{"resultType":"complete",' + _ID_FOLLOWS
        return (b'{"jsonrpc":"2.0","id":', request_id, result, request_id, server_info + b"}}}")

    def cancelled(self, reason: bytes) -> tuple[bytes, ...]:
        """The end as a channel is told of that other requests share.

        Args:
            reason: encoded, for people.
        """
        request_id = self.exchange.id_bytes
        return (_CANCELLED, request_id, b'},"requestId":', request_id, b',"reason":' + reason + b"}}")


def ending_of_update(uri: bytes) -> bytes:
    """The end of each message about an updated resource. Args: uri: encoded."""
    return b'},"uri":' + uri + b"}}"
