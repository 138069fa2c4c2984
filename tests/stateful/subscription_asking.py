"""What clients of a storm ask to listen to, good and bad, and how much of it is to be refused."""

from __future__ import annotations

from typing import Any, Final

from mcp_tasks_core.limits import Limits
from stateful.picking import Pick
from stateful.subscription_listen import LISTS, Stream
from stateful.subscription_server import Server
from stateful.subscription_tasks import PREFIX

URIS: Final = ("file:///a", "file:///é", "file:///b")
_LONG: Final = "x" * 2_000

LIMITS: Final = Limits(
    answer_wait_ms=1_000,
    progress_interval_ms=100,
    cancel_grace_ms=500,
    settle_retry_ms=100,
    expiry_grace_ms=1_000,
    tombstone_ms=1_500,
    sweep_interval_ms=5_000,
    cached_states_max=2,
    lease_ms=100_000_000,
    lease_renewal_ms=10_000_000,
    hint_interval_ms=500,
    hints_max=3,
    subscription_tasks_max=6,
    subscription_resources_max=2,
    resource_uri_chars_max=20,
    subscriptions_per_stream_max=3,
    subscriptions_per_owner_max=5,
    subscribed_tasks_per_owner_max=12,
    subscription_duration_ms=15_000,
    reconcile_interval_ms=2_000,
    slow_reader_ms=4_000,
)


def compose_listen(pick: Pick, server: Server, stream: Stream) -> tuple[dict[str, Any], int | None, bool]:
    """Params, the error that answers them, and whether tasks are declared."""
    if pick.number(0, 19) == 0:
        bad: list[Any] = [None, [], {"taskIds": "x"}, {"taskIds": [5]}, {"toolsListChanged": "yes"}]
        return {"notifications": pick.of(bad)}, -32602, True
    world = server.world
    live = world.timelines.live()
    mine = [t for t in live if world.sees(stream.owner, t)]
    some = [*mine * 3, *live, *list(world.timelines.of)[-5:], "unknown", f"{PREFIX}99", _LONG]
    notifications: dict[str, Any] = {}
    if pick.number(0, 7):
        notifications["taskIds"] = [pick.of(some) for _ in range(pick.of([1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 0, 7]))]
    if pick.number(0, 2) == 0:
        for kind in LISTS:
            if pick.number(0, 1):
                notifications[f"{kind}ListChanged"] = pick.of([True, True, False])
    if pick.number(0, 3) == 0:
        uris = [*URIS * 4, "file:///" + "y" * 20]
        notifications["resourceSubscriptions"] = [pick.of(uris) for _ in range(pick.of([1, 1, 2, 2, 2, 0, 3]))]
    declares = bool(pick.number(0, 19))
    return {"notifications": notifications}, _refusal(server, stream, notifications, declares), declares


def _refusal(server: Server, stream: Stream, asked: dict[str, Any], declares: bool) -> int | None:
    limits = server.world.limits
    ids, uris = asked.get("taskIds"), asked.get("resourceSubscriptions", [])
    if ids is not None and not declares:
        return -32021
    if len(ids or ()) > limits.subscription_tasks_max or len(uris) > limits.subscription_resources_max:
        return -32602
    if any(len(uri) > limits.resource_uri_chars_max for uri in uris):
        return -32602
    if len(server.listens_on(stream)) >= limits.subscriptions_per_stream_max:
        return -32603
    mine = [listen for listen in server.open_listens if listen.stream.owner == stream.owner]
    watched = sum(len(listen.task_ids) for listen in mine)
    if len(mine) >= limits.subscriptions_per_owner_max:
        return -32603
    more = len(set(ids or ()))
    return -32603 if more and watched + more > limits.subscribed_tasks_per_owner_max else None
