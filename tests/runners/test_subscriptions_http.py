"""Subscriptions over real loopback sockets, on both event loops: first bytes, readers that stop, ends of every kind."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_tasks_core.server.effects import CutStream
from mcp_tasks_core.server.events import (
    ResourceUpdated,
    ShutdownBegan,
    StreamBlocked,
    StreamClosed,
    StreamUnblocked,
)
from mcp_tasks_http import HttpLimits
from mcp_tasks_trio import ServerEngine, serving_http
from runners.certificates import contexts_for_loopback
from runners.http_peer import HttpPeer, HttpServed, call, http_served, post
from runners.served import both_loops, run
from runners.stage import ACKNOWLEDGED, LONG_URI, SUBSCRIPTION_ID, URI, Stage, Told, fill, filter_of


async def begin(server: HttpServed, stage: Stage, part: str) -> str:
    """The id of a task that plays this part, and is doing so."""
    response = await server.ask(call("act", {"part": part}))
    await stage.until_begun(part)
    task_id: str = response.result["taskId"]
    return task_id


@asynccontextmanager
async def listener(server: HttpServed, *task_ids: str, request_id: object = 1, **asked: Any) -> AsyncIterator[HttpPeer]:
    """A connection on which a listen was acknowledged, and the first state of each task was read."""
    async with server.peer() as peer:
        await peer.send(post("subscriptions/listen", filter_of(*task_ids, **asked), request_id=request_id))
        await peer.stream_head()
        assert (await peer.event())["method"] == ACKNOWLEDGED
        for task_id in task_ids:
            assert (await peer.event())["params"]["taskId"] == task_id
        yield peer


def text_of(event: dict[str, Any]) -> str:
    text: str = event["params"]["statusMessage"]
    return text


# --- the beginning


@both_loops
@pytest.mark.spec("S1", "S2", "H3")
def test_the_acknowledgement_is_there_before_anything_happens_on_a_stream_that_nothing_may_keep(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server, server.peer() as peer:
            await peer.send(post("subscriptions/listen", filter_of(uris=[URI]), request_id="listen 1"))
            head = await peer.stream_head()
            assert head.fields["x-accel-buffering"] == "no"
            assert head.fields["cache-control"] == "no-store"
            event = await peer.event()
            assert event["method"] == ACKNOWLEDGED
            assert event["params"]["_meta"] == {SUBSCRIPTION_ID: "listen 1"}
            server.engine.feed(ResourceUpdated(URI))
            assert (await peer.event())["params"]["uri"] == URI

    run(backend, test)


@both_loops
@pytest.mark.spec("H3")
def test_a_quiet_subscription_gets_comments_and_then_what_happens(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with (
            http_served(stage.app, limits=HttpLimits(comment_interval_ms=20)) as server,
            listener(server, uris=[URI]) as peer,
        ):
            assert [await peer.chunk() for _ in range(3)] == [b":\n\n"] * 3
            server.engine.feed(ResourceUpdated(URI))
            assert (await peer.event())["params"]["uri"] == URI

    run(backend, test)


@both_loops
@pytest.mark.spec("D20")
def test_a_subscription_with_nothing_left_to_tell_ends_and_its_connection_serves_on(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server, server.peer() as peer:
            for number in range(3):
                await peer.send(post("subscriptions/listen", filter_of("unknown"), request_id=number))
                await peer.stream_head()
                assert (await peer.event())["params"]["notifications"] == {"taskIds": []}
                assert (await peer.event())["id"] == number
                assert await peer.chunk() == b""
                assert (await peer.answer(post("tools/list"))).status == 200
            assert server.listener.connections == 1

    run(backend, test)


# --- readers that stop


@both_loops
@pytest.mark.spec("S8", "S11", "D44")
def test_a_reader_that_stopped_reading_gets_the_newest_state_alone_and_others_everything_meanwhile(
    backend: str,
) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server:
            told = Told(server.engine)
            first, last = await begin(server, stage, "first"), await begin(server, stage, "last")
            async with (
                listener(server, first, last, uris=[LONG_URI]) as stopped,
                listener(server, first, request_id=2) as healthy,
            ):
                filled = fill(server.engine, told, StreamBlocked)
                for number in range(200):
                    await stage.says("first", f"state {number}")
                    assert text_of(await healthy.event()) == f"state {number}"
                server.engine.feed_all(ResourceUpdated(LONG_URI) for _ in range(10_000))
                stage.ends("last")
                assert [type(event) for event in told.of(StreamBlocked, StreamUnblocked)] == [StreamBlocked]
                for _ in range(filled):
                    assert (await stopped.event())["params"]["uri"] == LONG_URI
                waiting = [await stopped.event() for _ in range(3)]  # one for each thing that changed
                (once,) = [event for event in waiting if event["params"].get("uri") == LONG_URI]
                waiting.remove(once)
                newest, end = waiting
                assert (newest["params"]["taskId"], text_of(newest)) == (first, "state 199")
                assert (end["params"]["taskId"], end["params"]["status"]) == (last, "completed")
                await stage.says("first", "later")
                assert text_of(await stopped.event()) == text_of(await healthy.event()) == "later"
                assert [type(event) for event in told.of(StreamBlocked, StreamUnblocked)] == [
                    StreamBlocked,
                    StreamUnblocked,
                ]

    run(backend, test)


@both_loops
@pytest.mark.spec("S11")
def test_over_tls_a_reader_that_stopped_goes_on_where_it_was_and_one_that_stays_away_is_dropped(
    backend: str, tmp_path: Path
) -> None:
    server_context, client_context = contexts_for_loopback(tmp_path)

    async def test() -> None:
        stage = Stage(slow_reader_ms=2000)
        listen = post("subscriptions/listen", filter_of(uris=[URI, LONG_URI]))
        async with (
            http_served(stage.app, ssl_context=server_context) as server,
            server.peer(client_context) as patient,
            server.peer(client_context) as away,
        ):
            told = Told(server.engine)
            for peer in (patient, away):
                await peer.send(listen)
                await peer.stream_head()
                assert (await peer.event())["method"] == ACKNOWLEDGED
            told.events.clear()  # what TLS itself had to say first may have blocked it for a moment
            fill(server.engine, told, StreamBlocked, streams=2)
            server.engine.feed(ResourceUpdated(URI))
            received = {(await patient.event())["params"]["uri"]}
            while URI not in received:
                received.add((await patient.event())["params"]["uri"])
            await server.until(lambda: server.engine.streams_open == 1)
            assert b'"result"' not in await away.ended()
            server.engine.feed(ShutdownBegan())
            assert (await patient.event())["id"] == 1
            assert await patient.chunk() == b""

    run(backend, test)


@both_loops
@pytest.mark.spec("D22", "S11")
def test_a_reader_that_takes_nothing_for_too_long_sees_its_stream_break_off_and_others_go_on(backend: str) -> None:
    async def test() -> None:
        stage = Stage(slow_reader_ms=200)
        async with http_served(stage.app) as server:
            told = Told(server.engine)
            task_id = await begin(server, stage, "only")
            async with (
                listener(server, task_id, uris=[LONG_URI]) as stopped,
                listener(server, task_id, request_id=2) as healthy,
            ):
                fill(server.engine, told, StreamBlocked)
                with anyio.fail_after(10):
                    await server.until(lambda: server.engine.streams_open == 1)
                await stage.says("only", "still here")
                assert text_of(await healthy.event()) == "still here"
                rest = await stopped.ended()
                assert not rest.endswith(b"0\r\n\r\n")
                assert b'"result"' not in rest
                assert told.of(StreamClosed) == []
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("S11")
@pytest.mark.parametrize("secure", [False, True])
def test_a_reader_that_is_slow_and_takes_something_all_the_time_gets_everything(
    backend: str, secure: bool, tmp_path: Path
) -> None:
    server_context, client_context = contexts_for_loopback(tmp_path) if secure else (None, None)
    wait_ms, steps = 500, 50

    async def test() -> None:
        stage = Stage(slow_reader_ms=wait_ms)
        limits = HttpLimits(write_wait_ms=wait_ms)
        async with (
            http_served(stage.app, ssl_context=server_context, limits=limits) as server,
            server.peer(client_context) as peer,
        ):
            told = Told(server.engine)
            await peer.send(post("subscriptions/listen", filter_of(uris=[URI, LONG_URI])))
            await peer.stream_head()
            assert (await peer.event())["method"] == ACKNOWLEDGED
            told.events.clear()
            filled = fill(server.engine, told, StreamBlocked)
            server.engine.feed(ResourceUpdated(URI))
            for number in range(filled):
                if number % (filled // steps) == 0:
                    await anyio.sleep(6 * wait_ms / 1000 / steps)
                assert (await peer.event())["params"]["uri"] == LONG_URI
            assert (await peer.event())["params"]["uri"] == URI
            assert StreamBlocked(told.of(StreamBlocked)[0].stream_id, progressed=True) in told.events  # type: ignore[union-attr]

    run(backend, test)


@both_loops
@pytest.mark.spec("S11")
def test_a_reader_over_the_write_limit_of_http_ends_its_subscription_once(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, limits=HttpLimits(write_wait_ms=100)) as server:
            told = Told(server.engine)
            async with listener(server, uris=[LONG_URI]) as stopped:
                fill(server.engine, told, StreamBlocked)
                await server.is_clean()
                assert len(told.of(StreamClosed)) == 1
                await stopped.ended()

    run(backend, test)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@both_loops
@pytest.mark.spec("S11")
def test_many_readers_that_stop_in_one_turn_are_all_told_of(backend: str, tmp_path: Path) -> None:
    """As many as would not fit on the stack, if telling of one led to writing to the next."""
    count, path = 300, str(tmp_path / "socket")

    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, unix_socket=path) as server, AsyncExitStack() as streams:
            told = Told(server.engine)
            for _ in range(count):
                peer = HttpPeer(await streams.enter_async_context(await anyio.connect_unix(path)))
                await peer.send(post("subscriptions/listen", filter_of(uris=[LONG_URI])))
                await peer.stream_head()
                await peer.event()
            fill(server.engine, told, StreamBlocked)
            blocked = [event.stream_id for event in told.events if isinstance(event, StreamBlocked)]
            assert len(blocked) == len(set(blocked)) == count
            await streams.aclose()
            await server.is_clean()

    run(backend, test)


# --- clients that go away


@both_loops
@pytest.mark.spec("H8", "S6")
@pytest.mark.parametrize("way", ["aclose", "reset"])
def test_a_client_that_goes_away_in_a_quiet_spell_leaves_nothing_behind(backend: str, way: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, limits=HttpLimits(eof_comment_interval_ms=10)) as server:
            task_id = await begin(server, stage, "only")
            for number in range(10):
                async with listener(server, task_id, uris=[URI], request_id=number) as peer:
                    assert server.engine.streams_open == 1
                    await getattr(peer, way)()
                    await server.is_clean()
            await stage.says("only", "nobody hears it")
            async with listener(server, task_id, uris=[URI]) as peer:
                stage.ends("only")
                assert (await peer.event())["params"]["status"] == "completed"

    run(backend, test)


@both_loops
@pytest.mark.spec("D40")
def test_a_client_that_only_sends_nothing_more_goes_on_listening(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app, limits=HttpLimits(eof_comment_interval_ms=10)) as server:
            task_id = await begin(server, stage, "only")
            async with listener(server, task_id) as peer:
                await peer.send_eof()
                assert [await peer.chunk() for _ in range(3)] == [b":\n\n"] * 3
                await stage.says("only", "heard")
                assert text_of(await peer.event()) == "heard"
                stage.ends("only")
                assert (await peer.event())["params"]["status"] == "completed"
                assert (await peer.event())["id"] == 1
                assert await peer.ended() == b"0\r\n\r\n"
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("D40", "H8")
def test_a_client_that_sends_nothing_more_and_then_dies_is_found_out(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with (
            http_served(stage.app, limits=HttpLimits(eof_comment_interval_ms=10)) as server,
            listener(server, uris=[URI]) as peer,
        ):
            await peer.send_eof()
            assert await peer.chunk() == b":\n\n"
            assert server.engine.streams_open == 1
            await peer.aclose()
            await server.is_clean()

    run(backend, test)


@both_loops
@pytest.mark.spec("H8")
@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux gives up on silent peers when told to")
def test_the_kernel_gives_up_on_a_machine_that_has_gone_without_a_word_as_early_as_the_server_would(
    backend: str,
) -> None:
    async def test() -> None:
        stage = Stage()
        async with (
            http_served(stage.app, limits=HttpLimits(write_wait_ms=12_345)) as server,
            listener(server, uris=[URI]),
        ):
            (link,) = server.listener._links
            wire: Any = link._wire
            accepted = wire._sock if backend == "trio" else wire._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 12_345

    run(backend, test)


# --- the server's end


class Place:
    """A listener that ends when the test says so, with a grace that no test could wait for."""

    def __init__(self, engine: ServerEngine) -> None:
        self._engine = engine
        self._stop = anyio.Event()
        self.ended = anyio.Event()

    async def serve(self, *, task_status: Any) -> None:
        settings: dict[str, Any] = {"port": 0, "allowed_hosts": ["localhost:80"], "shutdown_grace_seconds": 3600}
        async with serving_http(self._engine, **settings) as listening:
            task_status.started(HttpServed(self._engine, listening))
            await self._stop.wait()
        self.ended.set()

    def stop(self) -> None:
        self._stop.set()


@both_loops
@pytest.mark.spec("S5")
def test_subscriptions_end_in_good_order_when_the_server_does_and_do_not_make_it_wait(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        engine = ServerEngine(stage.app)
        place = Place(engine)
        async with anyio.create_task_group() as group, engine.running():
            server = await group.start(place.serve)
            task_id = await begin(server, stage, "only")
            async with listener(server, task_id) as one, listener(server, uris=[URI], request_id="2") as two:
                place.stop()
                for peer, request_id in ((one, 1), (two, "2")):
                    result = await peer.event()
                    assert result["id"] == request_id
                    assert result["result"]["_meta"][SUBSCRIPTION_ID] == request_id
                    assert await peer.ended() == b"0\r\n\r\n"
            await place.ended.wait()
            assert (engine.streams_open, list(engine.protocol.open_exchanges)) == (0, [])

    run(backend, test)


@both_loops
@pytest.mark.spec("S5")
def test_one_of_two_places_that_an_engine_is_served_in_ends_without_the_listeners_of_the_other(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server, listener(server, uris=[URI]) as stays:
            place = Place(server.engine)
            async with anyio.create_task_group() as group:
                second = await group.start(place.serve)
                async with listener(second, uris=[URI], request_id=2) as goes:
                    place.stop()
                    assert (await goes.event())["id"] == 2
                    assert await goes.ended() == b"0\r\n\r\n"
                await place.ended.wait()
            async with listener(server, uris=[URI]) as comes:
                server.engine.feed(ResourceUpdated(URI))
                assert (await stays.event())["params"]["uri"] == URI
                assert (await comes.event())["params"]["uri"] == URI

    run(backend, test)


@both_loops
@pytest.mark.spec("D22")
def test_the_engine_forgets_a_stream_that_is_cut(backend: str) -> None:
    async def test() -> None:
        stage = Stage()
        async with http_served(stage.app) as server:
            async with listener(server, uris=[URI]) as peer:
                told = Told(server.engine)
                (exchange,) = server.engine.protocol.open_exchanges
                server.engine.protocol.handle = lambda event, now: [CutStream(exchange.stream_id, "for the test")]
                server.engine.feed(ResourceUpdated(URI))
                del server.engine.protocol.handle
                assert await peer.ended() == b""
                assert server.engine.streams_open == 0
                assert told.of(StreamClosed) == []
            server.engine.feed(StreamClosed(exchange.stream_id))

    run(backend, test)
