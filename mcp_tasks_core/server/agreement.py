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
class Asked:
    """How many tasks and resources a listen is counted with."""

    tasks: int
    uris: int


@attrs.frozen(slots=True)
class Agreement:
    """What a subscription is about; of the task ids, those that were asked for.

    Args:
        uris, task_ids: without repetitions, in the order in which they were asked for; ``None`` where the listen did
            not speak of them, or this server has nothing of that kind. Ids that no task can have are left out.
        asked: how much was asked for, whatever came of it.
    """

    lists: frozenset[ListKind]
    uris: tuple[str, ...] | None
    task_ids: tuple[TaskId, ...] | None
    asked: Asked

    def to_wire(self, task_ids: Collection[TaskId]) -> JSONObject:
        """The filter as the acknowledgement shows it, with the task ids that were agreed to."""
        agreed: JSONObject = {f"{kind.value}ListChanged": True for kind in ListKind if kind in self.lists}
        if self.uris is not None:
            agreed["resourceSubscriptions"] = list(self.uris)
        if self.task_ids is not None:
            agreed["taskIds"] = [task_id for task_id in self.task_ids if task_id in task_ids]
        return agreed

    def without_task_ids(self) -> Agreement:
        """What is kept of it once it was acknowledged."""
        return self if self.task_ids is None else Agreement(self.lists, self.uris, (), self.asked)


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
        uris = asked.resource_subscriptions if self._resources else None
        task_ids = asked.task_ids if self._tasks else None
        chars_max = self._limits.identifier_chars_max
        lists = frozenset(kind for kind in self._lists if wanted[kind])
        return Agreement(
            lists=self._asked_lists.setdefault(lists, lists),
            uris=None if uris is None else tuple(dict.fromkeys(uris)),
            task_ids=None if task_ids is None else tuple(dict.fromkeys(i for i in task_ids if len(i) <= chars_max)),
            asked=Asked(len(set(task_ids or ())), len(set(uris or ()))),
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
    """How much of the bounds per owner is taken: subscriptions, and the tasks and resources that they ask for."""

    def __init__(self, limits: Limits) -> None:
        self._most = (
            limits.subscriptions_per_owner_max,
            limits.subscribed_tasks_per_owner_max,
            limits.subscribed_resources_per_owner_max,
        )
        self._taken: dict[Owner, tuple[int, int, int]] = {}

    def take(self, owner: Owner, asked: Asked) -> None:
        """Count one more subscription, and all that it asks for: what of it exists must not matter.

        Raises:
            Refusal: this owner has too many, and is told so as of something that passes.
        """
        subscriptions, tasks, uris = self._taken.get(owner, (0, 0, 0))
        wanted = (subscriptions + 1, tasks + asked.tasks, uris + asked.uris)
        if any(more > most for more, most in zip(wanted, self._most, strict=True)):
            raise Refusal(faults.TOO_MANY_SUBSCRIPTIONS)
        self._taken[owner] = wanted

    def give_back(self, owner: Owner, asked: Asked) -> None:
        subscriptions, tasks, uris = self._taken[owner]
        if subscriptions == 1:
            del self._taken[owner]
        else:
            self._taken[owner] = (subscriptions - 1, tasks - asked.tasks, uris - asked.uris)
