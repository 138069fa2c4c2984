"""How often to poll a task, how long to go on, and which of two sightings is the newer one.

Pure: time comes in as milliseconds of the monotonic clock. The server's clock is compared with itself alone.

Source: tasks, Task Polling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from mcp_tasks_core.client.config import ClientLimits
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.tasks import Task
from mcp_tasks_core.wire.timestamps import read_timestamp

_DURATIONS: Final = ("ttlMs", "pollIntervalMs")
_DOUBLINGS_MAX: Final = 32  # more than lie between any two sensible bounds


def with_exact_durations(raw: Mapping[str, Any]) -> tuple[JSONObject, list[str]]:
    """A task's members with integral floats made integers and a senseless pollIntervalMs left out, and warnings.

    The interval is a suggestion: without one the default holds. ttlMs is not repaired beyond its type.
    Source: DECISIONS D13.
    """
    members, warnings = dict(raw), []
    for name in _DURATIONS:
        value = members.get(name)
        if type(value) is float and value.is_integer():
            members[name] = int(value)
            warnings.append(f"{name} is {value!r}, which is taken as the integer {int(value)}")
    interval = members.get("pollIntervalMs", 0)
    if type(interval) is not int or interval < 0:
        del members["pollIntervalMs"]
        shown = repr(interval)[:40]
        warnings.append(f"pollIntervalMs is {shown}, which is ignored: an integer of 0 or more is allowed")
    return members, warnings


def interval_ms(suggested: int | None, limits: ClientLimits) -> int:
    """The interval to keep: the server's newest suggestion within our bounds."""
    if suggested is None:
        return limits.poll_interval_ms_default
    return min(max(suggested, limits.poll_interval_ms_min), limits.poll_interval_ms_max)


def is_older(seen: Task, newest: Task) -> bool:
    """Whether a sighting may not follow another one: terminal comes last, otherwise lastUpdatedAt decides.

    Source: DECISIONS D14; tasks, Task Status.
    """
    if newest.is_terminal:
        return True
    if seen.is_terminal:
        return False
    return read_timestamp(seen.last_updated_at) < read_timestamp(newest.last_updated_at)


@attrs.define
class PollSchedule:
    """When to poll one task again, and when to give it up.

    Args:
        next_poll_ms: ``None`` while a poll is on its way.
        failures: polls in a row that failed in passing; 0 begins anew.
        stuck: polls in a row that said input_required without a question.
    """

    limits: ClientLimits
    interval: int
    next_poll_ms: int | None = None
    failures: int = 0
    stuck: int = 0
    _created_ms: int | None = None
    _ttl_ms: int | None = None
    _failing_since_ms: int = 0

    def see(self, task: Task, now_ms: int) -> None:
        """Take interval and time to live from the newest state, and plan the next poll."""
        self.interval = interval_ms(task.poll_interval_ms, self.limits)
        self._ttl_ms = task.ttl_ms
        # The task is at least as old as the server says it was when it last changed. The lowest estimate counts.
        age_ms = max(0, read_timestamp(task.last_updated_at) - read_timestamp(task.created_at))
        born_ms = now_ms - age_ms
        self._created_ms = born_ms if self._created_ms is None else min(self._created_ms, born_ms)
        self.plan(now_ms)

    def plan(self, now_ms: int) -> None:
        """The next poll comes one interval from now; after failures it takes longer each time."""
        wait_ms = self.interval
        if self.failures:
            doublings = min(self.failures - 1, _DOUBLINGS_MAX)
            backoff_ms = min(self.limits.poll_backoff_ms << doublings, self.limits.poll_backoff_ms_max)
            wait_ms = max(wait_ms, backoff_ms)
        self.next_poll_ms = now_ms + wait_ms

    def fail(self, now_ms: int) -> int:
        """A poll failed in passing; says for how long they have by now, in milliseconds."""
        if not self.failures:
            self._failing_since_ms = now_ms
        self.failures += 1
        return now_ms - self._failing_since_ms

    @property
    def overdue_ms(self) -> int | None:
        """When the task counts as lost; ``None`` where it has no time to live."""
        if self._created_ms is None or self._ttl_ms is None:
            return None
        return self._created_ms + self._ttl_ms + self.limits.ttl_grace_ms
