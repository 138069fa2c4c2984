"""Tools that come and go while an application is served."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.events import ListChanged, ListKind, ToolsReplaced
from mcp_tasks_trio import Application, ServerEngine, ToolContext
from runners.listening import BOUND_SECONDS, Taken, in_thread, library, listen, tool_names, until_told
from runners.served import both_loops, run, served


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
