"""Faults of subscriptions that storms have found: each in its fewest steps."""

from __future__ import annotations

import attrs
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, AccessRule, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, StreamId, TaskId
from mcp_tasks_core.lifecycle import Advance, Bury
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import AskSource, Authorize, CutStream, LoadTask, Report
from mcp_tasks_core.server.events import (
    AccessDecided,
    Deferral,
    ListChanged,
    SourceAnswered,
    SourceAnswerKind,
    StreamBlocked,
    StreamUnblocked,
    TaskChanged,
)
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, STREAM, Defer, ServerHarness
from mcp_tasks_core.testing.messages import text_result

OWN = StreamId(50)
STRANGER = Owner("local", "stranger")
LIMITS = Limits(slow_reader_ms=5_000, answer_wait_ms=20_000, reconcile_interval_ms=2_000)


def bench(access: AccessRule = AccessRule.OWNER) -> ServerHarness:
    tool = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    config = ServerConfig(tools=[tool], limits=LIMITS, access=access)
    return ServerHarness(config, tools={"slow": lambda call: Defer(ttl_ms=60_000)})


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    return task_id


@pytest.mark.spec("S8", "D44")
def test_an_end_that_waits_for_room_is_told_though_the_task_is_gone_by_then() -> None:
    """A machine that slept lets a task expire and go in one moment; whoever looks then finds nothing."""
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.feed(StreamBlocked(STREAM))
    server.complete(task_id, text_result())
    server.change_elsewhere(task_id, Bury())
    server.feed(TaskChanged(TaskId(task_id)))
    server.feed(StreamUnblocked(STREAM))
    assert listening.statuses_of(task_id) == ["working", "completed"]
    assert listening.result is not None


@pytest.mark.spec("S5", "S8")
def test_a_task_that_goes_without_an_end_ends_what_listens_to_it_alone() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    assert server.store.delete(row.task_id, Revision(row.revision))
    server.feed(TaskChanged(TaskId(task_id)))
    assert listening.statuses_of(task_id) == ["working"]
    assert listening.result is not None


@pytest.mark.spec("S1", "S11")
def test_a_listen_that_is_still_looked_for_is_not_dropped_before_its_acknowledgement() -> None:
    """Its channel is given up because of an older one; a cancellation would be the first that it hears."""
    server = bench()
    task_id = create(server)
    older = server.listen(task_id)
    server.script(LoadTask, StoreFault.SLOW)
    younger = server.listen(task_id)
    server.feed(StreamBlocked(STREAM))
    server.advance(LIMITS.slow_reader_ms)
    assert older.cancelled
    assert younger.messages == []
    server.release()
    assert younger.agreed == {"taskIds": [task_id]}
    server.advance(LIMITS.slow_reader_ms)
    assert younger.cancelled
    assert server.protocol.open_subscriptions == 0
    assert server.protocol.watched_tasks == 0


@pytest.mark.spec("A1", "D22")
def test_a_right_that_was_taken_is_noticed_within_the_interval_however_often_the_task_changes() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    listening = server.listen(task_id, stream=OWN, own_stream=True)
    server.access = lambda ask: False
    for number in range(5):
        server.advance(LIMITS.reconcile_interval_ms // 2)
        server.change_elsewhere(task_id, Advance(f"step {number}"))
        server.feed(TaskChanged(TaskId(task_id)))
    assert listening.cut
    assert [effect.stream_id for effect in server.effects_of(CutStream)] == [OWN]
    seen = [state.get("statusMessage") for state in listening.states_of(task_id)]
    assert seen == [None, "step 0"]


@pytest.mark.spec("A1", "S7")
def test_who_may_see_a_task_is_not_admitted_to_a_later_one_with_its_id() -> None:
    """The read of the first task is on its way while that one is deleted and somebody else claims its id."""
    tool = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    claim = Defer(deferral=Deferral.CLAIM, task_id="claimed", ttl_ms=60_000)
    server = ServerHarness(ServerConfig(tools=[tool], limits=LIMITS), tools={"slow": lambda call: claim})
    first, second = Owner("acme", "first"), Owner("acme", "second")
    server.request("tools/call", name="slow", arguments={}, owner=first)
    server.script(LoadTask, StoreFault.LATE)
    listening = server.listen("claimed", owner=first)
    row = server.store.load(TaskId("claimed"))
    assert row is not None
    assert server.store.delete(row.task_id, row.revision)
    server.advance(1)
    server.request("tools/call", name="slow", arguments={}, owner=second)
    server.release()
    assert listening.agreed == {"taskIds": []}
    assert listening.states_of("claimed") == []


@pytest.mark.spec("S11")
def test_nobody_is_asked_whether_one_who_has_left_may_listen() -> None:
    """Each such question may take its time, and whoever else listens to the task would wait for all of them."""
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    server.script(LoadTask, StoreFault.SLOW)
    left = server.listen(task_id, stream=OWN, own_stream=True)
    server.close_stream(OWN)
    listening = server.listen(task_id)
    before = len(server.effects_of(Authorize))
    server.release()
    assert listening.agreed == {"taskIds": [task_id]}
    assert left.messages == []
    assert len(server.effects_of(Authorize)) == before + 1


@pytest.mark.spec("S8")
def test_hints_do_not_make_looks_at_intervals_any_rarer() -> None:
    server = bench()
    task_id = create(server)
    server.listen(task_id, owner=LOCAL_OWNER)
    server.advance(LIMITS.reconcile_interval_ms - 1)
    server.feed(TaskChanged(TaskId(task_id)))
    before = len(server.effects_of(LoadTask))
    server.advance(1)
    assert len(server.effects_of(LoadTask)) == before + 1


@pytest.mark.spec("S8", "D20")
def test_a_task_that_goes_while_others_are_looked_for_does_not_end_the_listen_to_them() -> None:
    server = bench()
    gone, going = create(server), create(server)
    server.script(LoadTask, None, StoreFault.SLOW)
    listening = server.listen(gone, going)
    row = server.store.load(TaskId(gone))
    assert row is not None
    assert server.store.delete(row.task_id, row.revision)
    server.feed(TaskChanged(TaskId(gone)))
    server.release()
    assert listening.agreed == {"taskIds": [going]}
    assert not listening.ended
    server.complete(going, text_result())
    assert listening.statuses_of(going) == ["working", "completed"]


# --- decisions that take long


@pytest.mark.spec("S8", "A1")
def test_nobody_waits_for_what_the_application_decides_about_others() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    listening = server.listen(task_id, stream=StreamId(60))
    server.access = lambda ask: HELD if ask.caller == STRANGER else True
    strangers = [server.listen(task_id, owner=STRANGER, stream=StreamId(61 + n)) for n in range(5)]
    server.change_elsewhere(task_id, Advance("from elsewhere"))
    server.feed(TaskChanged(TaskId(task_id)))
    assert listening.states_of(task_id)[-1]["statusMessage"] == "from elsewhere"
    assert all(stranger.messages == [] for stranger in strangers)
    server.advance(LIMITS.answer_wait_ms)
    assert all(stranger.error is not None for stranger in strangers)
    assert server.protocol.open_tickets == 0


@pytest.mark.spec("A1", "S8")
def test_a_listener_hears_nothing_while_it_is_not_certain_that_it_may_and_the_newest_after_that() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    server.access = lambda ask: True
    kept, lost = (
        server.listen(task_id, owner=who, stream=StreamId(n)) for n, who in ((60, LOCAL_OWNER), (61, STRANGER))
    )
    held: list[Authorize] = []
    server.access = lambda ask: held.append(ask) or HELD  # type: ignore[func-returns-value]
    server.advance(LIMITS.reconcile_interval_ms)
    assert [ask.caller for ask in held] == [LOCAL_OWNER, STRANGER]
    server.progress(task_id, "one")
    server.complete(task_id, text_result("secret"))
    assert kept.statuses_of(task_id) == lost.statuses_of(task_id) == ["working"]
    server.feed(AccessDecided(held[1].ticket, False))
    server.feed(AccessDecided(held[0].ticket, True))
    assert kept.statuses_of(task_id) == ["working", "completed"]
    assert kept.result is not None
    assert lost.statuses_of(task_id) == ["working"]
    assert lost.cancelled
    assert lost.result is None
    assert server.protocol.watched_tasks == 0


@pytest.mark.spec("A1", "S8")
def test_what_a_task_became_while_the_application_decided_is_what_is_told_first() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    held: list[Authorize] = []
    server.access = lambda ask: held.append(ask) or HELD  # type: ignore[func-returns-value]
    listening = server.listen(task_id)
    server.change_elsewhere(task_id, Advance("meanwhile"))
    server.feed(AccessDecided(held[0].ticket, True))
    assert listening.states_of(task_id)[0]["statusMessage"] == "meanwhile"
    assert len(held) == 1


# --- what a listen may cost


@pytest.mark.spec("S11")
def test_resources_count_for_their_owner_over_all_subscriptions() -> None:
    families = {"resources": {"subscribe": True}}
    server = ServerHarness(ServerConfig(capabilities=families, limits=Limits(subscribed_resources_per_owner_max=3)))
    first = server.listen(resourceSubscriptions=["a:1", "a:2"])
    refused = server.listen(resourceSubscriptions=["a:1", "a:2"])
    assert refused.error is not None
    assert refused.error["data"]["retryable"] is True
    assert not server.listen(resourceSubscriptions=["a:3"]).ended
    server.cancel_request(first.request_id)
    assert not server.listen(resourceSubscriptions=["a:1", "a:2"]).ended


@pytest.mark.spec("S11", "S7")
def test_ids_that_no_task_can_have_are_counted_and_not_kept() -> None:
    server = ServerHarness(ServerConfig(limits=Limits(subscribed_tasks_per_owner_max=2)))
    long_id = "x" * 100_000
    listening = server.listen(long_id, long_id[1:], toolsListChanged=True)
    assert listening.agreed == {"toolsListChanged": True, "taskIds": []}
    (channel,) = server.protocol._subscriptions._channels.values()
    (subscription,) = channel.subscriptions.values()
    assert not subscription.agreement.task_ids
    assert server.protocol.watched_tasks == 0
    assert server.listen("a", toolsListChanged=True).error is not None


@pytest.mark.spec("S7", "A1")
def test_a_foreign_task_is_not_looked_into_while_its_owner_listens_either() -> None:
    server = bench()
    task_id = create(server)
    own = server.listen(task_id, stream=StreamId(60), toolsListChanged=True)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    broken = attrs.evolve(row, revision=Revision(row.revision + 1), payload=b"nobody can read this")
    assert server.store.swap(broken)
    server.forget()
    foreign = server.listen(task_id, owner=STRANGER, stream=StreamId(61))
    assert foreign.agreed == {"taskIds": []}
    assert server.effects_of(Report) == []
    assert not own.ended


@pytest.mark.spec("S8", "S9")
def test_subscriptions_on_one_pipe_take_turns_when_there_is_little_room() -> None:
    limits = Limits(subscription_burst_bytes_max=2_000, progress_interval_ms=1)
    server = ServerHarness(
        ServerConfig(tools=[ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})], limits=limits),
        tools={"slow": lambda call: Defer()},
    )
    busy = [create(server) for _ in range(20)]
    last = create(server)
    server.listen(*busy)
    other = server.listen(last)
    for n in range(6):
        server.feed(StreamBlocked(STREAM))
        for task_id in busy:
            server.advance(2)
            server.progress(task_id, f"step {n}")
        if n == 0:
            server.complete(last, text_result())
        server.feed(StreamUnblocked(STREAM))
    assert other.statuses_of(last)[-1] == "completed"
    assert other.result is not None


# --- an engine that does not answer in order


class Replica:
    """An engine that answers as it is told to, however old that is."""

    def __init__(self) -> None:
        self.second, self.status, self.message = 0, "working", ""

    def __call__(self, ask: AskSource) -> SourceAnswered:
        state: dict[str, object] = {
            "taskId": "ext-1",
            "status": self.status,
            "createdAt": "2026-07-28T10:00:00Z",
            "lastUpdatedAt": f"2026-07-28T10:00:{self.second:02}Z",
            "ttlMs": None,
            "statusMessage": self.message,
        }
        if self.status == "completed":
            state["result"] = {"content": []}
        return SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.STATE, owner=LOCAL_OWNER, state=state)

    def says(self, server: ServerHarness, second: int, message: str, status: str = "working") -> None:
        self.second, self.status, self.message = second, status, message
        server.feed(TaskChanged(TaskId("ext-1")))


@pytest.mark.spec("S8")
def test_an_engine_that_falls_behind_itself_sends_nobody_back() -> None:
    replica = Replica()
    server = ServerHarness(ServerConfig(sources={"ext-": "engine"}), sources={"engine": replica})
    listening = server.listen("ext-1", toolsListChanged=True)
    for second, message in ((1, "one"), (5, "five"), (3, "three"), (5, "five"), (6, "six")):
        replica.says(server, second, message)
    assert [state["statusMessage"] for state in listening.states_of("ext-1")] == ["", "one", "five", "six"]


@pytest.mark.spec("S8", "D44")
def test_an_engine_that_goes_on_after_an_end_is_not_believed_and_what_was_told_is_not_told_again() -> None:
    replica = Replica()
    server = ServerHarness(ServerConfig(sources={"ext-": "engine"}), sources={"engine": replica})
    listening = server.listen("ext-1", toolsListChanged=True)
    server.feed(StreamBlocked(STREAM))
    replica.says(server, 1, "there and")
    replica.says(server, 1, "")
    replica.second = 0
    server.feed(StreamUnblocked(STREAM))
    replica.says(server, 2, "", "completed")
    replica.says(server, 3, "after the end")
    assert listening.statuses_of("ext-1")[-1] == "completed"
    assert [state["statusMessage"] for state in listening.states_of("ext-1")].count("after the end") == 0


def test_a_list_that_there_is_not_is_the_callers_mistake() -> None:
    server = bench()
    with pytest.raises(LocalProtocolError, match="a list is one of"):
        server.feed(ListChanged("tools"))  # type: ignore[arg-type]
