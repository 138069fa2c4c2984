"""What the store, the engine and the application of a storm do when they are asked, and how they say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_tasks_core.server.effects import (
    AskSource,
    Authorize,
    DeleteTask,
    HoldLease,
    ListChanges,
    ListDue,
    ListOrphans,
    LoadTask,
    StoreTask,
)
from mcp_tasks_core.server.events import (
    AccessDecided,
    ChangesListed,
    DueListed,
    LeaseHeld,
    OrphansListed,
    ServerEvent,
    StoreConflicted,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
)

if TYPE_CHECKING:
    from stateful.subscription_setting import SubscriptionSetting


def outcome_of(world: SubscriptionSetting, writer: str, effect: Any) -> Any:
    """Carry out what a server asked for."""
    ledger = world.ledger
    match effect:
        case LoadTask():
            return ledger.load(effect.task_id)
        case StoreTask(row=row):
            return (ledger.create if row.revision == 1 else ledger.swap)(row, writer)
        case ListDue():
            return ledger.list_due(effect.until_ms, effect.limit)
        case DeleteTask():
            return ledger.delete(effect.task_id, effect.revision)
        case HoldLease():
            return ledger.hold_lease(effect.executor, effect.until_ms)
        case ListOrphans():
            return ledger.list_orphans(effect.now_ms, effect.limit)
        case ListChanges():
            return ledger.list_changes(effect.after, effect.limit)
        case Authorize():
            return world.rights.allows(effect.caller, effect.owner, effect.access)
        case AskSource():
            return world.engine.answer(effect)
        case _:
            raise AssertionError(f"DESIGN 3: what is to be done about {effect}?")


def event_of(effect: Any, outcome: Any) -> ServerEvent:
    """The answer to an effect that was carried out."""
    ticket = effect.ticket
    match effect:
        case LoadTask():
            return TaskLoaded(ticket, outcome)
        case StoreTask():
            return TaskStored(ticket) if outcome else StoreConflicted(ticket)
        case ListDue():
            return DueListed(ticket, outcome)
        case DeleteTask():
            return TaskDeleted(ticket)
        case HoldLease():
            return LeaseHeld(ticket)
        case ListOrphans():
            return OrphansListed(ticket, outcome)
        case ListChanges():
            return ChangesListed(ticket, *outcome)
        case Authorize():
            return AccessDecided(ticket, outcome)
        case _:
            answered: ServerEvent = outcome
            return answered
