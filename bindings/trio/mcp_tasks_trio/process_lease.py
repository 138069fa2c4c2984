"""The lease of this process on a shared store: held again and again, and ended once, for good."""

from __future__ import annotations

import logging
import threading
from typing import Final

import anyio

from mcp_tasks_core.store import SharedTaskStore, StoreError, StoreUncertain
from mcp_tasks_trio.threads import WorkerThreads

_log: Final = logging.getLogger("mcp_tasks_trio")

_RENEWAL_WAIT_SECONDS: Final = 0.3  # one that is on its way takes less, and one that waits for another process longer
_END_WAIT_SECONDS: Final = 0.5  # a store that is not busy takes less; then the lease runs out by itself


class LeaseEnded(StoreError):
    """The process has said that it ends."""


class ProcessLease:
    """Says to a shared store that a process lives, and that it ends. Any thread may call it.

    A renewal that still waits for the store in some thread when the process ends would make it live on for others,
    so that thread ends the lease once more after it.
    """

    def __init__(self, store: SharedTaskStore, executor: str) -> None:
        self._store = store
        self.executor = executor
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._holding = 0
        self._may_be_held = False
        self._ended = False

    def hold(self, until_ms: int) -> None:
        """Live, for other processes, until this moment.

        Raises:
            StoreError: the store cannot say so, or the process has ended.
        """
        with self._lock:
            if self._ended:
                raise LeaseEnded("the server ends and holds no lease any longer")
            self._holding += 1
        held = True
        try:
            self._store.hold_lease(self.executor, until_ms)
        except StoreError as error:
            held = isinstance(error, StoreUncertain)
            raise
        finally:
            self._settle(held)

    def _settle(self, held: bool) -> None:
        with self._lock:
            self._holding -= 1
            self._may_be_held |= held
            ends = self._ended and self._holding == 0
            self._settled.notify_all()
        if ends:
            self._end_in_store()

    async def end_in_time(self) -> None:
        """End it as ``end`` does, from the event loop and for a moment at the most, cancelled or not.

        A store that stays busy for longer is left to the thread that asks it, which goes on for as long as the process
        does; the lease runs out by itself as well.
        """
        if not self._store.blocks:
            self.end()
            return
        with anyio.CancelScope(shield=True), anyio.move_on_after(_END_WAIT_SECONDS) as waiting:
            await WorkerThreads(1).run(self.end)
        if waiting.cancelled_caught:
            _log.info("The task store is busy: the lease of this process is ended later, or runs out by itself")

    def end(self) -> None:
        """Let other processes settle at once what this one leaves unfinished.

        Waits for no renewal that waits for the store: the thread that makes it ends the lease, too.
        """
        with self._lock:
            if self._ended:
                return
            # Not ended yet: the renewal that this waits for is then not the one to end the lease.
            self._settled.wait_for(lambda: self._holding == 0, _RENEWAL_WAIT_SECONDS)
            self._ended = True
            ends = self._holding == 0
        if ends:
            self._end_in_store()

    def _end_in_store(self) -> None:
        with self._lock:
            ends, self._may_be_held = self._may_be_held, False
        if not ends:
            return
        try:
            self._store.end_lease(self.executor)
        except StoreError as error:
            _log.warning("The lease could not be ended, and runs out by itself: %s", error)
