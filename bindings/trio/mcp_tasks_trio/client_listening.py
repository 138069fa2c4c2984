"""A subscription as its caller reads it: what changes, in order, however slowly it is read.

Source: subscriptions; tasks, Task Notifications.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import anyio
import anyio.lowlevel
import attrs

from mcp_tasks_core.client import effects
from mcp_tasks_core.client.effects import (
    ListChangeObserved,
    ListenAcknowledged,
    OperationEnded,
    ResourceUpdateObserved,
    StateObserved,
)
from mcp_tasks_core.client.events import CancelRequested, ListKind, OperationId
from mcp_tasks_core.client.outcomes import Cancelled, Outcome
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.tasks import DetailedTask
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter
from mcp_tasks_trio.client_errors import error_for

if TYPE_CHECKING:
    from mcp_tasks_trio.client_connection import ClientConnection

# Parts of resources that wait for a slow reader. Past it, what was asked for counts as changed as a whole.
_PARTS_MAX: Final = 1_000


@attrs.frozen(slots=True)
class ListChange:
    """The server's list of tools, prompts or resources has changed, or may have while nobody listened."""

    kind: ListKind = attrs.field(repr=str)

    def __str__(self) -> str:
        return f"the list of {self.kind.value} has changed"


@attrs.frozen(slots=True)
class ResourceUpdate:
    """A resource has changed, or may have while nobody listened.

    Args:
        uri: one that was asked for, or a part of it.
    """

    uri: str

    def __str__(self) -> str:
        return f"resource {self.uri!r} has changed"


@attrs.frozen(slots=True)
class TaskDropped:
    """The server does not tell of this task (any longer): it is unknown to it, or not for this client.

    Nothing more comes about it. Tasks that were left out from the start are in ``not_agreed`` alone.
    """

    task_id: TaskId

    def __str__(self) -> str:
        return f"task {self.task_id!r} is unknown to the server, or not for this client"


Change: TypeAlias = DetailedTask | ListChange | ResourceUpdate | TaskDropped
SubscriptionNotice: TypeAlias = (
    ListenAcknowledged
    | StateObserved
    | effects.TaskDropped
    | ListChangeObserved
    | ResourceUpdateObserved
    | OperationEnded
)


class Subscription:
    """What a server tells of its own accord: an asynchronous iterator of changes.

    Changes that nobody has read yet are kept once for each task, list and resource: the newest state of a task takes
    the place of an older one, and the last state of a task is always among them.

    It ends when every task has ended and nothing else is listened to; ``ClientError`` is raised when it ends otherwise.
    """

    def __init__(self, client: ClientConnection, operation_id: OperationId) -> None:
        self._client = client
        self._operation_id = operation_id
        self._agreed: SubscriptionFilter | None = None
        self._not_agreed: dict[TaskId, None] = {}
        self._tasks: dict[str, DetailedTask] = {}
        self._news: dict[tuple[str, Hashable], Change] = {}
        self._parts = 0
        self._outcome: Outcome | None = None
        self._changed = anyio.Event()

    @property
    def agreed(self) -> SubscriptionFilter:
        """What the server agreed to, when it was last asked: ``task_ids``, ``tools_list_changed`` and so on."""
        assert self._agreed is not None, "a subscription is handed out when it is acknowledged"
        return self._agreed

    @property
    def not_agreed(self) -> tuple[TaskId, ...]:
        """Tasks that the server does not know, or not for this caller.

        Some may be added later; a ``TaskDropped`` says so at once.
        """
        return tuple(self._not_agreed)

    @property
    def tasks(self) -> Mapping[str, DetailedTask]:
        """The newest state of each task, whether it was read already or not."""
        return self._tasks

    @property
    def ended(self) -> bool:
        """Whether nothing more will come than what can be read at once."""
        return self._outcome is not None

    def notice(self, notice: SubscriptionNotice) -> None:
        """Take in what the core says. Never waits."""
        match notice:
            case ListenAcknowledged(agreed=agreed, not_agreed=not_agreed):
                self._agreed = agreed
                self._not_agreed |= dict.fromkeys(not_agreed)
            case StateObserved(_, task):
                self._tasks[task.task_id] = task
                self._news["task", task.task_id] = task
            case effects.TaskDropped(_, task_id):
                self._not_agreed[task_id] = None
                self._news["dropped", task_id] = TaskDropped(task_id)
            case ListChangeObserved(_, kind):
                self._news["list", kind] = ListChange(kind)
            case ResourceUpdateObserved(_, uri):
                self._add_update(uri)
            case OperationEnded(_, outcome):
                self._outcome = outcome
            case _:
                assert_never(notice)
        self._changed.set()

    def cancel_nowait(self) -> None:
        """Have the server told that nobody listens any more; tasks are left alone."""
        if self._outcome is None:
            self._client.feed(CancelRequested(operation_id=self._operation_id))

    async def acknowledged(self) -> None:
        """Wait for the server's agreement.

        Raises:
            ClientError: it did not agree.
        """
        while self._agreed is None:
            self._raise_if_failed()
            await self._next_notice()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Change:
        await anyio.lowlevel.checkpoint()
        while not self._news:
            self._raise_if_failed()
            if self._outcome is not None:
                raise StopAsyncIteration
            await self._next_notice()
        oldest = next(iter(self._news))
        if oldest[0] == "part":
            self._parts -= 1
        return self._news.pop(oldest)

    def _add_update(self, uri: str) -> None:
        asked = self.agreed.resource_subscriptions or ()
        kind = "resource" if uri in asked else "part"
        if kind == "part" and ("part", uri) not in self._news:
            if self._parts >= _PARTS_MAX:
                self._news = {key: change for key, change in self._news.items() if key[0] != "part"}
                self._news |= {("resource", whole): ResourceUpdate(whole) for whole in asked}
                self._parts = 0
                return
            self._parts += 1
        self._news[kind, uri] = ResourceUpdate(uri)

    async def _next_notice(self) -> None:
        if self._changed.is_set():
            self._changed = anyio.Event()
        await self._changed.wait()

    def _raise_if_failed(self) -> None:
        if self._outcome is not None and not isinstance(self._outcome, Cancelled):
            error = error_for(self._outcome)
            if error is not None:
                raise error
