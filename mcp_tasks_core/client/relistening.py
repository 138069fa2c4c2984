"""How long to wait before listening again, and when to give a subscription up.

Source: subscriptions; tasks, Task Notifications.
"""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.client.config import ClientLimits

_DOUBLINGS_MAX: Final = 32  # more than lie between any two sensible bounds


class RetryBudget:
    """Counts streams in a row: those that were short, which lengthen the wait, and those that failed, which are few.

    Args:
        jitter_permille: how much of half a wait is taken off.
    """

    def __init__(self, limits: ClientLimits, jitter_permille: int) -> None:
        self._limits = limits
        self._jitter_permille = jitter_permille
        self._short = 0
        self._failures = 0
        self._was_orderly = False

    def stream_ended(self, lasted_ms: int | None, *, brought: bool, orderly: bool) -> None:
        """The stream is over.

        Args:
            lasted_ms: from its acknowledgement on; ``None`` where none came.
            brought: a state of a task that was not known yet. What is not told of one task alone does not count: a
                server may say at any time that a list has changed.
            orderly: the server ended it with a result.
        """
        is_steady = lasted_ms is not None and lasted_ms >= self._limits.listen_steady_ms
        self._short = 0 if is_steady else self._short + 1
        self._failures = 0 if is_steady or brought else self._failures + 1
        self._was_orderly = orderly

    def read_succeeded(self) -> None:
        """A task could be read since: a server that only limits how long its streams last is not at fault."""
        if self._was_orderly:
            self._failures = 0

    @property
    def has_failed(self) -> bool:
        """Whether something seems to be wrong, as opposed to a stream that its server ended in good order once."""
        return not self._was_orderly or self._failures > 1

    @property
    def was_steady(self) -> bool:
        """Whether the last stream lasted."""
        return self._short == 0

    @property
    def is_used_up(self) -> bool:
        return self._failures >= self._limits.listen_failures_max

    def wait_ms(self, interval_ms: int) -> int:
        """How long to wait before the next listen.

        Args:
            interval_ms: how often the tasks may be polled. Short streams that end in good order are as good as polls.
        """
        limits = self._limits
        wait_ms = limits.listen_backoff_ms
        if not self._was_orderly or self._failures > 1:
            wait_ms <<= min(max(0, self._short - 1), _DOUBLINGS_MAX)
        elif self._short > 1:
            wait_ms = max(wait_ms, interval_ms)
        wait_ms = min(wait_ms, limits.listen_backoff_ms_max)
        return max(1, wait_ms - wait_ms * self._jitter_permille // 2_000)
