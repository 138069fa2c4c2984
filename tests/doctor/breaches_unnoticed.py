"""The sixteen violations that leave the official suite green."""

from __future__ import annotations

import base64

from doctor.between import Breach, Call, Message, Reply
from doctor.breach_parts import (
    ACK,
    TASK_METHODS,
    declares,
    finds,
    has_no_name,
    has_wrong_name,
    is_tool,
    is_unknown,
    now,
    on,
    on_state,
    rename,
    restatus,
    serves,
)


def _updated_now(state: Message) -> None:
    state["lastUpdatedAt"] = f"2030-01-01T00:{next(now) // 60 % 60:02}:{next(now) % 60:02}Z"


class _Numbered:
    """Task ids 1, 2, 3 on the doctor's side."""

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}

    def there(self, call: Call) -> None:
        own = call.params.get("taskId")
        if own not in self._theirs:
            return
        call.change(lambda m: m["params"].update(taskId=self._theirs[own]))
        encoded = f"=?base64?{base64.b64encode(str(own).encode()).decode()}?="
        if call.header("Mcp-Name") in (own, encoded):
            call.set_header("Mcp-Name", self._theirs[own])

    def back(self, _call: Call, reply: Reply) -> None:
        theirs = reply.result.get("taskId")
        if theirs is not None:
            own = self._ours.setdefault(theirs, str(len(self._ours) + 1))
            self._theirs[own] = theirs
            reply.result["taskId"] = own


def _asks_for_nothing(state: Message) -> None:
    state["status"] = "input_required"


_numbered = _Numbered()


# What polls alone say is found by its own check, and by the one that holds notifications against polls.
UNLIKE_NOTIFIED = "notification-is-what-a-poll-gives"

UNNOTICED: dict[str, Breach] = {
    "a failed task's state says resultType task": finds(
        "state-says-complete", back=on_state("failed", lambda s: s.update(resultType="task"))
    ),
    "lastUpdatedAt is now on every poll": finds(
        "last-update-moves-with-changes-alone", UNLIKE_NOTIFIED, back=on("tasks/get", _updated_now)
    ),
    "a failed task has no statusMessage": finds(
        "failed-task-says-why", back=on_state("failed", lambda s: s.pop("statusMessage"))
    ),
    "createdAt is no timestamp": finds(
        "times-are-iso-8601",
        UNLIKE_NOTIFIED,
        back=on("tasks/get", lambda s: s.update(createdAt="2026-01-01T00:00:00 not-a-zone")),
    ),
    "a working task is reported as input_required": finds(
        "payload-fits-the-status", back=on_state("working", _asks_for_nothing)
    ),
    "a cancelled task carries result and error": finds(
        "payload-fits-the-status",
        back=on_state("cancelled", lambda s: s.update(result={"content": []}, error={"code": 1, "message": "no"})),
    ),
    "tasks/get is without ttlMs and createdAt": finds(
        "state-is-whole", UNLIKE_NOTIFIED, back=on("tasks/get", lambda s: (s.pop("ttlMs"), s.pop("createdAt")))
    ),
    "task ids are 1, 2, 3": finds("ids-cannot-be-guessed", there=_numbered.there, back=_numbered.back),
    "the update's acknowledgement has more fields": finds(
        "update-is-acknowledged-empty", back=on("tasks/update", lambda r: r.update(accepted=1, task={"taskId": "x"}))
    ),
    "tasks/update of an unknown id is acknowledged": finds(
        "update-of-unknown-task", back=serves(-32602, is_unknown("tasks/update"), ACK)
    ),
    "tasks/cancel of an unknown id is acknowledged": finds(
        "cancel-of-unknown-task", back=serves(-32602, is_unknown("tasks/cancel"), ACK)
    ),
    "errors of tasks come with HTTP status 200": finds(
        "refusals-have-status-400", back=restatus((-32020, -32021, -32602), 200, "tasks/")
    ),
    "a missing Mcp-Name is accepted on tasks/*": finds(
        "name-header-is-required-of-get",
        "name-header-is-required-of-update",
        "name-header-is-required-of-cancel",
        there=rename(*TASK_METHODS, only_if=has_no_name),
    ),
    "a wrong Mcp-Name is accepted on tasks/update and tasks/cancel": finds(
        "name-header-of-update-is-compared",
        "name-header-of-cancel-is-compared",
        there=rename("tasks/update", "tasks/cancel", only_if=has_wrong_name),
    ),
    "the legacy tasks capability counts as declared": finds(
        "legacy-capability-is-no-declaration", there=declares(lambda call: "tasks" in call.capabilities)
    ),
    "some tools become tasks for clients that did not declare": finds(
        "no-task-without-the-extension", there=declares(is_tool("fail_as_tool"))
    ),
}
