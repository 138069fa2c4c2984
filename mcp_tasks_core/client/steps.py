"""What is to be done about a task that is watched, or about a subscription: values between a state and its driver."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from mcp_tasks_core.client.calls import Purpose
from mcp_tasks_core.client.events import ListKind
from mcp_tasks_core.client.outcomes import Outcome
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.tasks import DetailedTask
from mcp_tasks_core.wire.subscriptions import SubscriptionFilter


@attrs.frozen(slots=True)
class SendTask:
    """Send a request; ``params`` are complete but for ``_meta``."""

    purpose: Purpose
    method: str
    params: JSONObject


@attrs.frozen(slots=True)
class Ask:
    key: InputKey
    request: JSONObject


@attrs.frozen(slots=True)
class Withdraw:
    key: InputKey


@attrs.frozen(slots=True)
class Show:
    task: DetailedTask


@attrs.frozen(slots=True)
class Agree:
    """The server said what it agrees to."""

    agreed: SubscriptionFilter
    not_agreed: tuple[TaskId, ...]


@attrs.frozen(slots=True)
class Drop:
    """A task that was listened to is not told of any longer."""

    task_id: TaskId


@attrs.frozen(slots=True)
class TellListChange:
    kind: ListKind


@attrs.frozen(slots=True)
class TellResourceUpdate:
    uri: str


@attrs.frozen(slots=True)
class Warn:
    message: str


@attrs.frozen(slots=True)
class Note:
    """Something for the log that nobody needs to see, such as each of many attempts."""

    message: str


@attrs.frozen(slots=True)
class End:
    """It is over. Requests of it that are in flight are given up."""

    outcome: Outcome


Step: TypeAlias = (
    SendTask | Ask | Withdraw | Show | Agree | Drop | TellListChange | TellResourceUpdate | Warn | Note | End
)
