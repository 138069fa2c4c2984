"""What the task engines of an application say of their tasks, and what listeners hear of it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import anyio
import pytest

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_trio import Application, EngineTask, WatchableTaskBackend
from runners.served import Peer, both_loops, run, served

BOUND_SECONDS = 20
DAY_MS = 86_400_000


class Engine:
    """A task engine in memory; a subclass says how its changes are told."""

    def __init__(self) -> None:
        self.tasks: dict[str, JSONObject] = {}

    def start(self, task_id: str) -> None:
        self.tasks[task_id] = {
            "taskId": task_id,
            "status": "working",
            "statusMessage": "step 0",
            "createdAt": "2026-07-28T10:00:00.000Z",
            "lastUpdatedAt": "2026-07-28T10:00:00.000Z",
            "ttlMs": None,
        }

    def step(self, task_id: str, number: int) -> None:
        self.tasks[task_id] = {
            **self.tasks[task_id],
            "statusMessage": f"step {number}",
            "lastUpdatedAt": f"2026-07-28T10:00:{number:02}.000Z",
        }

    def end(self, task_id: str) -> None:
        self.tasks[task_id] = {**self.tasks[task_id], "status": "completed", "result": {"content": []}}

    async def read(self, task_id: TaskId) -> EngineTask | None:
        state = self.tasks.get(task_id)
        return None if state is None else EngineTask(owner=LOCAL_OWNER, state=state)

    async def answer(self, task_id: TaskId, answers: Mapping[str, JSONObject]) -> bool:
        return task_id in self.tasks

    async def cancel(self, task_id: TaskId) -> bool:
        return task_id in self.tasks


class AsyncEngine(Engine):
    """Tells of changes in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._told: deque[str] = deque()
        self._came = anyio.Event()
        self.ended = 0

    async def changes(self) -> AsyncIterator[str]:
        try:
            while True:
                while self._told:
                    yield self._told.popleft()
                self._came = anyio.Event()
                await self._came.wait()
        finally:
            self.ended += 1

    def tell(self, task_id: str) -> None:
        self._told.append(task_id)
        self._came.set()


class ThreadedEngine(Engine):
    """Tells of changes in a thread that it may block."""

    def __init__(self) -> None:
        super().__init__()
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []

    def changes(self) -> Iterator[str]:
        self.threads.append(threading.current_thread())
        while True:
            yield self._told.get(timeout=BOUND_SECONDS)

    def tell(self, task_id: str) -> None:
        self._told.put(task_id)


both_engines = pytest.mark.parametrize("make", [AsyncEngine, ThreadedEngine])


def application(*engines: object, **options: Any) -> Application:
    # Nothing is read again by itself within the length of a test: what is heard, is heard because of a hint.
    app = Application("own", version="1", limits=Limits(reconcile_interval_ms=DAY_MS), **options)
    for prefix, engine in zip(("job-", "run-"), engines, strict=False):
        app.source(prefix, engine)  # type: ignore[arg-type]
    return app


async def listen(peer: Peer, *task_ids: str) -> None:
    await peer.start("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}})
    acknowledged = await peer.next()
    assert acknowledged["params"]["notifications"] == {"taskIds": list(task_ids)}


async def state(peer: Peer) -> tuple[str, str, str]:
    """The next state that is told: id, status, message."""
    told = await peer.next()
    assert told["method"] == "notifications/tasks", told
    params = told["params"]
    return params["taskId"], params["status"], params["statusMessage"]


@both_loops
@both_engines
@pytest.mark.spec("S5")
def test_a_change_that_an_engine_tells_of_is_heard_and_its_end_ends_the_listen(
    backend: str, make: Callable[[], Any]
) -> None:
    async def test() -> None:
        engine = make()
        engine.start("job-1")
        async with served(application(engine)) as server:
            peer = server.peer
            await listen(peer, "job-1")
            assert await state(peer) == ("job-1", "working", "step 0")
            engine.step("job-1", 1)
            engine.tell("job-1")
            assert await state(peer) == ("job-1", "working", "step 1")
            engine.end("job-1")
            engine.tell("job-1")
            assert await state(peer) == ("job-1", "completed", "step 1")
            assert (await peer.next())["result"]["resultType"] == "complete"
        engine.tell("job-1")

    run(backend, test)


@both_loops
@both_engines
def test_untrue_repeated_and_foreign_hints_do_no_harm(backend: str, make: Callable[[], Any]) -> None:
    async def test() -> None:
        engine = make()
        for task_id in ("job-1", "job-2"):
            engine.start(task_id)
        async with served(application(engine)) as server:
            peer = server.peer
            await listen(peer, "job-1")
            assert await state(peer) == ("job-1", "working", "step 0")
            engine.step("job-2", 1)
            for task_id in ("job-1", "job-2", "job-9", "elsewhere-1", "", "job-" + "x" * 10_000, "\udc80", "job-1"):
                engine.tell(task_id)
            engine.step("job-1", 2)
            for _ in range(20):
                engine.tell("job-1")
            assert await state(peer) == ("job-1", "working", "step 2")
            engine.end("job-1")
            engine.tell("job-1")
            assert await state(peer) == ("job-1", "completed", "step 2")
        engine.tell("job-1")  # lets a thread see that the server has ended

    run(backend, test)


@both_loops
def test_each_engine_is_asked_once_though_it_has_two_prefixes(backend: str) -> None:
    async def test() -> None:
        engine = ThreadedEngine()
        for task_id in ("job-1", "run-1"):
            engine.start(task_id)
        async with served(application(engine, engine)) as server:
            peer = server.peer
            await listen(peer, "job-1", "run-1")
            assert {(await state(peer))[0], (await state(peer))[0]} == {"job-1", "run-1"}
            for task_id in ("job-1", "run-1"):
                engine.step(task_id, 1)
                engine.tell(task_id)
                assert await state(peer) == (task_id, "working", "step 1")
            assert len(engine.threads) == 1
        engine.tell("job-1")

    run(backend, test)


@both_loops
def test_an_engine_without_changes_is_read_again_at_the_reconcile_interval(backend: str) -> None:
    async def test() -> None:
        engine = Engine()
        engine.start("job-1")
        app = Application("own", version="1", limits=Limits(reconcile_interval_ms=20))
        app.source("job-", engine)
        async with served(app) as server:
            await listen(server.peer, "job-1")
            assert await state(server.peer) == ("job-1", "working", "step 0")
            engine.end("job-1")
            assert await state(server.peer) == ("job-1", "completed", "step 0")

    run(backend, test)


@both_loops
def test_the_feed_ends_with_the_server_and_is_closed(backend: str) -> None:
    async def test() -> None:
        engine = AsyncEngine()
        engine.start("job-1")
        app = application(engine)
        for ended in (1, 2):
            async with served(app) as server:
                await listen(server.peer, "job-1")
                await state(server.peer)
                engine.step("job-1", ended)
                engine.tell("job-1")
                await state(server.peer)
            assert engine.ended == ended

    run(backend, test)


@both_loops
def test_without_subscriptions_no_engine_is_asked_for_its_changes(backend: str) -> None:
    async def test() -> None:
        engine = ThreadedEngine()
        engine.start("job-1")
        async with served(application(engine, subscriptions=False)) as server:
            assert (await server.peer.task("job-1"))["status"] == "working"
        assert engine.threads == []

    run(backend, test)


def test_the_engines_of_these_tests_have_the_shape_that_is_asked_of_engines() -> None:
    shapes: list[Callable[[], WatchableTaskBackend]] = [AsyncEngine, ThreadedEngine]
    members = {name for name in vars(WatchableTaskBackend) if not name.startswith("_")}
    assert members == {"changes"}
    assert all(callable(getattr(shape, "changes")) for shape in shapes)  # noqa: B009
