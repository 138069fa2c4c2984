"""Our client listens to our server, over HTTP and on stdio, on both event loops."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.client.events import ListKind
from mcp_tasks_core.tasks import CompletedTask, Task
from mcp_tasks_http import HttpLimits
from mcp_tasks_trio import (
    Application,
    CallTimedOut,
    Client,
    ListChange,
    ResourceUpdate,
    ServerUnreachable,
    Subscription,
    SubscriptionsUnsupported,
    connect_http,
    connect_stdio,
)
from runners.http_peer import HttpServed, http_served
from runners.served import both_loops, run
from runners.stage import URI, Stage

HASTY = ClientLimits(listen_backoff_ms=1, listen_backoff_ms_max=2, listen_steady_ms=1)

CHILD = """
import anyio

from mcp_tasks_trio import Application, ToolContext

app = Application("child", version="1.0")


@app.tool(task="always")
async def work(context: ToolContext) -> str:
    await context.status("at it")
    await anyio.sleep_forever()
    return ""


@app.tool(task="always")
async def finish() -> str:
    return "done"
"""


@asynccontextmanager
async def on_stage(stage: Stage, limits: ClientLimits | None = None) -> AsyncIterator[tuple[HttpServed, Client]]:
    config = ClientConfig(client_limits=limits or ClientLimits())
    async with http_served(stage.app) as server, connect_http(server.url, config=config) as client:
        yield server, client


async def begun(client: Client, stage: Stage, part: str) -> str:
    """The id of a task whose work has begun."""
    execution = await client.start_tool("act", {"part": part})
    await stage.until_begun(part)
    assert execution.task_id is not None
    execution.detach()
    return execution.task_id


async def state_with(subscription: Subscription, message: str) -> Task:
    """The first state that has this message."""
    async for change in subscription:
        if isinstance(change, Task) and change.status_message == message:
            return change
    raise AssertionError(f"{message!r} was never told")


async def last_states(subscription: Subscription) -> list[str]:
    return [change.status.value async for change in subscription if isinstance(change, Task) and change.is_terminal]


@both_loops
@pytest.mark.spec("P6", "S1", "S8")
def test_states_come_as_the_work_goes_on_and_nothing_is_left(backend: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with on_stage(stage) as (server, client):
            first, second = await begun(client, stage, "one"), await begun(client, stage, "two")
            async with client.listen([first, second]) as subscription:
                await stage.says("one", "curtain up")
                assert (await state_with(subscription, "curtain up")).task_id == first
                stage.ends("two")
                stage.ends("one")
                assert await last_states(subscription) == ["completed", "completed"]
                task = subscription.tasks[first]
                assert isinstance(task, CompletedTask)
                assert task.result["content"][0]["text"] == "the end of one"
            await server.until(lambda: not server.engine.protocol.open_exchanges)

    run(backend, main)


@both_loops
@pytest.mark.spec("S6", "P5")
def test_leaving_the_block_ends_the_listen_at_the_server_and_not_the_task(backend: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with on_stage(stage) as (server, client):
            task_id = await begun(client, stage, "one")
            async with client.listen([task_id]) as subscription:
                await anext(subscription)
                assert server.engine.protocol.open_exchanges
            await server.until(lambda: not server.engine.protocol.open_exchanges)
            stage.ends("one")
            assert (await client.observe(task_id).wait()).text == "the end of one"

    run(backend, main)


@both_loops
@pytest.mark.spec("S9")
def test_lists_and_resources_are_told_with_tasks(backend: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with on_stage(stage) as (_, client):
            task_id = await begun(client, stage, "one")
            async with client.listen([task_id], tools=True, resource_uris=[URI]) as subscription:
                assert subscription.agreed.tools_list_changed
                assert subscription.agreed.resource_subscriptions == (URI,)
                stage.app.tools_changed()
                stage.app.resource_updated(URI)
                stage.ends("one")
                expected = {ListChange(ListKind.TOOLS), ResourceUpdate(URI), "completed"}
                seen: set[object] = set()
                while not expected <= seen:
                    change = await anext(subscription)
                    seen.add(change.status.value if isinstance(change, Task) else change)
                assert not subscription.ended

    run(backend, main)


@both_loops
@pytest.mark.spec("S7", "D19", "D20")
def test_unknown_tasks_are_not_agreed_to_and_ended_ones_are_told_at_once(backend: str) -> None:
    async def main() -> None:
        stage = Stage()
        async with on_stage(stage) as (_, client):
            task_id = await begun(client, stage, "one")
            stage.ends("one")
            await client.observe(task_id).wait()
            async with client.listen(["nobody", task_id]) as subscription:
                assert subscription.not_agreed == ("nobody",)
                assert await last_states(subscription) == ["completed"]
            async with client.listen(["nobody"]) as subscription:
                assert await last_states(subscription) == []

    run(backend, main)


@both_loops
@pytest.mark.spec("P7", "D22")
def test_a_server_that_limits_how_long_a_subscription_lasts_is_listened_to_again(backend: str) -> None:
    async def main() -> None:
        stage = Stage(subscription_duration_ms=20)
        async with on_stage(stage, HASTY) as (_, client):
            task_id = await begun(client, stage, "one")
            async with client.listen([task_id], tools=True) as subscription:
                # Told once more each time that it was interrupted.
                for _ in range(3):
                    while await anext(subscription) != ListChange(ListKind.TOOLS):
                        pass
                stage.ends("one")
                while True:
                    change = await anext(subscription)
                    if isinstance(change, CompletedTask):
                        break

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_server_that_goes_away_is_given_up_within_the_budget(backend: str) -> None:
    async def main() -> None:
        stage = Stage()
        leave = anyio.Event()
        left = anyio.Event()
        url: list[str] = []
        up = anyio.Event()

        async def serve() -> None:
            async with http_served(stage.app) as server:
                url.append(server.url)
                up.set()
                await leave.wait()
            left.set()

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            await up.wait()
            config = ClientConfig(client_limits=HASTY)
            async with connect_http(url[0], config=config) as client, client.listen(tools=True) as subscription:
                leave.set()
                await left.wait()
                with pytest.raises(ServerUnreachable):
                    await anext(subscription)

    run(backend, main)


@both_loops
def test_comments_of_the_server_keep_a_quiet_stream_alive(backend: str) -> None:
    async def main() -> None:
        config = ClientConfig(client_limits=ClientLimits(listen_quiet_ms=400, listen_backoff_ms=1))
        async with (
            http_served(Stage().app, limits=HttpLimits(comment_interval_ms=20)) as server,
            connect_http(server.url, config=config) as client,
            client.listen(tools=True, timeout=1.0) as subscription,
        ):
            # A stream that was cut would be followed by another one, and that by a change.
            with pytest.raises(CallTimedOut):
                await anext(subscription)

    run(backend, main)


@both_loops
def test_an_application_without_subscriptions_says_so(backend: str) -> None:
    async def main() -> None:
        app = Application("still", version="1", subscriptions=False)
        async with http_served(app) as server, connect_http(server.url) as client:
            with pytest.raises(SubscriptionsUnsupported):
                async with client.listen(["t-1"]):
                    raise AssertionError("there is no subscription")

    run(backend, main)


@pytest.fixture
def child(tmp_path: Path) -> Path:
    (tmp_path / "child.py").write_text(CHILD, encoding="utf-8")
    return tmp_path


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "mcp_tasks_trio", "serve", "child:app", "--store", "memory", *options]


@both_loops
@pytest.mark.spec("S9", "S6", "D22")
def test_on_stdio_several_subscriptions_share_the_pipe(backend: str, child: Path) -> None:
    async def main() -> None:
        async with connect_stdio(command("--backend", backend), cwd=child) as client:
            working = (await client.start_tool("work")).task_id
            finished = (await client.start_tool("finish")).task_id
            assert working is not None
            assert finished is not None
            async with client.listen([working], tools=True) as one, client.listen([working, finished]) as two:
                assert (await state_with(one, "at it")).task_id == working
                await client.cancel_task(working)
                assert sorted(await last_states(two)) == ["cancelled", "completed"]
                while not (isinstance(change := await anext(one), Task) and change.is_terminal):
                    pass
                assert not one.ended
            async with client.listen([working]) as again:
                assert await last_states(again) == ["cancelled"]

    run(backend, main)


@both_loops
@pytest.mark.spec("I6")
def test_on_stdio_a_server_that_is_started_again_is_listened_to_anew(backend: str, child: Path) -> None:
    async def main() -> None:
        store = str(child / "tasks.db")
        words = [sys.executable, "-m", "mcp_tasks_trio", "serve", "child:app", "--store", store]
        async with connect_stdio(words, cwd=child) as client:
            execution = await client.start_tool("finish")
            await execution.wait()
            task_id = execution.task_id
            assert task_id is not None
            async with client.listen([task_id]) as subscription:
                assert await last_states(subscription) == ["completed"]
        async with connect_stdio(words, cwd=child) as client, client.listen([task_id]) as subscription:
            assert await last_states(subscription) == ["completed"]

    run(backend, main)
