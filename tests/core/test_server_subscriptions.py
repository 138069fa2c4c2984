"""subscriptions/listen: what is agreed to, what is told first, and what may be asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_tasks_core.access import LOCAL_OWNER, AccessRule, Owner
from mcp_tasks_core.identifiers import JSONObject, StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Authorize, LoadTask
from mcp_tasks_core.server.events import ListChanged, ListKind, ResourceUpdated, ToolsReplaced
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, STREAM, Defer, ServerHarness
from mcp_tasks_core.testing.listening import Listening
from mcp_tasks_core.testing.messages import accepted, form_question, text_result

ALICE, BOB = Owner("acme", "alice"), Owner("acme", "bob")
FAMILIES = {"prompts": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}}
SLOW = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


def bench(**config: Any) -> ServerHarness:
    config = {"tools": [SLOW], "capabilities": FAMILIES, **config}
    return ServerHarness(ServerConfig(**config), tools={"slow": lambda call: Defer(ttl_ms=3_600_000)})


def create(server: ServerHarness, owner: Owner = LOCAL_OWNER) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={}, owner=owner)["result"]["taskId"]
    return task_id


def shown(server: ServerHarness, task_id: str, owner: Owner = LOCAL_OWNER) -> JSONObject:
    """What tasks/get says of a task now, as a notification has it."""
    result: JSONObject = server.request("tasks/get", taskId=task_id, owner=owner)["result"]
    return {name: value for name, value in result.items() if name not in ("resultType", "_meta")}


# --- the acknowledgement, and the first states


@pytest.mark.spec("S1", "S2", "S8", "D21")
def test_the_acknowledgement_comes_first_and_the_newest_state_of_each_task_right_after_it() -> None:
    server = bench()
    first, second = create(server), create(server)
    server.progress(second, "half way")
    server.forget()
    listening = server.listen(second, first)
    assert [frame.final for frame in server.sent] == [False, False, False]
    assert listening.methods == ["notifications/subscriptions/acknowledged"] + ["notifications/tasks"] * 2
    assert listening.agreed == {"taskIds": [second, first]}
    assert [message["params"]["taskId"] for message in listening.messages[1:]] == [second, first]
    assert listening.states_of(second)[0]["statusMessage"] == "half way"


@pytest.mark.spec("S2")
@pytest.mark.parametrize("request_id", [7, "7", "ünï", 2**60, "", -1])
def test_every_message_carries_the_id_of_the_listen_with_its_json_type(request_id: str | int) -> None:
    server = bench()
    task_id = create(server)
    server.forget()
    listening = server.listen(task_id, id=request_id, toolsListChanged=True, resourceSubscriptions=["a:b"])
    for kind in ListKind:
        server.feed(ListChanged(kind))
    server.feed(ResourceUpdated("a:b"))
    server.complete(task_id, text_result())
    raw = [b"".join(frame.payload) for frame in server.sent]
    assert len(raw) == len(listening.messages) == 5
    for message in map(json.loads, raw):
        found = message["params"]["_meta"][SUBSCRIPTION_ID]
        assert (type(found), found) == (type(request_id), request_id)


@pytest.mark.spec("S4", "S10", "S8")
def test_what_is_pushed_is_what_get_returns_at_that_moment_through_a_whole_life() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    assert listening.states_of(task_id)[-1] == shown(server, task_id)
    server.progress(task_id, "working on it")
    assert listening.states_of(task_id)[-1] == shown(server, task_id)
    server.ask(task_id, "colour", form_question())
    assert listening.states_of(task_id)[-1] == shown(server, task_id)
    assert "colour" in listening.states_of(task_id)[-1]["inputRequests"]
    server.request("tasks/update", taskId=task_id, inputResponses={"colour": accepted(value="red")})
    assert listening.states_of(task_id)[-1] == shown(server, task_id)
    server.complete(task_id, text_result("done"))
    assert listening.states_of(task_id)[-1] == shown(server, task_id)
    assert listening.statuses_of(task_id) == ["working", "working", "input_required", "working", "completed"]


@pytest.mark.spec("S10", "D27")
def test_a_listener_sees_all_questions_whatever_it_declares_itself() -> None:
    server = bench()
    task_id = create(server)
    server.ask(task_id, "colour", form_question())
    listening = server.expect(Listening(99, STREAM, {"taskIds": [task_id]}))
    server.begin("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}, id=99, capabilities={})
    assert "colour" in listening.states_of(task_id)[0]["inputRequests"]


@pytest.mark.spec("S4")
def test_progress_and_log_messages_never_travel_on_a_subscription() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    for step in range(5):
        server.progress(task_id, f"step {step}")
        server.advance(2_000)
    assert set(listening.methods) == {"notifications/subscriptions/acknowledged", "notifications/tasks"}
    assert {frame["method"] for frame in server.frames if "method" in frame} == set(listening.methods)


@pytest.mark.spec("D44", "S8")
def test_a_change_that_shows_nothing_new_is_not_sent_again() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id)
    server.request("tasks/cancel", taskId=task_id)
    told = len(listening.messages)
    server.request("tasks/cancel", taskId=task_id)
    assert len(listening.messages) == told


# --- what is agreed to


@pytest.mark.spec("S1", "S9")
def test_the_agreed_filter_holds_what_was_asked_for_and_is_advertised() -> None:
    asked = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
    asked_uris = {"resourceSubscriptions": ["file:///a", "file:///b", "file:///a"]}
    everything = bench().listen(**asked, **asked_uris)
    assert everything.agreed == {**asked, "resourceSubscriptions": ["file:///a", "file:///b"]}
    some = bench(capabilities={"prompts": {}, "resources": {"listChanged": True}}).listen(**asked, **asked_uris)
    assert some.agreed == {"toolsListChanged": True, "resourcesListChanged": True}
    none = bench(tools=None, capabilities={}).listen(**asked, **asked_uris)
    assert none.agreed == {}


@pytest.mark.spec("S1")
def test_what_is_asked_for_with_false_is_not_asked_for() -> None:
    listening = bench().listen(toolsListChanged=False, promptsListChanged=True)
    assert listening.agreed == {"promptsListChanged": True}


@pytest.mark.spec("S1", "S5", "D19")
@pytest.mark.parametrize(
    "asked", [{}, {"toolsListChanged": False}, {"somethingElse": True}, {"taskIds": ["no-such-task"]}, {"taskIds": []}]
)
@pytest.mark.parametrize("own_stream", [True, False])
def test_a_listen_of_which_nothing_can_be_honoured_is_acknowledged_and_ends(
    asked: JSONObject, own_stream: bool
) -> None:
    server = bench()
    listening = server.listen(own_stream=own_stream, **asked)
    assert listening.agreed == ({"taskIds": []} if "taskIds" in asked else {})
    assert listening.result is not None
    assert listening.cancelled is not own_stream
    assert server.protocol.open_subscriptions == 0
    assert not server.protocol.open_exchanges


@pytest.mark.spec("D25", "S3")
@pytest.mark.parametrize("declares", [True, False])
def test_a_server_without_tasks_leaves_task_ids_out_and_blames_nobody(declares: bool) -> None:
    server = bench(tasks=False)
    listening = server.listen("t", declare_tasks=declares, toolsListChanged=True)
    assert listening.agreed == {"toolsListChanged": True}
    assert not listening.ended


@pytest.mark.spec("S3", "N7")
@pytest.mark.parametrize("task_ids", [["t"], []])
def test_task_ids_need_the_extension_and_no_stream_comes_of_them_without_it(task_ids: list[str]) -> None:
    server = bench()
    listening = server.listen(declare_tasks=False, taskIds=task_ids, toolsListChanged=True)
    assert listening.error is not None
    assert listening.error["code"] == -32021
    assert listening.error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    assert server.protocol.open_subscriptions == 0
    assert server.listen(declare_tasks=False, toolsListChanged=True).agreed == {"toolsListChanged": True}


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({}, "params.notifications"),
        ({"notifications": []}, "params.notifications"),
        ({"notifications": None}, "params.notifications"),
        ({"notifications": {"toolsListChanged": "yes"}}, "params.notifications.toolsListChanged"),
        ({"notifications": {"promptsListChanged": 1}}, "params.notifications.promptsListChanged"),
        ({"notifications": {"taskIds": "t"}}, "params.notifications.taskIds"),
        ({"notifications": {"taskIds": None}}, "params.notifications.taskIds"),
        ({"notifications": {"taskIds": ["a", 1]}}, "params.notifications.taskIds[1]"),
        ({"notifications": {"resourceSubscriptions": [None]}}, "params.notifications.resourceSubscriptions[0]"),
    ],
)
@pytest.mark.spec("S1")
def test_params_that_are_none_get_an_error_that_names_the_place(params: JSONObject, place: str) -> None:
    server = bench()
    error = server.request("subscriptions/listen", params)["error"]
    assert error["code"] == -32602
    assert place in error["message"]
    assert server.protocol.open_subscriptions == 0


# --- whose tasks


@pytest.mark.spec("S7", "A1", "D19")
def test_foreign_unknown_and_expired_ids_look_alike_and_the_rest_keeps_its_order() -> None:
    server = bench()
    mine, other, hers = create(server, ALICE), create(server, ALICE), create(server, BOB)
    listening = server.listen(other, hers, "unknown", "x" * 5_000, mine, owner=ALICE)
    assert listening.agreed == {"taskIds": [other, mine]}
    server.complete(hers, text_result("secret"))
    server.advance(30_000)
    assert listening.states_of(hers) == []
    assert all("secret" not in json.dumps(message) for message in listening.messages)
    only_foreign, only_unknown = server.listen(hers, owner=ALICE), server.listen("unknown", owner=ALICE)

    def without_id(listening: Listening) -> str:
        return json.dumps(listening.messages).replace(f": {listening.request_id}", ": ID")

    assert without_id(only_foreign) == without_id(only_unknown)


@pytest.mark.spec("S7", "A1")
def test_a_foreign_task_is_not_even_looked_into() -> None:
    server = bench()
    hers = create(server, BOB)
    row = server.store.load(hers)  # type: ignore[arg-type]
    assert isinstance(row, StoredTask)
    unreadable = ServerHarness(ServerConfig(tools=[SLOW]), tools={"slow": lambda call: Defer()})
    broken = StoredTask(
        task_id=row.task_id,
        owner=row.owner,
        status=row.status,
        revision=row.revision,
        due_at_ms=row.due_at_ms,
        executor=row.executor,
        payload=b"nobody can read this",
    )
    assert unreadable.store.create(broken)
    foreign, unknown = unreadable.listen(hers, owner=ALICE), unreadable.listen("unknown", owner=ALICE)
    assert foreign.agreed == unknown.agreed == {"taskIds": []}
    assert len(unreadable.effects_of(LoadTask)) == 2
    assert unreadable.request("tasks/get", taskId=hers, owner=ALICE)["error"]["message"] == "Task not found"


@pytest.mark.spec("S7", "A1")
def test_an_owner_is_served_though_somebody_else_asked_for_the_same_task_first() -> None:
    server = bench()
    mine = create(server, ALICE)
    server.script(LoadTask, StoreFault.SLOW)
    foreign = server.listen(mine, owner=BOB, stream=StreamId(2))
    own = server.listen(mine, owner=ALICE, stream=StreamId(3))
    server.release()
    assert foreign.agreed == {"taskIds": []}
    assert foreign.states_of(mine) == []
    assert own.agreed == {"taskIds": [mine]}
    assert own.statuses_of(mine) == ["working"]


@pytest.mark.spec("A1", "S7")
def test_where_the_application_decides_it_is_asked_for_each_task_and_denied_looks_unknown() -> None:
    server = bench(access=AccessRule.ASK)
    one, two = create(server, ALICE), create(server, ALICE)
    server.access = lambda ask: ask.task_id == one
    listening = server.listen(one, two, "unknown", owner=BOB)
    assert listening.agreed == {"taskIds": [one]}
    asked = server.effects_of(Authorize)
    assert [(ask.caller, ask.owner, ask.access.value) for ask in asked] == [(BOB, ALICE, "read")] * 2


@pytest.mark.spec("S1", "A1")
def test_nothing_is_told_before_the_application_has_decided_on_every_task() -> None:
    server = bench(access=AccessRule.ASK)
    one, two = create(server), create(server)
    server.access = lambda ask: True if ask.task_id == one else HELD
    listening = server.listen(one, two)
    assert listening.messages == []
    server.advance(29_000)
    assert listening.messages == []
    server.advance(1_000)
    assert listening.error is not None
    assert listening.error["code"] == -32603
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)


# --- the store while a subscription is opened


@pytest.mark.spec("S8")
def test_store_trouble_refuses_the_listen_with_a_retryable_error() -> None:
    server = bench()
    task_id = create(server)
    server.script(LoadTask, None, StoreFault.FAIL)
    listening = server.listen("unknown", task_id)
    assert listening.error is not None
    assert (listening.error["code"], listening.error["data"]["retryable"]) == (-32603, True)
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)
    assert server.listen(task_id).agreed == {"taskIds": [task_id]}


@pytest.mark.spec("S8", "D21")
def test_a_change_that_is_stored_while_the_task_is_looked_for_is_what_is_told_first() -> None:
    server = bench()
    task_id = create(server)
    server.script(LoadTask, StoreFault.LATE)  # the answer is what was there before the change
    listening = server.listen(task_id)
    server.complete(task_id, text_result())
    assert listening.messages == []
    server.release()
    assert listening.statuses_of(task_id) == ["completed"]
    assert listening.result is not None


@pytest.mark.spec("S6", "D41")
@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_a_client_that_leaves_while_its_tasks_are_looked_for_gets_nothing_more(leave: str) -> None:
    server = bench()
    task_id = create(server)
    server.script(LoadTask, StoreFault.SLOW, StoreFault.SLOW)
    listening = server.listen(task_id, "unknown")
    if leave == "cancel":
        server.cancel_request(listening.request_id)
    else:
        server.close_stream()
    server.release()
    server.release()
    assert listening.messages == []
    assert (server.protocol.open_subscriptions, server.protocol.watched_tasks) == (0, 0)


# --- base notifications


@pytest.mark.spec("S9", "S1")
def test_list_changes_and_resource_updates_go_to_whoever_asked_for_them() -> None:
    server = bench()
    tools = server.listen(toolsListChanged=True, stream=StreamId(1))
    prompts = server.listen(promptsListChanged=True, stream=StreamId(2))
    both = server.listen(resourcesListChanged=True, resourceSubscriptions=["a:1", "a:2"], stream=StreamId(3))
    for kind in ListKind:
        server.feed(ListChanged(kind))
    for uri in ("a:1", "a:3", "a:11", "A:1"):
        server.feed(ResourceUpdated(uri))
    assert tools.methods[1:] == ["notifications/tools/list_changed"]
    assert prompts.methods[1:] == ["notifications/prompts/list_changed"]
    assert both.methods[1:] == ["notifications/resources/list_changed", "notifications/resources/updated"]
    assert both.messages[-1]["params"]["uri"] == "a:1"


@pytest.mark.spec("S9", "A1")
def test_an_announcement_for_one_owner_reaches_that_owner_alone() -> None:
    server = bench()
    alice = server.listen(owner=ALICE, toolsListChanged=True, resourceSubscriptions=["a:1"], stream=StreamId(1))
    bob = server.listen(owner=BOB, toolsListChanged=True, resourceSubscriptions=["a:1"], stream=StreamId(2))
    server.feed(ListChanged(ListKind.TOOLS, ALICE))
    server.feed(ResourceUpdated("a:1", BOB))
    assert alice.methods[1:] == ["notifications/tools/list_changed"]
    assert bob.methods[1:] == ["notifications/resources/updated"]


@pytest.mark.spec("S9")
def test_another_catalogue_of_tools_is_announced() -> None:
    server = bench()
    listening = server.listen(toolsListChanged=True)
    server.feed(ToolsReplaced([]))
    assert listening.methods[1:] == ["notifications/tools/list_changed"]


@pytest.mark.spec("S9")
def test_tasks_and_base_notifications_mix_in_one_listen_which_outlives_its_tasks() -> None:
    server = bench()
    task_id = create(server)
    listening = server.listen(task_id, promptsListChanged=True)
    server.complete(task_id, text_result())
    server.feed(ListChanged(ListKind.PROMPTS))
    assert not listening.ended
    assert listening.methods[-1] == "notifications/prompts/list_changed"
    assert server.protocol.watched_tasks == 0


@pytest.mark.spec("S9", "S2", "D41")
def test_many_subscriptions_on_one_channel_are_kept_apart_by_their_ids() -> None:
    server = bench()
    tasks = [create(server) for _ in range(20)]
    listenings = [server.listen(task_id, id=str(n) if n % 2 else n) for n, task_id in enumerate(tasks, start=1_000)]
    for task_id in tasks:
        server.complete(task_id, text_result())
    for listening, task_id in zip(listenings, tasks, strict=True):
        assert listening.statuses_of(task_id) == ["working", "completed"]
        assert listening.result is not None
        assert listening.cancelled
    twins = server.listen(toolsListChanged=True, id=5), server.listen(promptsListChanged=True, id="5")
    server.feed(ListChanged(ListKind.TOOLS))
    assert [len(twin.messages) for twin in twins] == [2, 1]


@pytest.mark.spec("S9")
def test_the_id_of_an_open_listen_cannot_be_used_again_and_that_of_an_ended_one_can() -> None:
    server = bench()
    server.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=7)
    assert server.request("tools/list", id=7)["error"]["code"] == -32600
    server.cancel_request(7)
    assert server.request("tools/list", id=7)["result"]["tools"]


# --- bounds


@pytest.mark.spec("S11")
def test_a_listen_may_ask_for_so_many_ids_and_uris_and_no_more() -> None:
    server = bench(limits=Limits(subscription_tasks_max=3, subscription_resources_max=2, resource_uri_chars_max=5))
    listening = server.listen("a", "b", "c", resourceSubscriptions=["x:123", "y:123"])
    assert listening.agreed == {"taskIds": [], "resourceSubscriptions": ["x:123", "y:123"]}
    for asked, place in (
        ({"taskIds": ["a", "b", "c", "d"]}, "params.notifications.taskIds: at most 3 in one listen, not 4"),
        ({"resourceSubscriptions": ["a", "b", "c"]}, "resourceSubscriptions: at most 2 in one listen, not 3"),
        ({"resourceSubscriptions": ["a", "x:1234"]}, "resourceSubscriptions[1]: at most 5 characters, not 6"),
    ):
        error = server.request("subscriptions/listen", notifications=asked)["error"]
        assert error["code"] == -32602
        assert place in error["message"]


@pytest.mark.spec("S11")
def test_a_channel_may_have_so_many_subscriptions_and_one_more_when_one_has_ended() -> None:
    server = bench(limits=Limits(subscriptions_per_stream_max=2))
    first = server.listen(toolsListChanged=True)
    server.listen(toolsListChanged=True)
    refused = server.listen(toolsListChanged=True)
    assert refused.error is not None
    assert (refused.error["code"], refused.error["data"]["retryable"]) == (-32603, True)
    assert not server.listen(toolsListChanged=True, stream=StreamId(2)).ended
    server.cancel_request(first.request_id)
    assert not server.listen(toolsListChanged=True).ended


@pytest.mark.spec("S11")
def test_an_owner_may_have_so_many_subscriptions_and_watched_tasks_over_all_streams() -> None:
    server = bench(limits=Limits(subscriptions_per_owner_max=2, subscribed_tasks_per_owner_max=3))
    task_id = create(server, ALICE)

    def listen(stream: int, *task_ids: str, owner: Owner = ALICE) -> Listening:
        return server.listen(*task_ids, owner=owner, stream=StreamId(stream), toolsListChanged=True)

    assert not listen(1, task_id, "unknown").ended
    assert listen(2, task_id, "unknown").error is not None
    assert not listen(3, task_id).ended
    assert listen(4).error is not None
    assert not listen(5, owner=BOB).ended
    server.close_stream(StreamId(1))
    assert not listen(6, task_id).ended


@pytest.mark.spec("S11")
def test_what_was_counted_for_an_owner_is_given_back_however_a_listen_ends() -> None:
    server = bench(limits=Limits(subscriptions_per_owner_max=1, subscribed_tasks_per_owner_max=1))
    for _ in range(3):
        task_id = create(server)
        ended = server.listen("unknown")
        assert ended.result is not None
        listening = server.listen(task_id)
        server.complete(task_id, text_result())
        assert listening.result is not None
        server.script(LoadTask, StoreFault.FAIL)
        assert server.listen(task_id).error is not None
        cancelled = server.listen(toolsListChanged=True)
        assert not cancelled.ended
        server.cancel_request(cancelled.request_id)
