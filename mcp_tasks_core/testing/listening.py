"""A subscription as its client sees it: every message that carries its id, in order, judged as it comes.

Source: subscriptions; tasks, Task Status Notifications.
"""

from __future__ import annotations

from typing import Any

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.identifiers import JSONObject, RequestId, StreamId

_TERMINAL = ("completed", "failed", "cancelled")


class BrokenSubscription(AssertionError):
    """A server sent what a subscription may not hold."""


class Listening:
    """One ``subscriptions/listen`` request and what came of it.

    Args:
        request_id: of the listen request.
        asked: the filter that was asked for.

    Raises:
        BrokenSubscription: out of ``take``, for a message that breaks a rule: something before the acknowledgement or
            after the end, another id, a kind or a task that was not agreed to, a state that is older than or the same
            as one before it, or one that follows a terminal state.
    """

    def __init__(self, request_id: RequestId, stream_id: StreamId, asked: JSONObject) -> None:
        self.request_id = request_id
        self.stream_id = stream_id
        self.asked = asked
        self.messages: list[JSONObject] = []
        self.agreed: JSONObject | None = None
        self.error: JSONObject | None = None
        self.result: JSONObject | None = None
        self.cancelled = False
        self.cut = False
        self._states: dict[str, list[JSONObject]] = {}

    # --- what came

    @property
    def ended(self) -> bool:
        """Whether the server has ended it, in whatever way."""
        return self.cut or self.cancelled or self.result is not None or self.error is not None

    def states_of(self, task_id: str) -> list[JSONObject]:
        """The states of a task in the order in which they came, without ``_meta``."""
        return self._states.get(task_id, [])

    def statuses_of(self, task_id: str) -> list[str]:
        return [state["status"] for state in self.states_of(task_id)]

    @property
    def methods(self) -> list[str]:
        """The methods of the notifications that came, in order."""
        return [message["method"] for message in self.messages if "method" in message]

    # --- taking in

    def take(self, message: JSONObject) -> None:
        """One message whose ``subscription_of`` is this one."""
        if "method" not in message:
            self._take_answer(message)
        else:
            self._take_notification(message["method"], message["params"])
            self.messages.append(message)

    def take_cut(self) -> None:
        """The stream broke off."""
        self._check(not self.ended, "a stream that has ended breaks off")
        self.cut = True

    def _take_answer(self, message: JSONObject) -> None:
        self._check(not self.ended, f"an answer after the end: {message!r}")
        self.messages.append(message)
        if "error" in message:
            self._check(self.agreed is None, "an error after the acknowledgement")
            self.error = message["error"]
            return
        self._check(self.agreed is not None, "a result before the acknowledgement")
        result: JSONObject = message["result"]
        self._check(_same(result["_meta"][META_SUBSCRIPTION_ID], self.request_id), "a result with another id")
        self._check(result["resultType"] == "complete", "a result that is not complete")
        self.result = result

    def _take_notification(self, method: str, params: JSONObject) -> None:
        if method == "notifications/cancelled":
            self._check(_same(params["requestId"], self.request_id), "a cancellation of another request")
            self._check(not self.cancelled, "two cancellations")
            self.cancelled = True
            return
        self._check(not self.ended, f"{method} after the end")
        if method == "notifications/subscriptions/acknowledged":
            self._check(self.agreed is None, "two acknowledgements")
            self.agreed = params["notifications"]
            self._check_agreed(params["notifications"])
            return
        self._check(self.agreed is not None, f"{method} before the acknowledgement")
        agreed = self.agreed or {}
        if method == "notifications/tasks":
            self._take_state(agreed, {name: value for name, value in params.items() if name != "_meta"})
        elif method == "notifications/resources/updated":
            self._check(params["uri"] in agreed.get("resourceSubscriptions", ()), f"{params['uri']} was not agreed to")
        else:
            kind = method.removeprefix("notifications/").removesuffix("/list_changed")
            self._check(agreed.get(f"{kind}ListChanged") is True, f"{method} was not agreed to")

    def _check_agreed(self, agreed: JSONObject) -> None:
        for name, value in agreed.items():
            asked: Any = self.asked.get(name)
            if isinstance(value, list):
                self._check(set(value) <= set(asked or ()), f"{name} holds what was not asked for: {value!r}")
            else:
                self._check(value is True and asked is True, f"{name} was not asked for")

    def _take_state(self, agreed: JSONObject, state: JSONObject) -> None:
        task_id = state["taskId"]
        self._check(task_id in agreed.get("taskIds", ()), f"the task {task_id} was not agreed to")
        self._check("resultType" not in state, "a state with a resultType")
        before = self._states.setdefault(task_id, [])
        if before:
            self._check(before[-1]["status"] not in _TERMINAL, f"{task_id}: a state after a terminal one")
            self._check(state["lastUpdatedAt"] >= before[-1]["lastUpdatedAt"], f"{task_id}: a state goes back")
            self._check(state not in before, f"{task_id}: the same state again")
        before.append(state)

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise BrokenSubscription(f"subscription {self.request_id!r}: {problem}")


def subscription_of(message: JSONObject) -> RequestId | None:
    """The id of the listen request that a server's message belongs to; of an answer, that of any request."""
    found = message.get("params", {}).get("_meta", {}).get(META_SUBSCRIPTION_ID) if "method" in message else None
    request_id: RequestId | None = message.get("id") if found is None else found
    return request_id


def _same(found: object, wanted: RequestId) -> bool:
    return type(found) is type(wanted) and found == wanted
