"""What an application announces: from any thread, on both loops, to every server of it that runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.events import ListChanged, ListKind, ResourceUpdated, ServerEvent
from mcp_tasks_trio import Application, SyncToolContext
from runners.listening import BOUND_SECONDS, EVERYTHING, Taken, in_thread, library, listen, told, tool_names
from runners.served import both_loops, run, served

ADA, BOB = Owner("library", "ada"), Owner("library", "bob")


def announce_everything(app: Application, owner: Owner | None = None) -> None:
    app.tools_changed(owner=owner)
    app.prompts_changed(owner=owner)
    app.resources_changed(owner=owner)
    app.resource_updated("library://A1", owner=owner)


def everything(owner: Owner | None = None) -> list[ServerEvent]:
    return [*(ListChanged(kind, owner) for kind in ListKind), ResourceUpdated("library://A1", owner)]


@both_loops
def test_each_announcement_reaches_the_core_as_its_event_with_its_owner(backend: str) -> None:
    async def test() -> None:
        app, taken = library(), Taken()
        with app.announcing_to(app.server_config(()), taken.take):
            announce_everything(app)
            in_thread(lambda: announce_everything(app, ADA))
            in_thread(lambda: announce_everything(app, ADA))
            assert await taken.until(everything(ADA)[-1]) == [*everything(), *everything(ADA)]
        assert taken.threads == {threading.get_ident()}

    run(backend, test)


def test_announcing_does_nothing_where_nothing_is_served() -> None:
    app = library()
    announce_everything(app)
    app.remove_tool("find")
    assert dict(app.tools) == {}


@both_loops
def test_a_server_that_has_ended_is_told_nothing_and_a_later_one_only_what_comes_then(backend: str) -> None:
    async def test() -> None:
        app, first, second = library(), Taken(), Taken()
        with app.announcing_to(app.server_config(()), first.take):
            app.tools_changed()
            await first.until(ListChanged(ListKind.TOOLS))
            app.resources_changed()
        app.prompts_changed()
        with app.announcing_to(app.server_config(()), second.take):
            app.tools_changed()
            assert await second.until(ListChanged(ListKind.TOOLS)) == [ListChanged(ListKind.TOOLS)]
        assert first.all == [ListChanged(ListKind.TOOLS)]

    run(backend, test)


def test_servers_in_different_loops_and_threads_are_all_told_each_in_its_own_thread() -> None:
    app = library()
    ready, results = threading.Barrier(3, timeout=BOUND_SECONDS), {}

    def serve(backend: str) -> None:
        async def test() -> None:
            taken = Taken()
            with app.announcing_to(app.server_config(()), taken.take):
                await anyio.to_thread.run_sync(ready.wait)
                results[backend] = (await taken.until(everything()[-1]), taken.threads == {threading.get_ident()})

        run(backend, test)

    threads = [threading.Thread(target=serve, args=(backend,)) for backend in ("asyncio", "trio")]
    for thread in threads:
        thread.start()
    ready.wait()
    announce_everything(app)
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert results == {"asyncio": (everything(), True), "trio": (everything(), True)}


@pytest.mark.parametrize("uri", [None, "", 3, b"library://A1", "library://\udc80"])
def test_what_is_no_uri_is_refused(uri: Any) -> None:
    with pytest.raises(LocalProtocolError, match="uri is a text"):
        library().resource_updated(uri)


@pytest.mark.parametrize("owner", ["ada", 3, ("library", "ada")])
def test_what_is_no_owner_is_refused(owner: Any) -> None:
    app = library()
    calls: list[Callable[..., None]] = [app.tools_changed, app.prompts_changed, app.resources_changed]
    for call in calls:
        with pytest.raises(LocalProtocolError, match="owner is an Owner"):
            call(owner=owner)
    with pytest.raises(LocalProtocolError, match="owner is an Owner"):
        app.resource_updated("library://A1", owner=owner)


# --- from end to end


@both_loops
@pytest.mark.spec("S2")
def test_listeners_are_told_what_tools_announce_on_the_loop_and_in_threads(backend: str) -> None:
    app = library()

    @app.tool()
    async def rearrange() -> str:
        app.resources_changed()
        app.resource_updated("library://A1")
        app.resource_updated("library://B2")
        return "done"

    @app.tool()
    def reprint(context: SyncToolContext) -> str:
        app.prompts_changed(owner=context.owner)
        app.tools_changed()
        return "done"

    @app.tool(task="always")
    def restore() -> str:
        app.resource_updated("library://A1")
        return "done"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            assert await listen(peer, EVERYTHING) == EVERYTHING
            await peer.start("tools/call", {"name": "rearrange", "arguments": {}}, capabilities={})
            messages = [await peer.next() for _ in range(3)]
            methods = sorted(m.get("method", "the answer") for m in messages)
            assert methods == [
                "notifications/resources/list_changed",
                "notifications/resources/updated",
                "the answer",
            ]
            await peer.start("tools/call", {"name": "reprint", "arguments": {}}, capabilities={})
            assert await told(peer, 2) == ["prompts/list_changed", "tools/list_changed"]
            assert "result" in await peer.next()
            await peer.call("restore")
            early = [m for m in peer.unclaimed if "method" in m]
            (last,) = early or [await peer.next()]
            assert (last["method"], last["params"]["uri"]) == ("notifications/resources/updated", "library://A1")

    run(backend, test)


@both_loops
def test_only_the_listeners_of_the_owner_that_is_named_are_told(backend: str) -> None:
    async def test() -> None:
        app = library()
        async with served(app) as server:
            await listen(server.peer, EVERYTHING)
            announce_everything(app, BOB)
            announce_everything(app, LOCAL_OWNER)
            app.tools_changed()
            assert await told(server.peer, 5) == [
                "tools/list_changed",
                "prompts/list_changed",
                "resources/list_changed",
                "resources/updated library://A1",
                "tools/list_changed",
            ]

    run(backend, test)


@both_loops
def test_all_servers_of_one_application_tell_their_listeners(backend: str) -> None:
    async def test() -> None:
        app = library()
        async with served(app) as one, served(app) as other:
            for server in (one, other):
                await listen(server.peer, {"promptsListChanged": True})
            in_thread(app.prompts_changed)
            for server in (one, other):
                assert await told(server.peer, 1) == ["prompts/list_changed"]

    run(backend, test)


# --- what discover says


def capabilities(app: Application) -> dict[str, Any]:
    """What discover says of the application's families."""
    told: dict[str, Any] = {}

    async def test() -> None:
        async with served(app) as server:
            told.update((await server.peer.result("server/discover"))["capabilities"])

    run("asyncio", test)
    return told


@pytest.mark.spec("S2")
def test_families_that_are_served_say_that_their_changes_are_told() -> None:
    families = capabilities(library())
    assert families["tools"] == {"listChanged": True}
    assert families["prompts"] == {"listChanged": True}
    assert families["resources"] == {"listChanged": True, "subscribe": True}


def test_what_the_author_says_of_a_family_stands_as_it_is() -> None:
    families = capabilities(library(capabilities={"prompts": {}, "resources": {"subscribe": True}}))
    assert families["prompts"] == {}
    assert families["resources"] == {"subscribe": True}
    assert families["tools"] == {"listChanged": True}


def test_families_without_lists_of_ours_are_advertised_bare() -> None:
    app = library()

    @app.method("completion/complete")
    async def complete(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"completion": {"values": []}}

    @app.method("shelves/list", capability="shelves")
    async def shelves(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"shelves": []}

    families = capabilities(app)
    assert (families["completions"], families["shelves"]) == ({}, {})


@both_loops
def test_without_subscriptions_nothing_is_advertised_and_listen_does_not_exist(backend: str) -> None:
    app = library(subscriptions=False, capabilities={"prompts": {"listChanged": True}})

    async def test() -> None:
        async with served(app) as server:
            families = (await server.peer.result("server/discover"))["capabilities"]
            assert (families["tools"], families["prompts"], families["resources"]) == ({}, {}, {})
            error = await server.peer.error("subscriptions/listen", {"notifications": EVERYTHING})
            assert error["code"] == -32601
            announce_everything(app)
            app.remove_tool("find")
            while await tool_names(server.peer):
                pass
            assert server.peer.unclaimed == []

    run(backend, test)
