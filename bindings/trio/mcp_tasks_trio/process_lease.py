"""The lease of this process on a shared store: held again and again, and ended once, for good."""

from __future__ import annotations

import logging
import threading
from typing import Final

from mcp_tasks_core.store import SharedTaskStore, StoreError

_log: Final = logging.getLogger("mcp_tasks_trio")


class LeaseEnded(StoreError):
    """The process has said that it ends."""


class ProcessLease:
    """Says to a shared store that a process lives, and that it ends. Any thread may call it.

    A renewal that still waits for the store in some thread when the process ends would make it live on for others,
    so none comes after the end.
    """

    def __init__(self, store: SharedTaskStore, executor: str) -> None:
        self._store = store
        self.executor = executor
        self._lock = threading.Lock()
        self._ended = False

    def hold(self, until_ms: int) -> None:
        """Live, for other processes, until this moment.

        Raises:
            StoreError: the store cannot say so, or the process has ended.
        """
        with self._lock:
            if self._ended:
                raise LeaseEnded("the server ends and holds no lease any longer")
            self._store.hold_lease(self.executor, until_ms)

    def end(self) -> None:
        """Let other processes settle at once what this one leaves unfinished."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            try:
                self._store.end_lease(self.executor)
            except StoreError as error:
                _log.warning("The lease could not be ended, and runs out by itself: %s", error)
