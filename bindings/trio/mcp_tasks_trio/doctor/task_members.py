"""What every task has, in a handle as in a state."""

from __future__ import annotations

from typing import Any, Final

from mcp_tasks_trio.doctor.checks import demand
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.journal import STATUSES

_DURATIONS: Final = ("ttlMs", "pollIntervalMs")


def demand_task_members(exchange: Exchange, task: dict[str, Any]) -> None:
    """See that a task has what every task has, of the right types. Times are looked at elsewhere."""
    missing = [n for n in ("taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs") if n not in task]
    demand(not missing, f"the task is without {', '.join(missing)}", exchange)
    demand(isinstance(task["taskId"], str), f"taskId is {task['taskId']!r}, not a string", exchange)
    demand(task["status"] in STATUSES, f"the status {task['status']!r} is none", exchange)
    for name in _DURATIONS:
        value = task.get(name)
        allowed = value is None if name == "ttlMs" or name not in task else False
        whole = isinstance(value, int) and not isinstance(value, bool)
        demand(allowed or whole, f"{name} is {value!r}, not an integer", exchange)
