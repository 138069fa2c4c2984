"""tasks/get, tasks/update and tasks/cancel on managed records: answers, races, and a store that fails."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, JSONObject, StreamId, TaskId
from mcp_tasks_core.lifecycle import Answer, Cancel, Complete, Fail
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import (
    DeliverInput,
    LoadTask,
    PublishChange,
    RefuseInput,
    Report,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import InputWithdrawn, WorkCompleted, WorkStopped
from mcp_tasks_core.store import MemoryTaskStore
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness, decoded
from mcp_tasks_core.testing.messages import (
    accepted,
    form_question,
    roots_question,
    sampling_question,
    text_result,
    url_question,
)

OWNER, OTHER = Owner("a", "s"), Owner("b", "s")
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


def bench(**config: Any) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    tools = {"slow": lambda call: Defer()}
    return ServerHarness(ServerConfig(tools=[entry], **config), tools=tools)


def create(server: ServerHarness, *questions: str, owner: Owner = OWNER, **options: Any) -> str:
    """A working task of that owner that has asked these questions."""
    task_id: str = server.request("tools/call", name="slow", arguments={}, owner=owner, **options)["result"]["taskId"]
    for key in questions:
        server.ask(task_id, key, form_question(key))
    server.forget()
    return task_id


def ask_method(server: ServerHarness, method: str, task_id: Any, owner: Owner = OWNER, **options: Any) -> JSONObject:
    extra = {"inputResponses": {}} if method == "tasks/update" else {}
    return server.request(method, {"taskId": task_id, **extra}, owner=owner, **options)


def get(server: ServerHarness, task_id: str, owner: Owner = OWNER) -> Any:
    return ask_method(server, "tasks/get", task_id, owner)["result"]


def update(server: ServerHarness, task_id: str, responses: Any, **options: Any) -> JSONObject:
    return server.request("tasks/update", taskId=task_id, inputResponses=responses, owner=OWNER, **options)


def end(server: ServerHarness, task_id: str, status: str) -> None:
    if status == "completed":
        server.complete(task_id, text_result())
    elif status == "failed":
        server.fail(task_id, 5, "broken", {"a": 1})
    else:
        server.feed(WorkCompleted(TaskId(task_id), WorkStopped("stopped")))


def is_acknowledged(answer: JSONObject) -> bool:
    return bool(answer.get("result") == {"resultType": "complete"})


# --- who gets to see a task


def same_but_for_the_id(server: ServerHarness, method: str, task_ids: list[str]) -> set[bytes]:
    answers = set()
    for task_id in task_ids:
        server.sent.clear()
        ask_method(server, method, task_id, OTHER, id=1)
        (frame,) = server.sent
        answers.add(b"".join(frame.payload))
    return answers


@pytest.mark.spec("G3", "D5", "A1", "A2")
@pytest.mark.parametrize("method", METHODS)
def test_unknown_gone_and_foreign_tasks_get_one_and_the_same_answer_byte_for_byte(method: str) -> None:
    server = bench()
    foreign, waiting, ended, tombstone = (create(server, *keys) for keys in ((), ("q",), (), ()))
    end(server, ended, "completed")
    end(server, tombstone, "failed")
    server.advance(3_600_000 + 60_000 + 1_000)
    foreign, waiting, ended = create(server), create(server, "q"), create(server)
    end(server, ended, "completed")
    gone = ["", "x", "unknown", "Ä", "x" * 1024, "x" * 1025, "x" * 100_000, foreign[:-1], foreign + "x"]
    answers = same_but_for_the_id(server, method, [foreign, waiting, ended, tombstone, *gone])
    assert answers == {b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'}


@pytest.mark.spec("A1", "A2")
@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_caller_changes_nothing_and_learns_nothing_from_its_effects(method: str) -> None:
    server = bench()
    task_id = create(server, "q")
    before = server.store.load(TaskId(task_id))
    ask_method(server, method, task_id, OTHER)
    foreign = [type(effect) for effect in server.effects]
    server.forget()
    ask_method(server, method, "unknown", OTHER)
    assert foreign == [type(effect) for effect in server.effects]
    assert server.store.load(TaskId(task_id)) == before


@pytest.mark.spec("A1")
def test_the_owner_comes_from_the_transport_and_from_nothing_in_the_message() -> None:
    server = bench()
    task_id = create(server)
    claims = {"owner": ["a", "s"], "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "s"}, "subject": "s"}
    refused = server.request("tasks/get", {"taskId": task_id, "owner": "a"}, owner=OTHER, meta=claims)
    assert refused["error"]["message"] == "Task not found"


@pytest.mark.spec("A1", "G3")
def test_a_task_is_found_by_its_id_alone_on_any_stream() -> None:
    server = bench()
    task_id = create(server)
    answer = ask_method(server, "tasks/get", task_id, stream=StreamId(77))
    assert answer["result"]["taskId"] == task_id


@pytest.mark.spec("B7")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("task_id", [None, 5, True, [], {}, 1.5])
def test_a_task_id_that_is_no_string_is_bad_params(method: str, task_id: Any) -> None:
    server = bench()
    error = ask_method(server, method, task_id)["error"]
    assert (error["code"], "params.taskId" in error["message"]) == (-32602, True)
    assert server.request(method, inputResponses={})["error"]["code"] == -32602
    assert not server.effects_of(LoadTask)


# --- tasks/get


@pytest.mark.spec("G1", "T2", "D1", "D3", "D12")
def test_every_status_shows_its_own_payload_and_no_other() -> None:
    server = bench()
    common = {"resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"}
    task_id = create(server)
    assert set(get(server, task_id)) == common
    server.ask(task_id, "q", form_question())
    shown = get(server, task_id)
    assert (set(shown), shown["status"]) == (common | {"inputRequests"}, "input_required")
    assert shown["inputRequests"] == {"q": form_question()}
    update(server, task_id, {"q": accepted(value="x")})
    assert (set(get(server, task_id)), get(server, task_id)["status"]) == (common, "working")
    for status, payload in (("completed", {"result"}), ("failed", {"error", "statusMessage"})):
        task_id = create(server, "q")
        end(server, task_id, status)
        shown = get(server, task_id)
        assert (set(shown), shown["status"], shown["resultType"]) == (common | payload, status, "complete")
    assert shown["error"] == {"code": 5, "message": "broken", "data": {"a": 1}}
    task_id = create(server, "q")
    end(server, task_id, "cancelled")
    assert (set(get(server, task_id)), get(server, task_id)["status"]) == (common | {"statusMessage"}, "cancelled")


@pytest.mark.spec("G2")
def test_outstanding_questions_are_the_same_on_every_poll_until_they_are_answered() -> None:
    server = bench()
    task_id = create(server, "b", "a", "c")
    first = get(server, task_id)["inputRequests"]
    assert list(first) == ["b", "a", "c"]
    for _ in range(3):
        assert get(server, task_id)["inputRequests"] == first
    update(server, task_id, {"a": accepted(value="x")})
    assert get(server, task_id)["inputRequests"] == {"b": first["b"], "c": first["c"]}


@pytest.mark.spec("D27", "G2", "N4")
def test_a_poller_that_declares_less_sees_every_outstanding_question_all_the_same() -> None:
    server = bench()
    task_id = create(server, "q")
    shown = server.request("tasks/get", taskId=task_id, owner=OWNER, capabilities={})["result"]
    assert shown["inputRequests"] == {"q": form_question("q")}


@pytest.mark.spec("T2", "D1")
def test_a_completed_task_holds_what_the_plain_call_would_have_returned() -> None:
    server = bench()
    given: JSONObject = {
        "content": [{"type": "text", "text": "ω"}],
        "structuredContent": {"n": 2**64, "x": None, "f": 1.5},
        "isError": True,
        "_meta": {"own": 1},
    }
    task_id = create(server)
    server.complete(task_id, given)
    assert get(server, task_id)["result"] == {**given, "resultType": "complete"}
    assert get(server, task_id)["status"] == "completed"


@pytest.mark.spec("T2", "B5", "D31")
@pytest.mark.parametrize(
    ("code", "shown"), [(5, 5), (-32603, -32603), (-32000, -32603), (-32042, -32603), (1.5, -32603)]
)
def test_a_failed_task_holds_an_error_whose_code_may_be_sent(code: Any, shown: int) -> None:
    server = bench()
    task_id = create(server)
    server.fail(task_id, code, "why")
    state = get(server, task_id)
    assert (state["status"], state["error"]["code"]) == ("failed", shown)
    assert state["statusMessage"] == state["error"]["message"]


@pytest.mark.spec("T2")
def test_a_status_message_of_an_end_is_cut_and_its_error_is_not() -> None:
    server = bench()
    for length, kept in ((1_000, 1_000), (1_001, 1_000)):
        task_id = create(server)
        server.fail(task_id, 5, "x" * length)
        shown = get(server, task_id)
        assert (len(shown["statusMessage"]), len(shown["error"]["message"])) == (kept, length)


@pytest.mark.spec("C9", "B10", "T2")
@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "task", "taskId": "t", "content": []},
        {"resultType": "input_required", "inputRequests": {}},
        {"content": "x"},
        {},
        None,
        {"content": [], "structuredContent": float("nan")},
        {"content": [{"type": "text", "text": "\ud800"}]},
        {"content": [], "structuredContent": {5: 1}},
    ],
)
def test_a_result_that_may_not_be_sent_fails_the_task(result: Any) -> None:
    server = bench()
    task_id = create(server)
    server.complete(task_id, result)
    state = get(server, task_id)
    assert (state["status"], state["error"]["code"]) == ("failed", -32603)
    assert len(server.effects_of(Report)) == 1


@pytest.mark.spec("T2", "B10")
def test_error_data_that_is_not_json_fails_the_task_without_it() -> None:
    server = bench()
    task_id = create(server)
    server.fail(task_id, 5, "why", {"x": float("nan")})
    server.advance(1)
    assert get(server, task_id)["error"] == {"code": -32603, "message": "Internal error"}


@pytest.mark.spec("D15", "D44")
def test_reading_changes_nothing() -> None:
    server = bench()
    task_id = create(server, "q")
    before = server.store.load(TaskId(task_id))
    for _ in range(5):
        get(server, task_id)
    assert server.store.load(TaskId(task_id)) == before
    assert not server.effects_of(StoreTask)


@pytest.mark.spec("G1", "D31")
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.UNCERTAIN_LOST, StoreFault.DROPPED_LOST])
def test_a_store_that_cannot_read_is_an_internal_error_and_no_missing_task(fault: StoreFault) -> None:
    server = bench()
    task_id = create(server)
    for method in METHODS:
        server.script(LoadTask, fault)
        extra = {"inputResponses": {}} if method == "tasks/update" else {}
        request_id = server.begin(method, {"taskId": task_id, **extra}, owner=OWNER)
        server.advance(Limits().answer_wait_ms)
        (answer,) = server.answers_to(request_id)
        assert (answer["error"]["code"], answer["error"]["data"]["retryable"]) == (-32603, True)
    assert get(server, task_id)["status"] == "working"


def test_a_record_that_cannot_be_read_is_an_internal_error_and_a_line_in_the_log() -> None:
    server = bench()
    task_id = create(server)
    row = server.store.load(TaskId(task_id))
    assert row is not None
    assert isinstance(server.store, MemoryTaskStore)
    server.store._rows[TaskId(task_id)] = attrs.evolve(row, payload=b"{}")
    for method in METHODS:
        assert ask_method(server, method, task_id)["error"]["code"] == -32603
    assert server.effects_of(Report)


def test_an_unchanged_state_is_encoded_once_and_a_changed_one_anew() -> None:
    server = bench()
    task_id = create(server)
    for _ in range(2):
        get(server, task_id)
    first, second = (frame.payload[3] for frame in server.sent)
    assert first is second
    server.progress(task_id, "half")
    get(server, task_id)
    assert json.loads(server.sent[-1].payload[3])["statusMessage"] == "half"


def test_a_core_that_may_keep_few_states_serves_all_tasks() -> None:
    server = bench(limits=Limits(cached_states_max=2))
    tasks = [create(server) for _ in range(5)]
    for _ in range(2):
        assert [get(server, task_id)["taskId"] for task_id in tasks] == tasks
    assert len(server.protocol._machine.states._kept) == 2


# --- tasks/update


@pytest.mark.spec("U1")
def test_an_update_is_acknowledged_only_after_the_answers_are_stored() -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, StoreFault.SLOW)
    request_id = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    assert (server.answers_to(request_id), server.effects_of(DeliverInput)) == ([], [])
    (answer,) = server.release()
    assert is_acknowledged(answer)
    assert server.effects_of(DeliverInput) == [DeliverInput(TaskId(task_id), InputKey("q"), accepted(value="x"))]


@pytest.mark.spec("U3", "D6", "G2")
def test_partial_answers_leave_the_rest_outstanding_and_unknown_keys_are_counted_and_ignored() -> None:
    server = bench()
    task_id = create(server, "a", "b")
    answers = {"a": accepted(value="1"), "never": accepted(value="2"), "": {}, "x" * 10_000: 5, "weird": None}
    assert is_acknowledged(update(server, task_id, answers))
    assert server.protocol.ignored_answers == 4
    assert list(get(server, task_id)["inputRequests"]) == ["b"]
    assert is_acknowledged(update(server, task_id, {"b": accepted(value="3")}))
    assert get(server, task_id)["status"] == "working"
    assert [(e.key, e.answer["content"]["value"]) for e in server.effects_of(DeliverInput)] == [("a", "1"), ("b", "3")]


@pytest.mark.spec("U3", "D6")
def test_answered_and_withdrawn_keys_are_ignored() -> None:
    server = bench()
    task_id = create(server, "a", "b", "c")
    update(server, task_id, {"a": accepted(value="first")})
    server.feed(InputWithdrawn(TaskId(task_id), InputKey("b")))
    server.forget()
    before = server.store.load(TaskId(task_id))
    assert is_acknowledged(update(server, task_id, {"a": accepted(value="second"), "b": accepted(value="late")}))
    assert server.store.load(TaskId(task_id)) == before
    assert not server.effects_of(DeliverInput)
    assert list(get(server, task_id)["inputRequests"]) == ["c"]


@pytest.mark.spec("U5", "D8", "B7")
@pytest.mark.parametrize("responses", [..., None, [], "x", 5, True])
def test_input_responses_that_are_no_object_are_bad_params(responses: Any) -> None:
    server = bench()
    task_id = create(server, "q")
    for target in (task_id, "unknown"):
        params = {"taskId": target} if responses is ... else {"taskId": target, "inputResponses": responses}
        error = server.request("tasks/update", params, owner=OWNER)["error"]
        assert (error["code"], "params.inputResponses" in error["message"]) == (-32602, True)


@pytest.mark.spec("D8", "D15")
def test_an_update_without_answers_is_acknowledged_and_changes_nothing() -> None:
    server = bench()
    task_id = create(server, "q")
    before = server.store.load(TaskId(task_id))
    assert is_acknowledged(update(server, task_id, {}))
    assert server.store.load(TaskId(task_id)) == before


@pytest.mark.spec("U5", "D7")
@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        "yes",
        [],
        {},
        {"action": "yes"},
        {"action": None},
        {"action": "accept"},
        {"action": "accept", "content": None},
        {"action": "accept", "content": []},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"value": 5}},
        {"action": "accept", "content": {"value": None}},
        {"action": "accept", "content": {"value": "x", "other": "y"}},
    ],
)
def test_one_bad_answer_refuses_the_whole_update_and_the_question_stays_open(bad: Any) -> None:
    server = bench()
    task_id = create(server, "a", "b")
    before = server.store.load(TaskId(task_id))
    for responses in ({"a": accepted(value="good"), "b": bad}, {"b": bad, "a": accepted(value="good"), "unknown": 1}):
        error = update(server, task_id, responses)["error"]
        assert (error["code"], "params.inputResponses.b" in error["message"]) == (-32602, True)
    assert server.store.load(TaskId(task_id)) == before
    assert not server.effects_of(DeliverInput)
    assert list(get(server, task_id)["inputRequests"]) == ["a", "b"]


@pytest.mark.spec("D7", "P4")
@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}, {"action": "decline", "content": {}}])
def test_a_person_who_declines_is_heard(answer: JSONObject) -> None:
    server = bench()
    task_id = create(server, "q")
    assert is_acknowledged(update(server, task_id, {"q": answer}))
    assert server.effects_of(DeliverInput)[0].answer == answer


@pytest.mark.spec("U5")
def test_answers_of_other_kinds_are_judged_by_their_own_question() -> None:
    server = bench()
    task_id = create(server)
    server.ask(task_id, "s", sampling_question())
    server.ask(task_id, "r", roots_question())
    message = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    roots: JSONObject = {"roots": [{"uri": "file:///x"}]}
    for bad in ({"s": roots, "r": roots}, {"s": message, "r": message}, {"r": {"roots": [{}]}}):
        assert update(server, task_id, bad)["error"]["code"] == -32602
    assert is_acknowledged(update(server, task_id, {"s": message, "r": roots}))
    assert {e.key: e.answer for e in server.effects_of(DeliverInput)} == {"s": message, "r": roots}


def test_a_check_of_answers_that_breaks_ends_the_request_and_not_the_server() -> None:
    def broken(request: JSONObject, answer: Any) -> str | None:
        raise RecursionError("too deep for me")

    server = bench(check_answer=broken)
    task_id = create(server, "q")
    assert update(server, task_id, {"q": accepted(value="x")})["error"]["code"] == -32603
    assert "check_answer failed" in server.effects_of(Report)[0].message
    assert get(server, task_id)["status"] == "input_required"


@pytest.mark.spec("U4", "D4", "X2")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_an_ended_task_acknowledges_updates_and_cancels_and_stays_as_it_is(status: str) -> None:
    server = bench()
    task_id = create(server, "q")
    end(server, task_id, status)
    before = get(server, task_id)
    row = server.store.load(TaskId(task_id))
    server.forget()
    for _ in range(2):
        assert is_acknowledged(update(server, task_id, {"q": accepted(value="late"), "x": 5}))
        assert is_acknowledged(ask_method(server, "tasks/cancel", task_id))
    server.advance(10_000)
    assert get(server, task_id) == before
    assert server.store.load(TaskId(task_id)) == row
    assert not [*server.effects_of(StoreTask), *server.effects_of(StopWork), *server.effects_of(DeliverInput)]
    assert update(server, task_id, None)["error"]["code"] == -32602


@pytest.mark.spec("U6", "U2")
def test_an_update_that_is_delivered_twice_has_one_effect() -> None:
    server = bench()
    task_id = create(server, "q", "r")
    for _ in range(3):
        assert is_acknowledged(update(server, task_id, {"q": accepted(value="x")}))
    assert len(server.effects_of(DeliverInput)) == 1
    assert len(server.effects_of(StoreTask)) == 1


@pytest.mark.spec("U6", "U2")
def test_of_two_racing_answers_to_one_question_the_first_counts_and_both_are_acknowledged() -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(LoadTask, StoreFault.SLOW)
    first = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="1")}, owner=OWNER)
    second = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="2")}, owner=OWNER)
    server.release()
    assert all(is_acknowledged(server.answers_to(r)[0]) for r in (first, second))
    assert [e.answer for e in server.effects_of(DeliverInput)] == [accepted(value="1")]


@pytest.mark.spec("U6")
@pytest.mark.parametrize("conflicts", [0, 1, 2, 5])
def test_two_racing_updates_on_different_keys_both_survive(conflicts: int) -> None:
    server = bench()
    task_id = create(server, "a", "b")
    server.script(LoadTask, StoreFault.SLOW)
    server.script(StoreTask, *[StoreFault.CONFLICT] * conflicts)
    ids = [
        server.begin("tasks/update", taskId=task_id, inputResponses={key: accepted(value=key)}, owner=OWNER)
        for key in ("a", "b")
    ]
    server.release()
    assert all(is_acknowledged(server.answers_to(request_id)[0]) for request_id in ids)
    record = server.record(task_id)
    assert {key: entry.answer for key, entry in record.inputs.items()} == {
        "a": accepted(value="a"),
        "b": accepted(value="b"),
    }
    assert sorted(e.key for e in server.effects_of(DeliverInput)) == ["a", "b"]


@pytest.mark.spec("U6", "T1")
def test_an_update_survives_another_process_that_answers_another_key_in_between() -> None:
    server = bench()
    task_id = create(server, "a", "b")
    raced: list[bool] = []

    def race(effect: object) -> None:
        if isinstance(effect, StoreTask) and not raced:
            raced.append(True)
            server.change_elsewhere(task_id, Answer({InputKey("b"): accepted(value="there")}))

    server.before_store = race
    assert is_acknowledged(update(server, task_id, {"a": accepted(value="here")}))
    assert server.record(task_id).status is TaskStatus.WORKING
    assert sorted(e.key for e in server.effects_of(DeliverInput)) == ["a", "b"]


@pytest.mark.spec("U1", "U6")
@pytest.mark.parametrize("fault", [StoreFault.UNCERTAIN_MADE, StoreFault.DROPPED_MADE, StoreFault.LATE])
def test_an_update_whose_outcome_is_unknown_is_looked_for_and_acknowledged_once_found(fault: StoreFault) -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, fault)
    request_id = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    server.advance(Limits().answer_wait_ms)
    (answer,) = server.answers_to(request_id)
    assert is_acknowledged(answer)
    assert len(server.effects_of(StoreTask)) == len(server.effects_of(DeliverInput)) == 1


@pytest.mark.spec("U1", "U6")
@pytest.mark.parametrize("fault", [StoreFault.UNCERTAIN_LOST, StoreFault.DROPPED_LOST])
def test_an_update_that_was_lost_is_made_again(fault: StoreFault) -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, fault)
    request_id = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    server.advance(Limits().answer_wait_ms)
    assert is_acknowledged(server.answers_to(request_id)[0])
    assert (len(server.effects_of(StoreTask)), len(server.effects_of(DeliverInput))) == (2, 1)


@pytest.mark.spec("U1")
def test_an_update_that_lands_after_it_was_given_up_is_found_and_published_by_the_second_try() -> None:
    """The first write takes longer than anybody waits; the read finds nothing of it; the second write conflicts."""
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, StoreFault.SLOW, None)
    server.before_store = lambda effect: (
        server.release() if isinstance(effect, StoreTask) and server.held and effect.row.revision == 3 else None
    )
    request_id = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    server.advance(Limits().answer_wait_ms)
    assert is_acknowledged(server.answers_to(request_id)[0])
    assert len(server.effects_of(StoreTask)) == 2
    assert len(server.effects_of(DeliverInput)) == 1
    assert server.effects_of(PublishChange)


@pytest.mark.spec("U1")
def test_an_update_that_the_store_refuses_is_an_error_and_nothing_reaches_the_work() -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, StoreFault.FAIL)
    assert update(server, task_id, {"q": accepted(value="x")})["error"]["data"]["reason"] == "store_unavailable"
    server.advance(5_000)
    assert not server.effects_of(DeliverInput)
    assert list(get(server, task_id)["inputRequests"]) == ["q"]
    assert is_acknowledged(update(server, task_id, {"q": accepted(value="x")}))


@pytest.mark.spec("U1")
def test_answers_that_were_stored_although_the_caller_was_told_otherwise_reach_the_work() -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, StoreFault.UNCERTAIN_MADE)
    server.script(LoadTask, None, None, StoreFault.FAIL)
    assert update(server, task_id, {"q": accepted(value="x")})["error"]["code"] == -32603
    assert not server.effects_of(DeliverInput)
    server.advance(Limits().settle_retry_ms)
    assert len(server.effects_of(DeliverInput)) == 1


@pytest.mark.spec("T1")
def test_the_number_of_lost_races_has_a_bound() -> None:
    for conflicts, answered in ((2, True), (3, False)):
        server = bench(limits=Limits(swap_attempts_max=3))
        task_id = create(server, "q")
        server.script(StoreTask, *[StoreFault.CONFLICT] * conflicts)
        answer = update(server, task_id, {"q": accepted(value="x")})
        assert is_acknowledged(answer) is answered
        if not answered:
            assert answer["error"]["data"]["reason"] == "store_unavailable"


@pytest.mark.spec("U1", "I2")
@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_an_update_whose_request_was_cancelled_in_the_middle_counts_and_is_not_answered(how: str) -> None:
    server = bench()
    task_id = create(server, "q")
    server.script(StoreTask, StoreFault.SLOW)
    request_id = server.begin("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER)
    if how == "cancelled":
        server.cancel_request(request_id)
    else:
        server.close_stream()
    assert server.release() == []
    assert len(server.effects_of(DeliverInput)) == 1
    assert server.record(task_id).status is TaskStatus.WORKING


# --- questions


@pytest.mark.spec("U2")
def test_asking_again_under_a_key_gives_the_answer_that_is_there_and_asks_nobody() -> None:
    server = bench()
    task_id = create(server, "q")
    update(server, task_id, {"q": accepted(value="x")})
    server.forget()
    server.ask(task_id, "q", form_question("q"))
    assert server.effects_of(DeliverInput) == [DeliverInput(TaskId(task_id), InputKey("q"), accepted(value="x"))]
    assert get(server, task_id)["status"] == "working"


@pytest.mark.spec("U2")
def test_another_question_under_a_used_key_is_refused_and_the_first_stays() -> None:
    server = bench()
    task_id = create(server, "q")
    server.ask(task_id, "q", roots_question())
    (refused,) = server.effects_of(RefuseInput)
    assert (refused.error.code, "another question" in refused.error.message) == (-32603, True)
    assert get(server, task_id)["inputRequests"] == {"q": form_question("q")}


@pytest.mark.spec("U7", "D27")
@pytest.mark.parametrize(
    ("declared", "question", "missing"),
    [
        ({}, form_question(), {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, form_question(), {"elicitation": {"form": {}}}),
        ({"elicitation": {}}, url_question(), {"elicitation": {"url": {}}}),
        ({"elicitation": {"form": {}}}, url_question(), {"elicitation": {"url": {}}}),
        ({}, sampling_question(), {"sampling": {}}),
        ({"sampling": {}}, sampling_question(tools=[]), {"sampling": {"tools": {}}}),
        ({}, roots_question(), {"roots": {}}),
    ],
)
def test_a_kind_that_the_creator_did_not_declare_is_never_asked(
    declared: JSONObject, question: JSONObject, missing: JSONObject
) -> None:
    server = bench()
    task_id = create(server, capabilities=declared)
    server.ask(task_id, "q", question)
    (refused,) = server.effects_of(RefuseInput)
    assert (refused.key, refused.error.code) == ("q", -32021)
    assert refused.error.data == {"requiredCapabilities": missing}
    assert get(server, task_id)["status"] == "working"
    assert not server.record(task_id).inputs


@pytest.mark.spec("U7")
@pytest.mark.parametrize(
    ("declared", "question"),
    [
        ({"elicitation": {}}, form_question()),
        ({"elicitation": {"form": {}}}, form_question()),
        ({"elicitation": {"url": {}}}, url_question()),
        ({"sampling": {}}, sampling_question()),
        ({"sampling": {"tools": {}}}, sampling_question(tools=[])),
        ({"roots": {}}, roots_question()),
    ],
)
def test_a_kind_that_the_creator_declared_is_asked(declared: JSONObject, question: JSONObject) -> None:
    server = bench()
    task_id = create(server, capabilities=declared)
    server.ask(task_id, "q", question)
    assert get(server, task_id)["inputRequests"] == {"q": question}


def test_one_question_more_than_may_stand_open_is_refused() -> None:
    server = bench(limits=Limits(inputs_outstanding_max=2))
    task_id = create(server, "a", "b")
    server.ask(task_id, "c", form_question())
    assert "at most 2 questions" in server.effects_of(RefuseInput)[0].error.message
    update(server, task_id, {"a": accepted(value="x")})
    server.ask(task_id, "c", form_question())
    assert list(get(server, task_id)["inputRequests"]) == ["b", "c"]


def test_one_question_more_than_a_task_may_ever_ask_is_refused_and_known_ones_are_not() -> None:
    server = bench(limits=Limits(inputs_per_task_max=2))
    task_id = create(server, "a", "b")
    update(server, task_id, {"a": accepted(value="x"), "b": accepted(value="y")})
    server.forget()
    server.ask(task_id, "c", form_question())
    assert "at most 2 questions" in server.effects_of(RefuseInput)[0].error.message
    server.ask(task_id, "a", form_question("a"))
    assert server.effects_of(DeliverInput)


def test_a_question_of_a_task_that_is_gone_or_over_is_refused() -> None:
    server = bench()
    task_id = create(server)
    end(server, task_id, "completed")
    for target in (task_id, "unknown"):
        server.ask(target, "q", form_question())
    assert [refused.error.code for refused in server.effects_of(RefuseInput)] == [-32603, -32603]


@pytest.mark.spec("B10")
def test_a_question_that_cannot_be_stored_is_refused() -> None:
    server = bench()
    task_id = create(server)
    question = form_question()
    question["params"]["vendor"] = float("nan")
    server.ask(task_id, "q", question)
    assert server.effects_of(RefuseInput)[0].error.code == -32603
    assert get(server, task_id)["status"] == "working"


@pytest.mark.spec("U3")
def test_a_withdrawn_question_is_shown_no_longer() -> None:
    server = bench()
    task_id = create(server, "a", "b")
    server.feed(InputWithdrawn(TaskId(task_id), InputKey("a")))
    assert list(get(server, task_id)["inputRequests"]) == ["b"]
    server.feed(InputWithdrawn(TaskId(task_id), InputKey("b")))
    assert get(server, task_id)["status"] == "working"
    server.feed(InputWithdrawn(TaskId(task_id), InputKey("never")))
    assert "never asked" in server.effects_of(Report)[0].message


# --- tasks/cancel


@pytest.mark.spec("X1", "D28", "D18")
def test_a_cancel_is_acknowledged_as_intent_and_the_status_turns_when_the_work_has_stopped() -> None:
    server = bench()
    task_id = create(server)
    assert is_acknowledged(ask_method(server, "tasks/cancel", task_id))
    assert [effect.task_id for effect in server.effects_of(StopWork)] == [task_id]
    state = get(server, task_id)
    assert (state["status"], state["statusMessage"]) == ("working", "Cancellation requested")
    end(server, task_id, "cancelled")
    assert get(server, task_id)["status"] == "cancelled"


@pytest.mark.spec("D28")
def test_work_that_does_not_stop_is_cancelled_when_its_grace_is_over_and_not_before() -> None:
    server = bench()
    task_id = create(server)
    ask_method(server, "tasks/cancel", task_id)
    server.advance(4_999)
    assert get(server, task_id)["status"] == "working"
    server.advance(1)
    assert get(server, task_id)["status"] == "cancelled"
    server.complete(task_id, text_result())
    assert get(server, task_id)["status"] == "cancelled"


@pytest.mark.spec("X1", "D28")
def test_a_second_cancel_changes_nothing_and_does_not_prolong_the_grace() -> None:
    server = bench()
    task_id = create(server)
    ask_method(server, "tasks/cancel", task_id)
    row = server.store.load(TaskId(task_id))
    server.advance(4_000)
    assert is_acknowledged(ask_method(server, "tasks/cancel", task_id))
    assert server.store.load(TaskId(task_id)) == row
    server.advance(1_000)
    assert get(server, task_id)["status"] == "cancelled"


@pytest.mark.spec("X1")
def test_a_cancelled_task_that_waits_for_a_person_ends_too() -> None:
    server = bench()
    task_id = create(server, "q")
    ask_method(server, "tasks/cancel", task_id)
    assert get(server, task_id)["status"] == "input_required"
    server.advance(5_000)
    state = get(server, task_id)
    assert (state["status"], "inputRequests" in state) == ("cancelled", False)


@pytest.mark.spec("X4")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_work_may_end_in_any_way_after_the_acknowledgement(status: str) -> None:
    server = bench()
    task_id = create(server)
    ask_method(server, "tasks/cancel", task_id)
    end(server, task_id, status)
    state = get(server, task_id)
    server.advance(60_000)
    assert (state["status"], get(server, task_id)) == (status, state)


@pytest.mark.spec("T1", "D29", "X4")
@pytest.mark.parametrize("held", ["cancel", "completion"])
def test_work_that_finishes_while_a_cancel_waits_for_a_slow_store_keeps_its_result(held: str) -> None:
    server = bench()
    task_id = create(server)
    server.script(StoreTask, StoreFault.SLOW)
    if held == "cancel":
        request_id = server.begin("tasks/cancel", taskId=task_id, owner=OWNER)
        server.complete(task_id, text_result())
    else:
        server.complete(task_id, text_result())
        request_id = server.begin("tasks/cancel", taskId=task_id, owner=OWNER)
    server.advance(200)
    server.release()
    assert is_acknowledged(server.answers_to(request_id)[0])
    server.advance(60_000)
    state = get(server, task_id)
    assert (state["status"], "statusMessage" in state) == ("completed", False)
    assert state["result"]["content"][0]["text"] == "done"


@pytest.mark.spec("T1", "D29")
@pytest.mark.parametrize("there", [Complete(text_result("there")), Fail(ErrorObject(1, "there")), Cancel("there")])
@pytest.mark.parametrize("here", ["completed", "failed", "cancelled"])
def test_the_first_durable_end_wins_across_processes(there: Any, here: str) -> None:
    server = bench()
    task_id = create(server)
    raced: list[bool] = []

    def race(effect: object) -> None:
        if isinstance(effect, StoreTask) and not raced:
            raced.append(True)
            server.change_elsewhere(task_id, there)

    server.before_store = race
    end(server, task_id, here)
    server.advance(10_000)
    record = server.record(task_id)
    assert "there" in (record.status_message or str(record.result))


@pytest.mark.spec("T1", "X2", "D29")
def test_a_task_that_ended_in_another_process_is_acknowledged_and_stays() -> None:
    server = bench()
    task_id = create(server)
    raced: list[bool] = []

    def race(effect: object) -> None:
        if isinstance(effect, StoreTask) and not raced:
            raced.append(True)
            server.change_elsewhere(task_id, Complete(text_result("there")))

    server.before_store = race
    assert is_acknowledged(ask_method(server, "tasks/cancel", task_id))
    server.advance(10_000)
    assert get(server, task_id)["status"] == "completed"


@pytest.mark.spec("T1", "U6", "X1")
def test_in_every_order_of_two_cancels_an_update_and_an_end_there_is_one_end_and_every_request_is_answered() -> None:
    def steps(server: ServerHarness, task_id: str) -> dict[str, Any]:
        return {
            "cancel": lambda: server.begin("tasks/cancel", taskId=task_id, owner=OWNER),
            "again": lambda: server.begin("tasks/cancel", taskId=task_id, owner=OWNER),
            "update": lambda: server.begin(
                "tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")}, owner=OWNER
            ),
            "complete": lambda: server.complete(task_id, text_result()),
        }

    for order in itertools.permutations(["cancel", "again", "update", "complete"]):
        for slow in range(4):
            server = bench()
            task_id = create(server, "q")
            ids, seen = [], set()
            for index, name in enumerate(order):
                if index == slow:
                    server.script(LoadTask, StoreFault.SLOW)
                    server.script(StoreTask, StoreFault.CONFLICT, StoreFault.UNCERTAIN_MADE, StoreFault.UNCERTAIN_LOST)
                made = steps(server, task_id)[name]()
                ids += [made] if made is not None else []
            while server.held:
                server.release()
            seen.add(server.record(task_id).status)
            server.advance(10_000)
            assert all(is_acknowledged(server.answers_to(request_id)[0]) for request_id in ids)
            assert server.record(task_id).status is TaskStatus.COMPLETED
            assert (server.protocol.open_tickets, list(server.protocol.open_exchanges)) == (0, [])


@pytest.mark.spec("T1", "D29")
def test_fifty_cancels_that_race_the_end_leave_one_terminal_state_that_never_changes() -> None:
    for round_ in range(10):
        server = bench()
        task_id = create(server)
        server.script(LoadTask, StoreFault.SLOW)
        ids = [server.begin("tasks/cancel", taskId=task_id, owner=OWNER) for _ in range(25)]
        if round_ % 2:
            server.complete(task_id, text_result())
        ids += [server.begin("tasks/cancel", taskId=task_id, owner=OWNER) for _ in range(25)]
        server.release()
        server.advance(5_000)
        state = get(server, task_id)
        server.complete(task_id, text_result("late"))
        server.advance(60_000)
        assert get(server, task_id) == state
        assert state["status"] == ("completed" if round_ % 2 else "cancelled")
        assert all(is_acknowledged(server.answers_to(request_id)[0]) for request_id in ids)


@pytest.mark.spec("X1", "I2")
@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_cancel_whose_own_request_was_cancelled_in_the_middle_is_made_and_not_answered(how: str) -> None:
    server = bench()
    task_id = create(server)
    server.script(StoreTask, StoreFault.SLOW)
    request_id = server.begin("tasks/cancel", taskId=task_id, owner=OWNER)
    if how == "cancelled":
        server.cancel_request(request_id)
    else:
        server.close_stream()
    assert server.release() == []
    assert server.record(task_id).cancel_requested_at_ms is not None
    assert server.effects_of(StopWork)
    assert "result" in server.request("server/discover", id=request_id)


@pytest.mark.spec("X1")
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.FULL])
def test_a_cancel_that_the_store_refuses_is_an_error_and_stops_nothing(fault: StoreFault) -> None:
    server = bench()
    task_id = create(server)
    server.script(StoreTask, fault)
    assert ask_method(server, "tasks/cancel", task_id)["error"]["code"] == -32603
    server.advance(10_000)
    assert not server.effects_of(StopWork)
    assert get(server, task_id)["status"] == "working"


@pytest.mark.spec("X1")
def test_a_cancel_that_was_stored_although_the_caller_was_told_otherwise_stops_the_work() -> None:
    server = bench()
    task_id = create(server)
    server.script(StoreTask, StoreFault.UNCERTAIN_MADE)
    server.script(LoadTask, None, None, StoreFault.FAIL)
    assert ask_method(server, "tasks/cancel", task_id)["error"]["code"] == -32603
    server.advance(Limits().settle_retry_ms)
    assert server.effects_of(StopWork)
    server.advance(5_000)
    assert get(server, task_id)["status"] == "cancelled"


# --- ends and a store that fails


@pytest.mark.spec("D31", "T1")
@pytest.mark.parametrize("fault", [StoreFault.FAIL, StoreFault.FULL, StoreFault.UNCERTAIN_LOST])
def test_the_end_of_work_is_stored_as_soon_as_the_store_can(fault: StoreFault) -> None:
    server = bench()
    task_id = create(server)
    server.script(StoreTask, *[fault] * 5)
    server.complete(task_id, text_result())
    server.advance(10_000)
    assert get(server, task_id)["status"] == "completed"


@pytest.mark.spec("D31")
def test_an_end_that_cannot_be_stored_for_long_is_tried_less_often_with_a_line_in_the_log() -> None:
    for fails, stored in ((2, True), (3, False)):
        server = bench(limits=Limits(settle_attempts_max=3))
        task_id = create(server)
        server.script(StoreTask, *[StoreFault.FAIL] * fails)
        server.complete(task_id, text_result())
        server.advance(30_000)
        assert (get(server, task_id)["status"] == "completed") is stored
        told = [r for r in server.effects_of(Report) if "is not stored after 3 attempts" in r.message]
        assert bool(told) is not stored
        server.advance(60_000)
        assert get(server, task_id)["status"] == "completed"


@pytest.mark.spec("X4", "D29", "T1")
def test_a_result_that_waits_to_be_stored_is_not_displaced_by_the_end_of_a_cancels_grace() -> None:
    server = bench()
    task_id = create(server)
    ask_method(server, "tasks/cancel", task_id)
    server.script(StoreTask, *[StoreFault.FAIL] * 8)
    server.complete(task_id, text_result())
    ask_method(server, "tasks/cancel", task_id)
    server.advance(30_000)
    assert get(server, task_id)["status"] == "completed"


@pytest.mark.spec("T3", "D15", "D14")
def test_last_updated_strictly_increases_over_the_whole_life_of_a_task_on_a_clock_that_stands() -> None:
    server = bench()
    task_id = create(server)
    moments = [get(server, task_id)["lastUpdatedAt"]]
    for act in (
        lambda: server.progress(task_id, "one"),
        lambda: server.ask(task_id, "q", form_question()),
        lambda: update(server, task_id, {"q": accepted(value="x")}),
        lambda: ask_method(server, "tasks/cancel", task_id),
        lambda: server.complete(task_id, text_result()),
    ):
        act()
        moments.append(get(server, task_id)["lastUpdatedAt"])
    assert moments == sorted(set(moments))
    assert get(server, task_id)["createdAt"] == moments[0]


def test_every_stored_change_is_published_and_nothing_else_is() -> None:
    server = bench()
    task_id = create(server, "q")
    get(server, task_id)
    update(server, task_id, {})
    assert not server.effects_of(PublishChange)
    update(server, task_id, {"q": accepted(value="x")})
    server.complete(task_id, text_result())
    assert [effect.task_id for effect in server.effects_of(PublishChange)] == [task_id, task_id]


def test_the_answer_to_an_update_is_the_same_bytes_for_everybody() -> None:
    server = bench(server_info={"name": "s", "version": "1"})
    task_id = create(server, "q")
    update(server, task_id, {})
    ask_method(server, "tasks/cancel", task_id)
    first, second = server.sent
    assert first.payload[3] is second.payload[3]
    assert set(decoded(first)["result"]) == {"resultType", "_meta"}
