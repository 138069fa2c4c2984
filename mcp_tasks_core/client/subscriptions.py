"""Reads what comes in on a subscription, and tells what of it the client never asked for.

Source: subscriptions, Acknowledgment, Receiving Notifications and Graceful Closure; tasks, Task Notifications.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.client.events import ListKind
from mcp_tasks_core.client.states import State, StateProblem, read_pushed_state
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.wire.converter import DecodeError, decode, shown, wire_name
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter, SubscriptionsAcknowledgedParams

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
TASK_CHANGED: Final = "notifications/tasks"
RESOURCE_UPDATED: Final = "notifications/resources/updated"
LIST_CHANGED: Final = {f"notifications/{kind.value}/list_changed": kind for kind in ListKind}
SUBSCRIBED: Final = frozenset({ACKNOWLEDGED, TASK_CHANGED, RESOURCE_UPDATED, *LIST_CHANGED})


@attrs.frozen(slots=True)
class Acknowledged:
    agreed: SubscriptionFilter


@attrs.frozen(slots=True)
class TaskTold:
    state: State


@attrs.frozen(slots=True)
class ListTold:
    kind: ListKind


@attrs.frozen(slots=True)
class ResourceTold:
    uri: str


@attrs.frozen(slots=True)
class Unreadable:
    """A notification of the subscription that is none.

    Args:
        reason: what is wrong with it.
    """

    reason: str


@attrs.frozen(slots=True)
class Unknown:
    """A notification of the subscription that this client knows nothing of."""

    method: str


Notice: TypeAlias = Acknowledged | TaskTold | ListTold | ResourceTold | Unreadable | Unknown


def read_notice(method: str, params: JSONObject, lenient: bool) -> Notice:
    """A notification that carries the id of a subscription."""
    if method == ACKNOWLEDGED:
        try:
            return Acknowledged(decode(SubscriptionsAcknowledgedParams, params, "params").notifications)
        except DecodeError as error:
            return Unreadable(f"{method}: {error}")
    if method == TASK_CHANGED:
        state = read_pushed_state(params, lenient)
        return Unreadable(f"{method}: {state.reason}") if isinstance(state, StateProblem) else TaskTold(state)
    if method == RESOURCE_UPDATED:
        uri = params.get("uri")
        return ResourceTold(uri) if type(uri) is str else Unreadable(f"{method}: params.uri is a string")
    kind = LIST_CHANGED.get(method)
    return Unknown(method) if kind is None else ListTold(kind)


def subscription_id(holder: JSONObject) -> JSONValue:
    """What stands for the subscription's id in params or in a result; ``None`` where nothing does."""
    meta = holder.get("_meta")
    return meta.get(META_SUBSCRIPTION_ID) if type(meta) is dict else None


def problem_with_id(found: JSONValue, listen_id: int) -> str | None:
    """What is wrong with the id that a message of a subscription carries; the JSON type counts, too."""
    if type(found) is int and found == listen_id:
        return None
    what = "is missing" if found is None else f"is {shown(found)}"
    return f"_meta[{META_SUBSCRIPTION_ID!r}] {what}, where the listen request's id, {listen_id}, belongs"


def problem_with_agreement(agreed: SubscriptionFilter, asked: SubscriptionFilter) -> str | None:
    """What the server agreed to without having been asked; ``None`` if there is nothing."""
    for field in attrs.fields(SubscriptionFilter):
        given, wanted = getattr(agreed, field.name), getattr(asked, field.name)
        if type(given) is tuple:
            more = sorted(set(given) - set(wanted or ()))
            if more:
                return f"it agrees to {shown(more[0])} in {wire_name(field.name)}, which was not asked for"
        elif given and not wanted:
            return f"it agrees to {wire_name(field.name)}, which was not asked for"
    return None
