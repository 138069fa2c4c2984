"""What a listener over HTTP is told of: the own tasks, as tasks/get shows them, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_http import RequestHead
from mcp_tasks_trio import Application, Challenge
from runners.http_peer import HttpPeer, HttpServed, call, http_served, post
from runners.served import CAPABILITIES, both_loops, run, served
from runners.stage import ACKNOWLEDGED, SUBSCRIPTION_ID, Stage, filter_of

LISTEN = "subscriptions/listen"


def resolve(head: RequestHead) -> Owner | Challenge:
    token = head.get("authorization")
    return Challenge.unauthorized() if token is None else Owner("t", token.removeprefix("Bearer "))


def token(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


async def begin(server: HttpServed, stage: Stage, part: str, owner: str) -> str:
    """The id of a task of this owner that plays this part, and is doing so."""
    response = await server.ask(call("act", {"part": part}, headers=token(owner)))
    await stage.until_begun(part)
    task_id: str = response.result["taskId"]
    return task_id


async def read(server: HttpServed, task_id: str, owner: str) -> dict[str, Any]:
    """What tasks/get shows, without what only a result has."""
    state = (await server.ask(post("tasks/get", {"taskId": task_id}, headers=token(owner)))).result
    return {name: value for name, value in state.items() if name not in ("resultType", "_meta")}


@asynccontextmanager
async def listening(server: HttpServed, owner: str, *task_ids: str, agreed: list[str]) -> AsyncIterator[HttpPeer]:
    """A connection on which exactly these tasks were agreed to."""
    async with server.peer() as peer:
        await peer.send(post(LISTEN, filter_of(*task_ids), headers=token(owner), request_id="l"))
        await peer.stream_head()
        acknowledged = await peer.event()
        assert acknowledged["method"] == ACKNOWLEDGED
        assert acknowledged["params"]["notifications"] == {"taskIds": agreed}
        yield peer


@both_loops
@pytest.mark.spec("A1", "A2", "S4")
def test_a_listener_is_told_of_the_own_task_alone_although_it_names_anothers(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, owner_resolver=resolve) as server:
            foreign = await begin(server, stage, "of ada", "ada")
            own = await begin(server, stage, "of bob", "bob")
            async with listening(server, "bob", foreign, own, agreed=[own]) as bob:
                assert (await bob.event())["params"]["taskId"] == own
                await stage.says("of ada", "a secret of ada")
                stage.ends("of ada")
                while (await read(server, foreign, "ada"))["status"] != "completed":
                    pass
                await stage.says("of bob", "a word of bob")
                said = await bob.event()
                assert (said["params"]["taskId"], said["params"]["statusMessage"]) == (own, "a word of bob")
                stage.ends("of bob")
                rest = await bob.until(b"0\r\n\r\n")
                assert foreign.encode() not in rest
                assert b"ada" not in rest
            for nobody in (foreign, "unknown"):  # the one looks as the other does, at its end, too
                async with listening(server, "bob", nobody, agreed=[]) as bob:
                    assert (await bob.event())["id"] == "l"
                    assert await bob.chunk() == b""

    run(backend, test)


@both_loops
@pytest.mark.spec("S8", "S2", "G1")
def test_what_is_pushed_over_http_is_what_get_shows_at_that_moment(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, owner_resolver=resolve) as server:
            task_id = await begin(server, stage, "only", "ada")
            async with listening(server, "ada", task_id, agreed=[task_id]) as peer:
                for step in ("first look", "said", "ended"):
                    if step == "said":
                        await stage.says("only", "a word")
                    if step == "ended":
                        stage.ends("only")
                    pushed = await peer.event()
                    assert pushed["method"] == "notifications/tasks"
                    assert pushed["params"].pop("_meta") == {SUBSCRIPTION_ID: "l"}
                    assert pushed["params"] == await read(server, task_id, "ada")
                assert pushed["params"]["status"] == "completed"
                end = await peer.event()
                assert (end["id"], end["result"]["resultType"]) == ("l", "complete")
                assert await peer.chunk() == b""

    run(backend, test)


NOTHING: dict[str, dict[str, Any]] = {
    "an empty filter": {},
    "a kind that nobody knows": {"weatherChanged": True},
    "a kind that is not served": {"promptsListChanged": True},
    "a kind that is not wanted": {"toolsListChanged": False},
    "tasks that nobody knows": {"taskIds": ["unknown", "gone"]},
    "no tasks": {"taskIds": []},
}


@both_loops
@pytest.mark.spec("S1", "S5", "S7")
@pytest.mark.parametrize("what", NOTHING)
def test_a_listen_of_which_nothing_can_be_honoured_is_acknowledged_and_ends(backend: str, what: str) -> None:
    async def test() -> None:
        params = {"notifications": NOTHING[what]}
        async with http_served(Stage().app) as server, server.peer() as peer:
            await peer.send(post(LISTEN, params, request_id=7))
            await peer.stream_head()
            assert (await peer.event())["method"] == ACKNOWLEDGED
            assert (await peer.event())["id"] == 7
            assert await peer.chunk() == b""
            assert (await peer.answer(post("tools/list"))).status == 200
        async with served(Stage().app) as pipes:
            request_id = await pipes.peer.start(LISTEN, params, capabilities=CAPABILITIES)
            assert (await pipes.peer.next())["method"] == ACKNOWLEDGED
            assert (await pipes.peer.next())["id"] == request_id

    run(backend, test)


@both_loops
@pytest.mark.spec("N3", "S3", "H7")
def test_where_subscriptions_are_off_nothing_promises_them_and_polling_goes_on(backend: str) -> None:
    async def test() -> None:
        families = {"prompts": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True}}
        app = Application("quiet", version="1", subscriptions=False, capabilities=families)
        app.tool("work", task="always")(lambda: "done")
        async with http_served(app) as server:
            discovered = (await server.ask(post("server/discover"))).result
            assert discovered["capabilities"].keys() >= families.keys()
            for family in discovered["capabilities"].values():
                assert not {"listChanged", "subscribe"} & set(family)
            task_id = (await server.ask(call("work"))).result["taskId"]
            refused = await server.ask(post(LISTEN, filter_of(task_id)))
            assert (refused.status, refused.json["error"]["code"]) == (404, -32601)
            state: dict[str, Any] = {"status": "working"}
            while state["status"] == "working":
                state = (await server.ask(post("tasks/get", {"taskId": task_id}))).result
            assert state["status"] == "completed"

    run(backend, test)
