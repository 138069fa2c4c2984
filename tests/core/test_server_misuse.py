"""Mistakes of the embedder raise where they are made and change nothing; a peer's never raise."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.effects import AskSource, LoadTask, StoreTask
from mcp_tasks_core.server.events import (
    AccessDecided,
    CallLogged,
    CallProgressed,
    DueListed,
    InputNeeded,
    MethodAnswered,
    Raised,
    Returned,
    SourceAnswered,
    SourceAnswerKind,
    StoreConflicted,
    StoreFailed,
    TaskDeleted,
    TaskLoaded,
    TaskStored,
    Ticked,
    ToolAnswered,
    ToolDeferred,
    WorkRetimed,
)
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, as_bytes, form_question, request_meta, roots_question, text_result


def answers(ticket: Any) -> list[Any]:
    """Every event that answers something, for that ticket."""
    return [
        TaskLoaded(ticket, None),
        TaskStored(ticket),
        StoreConflicted(ticket),
        StoreFailed(ticket, "x"),
        DueListed(ticket, ()),
        TaskDeleted(ticket),
        AccessDecided(ticket, True),
        ToolAnswered(ticket, Returned(text_result())),
        ToolDeferred(ticket=ticket, entropy=bytes(24), ttl_ms=1),
        MethodAnswered(ticket, Returned({})),
        SourceAnswered(ticket=ticket, kind=SourceAnswerKind.UNKNOWN),
    ]


def bench() -> ServerHarness:
    return ServerHarness(
        tools={"wait": lambda call: HELD, "slow": lambda call: Defer()}, methods={"vendor/wait": lambda call: HELD}
    )


def snapshot(server: ServerHarness) -> Any:
    protocol = server.protocol
    return (protocol.open_tickets, protocol.open_exchanges, protocol.deadline, len(server.store))  # type: ignore[arg-type]


@pytest.mark.parametrize("ticket", [0, -1, 99, "1", None, 1.5])
def test_an_answer_with_a_ticket_that_was_never_issued_raises_and_changes_nothing(ticket: Any) -> None:
    server = bench()
    server.begin("tools/call", name="wait", arguments={})
    before = snapshot(server)
    for event in [
        *answers(ticket),
        CallProgressed(ticket=ticket, progress=1),
        CallLogged(ticket=ticket, level="info", data=1),
    ]:
        with pytest.raises(LocalProtocolError, match="was never issued"):
            server.protocol.handle(event, server.now)
    assert snapshot(server) == before
    assert "result" in server.answer(server.calls[0], text_result())[0]


@pytest.mark.parametrize("waiting_for", ["a tool", "a method", "a load", "a store"])
def test_the_wrong_kind_of_answer_raises_and_changes_nothing(waiting_for: str) -> None:
    server = bench()
    right: tuple[type, ...]
    if waiting_for == "a tool":
        server.begin("tools/call", name="wait", arguments={})
        ticket, right = server.calls[0].ticket, (ToolAnswered, ToolDeferred)
    elif waiting_for == "a method":
        server.begin("vendor/wait")
        ticket, right = server.calls[0].ticket, (MethodAnswered,)
    else:
        kind: Any = LoadTask if waiting_for == "a load" else StoreTask
        server.script(kind, StoreFault.SLOW)
        server.begin("tools/call", name="slow", arguments={})
        ticket = server.effects_of(kind)[0].ticket
        right = (TaskLoaded, StoreFailed) if kind is LoadTask else (TaskStored, StoreConflicted, StoreFailed)
    before = snapshot(server)
    for event in answers(ticket):
        if type(event) not in right:
            with pytest.raises(LocalProtocolError, match=f"ticket {ticket} is answered by"):
                server.protocol.handle(event, server.now)
    assert snapshot(server) == before


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (InputNeeded(TaskId("t"), InputKey(""), form_question()), "key is a string of 1 to 256"),
        (InputNeeded(TaskId("t"), InputKey("x" * 257), form_question()), "key is a string of 1 to 256"),
        (InputNeeded(TaskId("t"), 5, form_question()), "key is a string"),  # type: ignore[arg-type]
        (InputNeeded(TaskId("t"), InputKey("k"), {}), "the question 'k': method"),
        (InputNeeded(TaskId("t"), InputKey("k"), None), "the question 'k'"),  # type: ignore[arg-type]
        (InputNeeded(TaskId("t"), InputKey("k"), {"method": "x"}), "the question 'k': method"),
        (WorkRetimed(task_id=TaskId("t"), ttl_ms=0, poll_interval_ms=None), "ttl_ms"),
        (WorkRetimed(task_id=TaskId("t"), ttl_ms=1, poll_interval_ms=-1), "poll_interval_ms"),
        (WorkRetimed(task_id=TaskId("t"), ttl_ms=1.5, poll_interval_ms=None), "ttl_ms"),  # type: ignore[arg-type]
        ("no event", "is no event that a server can handle"),
        (None, "is no event"),
    ],
)
def test_events_that_make_no_sense_raise_and_ask_nothing_of_anybody(event: Any, words: str) -> None:
    server = bench()
    with pytest.raises(LocalProtocolError, match=words):
        server.protocol.handle(event, server.now)
    assert server.protocol.open_tickets == 0


def test_a_question_key_may_have_just_as_many_characters_as_allowed() -> None:
    server = bench()
    task_id = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    server.ask(task_id, "x" * 256, roots_question())
    assert list(server.request("tasks/get", taskId=task_id)["result"]["inputRequests"]) == ["x" * 256]


def test_a_tick_is_harmless_at_any_time() -> None:
    server = bench()
    server.begin("tools/call", name="wait", arguments={})
    for _ in range(100):
        server.feed(Ticked())
    assert len(server.protocol.open_exchanges) == 1
    assert "result" in server.answer(server.calls[0], text_result())[0]


@pytest.mark.parametrize(
    "config",
    [
        {"request_state_keys": (RequestStateKey("k", b"1" * 32), RequestStateKey("k", b"2" * 32))},
        {"sources": {"a": "x", "ab": "y"}},
        {"sources": {"": "x"}},
    ],
)
def test_a_configuration_that_contradicts_itself_makes_no_server(config: Any) -> None:
    with pytest.raises(LocalProtocolError):
        ServerProtocol(ServerConfig(**config))


ODD: list[Any] = [None, True, 0, -1, 1.5, "", "x", "ω\u0000", [], [[]], {}, {"a": None}, 2**70, accepted(value="x")]


def test_no_value_in_any_place_of_a_request_makes_the_server_raise_or_stay_silent() -> None:
    """Every odd value in every member of every method, and the server lives and answers each of them once."""
    server = bench()
    task_id = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    server.ask(task_id, "q", form_question())
    templates: list[tuple[str, JSONObject]] = [
        ("tasks/get", {"taskId": task_id}),
        ("tasks/update", {"taskId": task_id, "inputResponses": {"q": {}}}),
        ("tasks/cancel", {"taskId": task_id}),
        ("tools/call", {"name": "slow", "arguments": {}, "inputResponses": {}, "requestState": "x"}),
        ("tools/list", {"cursor": "x"}),
        ("server/discover", {"x": 1}),
        ("initialize", {"protocolVersion": "x"}),
        ("unknown", {"x": 1}),
    ]
    for (method, params), value in itertools.product(templates, ODD):
        variants: list[Any] = [{**params, "_meta": value}, value]
        variants += [{**params, name: value, "_meta": request_meta()} for name in params]
        if "inputResponses" in params:
            variants.append({**params, "inputResponses": {"q": value}, "_meta": request_meta()})
        for name in request_meta():
            variants.append({**params, "_meta": {**request_meta(), name: value}})
        for variant in variants:
            message = {"jsonrpc": "2.0", "id": "odd", "method": method, "params": variant}
            frames = server.send(as_bytes(message))
            assert len(frames) == 1, message
            assert frames[0].get("id") == "odd"
    assert "result" in server.request("server/discover")
    assert list(server.protocol.open_exchanges) == []


def test_the_same_events_give_the_same_effects() -> None:
    def run() -> list[Any]:
        server = bench()
        task_id = server.request("tools/call", name="slow", arguments={})["result"]["taskId"]
        server.script(StoreTask, StoreFault.CONFLICT, StoreFault.UNCERTAIN_MADE)
        server.ask(task_id, "q", form_question())
        server.request("tasks/update", taskId=task_id, inputResponses={"q": accepted(value="x")})
        server.request("tasks/cancel", taskId=task_id)
        server.advance(10_000_000)
        return server.effects

    assert run() == run()


def test_a_raised_error_of_the_harness_names_what_is_missing() -> None:
    server = bench()
    with pytest.raises(AssertionError, match="tools/call got 0 answers"):
        server.request("tools/call", name="wait", arguments={})
    with pytest.raises(LookupError, match="there is no task t"):
        server.record("t")
    server.answer(server.calls[0], Raised(ErrorObject(5, "x")))
    assert not server.effects_of(AskSource)
