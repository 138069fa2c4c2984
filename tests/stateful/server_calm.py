"""The calm after a storm: everything is answered, all time passes, and nothing may be left."""

from __future__ import annotations

from mcp_tasks_core.server.events import Returned, Ticked, WorkCompleted
from stateful.proving import prove
from stateful.remains import names_within
from stateful.server_world import LIMITS, TTL_MAX_MS, World


def calm(world: World) -> None:
    """Answer everything honestly, let all time pass, and see that nothing is left."""
    for core in world.cores:
        for stream_id in list(core.streams):
            core.close(stream_id)
    _rest(world, 3_000 + LIMITS.lease_ms + 2 * LIMITS.lease_renewal_ms)
    _check_at_rest(world)
    _end_all_work(world)
    _rest(world, 2 * TTL_MAX_MS + world.limits.expiry_grace_ms + world.limits.tombstone_ms + 5_000)
    _check_nothing_left(world)


def _rest(world: World, span_ms: int) -> None:
    until_ms = world.now_ms + span_ms
    while True:
        for core in world.cores:
            world.storage.honest(core)
        world.settle()
        moments = []
        for core in world.cores:
            deadline = core.protocol.deadline
            if deadline is not None:
                moments.append(max(world.now_ms, deadline - core.now.monotonic_ms + world.now_ms))
        if not moments or min(moments) > until_ms:
            world.now_ms = max(world.now_ms, until_ms)
            return
        world.now_ms = min(moments)
        for core in world.cores:
            core.feed(Ticked())


def _check_at_rest(world: World) -> None:
    live = {task_id for core in world.cores for task_id in core.live}
    for life in world.ledger.all_current():
        task_id = life.last.row.task_id
        known = task_id in live or (task_id in world.left and life.last.state["executor"] is None)
        prove(life.last.ended or known, "C5", f"{task_id} was left working, and no work is behind it")
    for core in world.cores:
        for (task_id, key), since in core.waiting.items():
            asking = world.ledger.current(task_id)
            if asking is None or asking.last.ended or key not in asking.last.answers:
                continue
            by = next(v for v in asking.versions if key in v.answers)
            if core.config.executor is None and by.writer != core.name:
                continue  # A process that shares its store with nobody hears of no other writer.
            own = by.since > since and asking.last.state["executor"] == core.config.executor
            prove(not own, "U6", f"the stored answer to {key!r} of {task_id} never reached its work")


def _end_all_work(world: World) -> None:
    for core in world.cores:
        for task_id in sorted({*core.live, *world.left, *(task_id for task_id, _ in world.asked)}):
            world.offers.setdefault(task_id, []).append(("completed", {"content": [], "resultType": "complete"}))
            core.feed(WorkCompleted(task_id, Returned({"content": []})))
        core.live.clear()


def _check_nothing_left(world: World) -> None:
    for life in world.ledger.all_current():
        state = life.last.state
        prove(state["ttl"] is None, "T5", f"{state} is still there after its time")
        released = state["executor"] is None and life.last.row.task_id in world.left and state["cancel"] is None
        prove(life.last.ended or released, "T5", f"{state} is unfinished, and nobody will ever end it")
    for core in world.cores:
        prove(core.protocol.open_tickets == 0, "DESIGN 3", f"{core.protocol.open_tickets} tickets were left open")
        prove(not core.protocol.open_exchanges, "B3", f"left open: {core.protocol.open_exchanges}")
        for call in core.calls.values():
            prove(call.answered or call.cancelled, "I2", f"{call} was forgotten")
            prove(call.deferred is None or call.cancelled or call.end is not None, "C5", f"{call} has no end")
        kept = sorted(names_within(core.protocol) & {str(task_id) for task_id in world.ledger.lives})
        prove(not kept, "S11", f"the tasks {kept} are gone, and the core still keeps something of them")
    for core in [*world.past, *world.cores]:
        core.replay()
