"""Servers that start while another program holds the write lock of their store, or the store is busy otherwise."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import MemoryTaskStore, StoreBusy, StoreError
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import Application, ServerEngine, serve_http
from mcp_tasks_trio.process_lease import ProcessLease
from tests.races.locking import write_lock
from tests.races.server_child import ServerChild, server_children

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
WAITS = "The server waits for its task store"
BOUND_SECONDS = 30  # less than a start waits by default; nothing waits for it but a test that fails


def run(backend: str, test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(BOUND_SECONDS):
            await test()

    anyio.run(bounded, backend=backend)


class Log(logging.Handler):
    """What was logged, and an event of this loop for the moment when a text was."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    async def says(self, text: str) -> None:
        while not any(text in line for line in self.lines):
            await anyio.lowlevel.checkpoint()


@pytest.fixture
def log() -> Iterator[Log]:
    handler, logger = Log(), logging.getLogger("mcp_tasks_trio")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteTaskStore]:
    with SqliteTaskStore(tmp_path / "tasks.db", busy_wait_ms=20) as store:
        yield store


def application() -> Application:
    return Application("starts", version="1")


class SharedStore(MemoryTaskStore):
    """A shared store in which nothing is in the way."""

    blocks = False

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.leases: list[str] = []

    def hold_lease(self, executor: str, until_ms: int) -> None:
        self.leases.append(executor)

    def end_lease(self, executor: str) -> None:
        self.leases = [held for held in self.leases if held != executor]

    def list_orphans(self, now_ms: int, limit: int) -> list[object]:
        return []

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        return 0, []

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        self.asked += 1
        return [("kept", b"k" * 32)]


# --- processes


async def _each_finds_the_tasks_of_all(children: list[ServerChild]) -> None:
    made = [await child.request("tools/call", name="quick", arguments={"number": 1}) for child in children]
    for task_id in [answer["result"]["taskId"] for answer in made]:
        for child in children:
            assert "result" in await child.request("tasks/get", taskId=task_id)


@pytest.mark.spec("C5", "T1")
@both_loops
def test_processes_that_start_under_a_lock_serve_when_it_is_free_and_find_each_others_tasks(
    backend: str, tmp_path: Path
) -> None:
    file = tmp_path / "tasks.db"
    SqliteTaskStore(file).close()

    async def test() -> None:
        with ExitStack() as lock:
            lock.enter_context(write_lock(file))
            async with server_children(file, 2, busy_wait_ms=1_000, backend=backend) as children:
                for index in range(2):
                    while WAITS not in file.with_name(f"{file.name}-p{index}.log").read_text():
                        await anyio.lowlevel.checkpoint()
                lock.close()
                await _each_finds_the_tasks_of_all(children)

    run(backend, test)


@pytest.mark.spec("C5", "T1")
@both_loops
def test_processes_that_make_one_new_file_together_all_serve(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    file.touch(mode=0o600)

    async def test() -> None:
        with ExitStack() as lock:
            lock.enter_context(write_lock(file))
            async with server_children(file, 3, backend=backend) as children:
                lock.close()
                await _each_finds_the_tasks_of_all(children)

    run(backend, test)


# --- engines


@pytest.mark.spec("C5")
@both_loops
def test_an_engine_waits_while_its_loop_goes_on_and_starts_when_the_lock_is_free(
    backend: str, store: SqliteTaskStore, log: Log
) -> None:
    async def test() -> None:
        started = anyio.Event()

        async def serve() -> None:
            async with ServerEngine(application(), store=store).running():
                started.set()

        async with anyio.create_task_group() as task_group:
            with write_lock(Path(store.path)):
                task_group.start_soon(serve)
                await log.says(WAITS)
                assert not started.is_set()
            await started.wait()
        assert len(log.lines) == 1

    run(backend, test)


@pytest.mark.spec("C5")
@both_loops
@pytest.mark.parametrize("has_secrets", [True, False])
def test_a_wait_that_is_over_is_one_store_error_and_no_group_of_them(
    backend: str, store: SqliteTaskStore, has_secrets: bool
) -> None:
    if has_secrets:
        store.request_state_secrets(b"1" * 32)

    async def test() -> None:
        engine = ServerEngine(application(), store=store, start_wait_seconds=0.2)
        with (
            write_lock(Path(store.path)),
            pytest.raises(StoreBusy, match=r"did not start, for it waited 0.2 s .*has held the write lock of .*tasks"),
        ):
            async with engine.running():
                raise AssertionError("it runs although the store could not be written")

    run(backend, test)


@pytest.mark.spec("C5")
@both_loops
def test_a_start_that_waits_can_be_cancelled(backend: str, tmp_path: Path, log: Log) -> None:
    async def test() -> None:
        with SqliteTaskStore(tmp_path / "tasks.db", busy_wait_ms=3_600_000) as store:
            with write_lock(Path(store.path)):
                async with anyio.create_task_group() as task_group:
                    task_group.start_soon(functools.partial(_serve_for_ever, store))
                    await log.says(WAITS)
                    task_group.cancel_scope.cancel()
            assert store.list_orphans(0, 10) == []

    run(backend, test)


async def _serve_for_ever(store: SqliteTaskStore) -> None:
    async with ServerEngine(application(), store=store).running():
        raise AssertionError("it runs although the store could not be written")


@both_loops
def test_serving_over_http_can_be_stopped_before_the_store_is_free(
    backend: str, store: SqliteTaskStore, log: Log
) -> None:
    async def test() -> None:
        stop = anyio.Event()
        with write_lock(Path(store.path)):
            async with anyio.create_task_group() as task_group:
                task_group.start_soon(functools.partial(serve_http, application(), store=store, port=0, stop=stop))
                await log.says(WAITS)
                stop.set()

    run(backend, test)


@both_loops
def test_a_store_that_blocks_is_asked_by_nobody_but_a_worker_thread(backend: str) -> None:
    class Blocking(SharedStore):
        blocks = True

        def __init__(self) -> None:
            super().__init__()
            self.threads: set[threading.Thread] = set()
            self.may_answer = threading.Event()

        def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
            self.threads.add(threading.current_thread())
            assert self.may_answer.wait(BOUND_SECONDS)
            return super().request_state_secrets(fresh)

        def hold_lease(self, executor: str, until_ms: int) -> None:
            self.threads.add(threading.current_thread())
            super().hold_lease(executor, until_ms)

    async def test() -> None:
        store = Blocking()
        engine = ServerEngine(application(), store=store)
        assert store.threads == set()

        async def answer() -> None:
            while not store.threads:
                await anyio.lowlevel.checkpoint()
            store.may_answer.set()

        async with anyio.create_task_group() as task_group:
            task_group.start_soon(answer)
            async with engine.running():
                assert store.leases
        assert threading.current_thread() not in store.threads

    run(backend, test)


@both_loops
def test_a_busy_store_is_asked_again_and_a_broken_one_is_not(backend: str) -> None:
    class Failing(SharedStore):
        def __init__(self, failures: list[StoreError]) -> None:
            super().__init__()
            self.failures = failures

        def hold_lease(self, executor: str, until_ms: int) -> None:
            if self.failures:
                raise self.failures.pop(0)
            super().hold_lease(executor, until_ms)

    async def test() -> None:
        busy = Failing([StoreBusy("another process has it"), StoreBusy("another process has it")])
        async with ServerEngine(application(), store=busy).running():
            assert busy.asked == 3
            assert len(busy.leases) == 1
        assert busy.leases == []
        broken = Failing([StoreError("the disk is gone")])
        with pytest.raises(StoreError, match=r"^the disk is gone$"):
            async with ServerEngine(application(), store=broken).running():
                raise AssertionError("it runs without a lease")
        assert (broken.asked, broken.leases) == (1, [])

    run(backend, test)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "60"])
def test_a_wait_that_is_no_time_is_refused(seconds: object) -> None:
    with pytest.raises(LocalProtocolError, match="start_wait_seconds is a number above 0, not"):
        ServerEngine(application(), start_wait_seconds=seconds)  # type: ignore[arg-type]


# --- leases


def test_the_end_of_a_lease_does_not_wait_for_a_renewal_that_waits_for_the_store() -> None:
    order: list[str] = []
    renewing, may_renew = threading.Event(), threading.Event()

    class Slow(SharedStore):
        def hold_lease(self, executor: str, until_ms: int) -> None:
            renewing.set()
            assert may_renew.wait(BOUND_SECONDS)
            order.append("renewed")

        def end_lease(self, executor: str) -> None:
            order.append("ended")

    lease = ProcessLease(Slow(), "p1")  # type: ignore[arg-type]
    renewal = threading.Thread(target=lease.hold, args=(1_000,))
    renewal.start()
    renewing.wait()
    lease.end()
    assert order == []
    may_renew.set()
    renewal.join()
    assert order == ["renewed", "ended"]


def test_a_lease_that_was_never_held_is_not_ended_in_the_store() -> None:
    class Busy(SharedStore):
        def hold_lease(self, executor: str, until_ms: int) -> None:
            raise StoreBusy("another process has it")

        def end_lease(self, executor: str) -> None:
            raise AssertionError("there is nothing to end, and the store may still be busy")

    lease = ProcessLease(Busy(), "p1")  # type: ignore[arg-type]
    with pytest.raises(StoreBusy):
        lease.hold(1_000)
    lease.end()
