"""What a listen asks for, and how much of it this server can agree to.

Source: subscriptions, Notification Filter and Acknowledgment; tasks, Task Status Notifications.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.catalogue import server_capabilities
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.events import ListKind
from mcp_tasks_core.server.storing import Refusal
from mcp_tasks_core.wire.converter import DecodeError, decode
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter, SubscriptionsListenParams


@attrs.frozen(slots=True)
class Agreement:
    """What a subscription is about; of the task ids, those that were asked for.

    Args:
        uris, task_ids: without repetitions, in the order in which they were asked for; ``None`` where the listen did
            not speak of them, or this server has nothing of that kind.
    """

    lists: frozenset[ListKind]
    uris: tuple[str, ...] | None
    task_ids: tuple[TaskId, ...] | None

    def to_wire(self, task_ids: Collection[TaskId]) -> JSONObject:
        """The filter as the acknowledgement shows it, with the task ids that were agreed to."""
        agreed: JSONObject = {f"{kind.value}ListChanged": True for kind in ListKind if kind in self.lists}
        if self.uris is not None:
            agreed["resourceSubscriptions"] = list(self.uris)
        if self.task_ids is not None:
            agreed["taskIds"] = [task_id for task_id in self.task_ids if task_id in task_ids]
        return agreed


class Terms:
    """What a server can agree to: the families that it advertises, and tasks where they are configured."""

    def __init__(self, config: ServerConfig) -> None:
        capabilities = server_capabilities(config)
        self._tasks = config.tasks
        self._limits = config.limits
        self._lists = frozenset(kind for kind in ListKind if _says(capabilities, kind.value, "listChanged"))
        self._resources = _says(capabilities, "resources", "subscribe")
        self._asked_lists: dict[frozenset[ListKind], frozenset[ListKind]] = {}  # one object for all who ask the same

    def of(self, params: JSONObject, *, declares_tasks: bool) -> Agreement:
        """What a listen asks for, as far as it exists here.

        Raises:
            Refusal: -32602 for params that are none, or ask for too much; -32021 for task ids without the extension.
        """
        try:
            asked = decode(SubscriptionsListenParams, params).notifications
        except DecodeError as problem:
            raise Refusal(faults.invalid_params(str(problem))) from problem
        if asked.task_ids is not None and self._tasks and not declares_tasks:
            raise Refusal(faults.TASKS_NOT_DECLARED)
        _check_bounds(asked, self._limits)
        wanted = {
            ListKind.TOOLS: asked.tools_list_changed,
            ListKind.PROMPTS: asked.prompts_list_changed,
            ListKind.RESOURCES: asked.resources_list_changed,
        }
        uris, task_ids = asked.resource_subscriptions, asked.task_ids
        lists = frozenset(kind for kind in self._lists if wanted[kind])
        return Agreement(
            lists=self._asked_lists.setdefault(lists, lists),
            uris=None if uris is None or not self._resources else tuple(dict.fromkeys(uris)),
            task_ids=None if task_ids is None or not self._tasks else tuple(dict.fromkeys(task_ids)),
        )


def _says(capabilities: JSONObject, family: str, member: str) -> bool:
    said = capabilities.get(family)
    return isinstance(said, dict) and said.get(member) is True


def _check_bounds(asked: SubscriptionFilter, limits: Limits) -> None:
    """Raises ``Refusal`` for a listen that asks for more than one may."""
    for name, items, most in (
        ("taskIds", asked.task_ids, limits.subscription_tasks_max),
        ("resourceSubscriptions", asked.resource_subscriptions, limits.subscription_resources_max),
    ):
        if items is not None and len(items) > most:
            text = f"params.notifications.{name}: at most {most} in one listen, not {len(items)}"
            raise Refusal(faults.invalid_params(text))
    most_chars = limits.resource_uri_chars_max
    for index, uri in enumerate(asked.resource_subscriptions or ()):
        if len(uri) > most_chars:
            place = f"params.notifications.resourceSubscriptions[{index}]"
            raise Refusal(faults.invalid_params(f"{place}: at most {most_chars} characters, not {len(uri)}"))


class Room:
    """How much of the bounds per owner is taken."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: dict[Owner, tuple[int, int]] = {}

    def take(self, owner: Owner, tasks: int) -> None:
        """Count one more subscription, and the tasks that it asks for: which of them exist must not matter.

        Raises:
            Refusal: this owner has too many, and is told so as of something that passes.
        """
        subscriptions, watched = self._taken.get(owner, (0, 0))
        limits = self._limits
        if subscriptions >= limits.subscriptions_per_owner_max:
            raise Refusal(faults.TOO_MANY_SUBSCRIPTIONS)
        if tasks and watched + tasks > limits.subscribed_tasks_per_owner_max:
            raise Refusal(faults.TOO_MANY_SUBSCRIPTIONS)
        self._taken[owner] = (subscriptions + 1, watched + tasks)

    def give_back(self, owner: Owner, tasks: int) -> None:
        subscriptions, watched = self._taken[owner]
        if subscriptions == 1:
            del self._taken[owner]
        else:
            self._taken[owner] = (subscriptions - 1, watched - tasks)
