"""The application's own rule of access: asked about every access, and never skipped by accident."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.access import Access, AccessRule, Owner
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Authorize, Report, StoreTask
from mcp_tasks_core.server.events import AccessDecided
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question

OWNER, READER, STRANGER = Owner("a", "owner"), Owner("a", "reader"), Owner("b", "owner")
METHODS = {"tasks/get": Access.READ, "tasks/update": Access.ANSWER, "tasks/cancel": Access.CANCEL}


def delegated(effect: Authorize) -> bool:
    """The owner may do everything, the reader may read."""
    return effect.caller == effect.owner or (effect.caller == READER and effect.access is Access.READ)


def bench(access: Any = delegated) -> ServerHarness:
    entry = ToolEntry(definition={"name": "slow", "inputSchema": {"type": "object"}})
    config = ServerConfig(tools=[entry], access=AccessRule.ASK)
    return ServerHarness(config, tools={"slow": lambda call: Defer()}, access=access)


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={}, owner=OWNER)["result"]["taskId"]
    server.ask(task_id, "q", form_question())
    server.forget()
    return task_id


def params(method: str, task_id: str) -> JSONObject:
    extra = {"inputResponses": {"q": accepted(value="x")}} if method == "tasks/update" else {}
    return {"taskId": task_id, **extra}


@pytest.mark.spec("A3", "A1")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("caller", [OWNER, READER, STRANGER])
def test_every_access_is_asked_about_and_what_is_denied_looks_unknown(method: str, caller: Owner) -> None:
    server = bench()
    task_id = create(server)
    before = server.store.load(TaskId(task_id))
    answer = server.request(method, params(method, task_id), id=1, owner=caller)
    (asked,) = server.effects_of(Authorize)
    assert (asked.caller, asked.access, asked.task_id, asked.owner) == (caller, METHODS[method], task_id, OWNER)
    if caller == OWNER or (caller == READER and method == "tasks/get"):
        assert "result" in answer
    else:
        assert answer == server.request(method, params(method, "unknown"), id=1, owner=caller)
        assert server.store.load(TaskId(task_id)) == before


@pytest.mark.spec("A3")
@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_task_is_asked_about_to_nobody(method: str) -> None:
    server = bench()
    assert server.request(method, params(method, "unknown"))["error"]["message"] == "Task not found"
    assert not server.effects_of(Authorize)


@pytest.mark.spec("A3")
@pytest.mark.parametrize("method", METHODS)
def test_a_rule_that_is_silent_admits_nobody_and_is_not_waited_for_for_ever(method: str) -> None:
    server = bench(lambda effect: HELD)
    task_id = create(server)
    before = server.store.load(TaskId(task_id))
    request_id = server.begin(method, params(method, task_id), owner=OWNER)
    server.advance(Limits().answer_wait_ms - 1)
    assert server.answers_to(request_id) == []
    server.advance(1)
    assert server.answers_to(request_id)[0]["error"]["code"] == -32603
    assert len(server.effects_of(Report)) == 1
    server.feed(AccessDecided(server.effects_of(Authorize)[0].ticket, True))
    assert len(server.frames) == 1
    assert server.store.load(TaskId(task_id)) == before


@pytest.mark.spec("A3")
@pytest.mark.parametrize("decision", [None, 1, "yes", [True], 0, ""])
def test_only_a_plain_true_admits(decision: Any) -> None:
    server = bench(lambda effect: decision)
    task_id = create(server)
    assert server.request("tasks/get", taskId=task_id, owner=OWNER)["error"]["message"] == "Task not found"


@pytest.mark.spec("A1")
def test_creating_asks_nobody_and_gives_the_task_to_its_caller() -> None:
    server = bench(lambda effect: False)
    task_id = server.request("tools/call", name="slow", arguments={}, owner=READER)["result"]["taskId"]
    assert server.record(task_id).owner == READER
    assert not server.effects_of(Authorize)


@pytest.mark.spec("A3", "U1")
def test_nothing_is_written_while_the_rule_is_being_asked() -> None:
    server = bench(lambda effect: HELD)
    task_id = create(server)
    server.begin("tasks/cancel", taskId=task_id, owner=OWNER)
    assert not server.effects_of(StoreTask)
    server.feed(AccessDecided(server.effects_of(Authorize)[0].ticket, True))
    assert len(server.effects_of(StoreTask)) == 1
