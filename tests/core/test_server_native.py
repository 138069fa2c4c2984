"""Tasks in an engine of the application's own: asked about, checked, never stored here."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.access import AccessRule, Owner
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import (
    AbandonWork,
    AdoptWork,
    AskSource,
    LoadTask,
    Report,
    SourceOperation,
    StartWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import Deferral, SourceAnswered, SourceAnswerKind
from mcp_tasks_core.testing.harness import HELD, Defer, Held, ServerHarness, source_state
from mcp_tasks_core.testing.messages import accepted, form_question, text_result

OWNER, OTHER = Owner("a", "s"), Owner("b", "s")
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
WORKING: JSONObject = {
    "taskId": "wf:1",
    "status": "working",
    "createdAt": "2026-07-28T09:00:00Z",
    "lastUpdatedAt": "2026-07-28T12:00:00+02:00",
    "ttlMs": None,
}
WAITING: JSONObject = {**WORKING, "status": "input_required", "inputRequests": {"q": form_question()}}


def bench(source: Any, **config: Any) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    tools = {"slow": lambda call: Defer(deferral=Deferral.CLAIM, task_id="wf:1", ttl_ms=5)}
    config = {"tools": [entry], "sources": {"wf:": "workflows"}, **config}
    return ServerHarness(ServerConfig(**config), tools=tools, sources={"workflows": source})


def ask(server: ServerHarness, method: str = "tasks/get", owner: Owner = OWNER, **members: Any) -> JSONObject:
    extra = {"inputResponses": {}} if method == "tasks/update" else {}
    return server.request(method, {"taskId": "wf:1", **extra, **members}, owner=owner)


def asked(server: ServerHarness) -> list[str]:
    return [effect.operation.value for effect in server.effects_of(AskSource)]


# --- reading


@pytest.mark.spec("G1", "D1")
@pytest.mark.parametrize(
    "state",
    [
        WORKING,
        {**WORKING, "statusMessage": "half", "pollIntervalMs": 10, "ttlMs": 60_000},
        WAITING,
        {**WORKING, "status": "completed", "result": {**text_result(), "resultType": "complete"}},
        {**WORKING, "status": "failed", "error": {"code": 5, "message": "x", "data": [1]}},
        {**WORKING, "status": "cancelled"},
        {**WORKING, "vendor": {"x": 1}, "_meta": {"y": 2}},
    ],
)
def test_a_native_state_is_shown_as_it_is_and_nothing_is_stored(state: JSONObject) -> None:
    server = bench(source_state(OWNER, state))
    assert ask(server)["result"] == {**state, "resultType": "complete"}
    (effect,) = server.effects_of(AskSource)
    assert (effect.source, effect.task_id, effect.caller) == ("workflows", "wf:1", OWNER)
    assert not [*server.effects_of(LoadTask), *server.effects_of(StoreTask)]


@pytest.mark.spec("G1", "D1", "D3", "C9")
def test_a_result_type_and_payloads_of_other_statuses_are_left_out() -> None:
    everything = {"result": text_result(), "error": {"code": 1, "message": "m"}, "inputRequests": {}}
    for resulttype in ("task", "complete", "novel", None):
        server = bench(source_state(OWNER, {**WORKING, **everything, "resultType": resulttype}))
        assert ask(server)["result"] == {**WORKING, "resultType": "complete"}
    server = bench(source_state(OWNER, {**WORKING, **everything, "status": "completed"}))
    shown = ask(server)["result"]
    assert shown["result"] == {**text_result(), "resultType": "complete"}
    assert not {"error", "inputRequests"} & set(shown)


@pytest.mark.spec("G3", "A1", "A2", "D5")
@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_and_an_unknown_native_task_look_like_an_unknown_managed_one(method: str) -> None:
    malformed = {**WORKING, "status": "asleep"}
    answers = set()
    for source, owner in (
        (source_state(OWNER, WORKING), OTHER),
        (source_state(OWNER, WAITING), OTHER),
        (source_state(OWNER, malformed), OTHER),
        (source_state(OWNER, {**WORKING, "taskId": "wf:2"}), OWNER),
    ):
        server = bench(source)
        extra = {"inputResponses": {}} if method == "tasks/update" else {}
        for task_id in ("wf:1", "managed"):
            server.request(method, {"taskId": task_id, **extra}, id=1, owner=owner)
        assert asked(server) == ["read"]
        answers |= {b"".join(frame.payload) for frame in server.sent}
    assert answers == {b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Task not found"}}'}


@pytest.mark.spec("D36", "T3", "B5", "C9", "D12")
@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {**WORKING, "taskId": "wf:2"},
        {**WORKING, "status": "asleep"},
        {**WORKING, "status": None},
        {**WORKING, "createdAt": "yesterday"},
        {**WORKING, "lastUpdatedAt": 5},
        {**WORKING, "lastUpdatedAt": "2026-07-28T08:59:59Z"},
        {**WORKING, "ttlMs": 5.0},
        {**WORKING, "ttlMs": "5"},
        {name: value for name, value in WORKING.items() if name != "ttlMs"},
        {**WORKING, "statusMessage": None},
        {**WORKING, "pollIntervalMs": None},
        {**WORKING, "status": "input_required"},
        {**WORKING, "status": "input_required", "inputRequests": {}},
        {**WORKING, "status": "input_required", "inputRequests": []},
        {**WORKING, "status": "input_required", "inputRequests": {"q": {"method": "elicitation/create"}}},
        {**WORKING, "status": "input_required", "inputRequests": {"q": 5}},
        {**WORKING, "status": "completed"},
        {**WORKING, "status": "completed", "result": None},
        {**WORKING, "status": "completed", "result": {}},
        {**WORKING, "status": "completed", "result": {"content": "x"}},
        {**WORKING, "status": "completed", "result": {"content": [], "resultType": "task"}},
        {**WORKING, "status": "failed"},
        {**WORKING, "status": "failed", "error": {"code": "x", "message": "m"}},
        {**WORKING, "status": "failed", "error": {"code": -32000, "message": "m"}},
        {**WORKING, "status": "failed", "error": {"code": -32021, "message": "m"}},
        {**WORKING, "vendor": float("nan")},
    ],
)
def test_a_native_state_that_makes_no_sense_is_an_internal_error_and_a_line_in_the_log(state: Any) -> None:
    def source(effect: AskSource) -> SourceAnswered:
        return SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=state)

    server = bench(source)
    assert ask(server)["error"] == {"code": -32603, "message": "Internal error"}
    assert len(server.effects_of(Report)) == 1
    for method in METHODS[1:]:
        if state is None or "vendor" not in state:
            assert ask(server, method)["error"]["code"] == -32603
            assert asked(server)[-1] == "read"


def test_a_state_without_an_owner_is_shown_to_nobody() -> None:
    server = bench(lambda e: SourceAnswered(ticket=e.ticket, kind=SourceAnswerKind.STATE, state=WORKING))
    assert ask(server)["error"]["code"] == -32603


@pytest.mark.parametrize("method", METHODS)
def test_a_source_that_fails_is_an_internal_error_and_its_reason_stays_in_the_log(method: str) -> None:
    server = bench(lambda e: SourceAnswered(ticket=e.ticket, kind=SourceAnswerKind.FAILED, reason="secret"))
    error = ask(server, method)["error"]
    assert (error["code"], error["data"]["retryable"], "secret" in str(error)) == (-32603, True, False)
    assert "secret" in server.effects_of(Report)[0].message


@pytest.mark.parametrize("method", METHODS)
def test_a_source_that_is_silent_is_not_waited_for_for_ever(method: str) -> None:
    server = bench(lambda e: HELD)
    extra = {"inputResponses": {}} if method == "tasks/update" else {}
    request_id = server.begin(method, {"taskId": "wf:1", **extra}, owner=OWNER)
    server.advance(Limits().answer_wait_ms - 1)
    assert server.answers_to(request_id) == []
    server.advance(1)
    assert server.answers_to(request_id)[0]["error"]["code"] == -32603
    late = SourceAnswered(
        ticket=server.effects_of(AskSource)[0].ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WORKING
    )
    server.feed(late)
    assert len(server.frames) == 1


@pytest.mark.parametrize("kind", [SourceAnswerKind.ACCEPTED])
def test_a_source_that_answers_something_else_than_it_was_asked_is_an_internal_error(kind: SourceAnswerKind) -> None:
    server = bench(lambda e: SourceAnswered(ticket=e.ticket, kind=kind))
    assert ask(server)["error"]["code"] == -32603

    def states_only(effect: AskSource) -> SourceAnswered:
        return SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WORKING)

    assert ask(bench(states_only), "tasks/cancel")["error"]["code"] == -32603


# --- answering


@pytest.mark.spec("U1", "U3", "D6")
def test_answers_to_outstanding_questions_are_handed_over_before_they_are_acknowledged() -> None:
    server = bench(source_state(OWNER, WAITING))
    answer = ask(server, "tasks/update", inputResponses={"q": accepted(value="x"), "unknown": 5})
    assert answer["result"] == {"resultType": "complete"}
    assert asked(server) == ["read", "answer"]
    assert server.effects_of(AskSource)[1].answers == {"q": accepted(value="x")}
    assert server.protocol.ignored_answers == 1


@pytest.mark.spec("U5", "D7")
def test_a_bad_answer_is_refused_and_the_source_never_sees_it() -> None:
    server = bench(source_state(OWNER, WAITING))
    assert ask(server, "tasks/update", inputResponses={"q": {"action": "accept"}})["error"]["code"] == -32602
    assert asked(server) == ["read"]


@pytest.mark.spec("U3", "U4", "D4")
@pytest.mark.parametrize("status", ["working", "completed", "failed", "cancelled"])
def test_answers_to_a_task_that_asks_nothing_are_acknowledged_and_not_handed_over(status: str) -> None:
    payload = {"completed": {"result": text_result()}, "failed": {"error": {"code": 1, "message": "m"}}}.get(status, {})
    server = bench(source_state(OWNER, {**WORKING, "status": status, **payload}))
    assert ask(server, "tasks/update", inputResponses={"q": accepted(value="x")})["result"] == {
        "resultType": "complete"
    }
    assert asked(server) == ["read"]


@pytest.mark.spec("U6")
def test_two_updates_of_one_native_task_are_made_one_after_the_other() -> None:
    held: list[AskSource] = []

    def source(effect: AskSource) -> SourceAnswered | Held:
        held.append(effect)
        return HELD

    server = bench(source)
    for _ in range(2):
        server.begin("tasks/update", taskId="wf:1", inputResponses={"q": accepted(value="x")}, owner=OWNER)
    assert len(held) == 1
    server.feed(SourceAnswered(ticket=held[0].ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WAITING))
    server.feed(SourceAnswered(ticket=held[1].ticket, kind=SourceAnswerKind.ACCEPTED))
    server.feed(SourceAnswered(ticket=held[2].ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WORKING))
    assert [effect.operation for effect in held] == [SourceOperation.READ, SourceOperation.ANSWER, SourceOperation.READ]
    assert len(server.frames) == 2


# --- cancelling


@pytest.mark.spec("X1", "X2", "D4")
@pytest.mark.parametrize("status", ["working", "input_required", "completed", "failed", "cancelled"])
def test_a_cancel_is_handed_to_the_source_unless_the_task_is_over(status: str) -> None:
    payloads: JSONObject = {
        "input_required": {"inputRequests": {"q": form_question()}},
        "completed": {"result": text_result()},
        "failed": {"error": {"code": 1, "message": "m"}},
    }
    server = bench(source_state(OWNER, {**WORKING, "status": status, **payloads.get(status, {})}))
    assert ask(server, "tasks/cancel")["result"] == {"resultType": "complete"}
    assert asked(server) == (["read", "cancel"] if status in ("working", "input_required") else ["read"])
    assert not server.effects_of(StopWork)
    server.advance(60_000)
    assert not server.effects_of(StoreTask)


@pytest.mark.spec("G3", "D5")
@pytest.mark.parametrize("operation", ["answer", "cancel"])
def test_a_task_that_goes_between_the_look_and_the_change_is_not_found(operation: str) -> None:
    def source(effect: AskSource) -> SourceAnswered:
        if effect.operation is SourceOperation.READ:
            return SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WAITING)
        return SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.UNKNOWN)

    server = bench(source)
    method = "tasks/update" if operation == "answer" else "tasks/cancel"
    answer = ask(server, method, inputResponses={"q": accepted(value="x")})
    assert answer["error"] == {"code": -32602, "message": "Task not found"}


# --- a call that an engine takes over


@pytest.mark.spec("C4", "C5", "C7")
def test_a_claim_under_a_sources_prefix_is_announced_from_the_source_and_nothing_is_stored() -> None:
    server = bench(source_state(OWNER, {**WAITING, "statusMessage": "asked"}))
    result = server.request("tools/call", name="slow", arguments={}, owner=OWNER)["result"]
    assert result == {**WORKING, "status": "input_required", "statusMessage": "asked", "resultType": "task"}
    assert not [*server.effects_of(StoreTask), *server.effects_of(StartWork)]
    assert [effect.task_id for effect in server.effects_of(AdoptWork)] == ["wf:1"]


@pytest.mark.spec("C5", "B7")
@pytest.mark.parametrize(
    "source",
    [
        source_state(OTHER, WORKING),
        source_state(OWNER, {**WORKING, "taskId": "wf:2"}),
        source_state(OWNER, {**WORKING, "status": "asleep"}),
        lambda e: SourceAnswered(ticket=e.ticket, kind=SourceAnswerKind.FAILED),
    ],
)
def test_a_claim_that_the_source_does_not_bear_out_is_our_fault_and_is_not_announced(source: Any) -> None:
    server = bench(source)
    assert server.request("tools/call", name="slow", arguments={}, owner=OWNER)["error"]["code"] == -32603
    assert (len(server.effects_of(AbandonWork)), server.effects_of(AdoptWork)) == (1, [])


@pytest.mark.spec("D39")
@pytest.mark.parametrize("detach", [False, True])
def test_a_native_task_whose_caller_is_gone_is_cancelled_unless_it_is_detached(detach: bool) -> None:
    held: list[AskSource] = []

    def source(effect: AskSource) -> SourceAnswered | Held:
        if effect.operation is SourceOperation.READ:
            held.append(effect)
            return HELD
        return SourceAnswered(ticket=effect.ticket, kind=SourceAnswerKind.ACCEPTED)

    server = bench(source)
    server.tools["slow"] = lambda call: Defer(deferral=Deferral.CLAIM, task_id="wf:1", detach_on_disconnect=detach)
    server.begin("tools/call", name="slow", arguments={}, owner=OWNER)
    server.close_stream()
    server.feed(SourceAnswered(ticket=held[0].ticket, kind=SourceAnswerKind.STATE, owner=OWNER, state=WORKING))
    assert asked(server) == (["read"] if detach else ["read", "cancel"])
    assert (len(server.effects_of(AbandonWork)), len(server.effects_of(AdoptWork))) == ((0, 1) if detach else (1, 0))
    assert server.frames == []


# --- the application's own rule of access


@pytest.mark.spec("A3", "A1")
def test_the_rule_of_the_application_decides_for_native_tasks_too() -> None:
    seen: list[tuple[str, Owner, Owner]] = []

    def access(effect: Any) -> bool:
        seen.append((effect.access.value, effect.caller, effect.owner))
        return bool(effect.access.value == "read")

    server = bench(source_state(OWNER, WORKING), access=AccessRule.ASK)
    server.access = access
    assert "result" in ask(server, owner=OTHER)
    assert ask(server, "tasks/cancel", owner=OTHER)["error"]["message"] == "Task not found"
    assert seen == [("read", OTHER, OWNER), ("cancel", OTHER, OWNER)]
