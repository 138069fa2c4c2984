"""The client against real child processes, on both event loops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.effects import LogObserved, ProgressObserved
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_stdio import ShutdownWaits
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import (
    CallCancelledByClient,
    CallTimedOut,
    ClientError,
    ConnectionLost,
    Detached,
    InputUnhandled,
    InvalidResponse,
    LegacyServer,
    RemoteError,
    ServerNotStarted,
    TaskCancelled,
    TaskFailed,
    UnsupportedVersion,
)
from mcp_tasks_trio.client_inputs import InputRequest, NobodyToAsk
from mcp_tasks_trio.client_stdio import connect_stdio, open_stdio

FAKE = Path(__file__).parent / "fakes" / "scripted_server.py"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the fake server uses signals of POSIX")

backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class Fake:
    """The fake server's command and what it recorded."""

    def __init__(self, folder: Path) -> None:
        self._record = folder / "record"
        self._record.touch()

    def command(self, era: str = "modern") -> list[str]:
        return [sys.executable, str(FAKE), str(self._record), era]

    @property
    def lines(self) -> list[list[Any]]:
        return [json.loads(line) for line in self._record.read_text(encoding="utf-8").splitlines()]

    def messages(self, method: str) -> list[dict[str, Any]]:
        return [value for kind, value in self.lines if kind == "message" and value["method"] == method]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def run(backend: str, main: Callable[[], Awaitable[None]]) -> None:
    """Run a test on one loop; a test that hangs fails."""

    async def bounded() -> None:
        with anyio.fail_after(30):
            await main()

    anyio.run(bounded, backend=backend)


async def spin_until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until something is so; the bound of ``run`` ends it otherwise."""
    while not condition():
        await anyio.lowlevel.checkpoint()


# --- what a caller gets


@backends
def test_discover_list_and_call(backend: str, fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command(), client_info={"name": "c", "version": "1"}) as client:
            assert client.server is not None
            assert client.server.capabilities == {"tools": {}}
            assert [tool["name"] for tool in await client.list_tools()] == ["echo", "echo"]
            result = await client.call_tool("echo", {"n": 2**63, "s": "é"})
            assert result.structured_content == {"n": 2**63, "s": "é"}
            assert (result.is_error, result.task_id, json.loads(result.text)) == (False, None, {"n": 2**63, "s": "é"})
            refused = await client.call_tool("refused")
            assert (refused.is_error, refused.text) == (True, "no such city")
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("broken")
            assert (caught.value.code, caught.value.data) == (-32603, {"hint": 7})
            with pytest.raises(RemoteError, match="Unknown method"):
                await client.request("other/method", {"x": 1})

    run(backend, main)
    assert fake.lines[-1] == ["stdin closed", None]
    info = fake.messages("tools/call")[0]["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]
    assert info == {"name": "c", "version": "1"}


@backends
def test_progress_and_logs_reach_their_handlers_in_order(backend: str, fake: Fake) -> None:
    seen: list[ProgressObserved] = []
    logs: list[LogObserved] = []

    async def on_progress(progress: ProgressObserved) -> None:
        seen.append(progress)

    async def main() -> None:
        async with connect_stdio(fake.command(), on_log=logs.append) as client:
            await client.call_tool("progress", on_progress=on_progress, log_level="info")

    run(backend, main)
    assert [(p.progress, p.total, p.message) for p in seen] == [(n, 3, f"step {n}") for n in (1, 2, 3)]
    assert [(log.level, log.logger, log.data) for log in logs] == [("info", "tool", {"n": 1})]


@backends
@pytest.mark.spec("P1")
def test_a_task_is_followed_to_its_result_and_its_states_are_shown(backend: str, fake: Fake) -> None:
    statuses: list[TaskStatus] = []

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            result = await client.call_tool("task_ends", on_state=lambda task: statuses.append(task.status))
            assert (result.text, result.task_id) == ("task_ends is done", "task_ends")
            with pytest.raises(TaskFailed) as caught:
                await client.call_tool("task_fails")
            assert (caught.value.code, caught.value.text, caught.value.task_id) == (-32603, "worker lost", "task_fails")

    run(backend, main)
    assert statuses == ["working", "working", "completed"]


@backends
@pytest.mark.spec("P4", "P8")
@pytest.mark.parametrize("tool", ["task_asks", "rounds"])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_questions_go_to_the_handler_of_the_call_in_a_task_and_before_it(
    backend: str, fake: Fake, tool: str, kind: str
) -> None:
    seen: list[InputRequest] = []

    def answer(request: InputRequest) -> dict[str, Any]:
        seen.append(request)
        return request.accept({"q": "Q3"})

    async def answer_later(request: InputRequest) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return answer(request)

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            handler = answer if kind == "sync" else answer_later
            result = await client.call_tool(tool, on_input=handler)
            assert result.text == "Q3"

    run(backend, main)
    (request,) = seen
    assert (request.key, request.method, request.message) == ("k", "elicitation/create", "Which quarter?")
    assert request.task_id == ("task_asks" if tool == "task_asks" else None)
    assert request.requested_schema is not None
    assert request.url is None
    retried = [call["params"].get("requestState") for call in fake.messages("tools/call")]
    assert retried == ([None] if tool == "task_asks" else [None, "s\u2028"])


@backends
@pytest.mark.parametrize("tool", ["task_asks", "rounds"])
@pytest.mark.parametrize("handled", [False, True])
def test_without_an_answer_the_question_is_in_the_error_and_nothing_is_sent(
    backend: str, fake: Fake, tool: str, handled: bool
) -> None:
    def nobody(request: InputRequest) -> dict[str, Any]:
        raise NobodyToAsk

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with pytest.raises(InputUnhandled) as caught:
                await client.call_tool(tool, on_input=nobody if handled else None)
            assert list(caught.value.requests) == ["k"]
            assert caught.value.task_id == ("task_asks" if tool == "task_asks" else None)

    run(backend, main)
    assert fake.messages("tasks/update") == []
    assert fake.messages("tasks/cancel") == []
    assert len(fake.messages("tools/call")) == 1


@backends
@pytest.mark.spec("P5")
@pytest.mark.parametrize("mistake", ["raises", "wrong answer"])
def test_a_handler_that_fails_fails_its_call_alone_and_the_calls_task_is_cancelled(
    backend: str, fake: Fake, mistake: str
) -> None:
    async def handler(request: InputRequest) -> dict[str, Any]:
        if mistake == "raises":
            raise KeyError("my bug")
        return request.accept({"q": 3})

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with pytest.raises(KeyError if mistake == "raises" else LocalProtocolError):
                await client.call_tool("task_asks", on_input=handler)
            assert (await client.call_tool("echo")).text == "{}"

    run(backend, main)
    assert fake.messages("tasks/update") == []
    assert [cancel["params"]["taskId"] for cancel in fake.messages("tasks/cancel")] == ["task_asks"]


@backends
def test_a_handler_is_stopped_when_the_call_ends_without_its_answer(backend: str, fake: Fake) -> None:
    stopped: list[bool] = []

    async def handler(request: InputRequest) -> dict[str, Any]:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)
        raise AssertionError

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with pytest.raises(CallTimedOut):
                await client.call_tool("task_asks", on_input=handler, timeout=0.3)

    run(backend, main)
    assert stopped == [True]


# --- executions


@backends
@pytest.mark.spec("P5")
def test_an_execution_can_be_waited_for_again_and_observed_elsewhere(backend: str, fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            execution = await client.start_tool("task_forever")
            assert (execution.task_id, execution.ended) == ("task_forever", False)
            with pytest.raises(CallTimedOut) as caught:
                await execution.wait(timeout=0.05)
            assert caught.value.task_id == "task_forever"
            with anyio.move_on_after(0.05):
                await execution.wait()
            assert not execution.ended
            assert execution.detach() == frozenset()
            with pytest.raises(Detached):
                await execution.wait()
            observed = client.observe("task_ends")
            result = await observed.wait()
            assert (result.text, observed.task_id) == ("task_ends is done", "task_ends")
            assert (await observed.wait()).text == "task_ends is done"

    run(backend, main)
    assert fake.messages("tasks/cancel") == []
    assert fake.messages("notifications/cancelled") == []


@backends
def test_an_execution_that_was_answered_at_once_has_its_result_and_no_task(backend: str, fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            execution = await client.start_tool("echo")
            assert (execution.task_id, execution.ended) == (None, True)
            assert (await execution.wait()).text == "{}"
            with pytest.raises(RemoteError):
                await client.start_tool("no such tool")

    run(backend, main)


@backends
@pytest.mark.spec("P5")
@pytest.mark.parametrize("to_the_end", [False, True])
def test_cancelling_an_execution_cancels_the_task_once(backend: str, fake: Fake, to_the_end: bool) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            execution = await client.start_tool("task_forever")
            await execution.cancel(wait_for_end=to_the_end)
            with pytest.raises(TaskCancelled if to_the_end else CallCancelledByClient):
                await execution.wait()
            await execution.cancel()

    run(backend, main)
    assert [cancel["params"]["taskId"] for cancel in fake.messages("tasks/cancel")] == ["task_forever"]
    assert fake.messages("notifications/cancelled") == []


@backends
def test_two_who_wait_for_one_execution_both_get_the_result(backend: str, fake: Fake) -> None:
    texts: list[str] = []

    async def main() -> None:
        async with connect_stdio(fake.command()) as client, anyio.create_task_group() as group:
            execution = await client.start_tool("task_ends")

            async def wait() -> None:
                texts.append((await execution.wait()).text)

            group.start_soon(wait)
            group.start_soon(wait)

    run(backend, main)
    assert texts == ["task_ends is done"] * 2


# --- deadlines and cancelled scopes


@backends
@pytest.mark.spec("P5", "P9")
def test_one_deadline_holds_for_a_call_and_its_polls_and_the_task_is_cancelled(backend: str, fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            start = anyio.current_time()
            with pytest.raises(CallTimedOut) as caught:
                await client.call_tool("task_forever", timeout=0.5)
            assert 0.45 < anyio.current_time() - start < 2
            assert (caught.value.task_id, caught.value.cancel_sent) == ("task_forever", True)
            assert isinstance(caught.value, TimeoutError)

    run(backend, main)
    assert len(fake.messages("tasks/cancel")) == 1
    assert 2 <= len(fake.messages("tasks/get")) <= 5


@backends
@pytest.mark.spec("P5", "P9")
@pytest.mark.parametrize("tool", ["hang", "task_forever"])
@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_a_cancelled_scope_is_released_at_once_and_the_server_is_told_exactly_once(
    backend: str, fake: Fake, tool: str, how: str
) -> None:
    states: list[Any] = []
    progress: list[Any] = []

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as group:

                    async def call() -> None:
                        await client.call_tool(
                            tool, {"touch": True}, on_state=states.append, on_progress=progress.append
                        )

                    group.start_soon(call)
                    await spin_until(lambda: bool(states or progress))
                    start = anyio.current_time()
                    if how == "cancel":
                        scope.cancel()
                    else:
                        scope.deadline = start
            assert scope.cancelled_caught
            assert anyio.current_time() - start < 0.5
            assert (await client.call_tool("echo")).text == "{}"

    run(backend, main)
    told = [
        message["method"] for message in (v for k, v in fake.lines if k == "message") if "cancel" in message["method"]
    ]
    assert told == (["notifications/cancelled"] if tool == "hang" else ["tasks/cancel"])


def test_the_timeout_and_the_task_cancel_of_asyncio_itself_tell_the_server_too(fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call_tool("hang")
            seen: list[Any] = []
            call = asyncio.create_task(client.call_tool("task_forever", on_state=seen.append))
            await spin_until(lambda: bool(seen))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run("asyncio", main)
    assert len(fake.messages("notifications/cancelled")) == 1
    assert len(fake.messages("tasks/cancel")) == 1


@backends
def test_what_was_cancelled_with_the_whole_client_is_still_told_to_the_server(backend: str, fake: Fake) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with connect_stdio(fake.command()) as client:
                await client.call_tool("task_forever", on_state=lambda task: scope.cancel())
        assert scope.cancelled_caught

    run(backend, main)
    assert len(fake.messages("tasks/cancel")) == 1
    assert fake.lines[-1] == ["stdin closed", None]


# --- what comes in over the pipe


@backends
@pytest.mark.parametrize("tool", ["banner", "bytewise", "separators"])
def test_the_answer_arrives_whatever_surrounds_it_and_however_it_is_cut(backend: str, fake: Fake, tool: str) -> None:
    expected = {
        "banner": "after the banner",
        "bytewise": "é€\U0001f600" * 3,
        "separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei",
    }

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            for _ in range(3):
                assert (await client.call_tool(tool)).text == expected[tool]

    run(backend, main)


@backends
@pytest.mark.parametrize("size", [65_400, 65_536, 1024 * 1024, 10 * 1024 * 1024])
def test_long_lines_come_through_both_ways(backend: str, fake: Fake, size: int) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            assert len((await client.call_tool("huge", {"size": size})).text) == size
            assert (await client.call_tool("length", {"x": "z" * size})).text == str(size)

    run(backend, main)


@backends
def test_a_line_over_the_limit_is_skipped_and_the_connection_lives_on(backend: str, fake: Fake) -> None:
    config = ClientConfig(limits=Limits(frame_bytes_max=10_000))

    async def main() -> None:
        async with connect_stdio(fake.command(), config=config) as client:
            with pytest.raises(InvalidResponse, match="longer than the limit"):
                await client.call_tool("huge", {"size": 20_000})
            assert (await client.call_tool("echo")).text == "{}"

    run(backend, main)


@backends
def test_output_without_messages_ends_the_connection_with_a_clear_reason(backend: str, fake: Fake) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            with pytest.raises(ConnectionLost, match="in a row"):
                await client.call_tool("only_junk")

    run(backend, main)


@backends
def test_a_flooded_standard_error_blocks_nobody_and_its_end_is_kept(backend: str, fake: Fake) -> None:
    passed_on: list[int] = []

    async def main() -> None:
        async with connect_stdio(fake.command(), on_stderr=lambda data: passed_on.append(len(data))) as client:
            for _ in range(3):
                assert (await client.call_tool("noisy")).text == "after the noise"
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("exits")
            assert caught.value.stderr_tail.endswith("Traceback: out of cheese\n")
            assert len(caught.value.stderr_tail.removeprefix("…")) <= 16 * 1024
            assert len(str(caught.value)) < 3_000

    run(backend, main)
    assert sum(passed_on) > 3 * 1024 * 1024


# --- the end of a server


@backends
@pytest.mark.parametrize(
    ("tool", "status", "tail"),
    [
        ("killed", -signal.SIGKILL, ""),
        ("exits", 3, "Traceback: out of cheese\n"),
        ("closes_stdout", None, "closing shop\n"),
    ],
)
def test_pending_calls_fail_at_once_with_what_the_server_left_behind(
    backend: str, fake: Fake, tool: str, status: int | None, tail: str
) -> None:
    waits = ShutdownWaits(input_closed_ms=50, terminated_ms=1_000)

    async def main() -> None:
        async with connect_stdio(fake.command(), shutdown=waits) as client:
            execution = await client.start_tool("task_forever")
            failures: list[ConnectionLost] = []

            async def hang(name: str) -> None:
                with pytest.raises(ConnectionLost) as caught:
                    await client.call_tool(name)
                failures.append(caught.value)

            async with anyio.create_task_group() as group:
                group.start_soon(hang, "hang")
                await spin_until(lambda: len(fake.messages("tools/call")) == 2)
                start = anyio.current_time()
                group.start_soon(hang, tool)
            assert anyio.current_time() - start < 1
            assert [(failure.exit_status, failure.stderr_tail) for failure in failures] == [(status, tail)] * 2
            with pytest.raises(ConnectionLost) as caught:
                await execution.wait()
            assert caught.value.task_id == "task_forever"
            with pytest.raises(ConnectionLost):
                await client.call_tool("echo")

    run(backend, main)
    assert len(fake.messages("tools/call")) == 3


@backends
@pytest.mark.spec("I6")
def test_a_server_that_ends_at_the_end_of_its_input_is_never_signalled(backend: str, fake: Fake) -> None:
    async def main() -> None:
        client = await open_stdio(fake.command())
        start = anyio.current_time()
        await client.aclose()
        assert anyio.current_time() - start < 2

    run(backend, main)
    assert fake.lines[-1] == ["stdin closed", None]


@backends
@pytest.mark.spec("I6")
def test_a_server_that_ignores_everything_is_terminated_and_then_killed(backend: str, fake: Fake) -> None:
    waits = ShutdownWaits(input_closed_ms=100, terminated_ms=300)

    async def main() -> None:
        client = await open_stdio(fake.command(), shutdown=waits)
        await client.request("test/ignore_everything")
        start = anyio.current_time()
        await client.aclose()
        assert 0.35 < anyio.current_time() - start < 3

    run(backend, main)
    assert fake.lines[-1] == ["terminated", None]


# --- eras


@backends
@pytest.mark.spec("N8")
@pytest.mark.parametrize("era", ["silent", "-32601", "-32602", "exit"])
def test_a_legacy_server_is_recognized_and_nothing_else_is_tried(backend: str, fake: Fake, era: str) -> None:
    async def main() -> None:
        start = anyio.current_time()
        with pytest.raises(LegacyServer, match="legacy revision") as caught:
            async with connect_stdio(fake.command(era), probe_timeout=0.5 if era == "silent" else None):
                raise AssertionError("unreachable")
        assert anyio.current_time() - start < 3
        if era == "exit":
            assert caught.value.exit_status == 1
            assert "unknown method server/discover" in str(caught.value)

    run(backend, main)
    assert {value["method"] for kind, value in fake.lines if kind == "message"} <= {
        "server/discover",
        "notifications/cancelled",
    }


@backends
@pytest.mark.spec("N8")
def test_versions_are_negotiated_once_or_refused_clearly(backend: str, fake: Fake) -> None:
    async def main() -> None:
        with pytest.raises(UnsupportedVersion, match="2025-11-25"):
            await open_stdio(fake.command("-32022"))
        async with connect_stdio(fake.command("-32022-then-modern")) as client:
            assert (await client.call_tool("echo")).text == "{}"

    run(backend, main)
    assert len(fake.messages("server/discover")) == 3


@backends
def test_a_command_that_cannot_be_run_is_a_clear_error(backend: str, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(ServerNotStarted, match="no-such-program"):
            await open_stdio([str(tmp_path / "no-such-program")])
        with pytest.raises(ServerNotStarted):
            await open_stdio([str(tmp_path)])
        with pytest.raises(ServerNotStarted, match="missing-folder"):
            await open_stdio([sys.executable], cwd=tmp_path / "missing-folder")
        for command in ("python server.py", [], [1]):
            with pytest.raises(LocalProtocolError, match="sequence of strings"):
                await open_stdio(command)  # type: ignore[arg-type]

    run(backend, main)


# --- scopes and tasks


@backends
def test_one_failing_call_harms_no_other(backend: str, fake: Fake) -> None:
    results: list[str] = []
    failures: list[Exception] = []

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:

            async def call(number: int) -> None:
                try:
                    results.append((await client.call_tool("broken" if number == 4 else "task_ends")).text)
                except Exception as error:
                    failures.append(error)

            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(call, number)

    run(backend, main)
    assert len(results) == 9
    assert [type(failure) for failure in failures] == [RemoteError]


@backends
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_clients_close_in_any_order_from_any_task_and_more_than_once(
    backend: str, tmp_path: Path, order: tuple[int, int]
) -> None:
    async def main() -> None:
        clients: list[Client] = []

        async def open_one(number: int) -> None:
            folder = tmp_path / str(number)
            folder.mkdir()
            clients.append(await open_stdio(Fake(folder).command()))

        async with anyio.create_task_group() as group:
            group.start_soon(open_one, 0)
        async with anyio.create_task_group() as group:
            group.start_soon(open_one, 1)
        first, second = (clients[number] for number in order)
        async with anyio.create_task_group() as group:
            group.start_soon(first.aclose)
        assert (await second.call_tool("echo")).text == "{}"
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(second.aclose)
                group.start_soon(first.aclose)
        with pytest.raises(ConnectionLost, match="closed"):
            await first.call_tool("echo")
        assert _tasks_alive() <= 1

    run(backend, main)


def _tasks_alive() -> int:
    """Tasks of the test's own loop beside those that the loop itself needs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        task = trio.lowlevel.current_root_task()
        assert task is not None
        system, main = task.child_nurseries[0], task.child_nurseries[-1]
        return len([t for t in (*system.child_tasks, *main.child_tasks) if "ChildProcess" in t.name])


@backends
def test_closing_while_calls_are_pending_fails_them_and_leaves_their_tasks_running(backend: str, fake: Fake) -> None:
    failures: list[ConnectionLost] = []

    async def main() -> None:
        client = await open_stdio(fake.command())

        async def call(name: str) -> None:
            with pytest.raises(ConnectionLost, match="the client was closed") as caught:
                await client.call_tool(name)
            failures.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(call, "hang")
            group.start_soon(call, "task_forever")
            await spin_until(lambda: bool(fake.messages("tasks/get")))
            await client.aclose()

    run(backend, main)
    assert sorted(str(failure.task_id) for failure in failures) == ["None", "task_forever"]
    assert fake.messages("tasks/cancel") == []


@backends
def test_a_client_that_nobody_closes_leaves_no_process_behind(backend: str, fake: Fake) -> None:
    pids: list[int] = []

    async def main() -> None:
        client = await open_stdio(fake.command())
        pids.append(client._transport._process.pid)  # type: ignore[union-attr]
        await client.start_tool("task_forever")

    run(backend, main)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@backends
def test_every_failure_is_an_ordinary_exception(backend: str, fake: Fake) -> None:
    caught: list[Exception] = []

    async def main() -> None:
        async with connect_stdio(fake.command()) as client:
            for tool in ("broken", "task_fails", "exits", "echo"):
                try:
                    await client.call_tool(tool)
                except Exception as error:
                    caught.append(error)

    run(backend, main)
    assert all(isinstance(error, ClientError) for error in caught)
    assert [type(error) for error in caught] == [RemoteError, TaskFailed, ConnectionLost, ConnectionLost]


@backends
@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "1", True])
def test_a_timeout_that_makes_no_sense_is_a_local_mistake(backend: str, fake: Fake, timeout: Any) -> None:
    async def main() -> None:
        async with connect_stdio(fake.command(), probe=False) as client:
            with pytest.raises(LocalProtocolError, match="timeout"):
                await client.call_tool("echo", timeout=timeout)

    run(backend, main)
