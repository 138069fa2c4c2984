"""Restarts, and several engines on one store file, as real stores, loops and threads see them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.events import WorkCompleted
from mcp_tasks_core.store import StoreError, StoreUncertain
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import (
    Application,
    OrphanedTask,
    ProtocolError,
    ServerEngine,
    SyncToolContext,
    ToolContext,
    ToolError,
)
from mcp_tasks_trio.process_lease import LeaseEnded, ProcessLease
from runners.engine_processes import DEATH_MS, LIMITS, Machine, Process
from runners.served import PATIENCE_SECONDS, both_loops, run
from runners.stage import Told

FORM = {"name": {"type": "string"}}


def application(runs: list[tuple[str, int]], recovery: Any, **options: Any) -> Application:
    """One tool: it asks twice, and its first run never gets beyond the second question."""
    app = Application("test", version="1", **options)

    @app.tool(task="always", recovery=recovery)
    async def report(context: ToolContext, topic: str) -> str:
        runs.append((topic, context.attempt))
        name = await context.elicit("name", "Who?", FORM)
        place = await context.elicit("place", "Where?", {"place": {"type": "string"}})
        return f"{topic} by {(name.content or {})['name']} in {(place.content or {})['place']}"

    return app


@both_loops
@pytest.mark.spec("D31", "U1", "U2")
def test_work_is_resumed_in_another_process_with_the_answers_that_were_given(backend: str, tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, "resume")

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as heir:
            async with machine.process(app, dies=True) as dead:
                task_id = await dead.create("report", topic="owls")
                await dead.task_in(task_id, "input_required")
                await dead.answer(task_id, name="Ada")
                await dead.task_where(task_id, lambda state: "place" in state.get("inputRequests", {}))
            await heir.answer(task_id, place="Oslo")
            assert runs == [("owls", 1)]
            await machine.live(DEATH_MS)
            done = await heir.task_in(task_id, "completed")
            assert done["result"]["content"][0]["text"] == "owls by Ada in Oslo"
            assert runs == [("owls", 1), ("owls", 2)]

    run(backend, test)


@both_loops
def test_a_server_that_ends_takes_back_no_question_of_work_that_another_process_will_resume(backend: str) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, "resume")
    store = SharedMemoryTaskStore()

    async def test() -> None:
        async with ServerEngine(app, store=store).running() as first:
            process = Process(first)
            task_id = await process.create("report", topic="owls")
            await process.task_in(task_id, "input_required")
        async with ServerEngine(app, store=store).running() as second:
            heir = Process(second)
            assert list((await heir.task(task_id))["inputRequests"]) == ["name"]
            await heir.answer(task_id, name="Ada")
            await heir.task_where(task_id, lambda state: "place" in state.get("inputRequests", {}))
        assert runs == [("owls", 1), ("owls", 2)]

    run(backend, test)


@both_loops
@pytest.mark.spec("D31")
def test_work_fails_with_a_reason_where_its_tool_says_nothing_else(backend: str, tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, Recovery.FAIL)

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as alive:
            kept = await alive.create("report", topic="kept")
            async with machine.process(app, dies=True) as dead:
                lost = await dead.create("report", topic="lost")
                await dead.task_in(lost, "input_required")
            await machine.live(LIMITS.lease_ms - LIMITS.hint_interval_ms)
            assert (await alive.task(lost))["status"] == "input_required", "its lease still runs"
            await machine.live(LIMITS.lease_renewal_ms + LIMITS.hint_interval_ms)
            state = await alive.task_in(lost, "failed")
            assert (state["error"]["code"], state["error"]["data"]) == (-32603, {"reason": "worker_lost"})
            assert (await alive.task_in(kept, "input_required"))["status"] == "input_required"
            assert [topic for topic, _ in runs] == ["kept", "lost"]

    run(backend, test)


@both_loops
def test_a_restart_after_a_clean_end_goes_on_at_once(backend: str, tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, "resume")

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            task_id = await first.create("report", topic="owls")
            await first.task_in(task_id, "input_required")
        async with machine.process(app) as second:
            await second.answer(task_id, name="Ada", place="Oslo")
            await second.task_in(task_id, "input_required")
            await second.answer(task_id, place="Oslo")
            await second.task_in(task_id, "completed")
        assert runs == [("owls", 1), ("owls", 2)]
        assert machine.now_ms == Machine(tmp_path).now_ms, "no time was needed"

    run(backend, test)


@both_loops
def test_a_lease_is_ended_only_when_the_work_of_the_process_has_stopped(backend: str, tmp_path: Path) -> None:
    app = Application("test", version="1")
    order: list[str] = []

    class Listening(SqliteTaskStore):
        def end_lease(self, executor: str) -> None:
            order.append("lease ended")
            super().end_lease(executor)

    started = anyio.Event()

    @app.tool(task="always")
    async def endless() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            order.append("work ended")

    async def test() -> None:
        nonlocal started
        started = anyio.Event()
        machine = Machine(tmp_path / "tasks.db")
        with Listening(machine.path) as store:
            async with ServerEngine(app, store=store, clock=machine.clock).running() as engine:
                process = Process(engine)
                await process.create("endless")
                await started.wait()

    run(backend, test)
    assert order == ["work ended", "lease ended"]


class BusyAtTheEnd(SharedMemoryTaskStore):
    """A store that another process keeps busy when a server ends its lease."""

    blocks = True

    def __init__(self, *, busy: bool) -> None:
        super().__init__()
        self.free = threading.Event()
        if not busy:
            self.free.set()
        self.asked_in: threading.Thread | None = None
        self.ended = threading.Event()

    def end_lease(self, executor: str) -> None:
        self.asked_in = threading.current_thread()
        if self.free.wait(PATIENCE_SECONDS):
            super().end_lease(executor)
            self.ended.set()


@both_loops
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_server_ends_in_time_while_its_store_is_busy_and_its_loop_goes_on(backend: str, cancelled: bool) -> None:
    async def test() -> None:
        store = BusyAtTheEnd(busy=True)
        with anyio.CancelScope() as scope:
            async with ServerEngine(Application("test", version="1"), store=store).running():
                if cancelled:
                    scope.cancel()
        assert store.asked_in is not threading.current_thread()
        assert not store.ended.is_set(), "the end has not waited for it"
        store.free.set()
        assert store.ended.wait(PATIENCE_SECONDS), "the thread ends it as soon as it can"

    run(backend, test)


@both_loops
def test_a_server_that_is_cancelled_has_ended_its_lease_when_it_has_gone(backend: str) -> None:
    async def test() -> None:
        store = BusyAtTheEnd(busy=False)
        with anyio.CancelScope() as scope:
            async with ServerEngine(Application("test", version="1"), store=store).running():
                scope.cancel()
        assert store.ended.is_set()

    run(backend, test)


@both_loops
def test_a_start_that_fails_after_its_lease_was_asked_for_ends_it_beside_the_loop(backend: str) -> None:
    class Uncertain(BusyAtTheEnd):
        def hold_lease(self, executor: str, until_ms: int) -> None:
            super().hold_lease(executor, until_ms)
            raise StoreUncertain("nobody knows")

    async def test() -> None:
        store = Uncertain(busy=False)
        with pytest.raises(StoreUncertain):
            await ServerEngine(Application("test", version="1"), store=store).reach_store()
        assert store.ended.is_set()
        assert store.asked_in is not threading.current_thread()

    run(backend, test)


def test_a_renewal_that_is_on_its_way_when_the_server_ends_does_not_make_it_live_on() -> None:
    renewing, may_renew = threading.Event(), threading.Event()
    order: list[str] = []

    class Slow(SharedMemoryTaskStore):
        def hold_lease(self, executor: str, until_ms: int) -> None:
            renewing.set()
            may_renew.wait()
            order.append("renewed")

        def end_lease(self, executor: str) -> None:
            order.append("ended")

    lease = ProcessLease(Slow(), "p1")
    renewal = threading.Thread(target=lease.hold, args=(1_000,))
    renewal.start()
    renewing.wait()
    ending = threading.Thread(target=lease.end)
    ending.start()
    may_renew.set()
    renewal.join()
    ending.join()
    assert order == ["renewed", "ended"]
    with pytest.raises(LeaseEnded):
        lease.hold(2_000)
    lease.end()
    assert order == ["renewed", "ended"]


def test_a_lease_that_cannot_be_ended_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SharedMemoryTaskStore):
        def end_lease(self, executor: str) -> None:
            raise StoreError("the disk is gone")

    with caplog.at_level(logging.WARNING, "mcp_tasks_trio"):
        lease = ProcessLease(Broken(), "p1")
        lease.hold(1_000)
        lease.end()
    assert "the disk is gone" in caplog.text


@both_loops
@pytest.mark.spec("X1", "U6")
def test_answers_and_cancels_that_one_process_takes_reach_the_work_in_another(backend: str, tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, "fail")

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as worker, machine.process(app) as front:
            task_id = await worker.create("report", topic="owls")
            await front.task_in(task_id, "input_required")
            await front.answer(task_id, name="Ada")
            await machine.live(2 * LIMITS.hint_interval_ms)
            await front.task_where(task_id, lambda state: "place" in state.get("inputRequests", {}))
            await front.request("tasks/cancel", taskId=task_id)
            await machine.live(2 * LIMITS.hint_interval_ms)
            await front.task_in(task_id, "cancelled")
            assert runs == [("owls", 1)]

    run(backend, test)


@both_loops
@pytest.mark.spec("T1")
def test_work_that_another_process_took_over_is_stopped_and_leaves_no_trace(backend: str, tmp_path: Path) -> None:
    """The first engine stands still for longer than its lease, as a process that was stopped."""
    app = Application("test", version="1")
    ends: list[str] = []

    @app.tool(task="always", recovery="resume")
    async def endless(context: ToolContext) -> str:
        await context.status(f"run {context.attempt}")
        if context.attempt > 1:
            return "second"
        try:
            await anyio.sleep_forever()
        finally:
            ends.append("stopped")
        return "first"

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as stopped, machine.process(app) as heir:
            task_id = await stopped.create("endless")
            await stopped.task_where(task_id, lambda state: state.get("statusMessage") == "run 1")
            machine.stop(stopped)
            await machine.live(DEATH_MS)
            await heir.task_in(task_id, "completed")
            assert ends == []
            machine.wake(stopped)
            await machine.live(LIMITS.lease_renewal_ms)
            while not ends:
                await anyio.lowlevel.checkpoint()
            assert (await stopped.task(task_id))["result"]["content"][0]["text"] == "second"

    run(backend, test)


@both_loops
def test_a_question_that_was_answered_before_the_task_existed_is_not_asked_again(backend: str, tmp_path: Path) -> None:
    app = Application("test", version="1")

    async def sure(context: Any) -> None:
        await context.elicit("name", "Who?", FORM)

    @app.tool(task="always", recovery="resume", gate=sure)
    async def report(context: ToolContext) -> str:
        answer = await context.elicit("name", "Who?", FORM)
        if context.attempt == 1:
            await anyio.sleep_forever()
        return str((answer.content or {})["name"])

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            asked = (await first.request("tools/call", name="report", arguments={}))["result"]
            assert asked["resultType"] == "input_required"
            given = {"name": {"action": "accept", "content": {"name": "Ada"}}}
            made = await first.request(
                "tools/call",
                name="report",
                arguments={},
                inputResponses=given,
                requestState=asked["requestState"],
            )
            task_id = made["result"]["taskId"]
        async with machine.process(app) as second:
            done = await second.task_in(task_id, "completed")
            assert done["result"]["content"][0]["text"] == "Ada"

    run(backend, test)


@both_loops
def test_work_that_asks_while_it_shields_itself_from_the_end_of_its_server_does_not_keep_it_from_ending(
    backend: str, tmp_path: Path
) -> None:
    app = Application("test", version="1")
    refused: list[str] = []

    async def test() -> None:
        begun = anyio.Event()

        @app.tool(task="always", recovery="resume")
        async def report(context: ToolContext) -> str:
            try:
                begun.set()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    try:
                        await context.elicit("name", "Who?", FORM)
                    except LocalProtocolError as error:
                        refused.append(str(error))
            raise AssertionError("nobody answers")

        async with Machine(tmp_path / "tasks.db").process(app) as first:
            await first.create("report")
            await begun.wait()
        assert refused == ["the server ends; nothing more can be asked"]

    run(backend, test)


@both_loops
def test_work_that_would_ask_just_as_its_server_ends_does_not_fail_because_of_it(backend: str, tmp_path: Path) -> None:
    app = Application("test", version="1")
    begun: anyio.Event

    @app.tool(task="always", recovery="resume")
    async def report(context: ToolContext) -> str:
        try:
            if context.attempt == 1:
                begun.set()
                await anyio.sleep_forever()
        finally:
            await context.elicit("name", "Who?", FORM)  # it has not seen yet that it is cancelled for good
        raise AssertionError("nobody answers")

    async def test() -> None:
        nonlocal begun
        begun = anyio.Event()
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            told = Told(first.engine)
            task_id = await first.create("report")
            await begun.wait()
        assert told.of(WorkCompleted) == []
        async with machine.process(app) as second:
            state = await second.task_where(task_id, lambda state: state["status"] != "working")
            assert list(state.get("inputRequests", {})) == ["name"], state

    run(backend, test)


# --- orphans


@both_loops
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (lambda orphan: f"found {orphan.arguments['topic']}", ("completed", "found owls")),
        (ToolError("it is lost"), ("completed", "it is lost")),
        (ProtocolError(17, "no such engine"), ("failed", {"code": 17, "message": "no such engine"})),
        (ValueError("a mistake"), ("completed", "on_orphan failed")),
    ],
)
def test_the_application_decides_on_an_orphan(
    backend: str, tmp_path: Path, is_async: bool, verdict: Any, expected: tuple[str, Any]
) -> None:
    runs: list[tuple[str, int]] = []
    app = application(runs, "leave")
    told: list[OrphanedTask] = []

    def decide(orphan: OrphanedTask) -> str:
        told.append(orphan)
        if isinstance(verdict, Exception):
            raise verdict
        text: str = verdict(orphan)
        return text

    async def decide_async(orphan: OrphanedTask) -> str:
        return decide(orphan)

    handler: Callable[..., Any] = decide_async if is_async else decide
    assert app.on_orphan(handler) is handler

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            task_id = await first.create("report", topic="owls")
            await first.task_in(task_id, "input_required")
        async with machine.process(app) as second:
            state = await second.task_in(task_id, expected[0])
            if expected[0] == "failed":
                assert state["error"] == expected[1]
            else:
                assert state["result"]["content"][0]["text"] == expected[1]
                assert state["result"].get("isError", False) is isinstance(verdict, ToolError | ValueError)
        (orphan,) = told
        assert (orphan.task_id, orphan.tool_name, orphan.attempt) == (task_id, "report", 2)
        assert len(runs) == 1

    run(backend, test)


@both_loops
@pytest.mark.parametrize("with_handler", [True, False])
def test_an_orphan_that_is_left_stays_until_its_client_cancels_it(
    backend: str, tmp_path: Path, with_handler: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app = application([], "leave")
    told: list[str] = []
    if with_handler:
        app.on_orphan(lambda orphan: told.append(orphan.task_id))

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            task_id = await first.create("report", topic="owls")
            await first.task_in(task_id, "input_required")
        async with machine.process(app) as second, machine.process(app):
            while (row := second.engine.store.load(task_id)) is not None and row.executor is not None:  # type: ignore[arg-type]
                await anyio.lowlevel.checkpoint()
            await machine.live(2 * DEATH_MS)
            assert (await second.task(task_id))["status"] == "input_required"
            await second.request("tasks/cancel", taskId=task_id)
            assert (await second.task(task_id))["status"] == "cancelled"
        assert told == ([task_id] if with_handler else [])

    with caplog.at_level(logging.WARNING, "mcp_tasks_trio"):
        run(backend, test)
    assert ("no on_orphan" in caplog.text) is not with_handler


@both_loops
@pytest.mark.spec("X1")
def test_a_cancel_reaches_what_decides_on_an_orphan(backend: str, tmp_path: Path) -> None:
    app = application([], "leave")

    @app.on_orphan
    async def watch(orphan: OrphanedTask) -> str:
        await anyio.sleep_forever()
        return "never"

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as first:
            task_id = await first.create("report", topic="owls")
            await first.task_in(task_id, "input_required")
        async with machine.process(app) as second:
            await second.request("tasks/cancel", taskId=task_id)
            await second.task_in(task_id, "cancelled")

    run(backend, test)


def test_what_cannot_decide_on_orphans_is_refused_where_it_is_written() -> None:
    app = Application("test", version="1")
    with pytest.raises(LocalProtocolError, match="on_orphan is a function"):
        app.on_orphan("decide")  # type: ignore[type-var]
    app.on_orphan(lambda orphan: None)
    with pytest.raises(LocalProtocolError, match="declared twice"):
        app.on_orphan(lambda orphan: None)


@pytest.mark.parametrize("recovery", ["fail", "resume", "leave", *Recovery])
def test_a_tool_says_its_recovery_in_a_word_or_as_a_value(recovery: Any) -> None:
    app = application([], recovery)
    assert app.tools["report"].entry.recovery is Recovery(recovery)


# --- time


@both_loops
@pytest.mark.spec("T4")
@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_changes_how_long_its_task_is_kept_and_how_often_it_is_polled(
    backend: str, tmp_path: Path, is_async: bool
) -> None:
    app = Application("test", version="1")
    refused: list[str] = []

    def bad(call: Callable[[], Any]) -> None:
        with pytest.raises(LocalProtocolError) as caught:
            call()
        refused.append(str(caught.value))

    if is_async:

        @app.tool(task="always", ttl=timedelta(minutes=1), poll_interval=timedelta(seconds=2))
        async def work(context: ToolContext) -> str:
            await context.keep_for(timedelta(hours=2))
            await context.elicit("name", "Who?", FORM)
            await context.poll_every(timedelta(milliseconds=250))
            await context.keep_for(None)
            for value in (timedelta(0), timedelta(seconds=-1), timedelta(microseconds=1), 5):
                with pytest.raises(LocalProtocolError) as caught:
                    await context.keep_for(value)  # type: ignore[arg-type]
                refused.append(str(caught.value))
                with pytest.raises(LocalProtocolError) as caught:
                    await context.poll_every(value)  # type: ignore[arg-type]
                refused.append(str(caught.value))
            await context.elicit("place", "Where?", FORM)
            return "done"
    else:

        @app.tool(task="always", ttl=timedelta(minutes=1), poll_interval=timedelta(seconds=2))
        def work(context: SyncToolContext) -> str:  # type: ignore[misc]
            context.keep_for(timedelta(hours=2))
            context.elicit("name", "Who?", FORM)
            context.poll_every(timedelta(milliseconds=250))
            context.keep_for(None)
            for value in (timedelta(0), timedelta(seconds=-1), timedelta(microseconds=1), 5):
                bad(lambda value=value: context.keep_for(value))  # type: ignore[misc]
                bad(lambda value=value: context.poll_every(value))  # type: ignore[misc]
            context.elicit("place", "Where?", FORM)
            return "done"

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        async with machine.process(app) as process:
            task_id = await process.create("work")
            state = await process.task_in(task_id, "input_required")
            assert (state["ttlMs"], state["pollIntervalMs"]) == (7_200_000, 2_000)
            await process.answer(task_id, name="Ada")
            state = await process.task_where(task_id, lambda now: "place" in now.get("inputRequests", {}))
            assert (state["ttlMs"], state["pollIntervalMs"]) == (None, 250)
            await process.request("tasks/cancel", taskId=task_id)
            await process.task_in(task_id, "cancelled")

    run(backend, test)
    assert len(refused) == 8
    assert all("ttl is" in text or "interval is" in text for text in refused)


@both_loops
def test_inline_there_is_no_task_whose_time_could_change(backend: str, tmp_path: Path) -> None:
    app = Application("test", version="1")

    @app.tool()
    async def work(context: ToolContext) -> str:
        await context.keep_for(timedelta(hours=2))
        await context.poll_every(timedelta(seconds=1))
        return f"attempt {context.attempt}"

    async def test() -> None:
        async with Machine(tmp_path / "tasks.db").process(app) as process:
            result = (await process.request("tools/call", name="work", arguments={}))["result"]
            assert result["content"][0]["text"] == "attempt 1"

    run(backend, test)


# --- a store that is slow


@both_loops
@pytest.mark.spec("I4")
def test_reads_are_answered_while_every_write_waits(backend: str, tmp_path: Path) -> None:
    may_write = threading.Event()
    may_write.set()

    class Slow(SqliteTaskStore):
        def create(self, row: Any) -> bool:
            may_write.wait()
            return super().create(row)

    async def test() -> None:
        machine = Machine(tmp_path / "tasks.db")
        app = application([], "fail")
        with Slow(machine.path) as store:
            async with ServerEngine(app, store=store, clock=machine.clock).running() as engine:
                process = Process(engine)
                task_id = await process.create("report", topic="first")
                may_write.clear()
                async with anyio.create_task_group() as group:
                    for _ in range(40):
                        group.start_soon(lambda: process.create("report", topic="later"))
                    for _ in range(20):
                        assert (await process.task(task_id))["taskId"] == task_id
                    may_write.set()

    run(backend, test)


@both_loops
@pytest.mark.spec("T2")
def test_an_outcome_that_is_being_stored_is_waited_for_before_the_server_is_quiet(backend: str, tmp_path: Path) -> None:
    may_write = threading.Event()
    may_write.set()
    writing = threading.Event()

    class Slow(SqliteTaskStore):
        def swap(self, row: Any) -> bool:
            writing.set()
            may_write.wait()
            return super().swap(row)

    app = Application("test", version="1")
    release = anyio.Event()

    @app.tool(task="always")
    async def work() -> str:
        await release.wait()
        return "done"

    async def test() -> None:
        nonlocal release
        release = anyio.Event()
        machine = Machine(tmp_path / "tasks.db")
        with Slow(machine.path) as store:
            async with ServerEngine(app, store=store, clock=machine.clock).running() as engine:
                process = Process(engine)
                task_id = await process.create("work")
                may_write.clear()
                release.set()
                while not writing.is_set():
                    await anyio.lowlevel.checkpoint()
                assert engine.busy
                may_write.set()
                await engine.quiet()
            row = store.load(task_id)  # type: ignore[arg-type]
            assert row is not None
            assert row.status == "completed"

    run(backend, test)
