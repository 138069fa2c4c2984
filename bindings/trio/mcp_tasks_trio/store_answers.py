"""Asks a task store what the core wants to know, and gives what came of it as an event. Blocks as the store does."""

from __future__ import annotations

import logging
from typing import TypeAlias, cast

from mcp_tasks_core.identifiers import TaskId, Ticket
from mcp_tasks_core.server.effects import (
    DeleteTask,
    HoldLease,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    ChangesListed,
    DueListed,
    LeaseHeld,
    OrphansListed,
    ServerEvent,
    StoreConflicted,
    StoreFailed,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
)
from mcp_tasks_core.store import (
    CapacityExceeded,
    SharedTaskStore,
    StoredTask,
    StoreError,
    StoreUncertain,
    TaskStore,
)
from mcp_tasks_trio.process_lease import ProcessLease

StoreEffect: TypeAlias = LoadTask | StoreTask | ListDue | DeleteTask | HoldLease | ListOrphans | ListChanges

_log = logging.getLogger("mcp_tasks_trio")


def shared_store(store: TaskStore) -> SharedTaskStore | None:
    """The store as one that several processes share; ``None`` where it is not of that kind."""
    return cast("SharedTaskStore", store) if callable(getattr(store, "hold_lease", None)) else None


def answer_of_store(store: TaskStore, lease: ProcessLease | None, effect: StoreEffect) -> ServerEvent:
    """The event that answers the effect; a store's exception becomes one, too."""
    try:
        return _answer(store, lease, effect)
    except Exception as error:
        return failure_of_store(effect.ticket, error)


def failure_of_store(ticket: Ticket, error: Exception) -> StoreFailed:
    """What an exception of the store means for what was asked of it."""
    if isinstance(error, StoreError):
        uncertain, full = isinstance(error, StoreUncertain), isinstance(error, CapacityExceeded)
        return StoreFailed(ticket, str(error) or repr(error), uncertain=uncertain, full=full)
    # A store that breaks its contract may have done anything.
    _log.error("The task store failed", exc_info=error)
    return StoreFailed(ticket, repr(error), uncertain=True)


def _answer(store: TaskStore, lease: ProcessLease | None, effect: StoreEffect) -> ServerEvent:
    ticket = effect.ticket
    match effect:
        case LoadTask():
            return TaskLoaded(ticket, store.load(effect.task_id))
        case StoreTask():
            row = effect.row
            kept = store.create(row) if row.revision == 1 else store.swap(row)
            if not kept:
                return StoreConflicted(ticket)
            return TaskStored(ticket, _read_back(store, row.task_id) if effect.read_back else None)
        case ListDue():
            return DueListed(ticket, store.list_due(effect.until_ms, effect.limit))
        case DeleteTask():
            store.delete(effect.task_id, effect.revision)
            return TaskDeleted(ticket)
        case _:
            shared = shared_store(store)
            assert shared is not None, "only a process on a shared store names an executor"
            assert lease is not None, "only a process on a shared store names an executor"
            return _answer_of_shared(shared, lease, effect)


def _read_back(store: TaskStore, task_id: TaskId) -> StoredTask | None:
    """What a read finds; ``None`` where it fails, which says nothing of the write: it is asked for again."""
    try:
        return store.load(task_id)
    except StoreError:
        return None


def _answer_of_shared(
    store: SharedTaskStore, lease: ProcessLease, effect: HoldLease | ListOrphans | ListChanges
) -> ServerEvent:
    ticket = effect.ticket
    match effect:
        case HoldLease():
            lease.hold(effect.until_ms)
            return LeaseHeld(ticket)
        case ListOrphans():
            return OrphansListed(ticket, store.list_orphans(effect.now_ms, effect.limit))
        case ListChanges():
            position, task_ids = store.list_changes(effect.after, effect.limit)
            return ChangesListed(ticket, position, task_ids)
