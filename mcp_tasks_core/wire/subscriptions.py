"""Subscriptions, and the notifications of requests in progress.

Source: subscriptions; cancellation; progress; logging; tasks, Task Notifications.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.identifiers import JSONObject, ProgressToken, RequestId, TaskId
from mcp_tasks_core.wire.converter import DecodeError, shown


@attrs.frozen(kw_only=True)
class SubscriptionFilter:
    """What a subscription asks for, or agrees to.

    Args:
        task_ids: whose states; a member of the tasks extension.

    Source: subscriptions, SubscriptionFilter; tasks, Task Notifications.
    """

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = None
    task_ids: tuple[TaskId, ...] | None = None


@attrs.frozen(kw_only=True)
class SubscriptionsListenParams:
    """Params of ``subscriptions/listen``. Source: subscriptions, Opening a Subscription."""

    notifications: SubscriptionFilter
    meta: JSONObject | None = None


def _check_subscription_id(meta: JSONObject) -> None:
    value = meta.get(META_SUBSCRIPTION_ID)
    if type(value) is not str and type(value) is not int:
        raise DecodeError(f"[{META_SUBSCRIPTION_ID!r}]", f"the listen request's id, not {shown(value)}")


@attrs.frozen(kw_only=True)
class SubscriptionsAcknowledgedParams:
    """Params of the first notification of a subscription: what was agreed to.

    Args:
        meta: carries the subscription's id.

    Source: subscriptions, Acknowledgement.
    """

    notifications: SubscriptionFilter
    meta: Annotated[JSONObject, _check_subscription_id]


@attrs.frozen(kw_only=True)
class SubscriptionsListenResult:
    """The end of a subscription that the server ended. Source: subscriptions, Ending a Subscription."""

    result_type: Literal["complete"] = "complete"
    meta: Annotated[JSONObject, _check_subscription_id]


@attrs.frozen(kw_only=True)
class CancelledParams:
    """Params of ``notifications/cancelled``. Source: cancellation, Cancellation Flow."""

    request_id: RequestId
    reason: str | None = None
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class ProgressParams:
    """Params of ``notifications/progress``. ``progress`` increases strictly. Source: progress, Progress Flow."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class LoggingMessageParams:
    """Params of ``notifications/message``. ``data`` is any JSON value. Source: logging, Log Message Notifications."""

    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    logger: str | None = None
    data: Any
    meta: JSONObject | None = None
