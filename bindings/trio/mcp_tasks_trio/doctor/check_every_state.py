"""What holds of every handle and every state of a task that was seen during the examination; looked at near the end."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from mcp_tasks_trio.doctor.checks import MUST, NotExercised, Subject, demand
from mcp_tasks_trio.doctor.examination import Examination
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.task_members import demand_task_members
from mcp_tasks_trio.doctor.tools import Role

EVERY_STATE = Subject("Every handle and state of a task")
_PAYLOADS: Final = {"result": "completed", "error": "failed", "inputRequests": "input_required"}
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?")


def _needs_tasks(x: Examination) -> None:
    if not any(True for _ in x.journal.sightings()):
        raise NotExercised("needs a tool that becomes a task (--task-tool NAME)")


@EVERY_STATE.check(
    "handle-is-whole",
    "C4",
    MUST,
    "tasks, Task Creation",
    "a handle has taskId, status, createdAt, lastUpdatedAt and ttlMs beside its resultType, and no others' payload",
)
async def _(x: Examination) -> None:
    x.any_task_tool()
    for exchange, handle in x.journal.handles():
        demand_task_members(exchange, handle)
        nested = [name for name in ("task", "ttl", "pollInterval") if name in handle]
        demand(not nested, f"the handle has {', '.join(nested)}, which are those of other revisions", exchange)
        payload = [name for name in ("result", "error", "inputRequests") if name in handle]
        demand(not payload, f"the handle has {', '.join(payload)}, which only states have", exchange)


@EVERY_STATE.check(
    "state-is-whole",
    "G1",
    MUST,
    "tasks, Task Polling",
    "an answer to tasks/get has taskId, status, createdAt, lastUpdatedAt and ttlMs, of the task that was asked for",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.results("tasks/get"):
        demand_task_members(exchange, state)
        asked = exchange.sent.params.get("taskId")
        demand(state["taskId"] == asked, f"the state is of {state['taskId']!r}, not of {asked!r}", exchange)


@EVERY_STATE.check(
    "state-says-complete",
    "G1",
    MUST,
    "tasks, Task Polling",
    "every answer to tasks/get, whatever the status, has the resultType complete",
    suite=("result-type-complete-on-tasks-get",),
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.results("tasks/get"):
        kind = state.get("resultType")
        demand(kind == "complete", f"the state of a {state.get('status')} task has the resultType {kind!r}", exchange)


@EVERY_STATE.check(
    "payload-fits-the-status",
    "G1",
    MUST,
    "tasks, Task Status",
    "result comes with completed, error with failed, inputRequests with input_required: there always, elsewhere never",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.sightings():
        is_handle = exchange.sent.method == "tools/call"
        for member, status in _PAYLOADS.items():
            there, due = member in state, state.get("status") == status
            if is_handle:
                continue
            demand(there or not due, f"a task that is {status} is without {member}", exchange)
            demand(due or not there, f"a task that is {state.get('status')} has {member}", exchange)
            if there:
                demand(isinstance(state[member], dict), f"{member} is no object", exchange)


@EVERY_STATE.check(
    "input-required-asks-for-something",
    "G2",
    MUST,
    "tasks, Task Polling",
    "a task that is input_required lists requests, each of a known method",
)
async def _(x: Examination) -> None:
    looked = False
    for exchange, state in x.journal.sightings():
        requests = state.get("inputRequests")
        if state.get("status") != "input_required" or not isinstance(requests, dict):
            continue
        looked = True
        demand(requests, "a task that is input_required lists no request", exchange)
        for key, request in requests.items():
            method = request.get("method") if isinstance(request, dict) else None
            known = method in ("elicitation/create", "sampling/createMessage", "roots/list")
            demand(known, f"the request {key!r} has the method {method!r}", exchange)
    if not looked:
        x.need(Role.ASK)
        raise NotExercised("needs a task that lists input requests")


@EVERY_STATE.check(
    "times-are-iso-8601", "T3", MUST, "tasks, Tasks", "createdAt and lastUpdatedAt are ISO 8601 timestamps"
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    for exchange, state in x.journal.sightings():
        for name in ("createdAt", "lastUpdatedAt"):
            if name in state:
                demand(read_time(state[name]) is not None, f"{name} is {state[name]!r}", exchange)


def read_time(value: Any) -> datetime | None:
    """The time that a text gives as ISO 8601 does, in the extended form with date and time; else ``None``."""
    if not isinstance(value, str) or _TIMESTAMP.fullmatch(value) is None:
        return None
    try:
        return datetime.fromisoformat(value.replace(",", "."))
    except ValueError:
        return None


@EVERY_STATE.check(
    "last-update-is-not-before-creation",
    "T3",
    MUST,
    "tasks, Tasks",
    "lastUpdatedAt is not before createdAt, and createdAt stays the same",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    created: dict[Any, tuple[Any, Exchange]] = {}
    for exchange, state in x.journal.sightings():
        first, last = read_time(state.get("createdAt")), read_time(state.get("lastUpdatedAt"))
        if first is None or last is None or (first.tzinfo is None) != (last.tzinfo is None):
            continue
        demand(last >= first, f"lastUpdatedAt {last} is before createdAt {first}", exchange)
        before, shown = created.setdefault(state.get("taskId"), (first, exchange))
        same = (before.tzinfo is None) != (first.tzinfo is None) or before == first
        demand(same, f"createdAt was {before} and then {first}", shown, exchange)


@EVERY_STATE.check(
    "no-state-after-the-end",
    "T1",
    MUST,
    "tasks, Task Status",
    "no task was ever seen in another status after a terminal one",
)
async def _(x: Examination) -> None:
    _needs_tasks(x)
    ends: dict[Any, tuple[Any, Exchange]] = {}
    # Two polls that cross on the way may be answered in either order, so only what was asked one by one is compared.
    for exchange, state in x.journal.sightings():
        if exchange.sent.method != "tasks/get":
            continue
        task_id, status = state.get("taskId"), state.get("status")
        if task_id in ends:
            end, shown = ends[task_id]
            demand(status == end, f"a task that was {end} is {status} later", shown, exchange)
        elif status in TERMINAL:
            ends[task_id] = (status, exchange)
