"""How a store is asked: at once and in the loop, or in worker threads where its calls may block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp_tasks_core.server.effects import (
    DeleteTask,
    HoldLease,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    StoreTask,
)
from mcp_tasks_core.server.events import ServerEvent, TaskLoaded
from mcp_tasks_core.store import TaskStore
from mcp_tasks_trio.process_lease import ProcessLease
from mcp_tasks_trio.store_answers import StoreEffect, answer_of_store, failure_of_store
from mcp_tasks_trio.store_threads import StoreThreads

# Calls to a blocking store at the same time. Threads of their own for reads: they are not to wait behind writes, which
# wait for each other and for other processes. Writes that wait together are made durable together.
_READER_THREADS: Final = 4
_WRITER_THREADS: Final = 16


class StoreCalls:
    """Asks one store for one engine. Belongs to the thread of the event loop.

    Args:
        lease: of this process, where the store is shared.
        answer_now: takes the answer of a store in memory, in the turn that asked for it.
        answer_later: takes answers that come out of threads.
    """

    def __init__(
        self,
        store: TaskStore,
        lease: ProcessLease | None,
        answer_now: Callable[[ServerEvent], object],
        answer_later: Callable[[Sequence[ServerEvent]], None],
    ) -> None:
        self._store = store
        self._lease = lease
        self._answer_now = answer_now
        self._threads: tuple[StoreThreads, ...] = ()
        read = write = self._ask
        load: Callable[[LoadTask], None] = self._load
        if store.blocks:
            readers = StoreThreads(_READER_THREADS, self._answer, answer_later)
            writers = StoreThreads(_WRITER_THREADS, self._answer, answer_later)
            self._threads = (readers, writers)
            load = read = readers.ask
            write = writers.ask
        self.effects: Mapping[type, Callable[[Any], object]] = {
            LoadTask: load,
            StoreTask: write,
            ListDue: read,
            DeleteTask: write,
            HoldLease: write,
            ListOrphans: read,
            ListChanges: read,
        }

    def end(self) -> None:
        """Ask for nothing more, and take no answers any longer."""
        for threads in self._threads:
            threads.end()

    def _load(self, effect: LoadTask) -> None:
        """What polling does most, without the general way's detours."""
        try:
            self._answer_now(TaskLoaded(effect.ticket, self._store.load(effect.task_id)))
        except Exception as error:
            self._answer_now(failure_of_store(effect.ticket, error))

    def _ask(self, effect: StoreEffect) -> None:
        self._answer_now(self._answer(effect))

    def _answer(self, effect: StoreEffect) -> ServerEvent:
        return answer_of_store(self._store, self._lease, effect)
