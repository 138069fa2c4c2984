"""What an application announces: from any thread, on both loops, to every server of it that runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.events import ListChanged, ListKind, ResourceUpdated, ServerEvent, ToolsReplaced
from mcp_tasks_trio import Application, ServerEngine, SyncToolContext, ToolContext
from mcp_tasks_trio.threads import Handover, JoiningHandover
from runners.served import Peer, both_loops, run, served

ADA, BOB = Owner("library", "ada"), Owner("library", "bob")
BOUND_SECONDS = 20
EVERYTHING: dict[str, Any] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["library://A1"],
}


class Taken:
    """What came over in the loop, in how many parts, and in which thread."""

    def __init__(self) -> None:
        self.parts: list[list[Any]] = []
        self.threads: set[int] = set()
        self._came = anyio.Event()

    def take(self, values: Sequence[Any]) -> None:
        self.parts.append(list(values))
        self.threads.add(threading.get_ident())
        self._came.set()
        self._came = anyio.Event()

    @property
    def all(self) -> list[Any]:
        return [value for part in self.parts for value in part]

    async def until(self, last: Any) -> list[Any]:
        """Everything, once this has come."""
        while last not in self.all:
            await self._came.wait()
        return self.all


def in_thread(function: Callable[[], object]) -> None:
    """Have it done in another thread, and wait without giving the loop a turn."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(BOUND_SECONDS)
    assert not thread.is_alive()


def library(**options: Any) -> Application:
    app = Application("library", version="1", **options)

    @app.method("prompts/list")
    async def prompts(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"prompts": []}

    @app.method("resources/list")
    async def resources(params: dict[str, Any], context: object) -> dict[str, Any]:
        return {"resources": []}

    @app.tool()
    async def find() -> str:
        return "A1"

    return app


async def listen(peer: Peer, notifications: dict[str, Any]) -> dict[str, Any]:
    """What a new subscription agreed to."""
    await peer.start("subscriptions/listen", {"notifications": notifications})
    acknowledged = await peer.next()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged", acknowledged
    agreed: dict[str, Any] = acknowledged["params"]["notifications"]
    return agreed


async def told(peer: Peer, count: int) -> list[str]:
    """The next notifications, by their methods' last part and the URI if there is one."""
    messages = [await peer.next() for _ in range(count)]
    return [" ".join([m["method"].removeprefix("notifications/"), *_uris(m)]) for m in messages]


def _uris(received: dict[str, Any]) -> list[str]:
    return [received["params"]["uri"]] if "uri" in received["params"] else []


async def until_told(peer: Peer, method: str) -> None:
    while await told(peer, 1) != [method]:
        pass


async def tool_names(peer: Peer) -> list[str]:
    return [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]


# --- the way into the loop


@both_loops
def test_what_threads_give_is_taken_in_the_thread_of_the_loop_in_order(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        handover: Handover[int] = Handover(taken.take, "the test")
        in_thread(lambda: [handover.give(number) for number in range(200)])
        assert await taken.until(199) == list(range(200))
        assert len(taken.parts) == 1
        assert taken.threads == {threading.get_ident()}

    run(backend, test)


@both_loops
def test_equal_values_are_joined_until_they_were_taken(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        handover: JoiningHandover[str] = JoiningHandover(taken.take, "the test")
        in_thread(lambda: [handover.give(value) for value in ["a", "b", "a", "a", "b"]])
        assert await taken.until("b") == ["a", "b"]
        handover.give("a")
        handover.give("c")
        assert await taken.until("c") == ["a", "b", "a", "c"]

    run(backend, test)


@both_loops
def test_what_is_given_while_its_equal_is_being_taken_is_taken_again(backend: str) -> None:
    async def test() -> None:
        taken = Taken()
        again = iter(["a", "end"])

        def take(values: Sequence[str]) -> None:
            for value in list(values):
                if value != "end":
                    in_thread(lambda: handover.give(next(again)))
            taken.take(values)

        handover: JoiningHandover[str] = JoiningHandover(take, "the test")
        handover.give("a")
        assert await taken.until("end") == ["a", "a", "end"]

    run(backend, test)


@both_loops
def test_after_its_end_nothing_is_taken_and_giving_does_no_harm(backend: str) -> None:
    async def test() -> None:
        taken, others = Taken(), Taken()
        handover: JoiningHandover[str] = JoiningHandover(taken.take, "the test")
        other: Handover[str] = Handover(others.take, "the test")
        handover.give("a")
        handover.end()
        in_thread(lambda: handover.give("b"))
        other.give("last")
        await others.until("last")
        assert taken.parts == []

    run(backend, test)


@both_loops
def test_what_the_taker_raises_is_a_line_in_the_log_and_the_next_is_taken(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        taken = Taken()

        def take(values: Sequence[str]) -> None:
            taken.take(values)
            if "bad" in values:
                raise ValueError("what a fault")

        handover: Handover[str] = Handover(take, "The test")
        handover.give("bad")
        await taken.until("bad")
        handover.give("good")
        await taken.until("good")

    with caplog.at_level(logging.ERROR, "mcp_tasks_trio"):
        run(backend, test)
    assert "The test failed on what came out of a thread" in caplog.text
    assert "what a fault" in caplog.text


@both_loops
def test_giving_to_a_loop_that_has_ended_does_no_harm(backend: str) -> None:
    taken: list[Handover[str]] = []

    async def test() -> None:
        taken.append(Handover(lambda values: None, "the test"))

    run(backend, test)
    taken[0].give("late")
    taken[0].end()


# --- announcements


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


# --- tools that come and go


@both_loops
def test_tools_come_and_go_while_they_are_served_and_listeners_are_told(backend: str) -> None:
    async def test() -> None:
        app = library()

        def lend() -> str:
            return "lent"

        async with served(app) as server:
            peer = server.peer
            await listen(peer, {"toolsListChanged": True})
            in_thread(lambda: app.tool()(lend))
            await until_told(peer, "tools/list_changed")
            assert await tool_names(peer) == ["find", "lend"]
            assert (await peer.call("lend"))["content"][0]["text"] == "lent"
            app.remove_tool("find")
            await until_told(peer, "tools/list_changed")
            assert await tool_names(peer) == ["lend"]
            error = await peer.error("tools/call", {"name": "find", "arguments": {}})
            assert (error["code"], error["message"]) == (-32602, "Unknown tool: find")
            app.remove_tool("lend")
            await until_told(peer, "tools/list_changed")
            assert await tool_names(peer) == []

    run(backend, test)


@both_loops
def test_a_tool_that_is_removed_can_be_declared_anew_and_is_then_the_new_one(backend: str) -> None:
    async def test() -> None:
        app = library()

        def again() -> str:
            return "B2"

        async with served(app) as server:
            await listen(server.peer, {"toolsListChanged": True})
            app.remove_tool("find")
            app.tool("find", description="Find it in the other house.")(again)
            await until_told(server.peer, "tools/list_changed")
            (tool,) = (await server.peer.result("tools/list"))["tools"]
            assert tool["description"] == "Find it in the other house."
            assert (await server.peer.call("find"))["content"][0]["text"] == "B2"

    run(backend, test)


@both_loops
def test_calls_and_tasks_that_have_begun_go_on_when_their_tool_is_removed(backend: str) -> None:
    may_end = threading.Event()
    begun = threading.Semaphore(0)

    async def test() -> None:
        app = library()

        @app.tool(task="always")
        def lend() -> str:
            begun.release()
            assert may_end.wait(BOUND_SECONDS)
            return "lent"

        async with served(app) as server:
            peer = server.peer
            handle = await peer.call("lend")
            call = await peer.start("tools/call", {"name": "lend", "arguments": {}}, capabilities={})
            for _ in range(2):
                assert await anyio.to_thread.run_sync(lambda: begun.acquire(timeout=BOUND_SECONDS))
            app.remove_tool("lend")
            while "lend" in await tool_names(peer):
                pass
            may_end.set()
            assert (await peer.answer_to(call))["result"]["content"][0]["text"] == "lent"
            done = await peer.task_in(handle["taskId"], "completed")
            assert done["result"]["content"][0]["text"] == "lent"

    run(backend, test)


@both_loops
def test_a_question_that_stands_open_is_answered_though_its_tool_is_removed(backend: str) -> None:
    async def test() -> None:
        app = library()

        @app.tool(task="always")
        async def lend(context: ToolContext) -> str:
            answer = await context.elicit("name", "Who?", {"name": {"type": "string"}})
            return f"lent to {(answer.content or {})['name']}"

        async with served(app) as server:
            peer = server.peer
            task_id = (await peer.call("lend"))["taskId"]
            await peer.task_in(task_id, "input_required")
            app.remove_tool("lend")
            while "lend" in await tool_names(peer):
                pass
            answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
            await peer.result("tasks/update", {"taskId": task_id, "inputResponses": answers})
            done = await peer.task_in(task_id, "completed")
            assert done["result"]["content"][0]["text"] == "lent to Ada"

    run(backend, test)


@asynccontextmanager
async def running(app: Application) -> AsyncIterator[ServerEngine]:
    async with ServerEngine(app).running() as engine:
        yield engine


@both_loops
def test_tools_that_were_declared_between_the_making_of_a_server_and_its_start_are_there(backend: str) -> None:
    async def test() -> None:
        app, taken = library(), Taken()
        config = app.server_config(())

        @app.tool()
        async def lend() -> str:
            return "lent"

        with app.announcing_to(config, taken.take):
            await anyio.lowlevel.checkpoint()
            app.prompts_changed()
            first, _ = await taken.until(ListChanged(ListKind.PROMPTS))
        assert isinstance(first, ToolsReplaced)
        assert [entry.name for entry in first.tools] == ["find", "lend"]

    run(backend, test)


@both_loops
def test_a_server_without_tools_or_tasks_refuses_what_it_cannot_take_in_and_says_what_to_do(backend: str) -> None:
    async def work() -> str:
        return "done"

    async def test() -> None:
        bare = Application("bare", version="1")
        async with running(bare):
            with pytest.raises(LocalProtocolError, match=r"too late.*capabilities=\{\"tools\": \{\}\}"):
                bare.tool()(work)
            assert dict(bare.tools) == {}
        bare.tool()(work)
        async with running(bare):
            with pytest.raises(LocalProtocolError, match=r"without tasks.*tasks=True"):
                bare.tool("longer", task="always")(work)
        engine = ServerEngine(bare)
        bare.tool("longer", task="always")(work)
        with pytest.raises(LocalProtocolError, match="without tasks"):
            async with engine.running():
                pass

    run(backend, test)


@both_loops
def test_first_tools_and_first_tasks_may_come_late_where_the_application_says_so(backend: str) -> None:
    async def work() -> str:
        return "done"

    async def test() -> None:
        app = Application("late", version="1", tasks=True, capabilities={"tools": {}})
        async with served(app) as server:
            peer = server.peer
            assert await listen(peer, {"toolsListChanged": True}) == {"toolsListChanged": True}
            assert await tool_names(peer) == []
            app.tool(task="required", ttl=timedelta(minutes=1))(work)
            await until_told(peer, "tools/list_changed")
            handle = await peer.call("work")
            await peer.task_in(handle["taskId"], "completed")
        inline = Application("inline", version="1", tasks=False, capabilities={"tools": {}})
        async with served(inline) as server:
            inline.tool(task="always")(work)
            while await tool_names(server.peer) == []:
                pass
            assert (await server.peer.call("work"))["content"][0]["text"] == "done"

    run(backend, test)


def test_what_is_not_there_cannot_be_removed_and_the_message_says_what_is() -> None:
    app = library()
    with pytest.raises(LocalProtocolError, match="no tool 'lend' to remove; there are: find"):
        app.remove_tool("lend")
    app.remove_tool("find")
    with pytest.raises(LocalProtocolError, match="none at all"):
        app.remove_tool("find")


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
