"""How often progress of a task is stored: at most once in an interval, the newest message last."""

from __future__ import annotations

from mcp_tasks_core.identifiers import TaskId


class _Pace:
    """When the next message of a task may be stored, and which one waits for that."""

    __slots__ = ("message", "next_ms")

    def __init__(self, next_ms: int) -> None:
        self.next_ms = next_ms
        self.message: str | None = None


class ProgressPacing:
    """The paces of all tasks whose work says how far it is. Moments are monotonic milliseconds."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._paces: dict[TaskId, _Pace] = {}

    def take(self, task_id: TaskId, message: str, now_ms: int) -> bool:
        """Whether the message is to be stored now; otherwise it waits, in place of the one that waited before."""
        pace = self._paces.get(task_id)
        if pace is not None and now_ms < pace.next_ms:
            pace.message = message
            return False
        self._paces[task_id] = _Pace(now_ms + self._interval_ms)
        return True

    def due(self, now_ms: int) -> list[tuple[TaskId, str]]:
        """The messages that have waited long enough; to be handed to ``take`` again."""
        over = [(task_id, pace) for task_id, pace in self._paces.items() if now_ms >= pace.next_ms]
        for task_id, _ in over:
            del self._paces[task_id]
        return [(task_id, pace.message) for task_id, pace in over if pace.message is not None]

    def forget(self, task_id: TaskId) -> None:
        self._paces.pop(task_id, None)

    @property
    def deadline_ms(self) -> int | None:
        if not self._paces:
            return None
        return min((pace.next_ms for pace in self._paces.values() if pace.message is not None), default=None)
