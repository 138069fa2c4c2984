"""The engine between the protocol core, a store and an application: stores that block or fail, streams, time."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId, Ticket
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import Acknowledge, Frame
from mcp_tasks_core.server.events import InputNeeded, MessageReceived, Returned, ToolAnswered
from mcp_tasks_core.store import CapacityExceeded, MemoryTaskStore, StoredTask, StoreError, StoreUncertain
from mcp_tasks_trio import Application, ServerEngine, ToolContext
from mcp_tasks_trio.channels import LOG_LEVELS
from mcp_tasks_trio.threads import WorkerThreads
from runners.served import CAPABILITIES, both_loops, message, run, served


def application(**options: Any) -> Application:
    app = Application("test", version="1", **options)

    @app.tool(task="always")
    async def work() -> str:
        return "done"

    @app.tool()
    async def echo(text: str) -> str:
        return text

    return app


class BlockingStore(MemoryTaskStore):
    """A store whose calls wait where a test wants it, and fail as it wants."""

    blocks = True

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()
        self.may_go.set()
        self.threads: set[str] = set()
        self.failure: Exception | None = None

    def _pass(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.may_go.wait()
        if self.failure is not None:
            raise self.failure

    def create(self, row: StoredTask) -> bool:
        self._pass()
        return super().create(row)

    def load(self, task_id: TaskId) -> StoredTask | None:
        self._pass()
        return super().load(task_id)

    def swap(self, row: StoredTask) -> bool:
        self._pass()
        return super().swap(row)


class FailingStore(MemoryTaskStore):
    """A store in memory that fails as a test wants it."""

    failure: Exception | None = None

    def create(self, row: StoredTask) -> bool:
        if self.failure is not None:
            raise self.failure
        return super().create(row)


class Stream:
    """A stream that only remembers its frames."""

    def __init__(self, engine: ServerEngine, owner: Owner = LOCAL_OWNER) -> None:
        self._engine = engine
        self._owner = owner
        self._ids = 0
        self._arrived = anyio.Event()
        self.frames: list[dict[str, Any]] = []
        self.flushes = 0
        self.stream_id = engine.open_stream(self)

    def send(self, frame: Frame) -> None:
        self.frames.append(json.loads(b"".join(frame.payload)))

    def acknowledge(self, effect: Acknowledge) -> None:
        pass

    def flush(self) -> None:
        self.flushes += 1
        self._arrived.set()

    def received(self, method: str, **params: Any) -> MessageReceived:
        self._ids += 1
        request = {**message(method, params, CAPABILITIES), "id": self._ids}
        return MessageReceived(self.stream_id, json.dumps(request).encode(), self._owner)

    def start(self, method: str, **params: Any) -> int:
        self._engine.feed(self.received(method, **params))
        return self._ids

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        request_id = self.start(method, **params)
        while True:
            for frame in self.frames:
                if frame.get("id") == request_id:
                    return frame
            self._arrived = anyio.Event()
            await self._arrived.wait()

    async def task_in(self, task_id: str, *statuses: str) -> dict[str, Any]:
        while True:
            task: dict[str, Any] = (await self.request("tasks/get", taskId=task_id))["result"]
            if task["status"] in statuses:
                return task
            await anyio.lowlevel.checkpoint()


@both_loops
@pytest.mark.spec("I4")
def test_a_store_that_blocks_is_asked_in_threads_and_holds_nobody_else_up(backend: str) -> None:
    store = BlockingStore()

    async def test() -> None:
        async with served(application(), store=store) as server:
            peer = server.peer
            task_id = (await peer.call("work"))["taskId"]
            await peer.task_in(task_id, "completed")
            store.may_go.clear()
            request_id = await peer.start("tasks/get", {"taskId": task_id})
            assert (await peer.call("echo", {"text": "quick"}))["content"][0]["text"] == "quick"
            assert peer.unclaimed == []
            store.may_go.set()
            assert (await peer.answer_to(request_id))["result"]["status"] == "completed"
        assert store.threads == {"mcp-tasks store"}

    run(backend, test)


@both_loops
@pytest.mark.spec("C5", "B7")
@pytest.mark.parametrize("kind", [BlockingStore, FailingStore])
@pytest.mark.parametrize(
    "failure",
    [
        StoreError("locked"),
        StoreUncertain("lost"),
        CapacityExceeded("full"),
        OSError("a store that breaks its contract"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_store_that_fails_gives_an_error_and_starts_nothing(
    backend: str, kind: Callable[[], Any], failure: Exception
) -> None:
    store = kind()
    ran: list[str] = []
    app = application()

    @app.tool(task="always")
    async def note() -> None:
        ran.append("note")

    async def test() -> None:
        async with served(app, store=store) as server:
            store.failure = failure
            error = await server.peer.error("tools/call", {"name": "note"})
            assert error["code"] == -32603
            assert str(failure) not in str(error)
            store.failure = None
            handle = await server.peer.call("work")
            await server.peer.task_in(handle["taskId"], "completed")
        assert ran == []

    run(backend, test)


@both_loops
@pytest.mark.spec("X3")
def test_work_outlives_the_stream_that_made_it(backend: str) -> None:
    app = application()

    async def test() -> None:
        begun, may_end = anyio.Event(), anyio.Event()

        @app.tool(task="always")
        async def long() -> str:
            begun.set()
            await may_end.wait()
            return "long"

        async with ServerEngine(app).running() as engine:
            first = Stream(engine)
            handle = await first.request("tools/call", name="long", arguments={})
            await begun.wait()
            engine.close_stream(first.stream_id)
            engine.close_stream(first.stream_id)
            second = Stream(engine)
            task_id = handle["result"]["taskId"]
            assert (await second.request("tasks/get", taskId=task_id))["result"]["status"] == "working"
            may_end.set()
            assert (await second.task_in(task_id, "completed"))["result"]["content"][0]["text"] == "long"

    run(backend, test)


@both_loops
@pytest.mark.spec("I2")
def test_a_closed_stream_stops_its_calls_and_gets_nothing_more(backend: str) -> None:
    app = application()

    async def test() -> None:
        begun, stopped = anyio.Event(), anyio.Event()

        @app.tool()
        async def slow() -> None:
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()

        async with ServerEngine(app).running() as engine:
            stream = Stream(engine)
            stream.start("tools/call", name="slow", arguments={})
            await begun.wait()
            engine.close_stream(stream.stream_id)
            await stopped.wait()
            assert stream.frames == []
            assert not engine.busy
            await engine.quiet()

    run(backend, test)


@both_loops
def test_all_who_wait_for_quiet_are_told_and_whoever_gave_up_costs_nothing_more(backend: str) -> None:
    async def test() -> None:
        app = application()
        begun = anyio.Event()

        @app.tool()
        async def slow() -> None:
            begun.set()
            await anyio.sleep_forever()

        looked = 0

        class Counted(ServerEngine):
            @property
            def busy(self) -> bool:
                nonlocal looked
                looked += 1
                return super().busy

        async with Counted(app).running() as engine:
            stream = Stream(engine)
            stream.start("tools/call", name="slow", arguments={})
            await begun.wait()
            async with anyio.create_task_group() as given_up:
                given_up.start_soon(engine.quiet)
                await anyio.wait_all_tasks_blocked()
                given_up.cancel_scope.cancel()
            looked = 0
            await Stream(engine).request("tools/list")
            assert looked == 0, "nobody waits for it"
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(engine.quiet)
                waiting.start_soon(engine.quiet)
                await anyio.wait_all_tasks_blocked()
                engine.close_stream(stream.stream_id)

    run(backend, test)


@both_loops
@pytest.mark.spec("A1", "A2")
def test_the_owner_is_the_streams_and_another_owners_tasks_do_not_exist(backend: str) -> None:
    async def test() -> None:
        async with ServerEngine(application()).running() as engine:
            mine = Stream(engine, Owner("a", "me"))
            theirs = Stream(engine, Owner("b", "me"))
            task_id = (await mine.request("tools/call", name="work", arguments={}))["result"]["taskId"]
            await mine.task_in(task_id, "completed")
            foreign = await theirs.request("tasks/get", taskId=task_id)
            unknown = await theirs.request("tasks/get", taskId="unknown")
            assert foreign["error"] == unknown["error"]

    run(backend, test)


@both_loops
def test_everything_of_one_chunk_is_answered_with_one_write(backend: str) -> None:
    async def test() -> None:
        async with ServerEngine(application()).running() as engine:
            stream = Stream(engine)
            task_id = (await stream.request("tools/call", name="work", arguments={}))["result"]["taskId"]
            await stream.task_in(task_id, "completed")
            stream.frames.clear()
            flushes = stream.flushes
            engine.feed_all([stream.received("tasks/get", taskId=task_id) for _ in range(100)])
            assert [frame["result"]["status"] for frame in stream.frames] == ["completed"] * 100
            assert stream.flushes == flushes + 1

    run(backend, test)


@both_loops
@pytest.mark.spec("T5", "D10")
def test_unfinished_work_fails_when_its_time_is_over_and_is_told_to_stop(backend: str) -> None:
    app = application()

    async def test() -> None:
        stopped = anyio.Event()

        @app.tool(task="always", ttl=timedelta(milliseconds=30))
        async def endless() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()

        @app.tool(task="always", ttl=timedelta(milliseconds=30))
        async def asks(context: ToolContext) -> None:
            await context.list_roots()

        async with served(app) as server:
            peer = server.peer
            for name in ("endless", "asks"):
                task_id = (await peer.call(name))["taskId"]
                task = await peer.task_in(task_id, "failed")
                assert task["error"]["code"] == -32603
            await stopped.wait()

    run(backend, test)


@both_loops
def test_an_event_against_the_rules_is_raised_where_it_was_fed(backend: str) -> None:
    async def test() -> None:
        async with ServerEngine(application()).running() as engine:
            stream = Stream(engine)
            with pytest.raises(LocalProtocolError, match="never issued"):
                engine.feed(ToolAnswered(Ticket(999), Returned({})))
            with pytest.raises(LocalProtocolError):
                engine.feed(InputNeeded(TaskId("t"), InputKey(""), {}))
            assert "result" in await stream.request("tools/list")

    run(backend, test)


@both_loops
def test_what_a_task_logs_goes_to_the_servers_own_log(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    app = application()

    @app.tool(task="always")
    async def noisy(context: ToolContext) -> None:
        for level in LOG_LEVELS:
            await context.log(level, f"said at {level}", logger="noisy")

    async def test() -> None:
        async with served(app) as server:
            task_id = (await server.peer.call("noisy", **{"io.modelcontextprotocol/logLevel": "debug"}))["taskId"]
            await server.peer.task_in(task_id, "completed")
            assert server.peer.unclaimed == []

    with caplog.at_level(logging.DEBUG, "mcp_tasks_trio"):
        run(backend, test)
    assert [record.levelno for record in caplog.records] == list(LOG_LEVELS.values())
    assert "noisy: said at emergency" in caplog.text


@both_loops
def test_threads_are_bounded_and_those_that_were_left_to_themselves_count(backend: str) -> None:
    may_end = threading.Event()
    ran: list[str] = []

    async def test() -> None:
        threads = WorkerThreads(1)
        begun = anyio.Event()

        async def abandoned() -> None:
            await threads.run(lambda: (ran.append("first"), may_end.wait()))

        async with anyio.create_task_group() as group:
            group.start_soon(abandoned)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        async with anyio.create_task_group() as group:

            async def second() -> None:
                begun.set()
                await threads.run(lambda: ran.append("second"))

            group.start_soon(second)
            await begun.wait()
            await anyio.wait_all_tasks_blocked()
            assert "second" not in ran
            may_end.set()
        assert ran == ["first", "second"]

    run(backend, test)


# --- a store that several processes share


class SharedStore(MemoryTaskStore):
    """A shared store in memory, whose processes are engines of one test."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, int] = {}
        self.changes: list[TaskId] = []
        self._secrets: list[tuple[str, bytes]] = []

    def create(self, row: StoredTask) -> bool:
        self.changes.append(row.task_id)
        return super().create(row)

    def swap(self, row: StoredTask) -> bool:
        self.changes.append(row.task_id)
        return super().swap(row)

    def hold_lease(self, executor: str, until_ms: int) -> None:
        self.leases[executor] = until_ms

    def end_lease(self, executor: str) -> None:
        self.leases.pop(executor, None)

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        rows = [row for row in self._rows.values() if row.executor is not None]
        return [row for row in rows if self.leases.get(str(row.executor), 0) <= now_ms][:limit]

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        if after < 0:
            return len(self.changes), []
        found = self.changes[after : after + limit]
        return after + len(found), found

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        self._secrets = self._secrets or [("shared", fresh)]
        return self._secrets


QUICK = Limits(lease_renewal_ms=10, hint_interval_ms=10)


@both_loops
def test_the_work_of_a_process_that_ended_is_failed_or_resumed_by_another(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SharedStore()
    app = application(store=store, limits=QUICK)
    runs: list[str] = []

    async def ask_and_wait(context: ToolContext, topic: str) -> str:
        runs.append(topic)
        answer = await context.elicit("name", "Who?", {"name": {"type": "string"}})
        if len(runs) < 4:
            await anyio.sleep_forever()
        return f"{topic} by {(answer.content or {})['name']}"

    for name, recovery in (("fail", Recovery.FAIL), ("resume", Recovery.RESUME), ("leave", Recovery.LEAVE)):
        app.tool(name, task="always", recovery=recovery)(ask_and_wait)

    async def test() -> None:
        ids: dict[str, str] = {}
        async with ServerEngine(app).running() as first:
            stream = Stream(first)
            for name in ("fail", "resume", "leave"):
                made = await stream.request("tools/call", name=name, arguments={"topic": name})
                ids[name] = made["result"]["taskId"]
                await stream.task_in(ids[name], "input_required")
                answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
                await stream.request("tasks/update", taskId=ids[name], inputResponses=answers)
                await stream.task_in(ids[name], "working")
            assert len(store.leases) == 1
        assert store.leases == {}
        async with ServerEngine(app).running() as second:
            stream = Stream(second)
            failed = await stream.task_in(ids["fail"], "failed")
            assert failed["error"]["data"] == {"reason": "worker_lost"}
            done = await stream.task_in(ids["resume"], "completed")
            assert done["result"]["content"][0]["text"] == "resume by Ada"
            assert (await stream.task_in(ids["leave"], "working"))["status"] == "working"
        assert runs == ["fail", "resume", "leave", "resume"]

    with caplog.at_level(logging.WARNING, "mcp_tasks_trio"):
        run(backend, test)
    assert "leaves it to the application" in caplog.text


@both_loops
def test_work_whose_tool_is_gone_fails_when_it_is_to_be_resumed(backend: str) -> None:
    store = SharedStore()

    def version(tools: list[str]) -> Application:
        app = Application("test", version="1", store=store, limits=QUICK)
        for name in tools:

            @app.tool(name, task="always", recovery=Recovery.RESUME, input_schema={"type": "object"})
            async def endless(arguments: dict[str, Any]) -> None:
                await anyio.sleep_forever()

        return app

    async def test() -> None:
        async with ServerEngine(version(["old"])).running() as first:
            task_id = (await Stream(first).request("tools/call", name="old", arguments={}))["result"]["taskId"]
        narrowed = Application("test", version="2", store=store, limits=QUICK)

        @narrowed.tool("old", task="always", recovery=Recovery.RESUME)
        async def old(topic: str) -> None:
            raise AssertionError("arguments that no longer fit start nothing")

        async with ServerEngine(narrowed).running() as second:
            task = await Stream(second).task_in(task_id, "failed")
            assert task["error"] == {"code": -32603, "message": "Tool old cannot be resumed"}

    run(backend, test)


@both_loops
@pytest.mark.spec("R2")
def test_every_process_on_a_shared_store_opens_the_states_that_any_of_them_sealed(backend: str) -> None:
    app = application(store=SharedStore(), limits=QUICK)

    @app.tool()
    async def ask(context: ToolContext) -> str:
        answer = await context.elicit("name", "Who?", {"name": {"type": "string"}})
        return str((answer.content or {})["name"])

    async def test() -> None:
        async with ServerEngine(app).running() as first, ServerEngine(app).running() as second:
            asked = (await Stream(first).request("tools/call", name="ask", arguments={}))["result"]
            retry = {
                "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
                "requestState": asked["requestState"],
            }
            answered = await Stream(second).request("tools/call", name="ask", arguments={}, **retry)
            assert answered["result"]["content"][0]["text"] == "Ada"

    run(backend, test)
