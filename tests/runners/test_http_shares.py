"""Over HTTP nobody takes from others what they share: those without the right get nothing, and each owner a share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_http import RequestHead
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import Application, Challenge
from runners.http_peer import Doors, HttpPeer, call, http_served
from runners.served import both_loops, run


def resolve(head: RequestHead) -> Owner | Challenge:
    match head.get("authorization"):
        case None:
            return Challenge.unauthorized()
        case "Bearer weak":
            return Challenge.insufficient_scope(scopes=["tasks:run"])
        case name:
            return Owner("t", name.removeprefix("Bearer "))


async def ask(peer: HttpPeer, token: str | None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await peer.answer(call("work", headers=headers))


def application(doors: Doors, begun: list[str]) -> Application:
    app = Application("test", version="1")

    @app.tool(task="always")
    async def work() -> str:
        begun.append("work")
        await doors.pass_through()
        return "done"

    return app


@both_loops
@pytest.mark.spec("H11", "A1")
def test_calls_of_those_without_the_right_take_no_place_of_a_task(backend: str, tmp_path: Path) -> None:
    async def test() -> None:
        begun: list[str] = []
        with SqliteTaskStore(tmp_path / "tasks.db", capacity=2, capacity_per_owner=2) as store:
            settings: dict[str, Any] = {"store": store, "owner_resolver": resolve, "grace": 0.1}
            async with http_served(application(Doors(), begun), **settings) as server, server.peer() as peer:
                for number in range(1000):
                    token, status = (None, 401) if number % 2 else ("weak", 403)
                    assert (await ask(peer, token)).status == status
                assert (begun, store.count()) == ([], 0)
                assert [(await ask(peer, "ada")).result["resultType"] for _ in range(2)] == ["task"] * 2

    run(backend, test)


@both_loops
@pytest.mark.spec("A1", "C5")
def test_an_owner_who_fills_the_own_share_is_refused_clearly_and_leaves_the_others_theirs(
    backend: str, tmp_path: Path
) -> None:
    async def test() -> None:
        begun: list[str] = []
        with SqliteTaskStore(tmp_path / "tasks.db", capacity=10, capacity_per_owner=3) as store:
            settings: dict[str, Any] = {"store": store, "owner_resolver": resolve, "grace": 0.1}
            async with http_served(application(Doors(), begun), **settings) as server, server.peer() as peer:
                for _ in range(3):
                    assert (await ask(peer, "greedy")).result["resultType"] == "task"
                for _ in range(20):
                    refused = await ask(peer, "greedy")
                    assert (refused.status, refused.json["error"]["code"]) == (500, -32603)
                    assert refused.json["error"]["data"] == {"reason": "capacity", "retryable": True}
                    assert "result" not in refused.json
                assert (await ask(peer, "ada")).result["resultType"] == "task"
                await server.until(lambda: len(begun) == 4)
                assert store.count() == 4

    run(backend, test)
