"""Subscriptions of the client, over HTTP and on stdio, on both event loops, with servers that keep to a script."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.client.events import ListKind
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.tasks import CompletedTask, Task
from mcp_tasks_trio import (
    CallTimedOut,
    Client,
    ClientError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    ListChange,
    RemoteError,
    ResourceUpdate,
    Subscription,
    SubscriptionNotAcknowledged,
    SubscriptionsUnsupported,
    TaskDropped,
    Unauthorized,
    connect_http,
    connect_stdio,
)
from mcp_tasks_trio.client_listening import Change
from runners.fakes.scripted_http import FakeRequest, FakeServer, fake_server
from runners.served import both_loops, run

FAKE = Path(__file__).parent / "fakes" / "listening_server.py"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTEN = "subscriptions/listen"
HASTY = ClientLimits(listen_backoff_ms=1, listen_backoff_ms_max=2)

Handler = Callable[["Listener"], Awaitable[None]]


def task(name: str = "t-1", status: str = "working", second: int = 0, **members: Any) -> dict[str, Any]:
    if status == "completed":
        members.setdefault("result", {"content": [{"type": "text", "text": "done"}]})
    moment = f"2026-07-28T10:{second // 60:02d}:{second % 60:02d}Z"
    task = {"taskId": name, "status": status, "createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": moment}
    return {**task, "ttlMs": None, **members}


class Listener:
    """A subscription as the fake server sees it."""

    def __init__(self, request: FakeRequest, number: int) -> None:
        self.request = request
        self.number = number
        self.id = request.message["id"]
        self.asked = request.params["notifications"]

    async def tell(self, method: str, **params: Any) -> None:
        await self.event({"method": method, "params": {"_meta": {SUBSCRIPTION: self.id}, **params}})

    async def event(self, message: dict[str, Any]) -> None:
        await self.request.chunk("data: " + json.dumps({"jsonrpc": "2.0", **message}) + "\n\n")

    async def acknowledge(self, **agreed: Any) -> None:
        await self.tell("notifications/subscriptions/acknowledged", notifications=agreed or self.asked)

    async def state(self, *told: Any, **members: Any) -> None:
        await self.tell("notifications/tasks", **task(*told, **members))

    async def end(self) -> None:
        """In good order: the result, and the end of the stream."""
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION: self.id}}
        await self.event({"id": self.id, "result": result})
        await self.request.raw(b"0\r\n\r\n")

    async def until_closed(self) -> None:
        """Tell nothing more until the client goes."""
        while True:
            await self.request.stream.receive()


@asynccontextmanager
async def listening_server(handler: Handler) -> AsyncIterator[FakeServer]:
    """A server whose subscriptions do what a test wrote; its tasks are all at work."""
    count = 0

    async def handle(request: FakeRequest) -> None:
        nonlocal count
        if request.method == LISTEN:
            count += 1
            listener = Listener(request, count)
            await handler(listener)
        elif request.method == "tasks/get":
            await request.result(**task(request.params["taskId"], second=1))
        else:
            await request.text("as always")

    async with fake_server(handle) as server:
        yield server


async def statuses(subscription: Subscription) -> list[str]:
    return [change.status.value async for change in subscription if isinstance(change, Task)]


# --- over HTTP


@both_loops
@pytest.mark.spec("P6", "P10", "S1")
def test_states_come_typed_and_the_subscription_ends_with_the_last_task(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.state()
        await listener.state("t-1", "completed", 1)
        await listener.end()

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            async with client.listen(["t-1", "t-1"]) as subscription:
                assert subscription.agreed.task_ids == ("t-1",)
                assert subscription.not_agreed == ()
                seen = [change async for change in subscription]
                assert subscription.ended
            assert isinstance(seen[-1], CompletedTask)
            assert subscription.tasks == {"t-1": seen[-1]}
            assert [change.status.value for change in seen if isinstance(change, Task)][-1] == "completed"
            [request] = server.of(LISTEN)
            assert request.fields["mcp-method"] == LISTEN
            declared = request.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert "io.modelcontextprotocol/tasks" in declared["extensions"]
            # The connection of a subscription that ended in good order serves again.
            await client.call_tool("anything")
            assert server.connections == 1

    run(backend, main)


@both_loops
def test_changes_of_lists_and_resources_come_as_values_of_their_own(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.tell("notifications/tools/list_changed")
        await listener.tell("notifications/resources/updated", uri="file:///a")
        await listener.until_closed()

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            async with client.listen(tools=True, resource_uris=["file:///a"]) as subscription:
                found = [await anext(subscription), await anext(subscription)]
            assert found == [ListChange(ListKind.TOOLS), ResourceUpdate("file:///a")]
            assert [change async for change in subscription] == []

    run(backend, main)


@both_loops
@pytest.mark.spec("S6", "P5")
def test_leaving_the_block_closes_the_stream_and_touches_nothing_else(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.state()
        await listener.until_closed()

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            async with client.listen(["t-1"]) as subscription:
                await anext(subscription)
                assert not subscription.ended
                assert (await client.call_tool("beside")).text == "as always"
            assert subscription.ended
            await server.until(lambda: server.closed == 1)
            assert (await client.call_tool("after")).text == "as always"
            assert [request.method for request in server.requests if request.method != "server/discover"] == [
                LISTEN,
                "tools/call",
                "tools/call",
            ]

    run(backend, main)


@both_loops
@pytest.mark.spec("P5")
def test_a_cancelled_scope_ends_the_subscription_too(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.until_closed()

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            with anyio.CancelScope() as scope:
                async with client.listen(["t-1"], tools=True) as subscription:
                    scope.cancel()
                    async for _ in subscription:
                        raise AssertionError("nothing was told")
            await server.until(lambda: server.closed == 1)
            assert server.of("tasks/cancel") == []

    run(backend, main)


@both_loops
@pytest.mark.spec("D44")
def test_a_slow_reader_gets_the_newest_state_of_each_task_and_every_end(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        for second in range(1, 2_000):
            await listener.state("t-1", second=second)
            await listener.state("t-2", second=second)
        await listener.state("t-1", "cancelled", 2_000)
        await listener.state("t-2", "completed", 2_001)
        await listener.end()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url) as client,
            client.listen(["t-1", "t-2"]) as subscription,
        ):
            while not subscription.ended:
                await anyio.lowlevel.checkpoint()
            assert await statuses(subscription) == ["cancelled", "completed"]

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_task_that_the_server_lost_is_told_while_others_are_listened_to(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        if listener.number == 1:
            await listener.acknowledge()
            await listener.state("lost", second=1)
            await listener.request.raw(b"0\r\n\r\n")
        else:
            await listener.acknowledge(taskIds=["kept"])
            await listener.until_closed()

    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with (
            listening_server(serve) as server,
            connect_http(server.url, config=config) as client,
            client.listen(["lost", "kept", "lost"]) as subscription,
        ):
            changes = [change async for change in _until(subscription, TaskDropped)]
            assert next(change.task_id for change in changes if isinstance(change, Task)) == "lost"
            assert changes[-1] == TaskDropped(TaskId("lost"))
            assert subscription.not_agreed == ("lost",)
            assert subscription.agreed.task_ids == ("kept",)
            assert not subscription.ended

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_task_that_cannot_be_found_any_longer_is_told_and_ends_the_subscription_with_the_last(backend: str) -> None:
    async def handle(request: FakeRequest) -> None:
        if request.method == LISTEN:
            listener = Listener(request, 1)
            await request.begin_stream()
            await listener.acknowledge()
            await listener.until_closed()
        else:
            await request.error(-32602, "Task not found")

    async def main() -> None:
        config = ClientConfig(client_limits=ClientLimits(listen_snapshot_ms=1))
        async with (
            fake_server(handle) as server,
            connect_http(server.url, config=config) as client,
            client.listen(["t-1"]) as subscription,
        ):
            assert [change async for change in subscription] == [TaskDropped(TaskId("t-1"))]
            assert subscription.not_agreed == ("t-1",)

    run(backend, main)


async def _until(subscription: Subscription, kind: type) -> AsyncIterator[Change]:
    """Changes up to the first one of a class, which is among them."""
    async for change in subscription:
        yield change
        if isinstance(change, kind):
            return


def test_changes_are_readable_as_they_are_printed() -> None:
    changes = [ListChange(ListKind.TOOLS), ResourceUpdate("file:///a"), TaskDropped(TaskId("t-1"))]
    assert [str(change) for change in changes] == [
        "the list of tools has changed",
        "resource 'file:///a' has changed",
        "task 't-1' is unknown to the server, or not for this client",
    ]
    assert [repr(change) for change in changes] == [
        "ListChange(kind=ListKind.TOOLS)",
        "ResourceUpdate(uri='file:///a')",
        "TaskDropped(task_id='t-1')",
    ]


@both_loops
def test_parts_of_resources_that_nobody_reads_become_the_resource_as_a_whole(backend: str) -> None:
    parts = 1_001

    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        for number in range(parts):
            await listener.tell("notifications/resources/updated", uri=f"file:///a/{number}")
        await listener.tell("notifications/tools/list_changed")
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url) as client,
            client.listen(tools=True, resource_uris=["file:///a"]) as subscription,
        ):
            # The change of the list is the last one that is told; it is not read before everything else has come.
            changes: list[object] = []
            while ListChange(ListKind.TOOLS) not in subscription._news.values():
                await anyio.lowlevel.checkpoint()
            changes = [await anext(subscription), await anext(subscription)]
            assert changes == [ResourceUpdate("file:///a"), ListChange(ListKind.TOOLS)]

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_after_a_cut_the_task_is_read_and_listened_to_under_a_new_id(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        if listener.number == 1:
            await listener.request.close()
            return
        await listener.state("t-1", "completed", 2)
        await listener.end()

    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            async with client.listen(["t-1"]) as subscription:
                assert (await statuses(subscription))[-1] == "completed"
            first, second = server.of(LISTEN)
            assert first.message["id"] != second.message["id"]
            assert len(server.of("tasks/get")) == 1

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_stream_without_any_byte_for_too_long_counts_as_cut(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        if listener.number == 2:
            await listener.state("t-1", "completed", 2)
            await listener.end()
        else:
            await listener.until_closed()

    async def main() -> None:
        limits = ClientLimits(listen_quiet_ms=100, listen_backoff_ms=1)
        config = ClientConfig(client_limits=limits)
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            async with client.listen(["t-1"]) as subscription:
                assert (await statuses(subscription))[-1] == "completed"
            assert len(server.of(LISTEN)) == 2

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_server_that_cuts_every_stream_is_given_up_within_the_budget(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.request.close()

    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with (
            listening_server(serve) as server,
            connect_http(server.url, config=config) as client,
            client.listen(tools=True) as subscription,
        ):
            with pytest.raises(ConnectionLost):
                await statuses(subscription)
            assert len(server.of(LISTEN)) == HASTY.listen_failures_max

    run(backend, main)


async def bare_result(listener: Listener) -> None:
    await listener.request.result(_meta={SUBSCRIPTION: listener.id})


async def state_before_the_acknowledgement(listener: Listener) -> None:
    await listener.request.begin_stream()
    await listener.state()
    await listener.acknowledge()
    await listener.until_closed()


async def too_much_agreed(listener: Listener) -> None:
    await listener.request.begin_stream()
    await listener.acknowledge(taskIds=["t-1", "t-2"])
    await listener.until_closed()


async def id_as_a_string(listener: Listener) -> None:
    listener.id = str(listener.id)
    await listener.request.begin_stream()
    await listener.acknowledge()
    await listener.until_closed()


async def accepted(listener: Listener) -> None:
    await listener.request.raw(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")


async def unauthorized(listener: Listener) -> None:
    await listener.request.respond("", status=401, WWW_Authenticate="Bearer")


async def a_page(listener: Listener) -> None:
    await listener.request.respond("<h1>Not Found</h1>", status=404, content_type="text/html")


async def not_found(listener: Listener) -> None:
    await listener.request.error(-32601, "Method not found", status=404)


async def refused(listener: Listener) -> None:
    await listener.request.error(-32602, "Bad params")


@both_loops
@pytest.mark.spec("P6")
@pytest.mark.parametrize(
    ("serve", "error"),
    [
        (bare_result, InvalidResponse),
        (state_before_the_acknowledgement, InvalidResponse),
        (too_much_agreed, InvalidResponse),
        (id_as_a_string, InvalidResponse),
        (accepted, InvalidResponse),
        (unauthorized, Unauthorized),
        (a_page, HttpError),
        (not_found, SubscriptionsUnsupported),
        (refused, RemoteError),
    ],
)
def test_what_a_server_will_never_do_right_is_one_error_and_one_request(
    backend: str, serve: Handler, error: type[ClientError]
) -> None:
    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            with pytest.raises(error):
                async with client.listen(["t-1"]):
                    raise AssertionError("there is no subscription")
            assert (await client.call_tool("after")).text == "as always"
            assert len(server.of(LISTEN)) == 1

    run(backend, main)


@both_loops
@pytest.mark.spec("P6", "S7")
def test_an_acknowledgement_of_nothing_is_no_error(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge(taskIds=[])
        await listener.end()

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            async with client.listen(["gone"]) as subscription:
                assert subscription.not_agreed == ("gone",)
                assert [change async for change in subscription] == []
            assert len(server.of(LISTEN)) == 1

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_server_that_is_overloaded_for_a_while_is_asked_again(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        if listener.number == 1:
            await listener.request.respond("busy", status=503, content_type="text/plain")
        elif listener.number == 2:
            await listener.request.error(-32603, "busy", status=500, data={"retryable": True})
        else:
            await listener.request.begin_stream()
            await listener.acknowledge()
            await listener.state("t-1", "completed", 2)
            await listener.end()

    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            async with client.listen(["t-1"]) as subscription:
                assert (await statuses(subscription))[-1] == "completed"
            assert len(server.of(LISTEN)) == 3

    run(backend, main)


@both_loops
@pytest.mark.spec("P6")
def test_a_fault_on_the_way_is_raised_behind_what_came_before_it(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.state()
        await listener.state("t-2")
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url) as client,
            client.listen(["t-1"]) as subscription,
        ):
            assert isinstance(await anext(subscription), Task)
            with pytest.raises(InvalidResponse, match="t-2"):
                await anext(subscription)
            with pytest.raises(InvalidResponse):
                await anext(subscription)

    run(backend, main)


@both_loops
def test_subscriptions_take_no_connection_from_calls(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url, connections_max=1) as client,
            client.listen(tools=True),
        ):
            assert (await client.call_tool("beside")).text == "as always"

    run(backend, main)


@both_loops
def test_a_subscription_too_many_is_refused_with_the_bound_that_it_meets(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_tasks_trio.http_transport._LISTEN_SLOT_S", 0.01)

    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url, connections_max=2) as client,
            client.listen(tools=True),
        ):
            async with client.listen(prompts=True):
                with pytest.raises(ClientError, match="2 subscriptions open, and its connections_max, 2") as caught:
                    async with client.listen(["t-1"]):
                        pass
                assert not isinstance(caught.value, CallTimedOut)
                assert len(server.of(LISTEN)) == 2
            async with client.listen(["t-1"]):
                assert len(server.of(LISTEN)) == 3

    run(backend, main)


@both_loops
def test_silence_in_place_of_an_acknowledgement_is_told_from_the_callers_own_deadline(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.until_closed()

    async def main() -> None:
        config = ClientConfig(client_limits=ClientLimits(listen_ack_timeout_ms=20))
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            with pytest.raises(SubscriptionNotAcknowledged, match=r"did not acknowledge .* within 0\.02 s"):
                async with client.listen(["t-1"]):
                    pass

    run(backend, main)


@both_loops
@pytest.mark.spec("P7")
def test_a_stream_that_ends_without_a_result_is_a_loss_that_repeats_nothing_of_what_it_held(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        if listener.number == 1:
            await listener.state("t-1", statusMessage="a secret")
            await listener.request.raw(b"0\r\n\r\n")
        else:
            await listener.state("t-1", "completed", 5)
            await listener.end()

    async def main() -> None:
        config = ClientConfig(client_limits=HASTY)
        async with (
            listening_server(serve) as server,
            connect_http(server.url, config=config) as client,
            client.listen(["t-1"]) as subscription,
        ):
            assert (await statuses(subscription))[-1] == "completed"

    with caplog.at_level("WARNING", logger="mcp_tasks.client"):
        run(backend, main)
    assert [record.getMessage() for record in caplog.records] == [
        "lost the subscription, retrying: the server ended the stream without a result",
        "listening again",
    ]


@both_loops
def test_a_timeout_ends_the_subscription(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url) as client,
            client.listen(tools=True, timeout=0.05) as subscription,
        ):
            with pytest.raises(CallTimedOut):
                await anext(subscription)

    run(backend, main)


@both_loops
def test_a_client_that_is_closed_ends_its_subscriptions(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        await listener.request.begin_stream()
        await listener.acknowledge()
        await listener.until_closed()

    async def main() -> None:
        async with (
            listening_server(serve) as server,
            connect_http(server.url) as client,
            client.listen(tools=True) as subscription,
        ):
            await client.aclose()
            with pytest.raises(ConnectionLost, match="the client was closed"):
                await anext(subscription)

    run(backend, main)


@both_loops
def test_what_cannot_be_listened_to_is_refused_here(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        raise AssertionError("nothing is sent")

    async def main() -> None:
        async with listening_server(serve) as server, connect_http(server.url) as client:
            for arguments in ({}, {"task_ids": "t-1"}, {"resource_uris": "file:///a"}, {"task_ids": [""]}):
                with pytest.raises(LocalProtocolError):
                    async with client.listen(**arguments):
                        raise AssertionError("there is no subscription")
            assert server.of(LISTEN) == []

    run(backend, main)


@both_loops
def test_nothing_is_left_of_subscriptions_however_they_ended(backend: str) -> None:
    async def serve(listener: Listener) -> None:
        [name] = listener.asked["taskIds"]
        if name == "refused":
            await listener.request.error(-32602, "Bad params")
            return
        await listener.request.begin_stream()
        await listener.acknowledge()
        if name == "cut":
            await listener.request.close()
        elif name == "ended":
            await listener.state(name, "completed", 1)
            await listener.end()
        elif name == "unended":
            await listener.state(name, "completed", 1)
            await listener.until_closed()
        elif name == "wrong":
            await listener.state("another")
            await listener.until_closed()
        else:
            await listener.until_closed()

    async def main() -> None:
        limits = ClientLimits(listen_backoff_ms=1, listen_failures_max=2, listen_end_ms=1)
        config = ClientConfig(client_limits=limits)
        async with listening_server(serve) as server, connect_http(server.url, config=config) as client:
            for name in ("left", "refused", "cut", "ended", "unended", "wrong", "late") * 20:
                timeout = 0.005 if name == "late" else None
                with contextlib.suppress(ClientError):
                    async with client.listen([name], timeout=timeout) as subscription:
                        if name != "left":
                            await statuses(subscription)
            await server.until(lambda: server.connections - server.closed <= 1)
            assert client._protocol.open_operations == {}
            assert client._protocol.deadline is None
            assert client._subscriptions == {}
            assert (await client.call_tool("after")).text == "as always"

    run(backend, main)


# --- on stdio

on_posix = pytest.mark.skipif(os.name != "posix", reason="the fake server is a child process of POSIX")


class Child:
    """The fake server's command, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self._record = folder / "record"
        self._record.touch()

    def connect(self, limits: ClientLimits | None = None) -> Any:
        config = None if limits is None else ClientConfig(client_limits=limits)
        return connect_stdio([sys.executable, str(FAKE), str(self._record)], config=config)

    def told(self, method: str) -> list[dict[str, Any]]:
        messages = [json.loads(line) for line in self._record.read_text(encoding="utf-8").splitlines()]
        return [message for message in messages if message["method"] == method]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    return Child(tmp_path)


@on_posix
@both_loops
@pytest.mark.spec("S9", "S6", "D22")
def test_several_subscriptions_on_one_pipe_are_kept_apart(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        async with child.connect() as client:
            async with client.listen(["works"]) as works, client.listen(["ends", "unknown"]) as ends:
                assert ends.not_agreed == ("unknown",)
                assert (await statuses(ends))[-1] == "completed"
                change = await anext(works)
                assert isinstance(change, Task)
                assert change.task_id == "works"
                assert not works.ended
            # What is sent afterwards is behind the cancellation.
            await client.request("ping")
            first, second = child.told(LISTEN)
            [cancelled] = child.told("notifications/cancelled")
            assert cancelled["params"]["requestId"] == first["id"]
            assert first["id"] != second["id"]
            assert child.told("tasks/cancel") == []

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("P7", "D22")
def test_a_subscription_that_the_server_cancels_is_asked_for_again(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        async with child.connect(HASTY) as client, client.listen(["drops"]) as subscription:
            assert (await statuses(subscription))[-1] == "completed"
            assert len(child.told("tasks/get")) == 1
            first, second = child.told(LISTEN)
            assert first["id"] != second["id"]

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("D44")
def test_on_a_pipe_a_slow_reader_gets_the_newest_state_and_the_end(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        async with child.connect() as client, client.listen(["busy"]) as subscription:
            while not subscription.ended:
                await anyio.lowlevel.checkpoint()
            assert await statuses(subscription) == ["completed"]

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("I6")
def test_a_server_that_dies_ends_the_subscription_with_what_it_left_behind(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        async with child.connect() as client, client.listen(["dies"]) as subscription:
            with pytest.raises(ConnectionLost) as caught:
                await statuses(subscription)
            assert caught.value.exit_status == 3
            assert "out of cheese" in caught.value.stderr_tail
            assert subscription.tasks["dies"].status.value == "working"

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("I6")
def test_a_client_of_a_new_process_listens_anew(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        for _ in range(2):
            async with child.connect() as client, client.listen(["ends"]) as subscription:
                assert (await statuses(subscription))[-1] == "completed"
        assert len(child.told(LISTEN)) == 2

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("P6")
@pytest.mark.parametrize(
    ("name", "error"),
    [("bare", InvalidResponse), ("early", InvalidResponse), ("unsupported", SubscriptionsUnsupported)],
)
def test_on_a_pipe_a_fault_is_one_error_and_one_request(
    backend: str, child: Child, name: str, error: type[ClientError]
) -> None:
    async def main() -> None:
        client: Client
        async with child.connect(HASTY) as client:
            with pytest.raises(error):
                async with client.listen([name]):
                    raise AssertionError("there is no subscription")
            await client.request("ping")
            assert len(child.told(LISTEN)) == 1

    run(backend, main)


@on_posix
@both_loops
@pytest.mark.spec("P6", "S9")
def test_a_fault_on_one_subscription_leaves_the_others_and_the_pipe_alone(backend: str, child: Child) -> None:
    async def main() -> None:
        client: Client
        async with child.connect() as client, client.listen(["works"]) as works:
            with pytest.raises(InvalidResponse, match="another"):
                async with client.listen(["lies"]) as lies:
                    await statuses(lies)
            await client.request("ping")
            assert not works.ended

    run(backend, main)
