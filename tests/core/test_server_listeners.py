"""What listeners get after the beginning: changes from anywhere, slow readers, and how a subscription ends."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.access import LOCAL_OWNER, AccessRule, Owner
from mcp_tasks_core.identifiers import JSONObject, StreamId, TaskId
from mcp_tasks_core.lifecycle import Advance, Complete
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import AskSource, CutStream, LoadTask, Report
from mcp_tasks_core.server.events import (
    Deferral,
    ListChanged,
    ListKind,
    ResourceUpdated,
    ShutdownBegan,
    SourceAnswered,
    SourceAnswerKind,
    StreamBlocked,
    StreamEnding,
    StreamUnblocked,
    TaskChanged,
)
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, STREAM, Defer, ServerHarness, source_state
from mcp_tasks_core.testing.messages import text_result
from mcp_tasks_core.testing.processes import Processes

ALICE = Owner("acme", "alice")
LIMITS = Limits()
OWN = StreamId(50)
SLOW = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
FAMILIES = {"prompts": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}}


def bench(**config: Any) -> ServerHarness:
    sources = config.pop("scripts", None)
    told = {"tools": [SLOW], "capabilities": FAMILIES, "limits": Limits(progress_interval_ms=1), **config}
    tools = {"slow": lambda call: Defer(ttl_ms=3_600_000)}
    return ServerHarness(ServerConfig(**told), tools=tools, sources=sources)


def create(server: ServerHarness, owner: Owner = LOCAL_OWNER) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={}, owner=owner)["result"]["taskId"]
    return task_id


def step(server: ServerHarness, task_id: str, message: str) -> None:
    """One more observable state."""
    server.advance(2)
    server.progress(task_id, message)


# --- changes by others


@pytest.mark.spec("S8")
def test_a_hint_makes_the_server_look_and_tell_what_it_read() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.change_elsewhere(task_id, Complete(text_result()))
    assert listening.statuses_of(task_id) == ["working"]
    server.feed(TaskChanged(TaskId(task_id)))
    assert listening.statuses_of(task_id) == ["working", "completed"]
    assert listening.result is not None


@pytest.mark.spec("S8")
def test_a_lost_hint_is_repaired_within_the_reconcile_interval() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.advance(4_000)
    server.change_elsewhere(task_id, Complete(text_result()))
    server.advance(LIMITS.reconcile_interval_ms - 4_001)
    assert listening.statuses_of(task_id) == ["working"]
    server.advance(1)
    assert listening.statuses_of(task_id) == ["working", "completed"]


@pytest.mark.spec("S8")
def test_repeated_and_untrue_hints_say_nothing() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    for _ in range(10):
        server.feed(TaskChanged(TaskId(task_id)))
        server.feed(TaskChanged(TaskId("unknown")))
    assert listening.statuses_of(task_id) == ["working"]


@pytest.mark.spec("S8")
def test_a_hint_that_comes_while_the_store_is_asked_makes_it_ask_once_more() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.script(LoadTask, StoreFault.LATE)  # what is answered was read before the change
    server.feed(TaskChanged(TaskId(task_id)))
    server.change_elsewhere(task_id, Complete(text_result()))
    server.feed(TaskChanged(TaskId(task_id)))
    server.feed(TaskChanged(TaskId(task_id)))
    server.forget()
    server.release()
    assert listening.statuses_of(task_id) == ["working", "completed"]
    assert len(server.effects_of(LoadTask)) == 1


@pytest.mark.spec("S8")
def test_a_state_that_was_read_late_never_follows_a_newer_one() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.script(LoadTask, StoreFault.LATE)
    server.feed(TaskChanged(TaskId(task_id)))
    step(server, task_id, "newer")
    server.release()
    assert [state.get("statusMessage") for state in listening.states_of(task_id)] == [None, "newer"]


@pytest.mark.spec("S8")
def test_listeners_in_every_process_on_one_store_see_what_another_one_changes() -> None:
    machine = Processes(tools={"slow": lambda call: Defer()}, limits=Limits(progress_interval_ms=1))
    worker, listener = machine.start("worker"), machine.start("listener")
    machine.live(1_000)
    task_id = create(worker)
    listening = listener.listen(task_id)
    worker.progress(task_id, "from over there")
    machine.live(LIMITS.hint_interval_ms)
    assert listening.states_of(task_id)[-1]["statusMessage"] == "from over there"
    worker.complete(task_id, text_result())
    machine.live(LIMITS.hint_interval_ms)
    assert listening.statuses_of(task_id) == ["working", "working", "completed"]


@pytest.mark.spec("S8")
def test_a_store_that_fails_for_a_while_ends_no_subscription_and_delays_it_by_an_interval() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.change_elsewhere(task_id, Complete(text_result()))
    server.script(LoadTask, StoreFault.FAIL, StoreFault.DROPPED_LOST)
    server.feed(TaskChanged(TaskId(task_id)))
    server.advance(LIMITS.reconcile_interval_ms)
    assert not listening.ended
    server.advance(LIMITS.answer_wait_ms + LIMITS.reconcile_interval_ms)
    assert listening.statuses_of(task_id) == ["working", "completed"]


@pytest.mark.spec("S8")
def test_a_task_that_is_purged_under_its_listener_is_told_no_more_and_a_listen_of_it_alone_ends() -> None:
    server = bench()
    task_id = create(server)
    listening, mixed = server.listen(task_id), server.listen(task_id, toolsListChanged=True)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    assert server.store.delete(row.task_id, row.revision)
    server.advance(LIMITS.reconcile_interval_ms)
    assert listening.result is not None
    assert not mixed.ended
    assert server.protocol.watched_tasks == 0


@pytest.mark.spec("S8", "S10")
def test_a_task_that_takes_the_id_of_a_purged_one_is_another_task() -> None:
    claims = {"claim": lambda call: Defer(deferral=Deferral.CLAIM, task_id="job-1", ttl_ms=None)}
    server = ServerHarness(tools=claims)
    server.request("tools/call", name="claim", arguments={})
    for message in ("one", "two"):
        server.progress("job-1", message)
        server.advance(2_000)
    former = server.listen("job-1", stream=OWN)
    row = server.store.load(TaskId("job-1"))
    assert row is not None
    assert server.store.delete(row.task_id, row.revision)
    server.request("tools/call", name="claim", arguments={})
    listening = server.listen("job-1")
    assert former.result is not None
    assert former.states_of("job-1")[-1]["statusMessage"] == "two"
    assert "statusMessage" not in listening.states_of("job-1")[0]
    server.complete("job-1", text_result())
    assert listening.statuses_of("job-1") == ["working", "completed"]
    assert former.statuses_of("job-1") == ["working"]


@pytest.mark.spec("S8", "D9")
def test_a_task_whose_time_is_over_ends_for_its_listeners_too() -> None:
    server = bench(limits=Limits(subscription_duration_ms=7_200_000))
    task_id = create(server)
    listening = server.listen(task_id, own_stream=True, stream=OWN, toolsListChanged=True)
    server.advance(3_600_000)
    assert listening.statuses_of(task_id) == ["working", "failed"]
    assert listening.states_of(task_id)[-1]["error"]["data"] == {"reason": "expired"}


# --- an engine of the application's own


def engine_state(status: str, updated: str = "2026-07-28T10:00:00Z", **members: Any) -> JSONObject:
    created = "2026-07-28T10:00:00Z"
    state = {"taskId": "ext-1", "status": status, "createdAt": created, "lastUpdatedAt": updated, "ttlMs": None}
    return {**state, **members}


class Engine:
    """One task that changes behind the server's back."""

    def __init__(self) -> None:
        self.state = engine_state("working")
        self.owner = LOCAL_OWNER
        self.held = False
        self.asked: list[AskSource] = []

    def __call__(self, ask: AskSource) -> Any:
        self.asked.append(ask)
        return HELD if self.held else self.answer(ask)

    def answer(self, ask: AskSource) -> SourceAnswered:
        answered = source_state(self.owner, dict(self.state))(ask)
        assert isinstance(answered, SourceAnswered)
        return answered


@pytest.mark.spec("S4", "S8")
def test_an_engines_tasks_are_pushed_as_get_shows_them_when_it_hints_and_when_it_does_not() -> None:
    engine = Engine()
    server = bench(sources={"ext-": "engine"}, scripts={"engine": engine})
    listening = server.listen("ext-1")
    assert listening.agreed == {"taskIds": ["ext-1"]}
    engine.state = engine_state("working", "2026-07-28T10:00:01Z", statusMessage="hinted")
    server.feed(TaskChanged(TaskId("ext-1")))
    engine.state = engine_state("working", "2026-07-28T10:00:02Z", statusMessage="not hinted")
    server.advance(LIMITS.reconcile_interval_ms)
    server.feed(TaskChanged(TaskId("ext-1")))
    engine.state = engine_state("completed", "2026-07-28T10:00:03Z", result={"content": []})
    server.feed(TaskChanged(TaskId("ext-1")))
    pushed = listening.states_of("ext-1")
    assert [state.get("statusMessage") for state in pushed] == [None, "hinted", "not hinted", None]
    result = server.request("tasks/get", taskId="ext-1")["result"]
    assert pushed[-1] == {name: value for name, value in result.items() if name not in ("resultType", "_meta")}
    assert listening.result is not None


@pytest.mark.spec("S8")
def test_an_engine_is_asked_one_question_at_a_time_so_that_its_states_keep_their_order() -> None:
    engine = Engine()
    server = bench(sources={"ext-": "engine"}, scripts={"engine": engine})
    listening = server.listen("ext-1")
    engine.held, engine.asked = True, []
    server.feed(TaskChanged(TaskId("ext-1")))
    engine.state = engine_state("working", "2026-07-28T10:00:01Z", statusMessage="read first")
    read_first = engine.answer(engine.asked[0])
    engine.state = engine_state("working", "2026-07-28T10:00:02Z", statusMessage="read second")
    server.feed(TaskChanged(TaskId("ext-1")))
    late = server.listen("ext-1", stream=OWN)
    assert len(engine.asked) == 1
    server.feed(read_first)
    assert len(engine.asked) == 2
    assert late.messages == []
    server.feed(engine.answer(engine.asked[1]))
    assert [state.get("statusMessage") for state in listening.states_of("ext-1")] == [None, "read first", "read second"]
    assert [state.get("statusMessage") for state in late.states_of("ext-1")] == ["read second"]
    assert len(engine.asked) == 2


@pytest.mark.spec("S7", "A1")
def test_an_engines_foreign_unknown_and_broken_tasks_are_kept_apart() -> None:
    engine = Engine()
    engine.owner = ALICE
    server = bench(sources={"ext-": "engine"}, scripts={"engine": engine})
    assert server.listen("ext-1", "ext-2").agreed == {"taskIds": []}
    engine.state = {"taskId": "ext-1", "status": "nonsense"}
    assert server.listen("ext-1").agreed == {"taskIds": []}  # foreign: what it holds is nobody's business
    broken = server.listen("ext-1", owner=ALICE)
    assert broken.error is not None
    assert broken.error["code"] == -32603


@pytest.mark.spec("A1")
def test_an_engines_task_that_changes_hands_is_cut_off_from_its_former_owner() -> None:
    engine = Engine()
    server = bench(sources={"ext-": "engine"}, scripts={"engine": engine})
    listening = server.listen("ext-1", own_stream=True, stream=OWN)
    engine.owner = ALICE
    engine.state = engine_state("working", "2026-07-28T10:00:01Z", statusMessage="hers now")
    server.advance(LIMITS.reconcile_interval_ms)
    assert listening.cut
    assert [state.get("statusMessage") for state in listening.states_of("ext-1")] == [None]


@pytest.mark.spec("S8")
def test_an_engine_that_fails_ends_nothing() -> None:
    engine = Engine()
    server = bench(sources={"ext-": "engine"}, scripts={"engine": engine})
    listening = server.listen("ext-1")
    server.sources["engine"] = lambda ask: SourceAnswered(ticket=ask.ticket, kind=SourceAnswerKind.FAILED, reason="x")
    server.advance(LIMITS.reconcile_interval_ms)
    server.sources["engine"] = engine
    engine.state = engine_state("cancelled", "2026-07-28T10:00:03Z")
    server.advance(LIMITS.reconcile_interval_ms)
    assert listening.statuses_of("ext-1") == ["working", "cancelled"]


# --- losing access


@pytest.mark.spec("A1", "D22")
@pytest.mark.parametrize("own_stream", [True, False])
def test_losing_access_ends_the_subscription_at_the_next_reconcile_without_a_result(own_stream: bool) -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    kept = create(server)
    server.access = lambda ask: True
    listening = server.listen(task_id, kept, own_stream=own_stream, stream=OWN, toolsListChanged=True)
    other = server.listen(kept)
    server.access = lambda ask: ask.task_id == kept
    server.change_elsewhere(task_id, Advance("secret by now"))
    server.advance(LIMITS.reconcile_interval_ms)
    assert listening.result is None
    assert listening.cut is own_stream
    assert listening.cancelled is not own_stream
    assert all("statusMessage" not in state for state in listening.states_of(task_id))
    assert not other.ended
    told = len(listening.messages)
    server.complete(kept, text_result())
    server.feed(ListChanged(ListKind.TOOLS))
    assert len(listening.messages) == told
    assert other.statuses_of(kept) == ["working", "completed"]


@pytest.mark.spec("A1")
def test_no_decision_is_no_permission() -> None:
    server = bench(access=AccessRule.ASK)
    task_id = create(server)
    listening = server.listen(task_id, own_stream=True, stream=OWN)
    server.access = lambda ask: HELD
    server.advance(LIMITS.reconcile_interval_ms + LIMITS.answer_wait_ms)
    assert listening.cut


# --- readers that do not read


@pytest.mark.spec("S8", "S11", "D44")
def test_a_blocked_reader_gets_the_newest_state_of_each_task_and_every_end_once_it_reads_again() -> None:
    server = bench()
    first, second, third = create(server), create(server), create(server)
    listening = server.listen(first, second, third, toolsListChanged=True, resourceSubscriptions=["a:1"])
    healthy = server.listen(first, stream=OWN, own_stream=True)
    server.feed(StreamBlocked(STREAM))
    told = len(listening.messages)
    for n in range(1_000):
        step(server, first, f"step {n}")
        server.feed(ListChanged(ListKind.TOOLS))
        server.feed(ResourceUpdated("a:1"))
        server.feed(StreamBlocked(STREAM))
    server.complete(second, text_result())
    assert len(listening.messages) == told
    assert len(healthy.states_of(first)) == 1_001
    server.feed(StreamUnblocked(STREAM))
    assert sorted(listening.methods[told:]) == [
        "notifications/resources/updated",
        "notifications/tasks",
        "notifications/tasks",
        "notifications/tools/list_changed",
    ]
    assert listening.states_of(first)[-1]["statusMessage"] == "step 999"
    assert listening.statuses_of(second) == ["working", "completed"]
    step(server, third, "flows again")
    assert listening.states_of(third)[-1]["statusMessage"] == "flows again"


@pytest.mark.spec("S11", "D22")
@pytest.mark.parametrize("own_stream", [True, False])
def test_a_reader_that_takes_nothing_is_dropped_after_a_while_without_a_result(own_stream: bool) -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id, own_stream=own_stream, stream=OWN)
    healthy = server.listen(task_id)
    server.feed(StreamBlocked(OWN))
    step(server, task_id, "unseen")
    server.advance(LIMITS.slow_reader_ms - 3)
    assert not listening.ended
    server.advance(3)
    assert listening.result is None
    assert listening.cut is own_stream
    assert listening.cancelled is not own_stream
    assert len(server.effects_of(CutStream)) == own_stream
    assert any("took nothing" in report.message for report in server.effects_of(Report))
    server.feed(StreamUnblocked(OWN))
    server.complete(task_id, text_result())
    assert listening.statuses_of(task_id) == ["working"]
    assert healthy.statuses_of(task_id) == ["working", "working", "completed"]


@pytest.mark.spec("S11")
def test_a_reader_that_is_slow_and_takes_something_now_and_then_is_not_dropped() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id, own_stream=True, stream=OWN)
    server.feed(StreamBlocked(OWN))
    for _ in range(5):
        server.advance(LIMITS.slow_reader_ms - 1)
        server.feed(StreamBlocked(OWN, progressed=True))
    step(server, task_id, "unseen")
    assert listening.statuses_of(task_id) == ["working"]
    server.advance(LIMITS.slow_reader_ms - 1 - 2)
    assert not listening.ended
    server.advance(1)
    assert listening.cut


@pytest.mark.spec("S11")
def test_a_reader_that_catches_up_in_time_is_not_dropped() -> None:
    server = bench()
    listening = server.listen(create(server))
    for _ in range(5):
        server.feed(StreamBlocked(STREAM))
        server.advance(LIMITS.slow_reader_ms - 1)
        server.feed(StreamUnblocked(STREAM))
    assert not listening.ended


@pytest.mark.spec("S8", "S5")
def test_the_end_waits_for_what_a_blocked_reader_has_not_got_yet() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id, own_stream=True, stream=OWN)
    server.feed(StreamBlocked(OWN))
    server.complete(task_id, text_result())
    server.feed(ShutdownBegan())
    assert not listening.ended
    server.feed(StreamUnblocked(OWN))
    assert listening.statuses_of(task_id) == ["working", "completed"]
    assert listening.result is not None


@pytest.mark.spec("S11")
def test_a_stream_gets_so_many_bytes_in_one_go_and_the_rest_with_the_next_tick() -> None:
    server = bench(limits=Limits(subscription_burst_bytes_max=3_000))
    tasks = [create(server) for _ in range(50)]
    listening = server.listen(*tasks)
    told = len(listening.messages)
    assert 2 < told < 10
    server.advance(1)
    assert told < len(listening.messages) < 30
    for n in range(50):
        server.advance(1)
        assert listening.states_of(tasks[n])
    assert [listening.statuses_of(task_id) for task_id in tasks] == [["working"]] * 50
    assert server.protocol.deadline is not None
    assert server.protocol.deadline > server.now.monotonic_ms


@pytest.mark.spec("S11")
@pytest.mark.parametrize("own_stream", [True, False])
def test_a_state_that_is_larger_than_a_message_is_not_pushed_and_those_who_wait_for_it_are_sent_away(
    own_stream: bool,
) -> None:
    server = bench(limits=Limits(frame_bytes_max=2_000, result_bytes_max=10_000, progress_interval_ms=1))
    large, small = create(server), create(server)
    listening = server.listen(large, small, own_stream=own_stream, stream=OWN)
    other = server.listen(small)
    server.complete(large, text_result("x" * 5_000))
    assert listening.result is None
    assert listening.cut is own_stream
    assert listening.cancelled is not own_stream
    again = server.listen(large, small)
    assert again.agreed == {"taskIds": [small]}
    server.complete(small, text_result())
    assert other.statuses_of(small) == ["working", "completed"]
    assert server.protocol.watched_tasks == 0


# --- ends


@pytest.mark.spec("S5", "D20", "D22")
@pytest.mark.parametrize("own_stream", [True, False])
def test_the_end_of_the_last_task_ends_the_subscription_gracefully(own_stream: bool) -> None:
    server = bench()
    first, second = create(server), create(server)
    listening = server.listen(first, second, own_stream=own_stream, stream=OWN)
    server.complete(first, text_result())
    assert not listening.ended
    server.forget()
    server.complete(second, text_result())
    frames = [frame for frame in server.sent if frame.stream_id == OWN]
    assert [frame.final for frame in frames] == ([False, True] if own_stream else [False, True, False])
    assert listening.result is not None
    assert listening.result["resultType"] == "complete"
    assert listening.cancelled is not own_stream
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)
    assert not server.protocol.open_exchanges


@pytest.mark.spec("D20", "S5")
def test_tasks_that_have_ended_already_are_agreed_to_shown_once_and_end_the_listen() -> None:
    server = bench()
    done, going = create(server), create(server)
    server.complete(done, text_result())
    alone = server.listen(done)
    assert alone.agreed == {"taskIds": [done]}
    assert alone.statuses_of(done) == ["completed"]
    assert alone.result is not None
    beside = server.listen(done, going)
    assert beside.agreed == {"taskIds": [done, going]}
    assert not beside.ended
    with_base = server.listen(done, toolsListChanged=True)
    assert not with_base.ended


@pytest.mark.spec("S5")
@pytest.mark.parametrize("own_stream", [True, False])
def test_shutdown_ends_every_subscription_gracefully_and_later_ones_after_their_first_states(own_stream: bool) -> None:
    server = bench()
    task_id = create(server)
    base = server.listen(toolsListChanged=True, own_stream=own_stream, stream=StreamId(60))
    tasks = server.listen(task_id, own_stream=own_stream, stream=StreamId(61))
    server.feed(ShutdownBegan())
    for listening in (base, tasks):
        assert listening.result is not None
        assert listening.cancelled is not own_stream
    late = server.listen(task_id, own_stream=own_stream, stream=StreamId(62))
    assert late.statuses_of(task_id) == ["working"]
    assert late.result is not None
    assert server.request("tasks/get", taskId=task_id)["result"]["status"] == "working"


@pytest.mark.spec("S5")
def test_a_stream_that_is_about_to_end_takes_its_own_subscriptions_with_it_and_no_others() -> None:
    server = bench()
    task_id = create(server)
    here, there = server.listen(task_id, stream=OWN), server.listen(task_id)
    server.script(LoadTask, StoreFault.SLOW)
    opening = server.listen(task_id, stream=OWN)
    server.feed(StreamEnding(OWN))
    assert here.result is not None
    assert opening.messages == []
    server.release()
    assert opening.statuses_of(task_id) == ["working"]
    assert opening.result is not None
    assert not there.ended
    assert not server.listen(task_id, stream=StreamId(51)).ended


@pytest.mark.spec("S11", "S5")
def test_a_subscription_lasts_so_long_and_ends_gracefully() -> None:
    server = bench(limits=Limits(subscription_duration_ms=60_000))
    task_id = create(server)
    listening = server.listen(task_id)
    server.advance(1_000)
    later = server.listen(toolsListChanged=True)
    server.advance(58_999)
    assert not listening.ended
    server.advance(1)
    assert listening.result is not None
    assert not later.ended
    server.advance(1_000)
    assert later.result is not None


@pytest.mark.spec("S6")
@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_client_that_leaves_gets_nothing_more_and_its_task_is_untouched(leave: str) -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id, toolsListChanged=True, resourceSubscriptions=["a:1"])
    if leave == "cancel":
        server.cancel_request(listening.request_id)
    else:
        server.close_stream()
    server.forget()
    server.feed(ListChanged(ListKind.TOOLS))
    server.feed(ResourceUpdated("a:1"))
    step(server, task_id, "nobody listens")
    server.advance(2 * LIMITS.slow_reader_ms)
    assert server.sent == []
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)
    assert server.request("tasks/get", taskId=task_id, stream=OWN)["result"]["statusMessage"] == "nobody listens"


@pytest.mark.spec("S6")
@pytest.mark.parametrize("wrong", ["other", None, 1.0, True, ["7"], {}])
def test_a_cancellation_of_something_else_ends_no_subscription(wrong: Any) -> None:
    server = bench()
    listening = server.listen(toolsListChanged=True, id=1)
    server.cancel_request(wrong)
    server.feed(ListChanged(ListKind.TOOLS))
    assert len(listening.messages) == 2


# --- nothing stays


@pytest.mark.spec("S11", "S6")
@pytest.mark.parametrize("way", ["cancel", "close", "last task", "shutdown", "slow", "duration", "unknown", "refused"])
@pytest.mark.parametrize("own_stream", [True, False])
def test_a_thousand_listens_leave_nothing_behind_in_whatever_way_they_end(way: str, own_stream: bool) -> None:
    limits = Limits(subscriptions_per_stream_max=10_000, subscription_duration_ms=1_000, slow_reader_ms=500)
    server = bench(limits=limits)
    task_ids = [create(server) for _ in range(4)]
    listenings = []
    for n in range(1_000):
        stream = StreamId(1_000 + n) if own_stream else OWN
        asked: dict[str, Any] = {"toolsListChanged": True, "resourceSubscriptions": [f"a:{n}"]}
        watched = [task_ids[n % 4]]
        if way in ("last task", "unknown"):
            asked = {}
        if way == "unknown":
            watched = ["unknown"]
        if way == "refused":
            asked["taskIds"] = "nonsense"
            watched = []
        listenings.append(server.listen(*watched, own_stream=own_stream, stream=stream, **asked))
    assert server.protocol.open_subscriptions == (0 if way in ("unknown", "refused") else 1_000)
    for listening in listenings:
        if way == "cancel":
            server.cancel_request(listening.request_id, stream=listening.stream_id)
        elif way == "slow":
            server.feed(StreamBlocked(listening.stream_id))
    for stream_id in {listening.stream_id for listening in listenings}:
        if way == "close":
            server.close_stream(stream_id)
    if way == "last task":
        for task_id in task_ids:
            server.complete(task_id, text_result())
    elif way == "shutdown":
        server.feed(ShutdownBegan())
    elif way == "slow":
        server.advance(500)
    elif way == "duration":
        server.advance(1_000)
    assert all(listening.ended for listening in listenings) is (way not in ("cancel", "close"))
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)
    assert server.protocol.open_exchanges == []
    assert server.protocol.open_tickets == 0
    assert server.protocol._subscriptions.deadline_ms is None
