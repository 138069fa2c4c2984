"""Tools, gates and methods of an application, called through a real server on both event loops."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import attrs
import pytest

from mcp_tasks_core.access import LOCAL_OWNER, Access, Owner
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_trio import (
    Application,
    ElicitationAnswer,
    EngineTask,
    GateContext,
    InputUnavailable,
    MethodContext,
    ProtocolError,
    SyncGateContext,
    SyncMethodContext,
    SyncToolContext,
    TaskClaim,
    ToolContext,
    ToolError,
)
from runners.served import CAPABILITIES, WITHOUT_TASKS, both_loops, run, served

NAME = {"name": {"type": "string"}}


def application(**options: Any) -> Application:
    return Application("test", version="1", **options)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


# --- ordinary calls


@both_loops
@pytest.mark.spec("B12")
def test_a_tool_sees_its_arguments_and_its_caller(backend: str) -> None:
    app = application()
    seen: list[Any] = []

    @app.tool()
    async def look(context: ToolContext, n: int) -> None:
        seen.append((n, context.owner, context.tool_name, context.task_id, context.declares_form, context.meta))

    async def test() -> None:
        async with served(app) as server:
            trace = {"traceparent": "00-a-b-01", "tracestate": "v=1", "baggage": "k=v"}
            assert (await server.peer.call("look", {"n": 2**64}, **trace))["content"] == []
        n, owner, name, task_id, declares_form, meta = seen[0]
        assert (n, owner, name, task_id, declares_form) == (2**64, LOCAL_OWNER, "look", None, True)
        assert {key: meta[key] for key in trace} == trace

    run(backend, test)


@both_loops
def test_a_function_that_is_not_asynchronous_runs_in_a_worker_thread(backend: str) -> None:
    app = application()

    @app.tool()
    def where(told: ToolContext) -> str:
        assert isinstance(told, SyncToolContext)
        return threading.current_thread().name

    async def test() -> None:
        async with served(app) as server:
            assert text_of(await server.peer.call("where")) == "mcp-tasks worker"

    run(backend, test)


@both_loops
@pytest.mark.spec("C11")
def test_bad_arguments_are_an_ordinary_result_before_anything_runs_or_any_task_exists(backend: str) -> None:
    app = application()
    ran: list[str] = []

    @app.gate
    async def gate(context: GateContext) -> None:
        ran.append("gate")

    @app.tool(task="always")
    async def work(pages: int) -> None:
        ran.append("tool")

    async def test() -> None:
        async with served(app) as server:
            result = await server.peer.call("work", {"pages": "3"})
            assert result["isError"] is True
            assert result["resultType"] == "complete"
            assert "Invalid arguments for tool work" in text_of(result)
            assert "'pages'" in text_of(result)
            assert (await server.peer.error("tools/call", {"name": "nothing"}))["code"] == -32602
        assert ran == []

    run(backend, test)


@both_loops
@pytest.mark.spec("D30", "T2")
def test_what_a_tool_raises_ends_the_call_in_the_way_that_was_meant(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = application()

    @app.tool()
    async def fail(how: str) -> None:
        match how:
            case "tool":
                raise ToolError("No such city.")
            case "protocol":
                raise ProtocolError(1234, "Not today", {"again": True})
            case "unknown":
                raise ValueError("the password is 1234")
            case "exit":
                raise SystemExit(3)
            case "group":
                async with anyio.create_task_group() as group:
                    group.start_soon(fail, "tool")
            case "stray":
                raise anyio.get_cancelled_exc_class()() if backend == "asyncio" else RuntimeError("as stray")
            case "data":
                raise ProtocolError(1234, "Odd", math.nan)

    @app.tool()
    def fail_in_thread() -> None:
        raise OSError("secret path")

    async def test() -> None:
        async with served(app) as server:
            call, peer = server.peer.call, server.peer
            result = await call("fail", {"how": "tool"})
            assert (text_of(result), result["isError"]) == ("No such city.", True)
            error = await peer.error("tools/call", {"name": "fail", "arguments": {"how": "protocol"}})
            assert error == {"code": 1234, "message": "Not today", "data": {"again": True}}
            assert text_of(await call("fail", {"how": "group"})) == "No such city."
            for how in ("unknown", "exit", "stray"):
                result = await call("fail", {"how": how})
                assert (text_of(result), result["isError"]) == ("Tool fail failed", True)
            assert text_of(await call("fail_in_thread")) == "Tool fail_in_thread failed"
            error = await peer.error("tools/call", {"name": "fail", "arguments": {"how": "data"}})
            assert error == {"code": 1234, "message": "Odd"}

    with caplog.at_level(logging.ERROR, "mcp_tasks_trio"):
        run(backend, test)
    assert "the password is 1234" in caplog.text
    assert "secret path" in caplog.text


@both_loops
@pytest.mark.spec("B5")
def test_a_code_that_may_not_be_sent_becomes_an_internal_error(backend: str) -> None:
    app = application()

    @app.tool()
    async def fail() -> None:
        raise ProtocolError(-32001, "from an older revision")

    async def test() -> None:
        async with served(app) as server:
            assert (await server.peer.error("tools/call", {"name": "fail"}))["code"] == -32603

    run(backend, test)


@both_loops
@pytest.mark.spec("B10")
def test_a_result_without_a_json_form_is_a_masked_error_inline_and_in_a_task(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = application()
    values: dict[str, Any] = {"nan": math.nan, "surrogate": "\ud800", "bytes": b"x", "thing": object()}

    @app.tool()
    async def inline(which: str) -> Any:
        return values[which]

    @app.tool(task="always")
    async def in_task(which: str) -> Any:
        return values[which]

    async def test() -> None:
        async with served(app) as server:
            for which in values:
                result = await server.peer.call("inline", {"which": which})
                assert result["isError"] is True
                assert text_of(result) == "Tool inline failed: its result could not be sent"
                handle = await server.peer.call("in_task", {"which": which})
                task = await server.peer.task_in(handle["taskId"], "completed")
                assert task["result"]["isError"] is True

    with caplog.at_level(logging.ERROR, "mcp_tasks_trio"):
        run(backend, test)
    assert "has no JSON form" in caplog.text


# --- tasks


@both_loops
@pytest.mark.spec("C1", "C2", "C3", "D46")
def test_the_mode_of_a_tool_and_what_the_client_declared_decide_whether_a_call_is_a_task(backend: str) -> None:
    app = application()
    for mode in ("never", "always", "required"):

        @app.tool(mode, task=mode)
        async def tool(context: ToolContext) -> str:
            return "in a task" if context.task_id else "inline"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            hint = {"task": {"ttl": 1000}}
            assert text_of(await peer.call("never", params=hint)) == "inline"
            assert text_of(await peer.call("never", params=hint, capabilities=WITHOUT_TASKS)) == "inline"
            assert text_of(await peer.call("always", params=hint, capabilities=WITHOUT_TASKS)) == "inline"
            for name in ("always", "required"):
                handle = await peer.call(name, params=hint)
                assert handle["resultType"] == "task"
                task = await peer.task_in(handle["taskId"], "completed")
                assert text_of(task["result"]) == "in a task"
            error = await peer.error("tools/call", {"name": "required"}, capabilities=WITHOUT_TASKS)
            assert error["code"] == -32021

    run(backend, test)


@both_loops
@pytest.mark.spec("D12")
def test_a_handle_shows_the_terms_of_its_tool(backend: str) -> None:
    app = application()
    app.tool("short", task="always", ttl=timedelta(seconds=9), poll_interval=timedelta(milliseconds=5))(lambda: None)
    app.tool("unlimited", task="always", ttl=None)(lambda: None)

    async def test() -> None:
        async with served(app) as server:
            short = await server.peer.call("short")
            assert (short["ttlMs"], short["pollIntervalMs"]) == (9_000, 5)
            unlimited = await server.peer.call("unlimited")
            assert unlimited["ttlMs"] is None

    run(backend, test)


@both_loops
@pytest.mark.spec("D30", "T2")
def test_a_task_ends_as_the_plain_call_would(backend: str) -> None:
    app = application()

    @app.tool(task="always")
    async def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("No such city.")
        if how == "protocol":
            raise ProtocolError(1234, "Not today", {"again": True})
        if how == "unknown":
            raise ValueError("secret")
        return how

    async def test() -> None:
        async with served(app) as server:
            tasks = {}
            for how in ("tool", "protocol", "unknown", "fine"):
                handle = await server.peer.call("fail", {"how": how})
                tasks[how] = await server.peer.task_in(handle["taskId"], "completed", "failed")
            assert text_of(tasks["tool"]["result"]) == "No such city."
            assert tasks["tool"]["result"]["isError"] is True
            assert tasks["protocol"]["status"] == "failed"
            assert tasks["protocol"]["error"] == {"code": 1234, "message": "Not today", "data": {"again": True}}
            assert tasks["unknown"]["status"] == "completed"
            assert text_of(tasks["unknown"]["result"]) == "Tool fail failed"
            assert text_of(tasks["fine"]["result"]) == "fine"

    run(backend, test)


@both_loops
@pytest.mark.spec("L1")
def test_progress_and_status_of_a_task_are_its_status_message(backend: str) -> None:
    app = application()

    @app.tool(task="always")
    async def work(context: ToolContext) -> None:
        await context.progress(1, total=2, message="half of it")
        await context.elicit("go", "Go on?", NAME)

    @app.tool(task="always")
    def work_in_thread(context: SyncToolContext) -> None:
        context.status("thinking")
        context.elicit("go", "Go on?", NAME)

    async def test() -> None:
        async with served(app) as server:
            for name, message in (("work", "half of it"), ("work_in_thread", "thinking")):
                handle = await server.peer.call(name, progressToken="t")
                task = await server.peer.task_in(handle["taskId"], "input_required")
                assert message in task["statusMessage"]
            assert not [m for m in server.peer.unclaimed if m.get("method") == "notifications/progress"]

    run(backend, test)


@both_loops
@pytest.mark.spec("X1", "X4", "D28")
def test_a_cancelled_task_stops_its_work(backend: str) -> None:
    app = application()
    ended: list[str] = []

    @app.tool(task="always")
    async def obedient(context: ToolContext) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("obedient" if context.cancel_requested else "something else")

    @app.tool(task="always")
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:
            ended.append("stubborn")
        return "all the same"

    @app.tool(task="always")
    async def broken() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise ToolError("while stopping")

    @app.tool(task="always")
    def polling(context: SyncToolContext) -> None:
        waited = threading.Event()
        while True:
            context.raise_if_cancelled()
            waited.wait(0.001)

    @app.tool(task="always")
    def asking(context: SyncToolContext) -> None:
        try:
            context.elicit("name", "Who?", NAME)
        except Exception:
            ended.append("swallowed")

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            for name, status in (
                ("obedient", "cancelled"),
                ("stubborn", "completed"),
                ("broken", "completed"),
                ("polling", "cancelled"),
                ("asking", "cancelled"),
            ):
                handle = await peer.call(name)
                await peer.task_in(handle["taskId"], "input_required" if name == "asking" else "working")
                await anyio.wait_all_tasks_blocked()
                assert (await peer.result("tasks/cancel", {"taskId": handle["taskId"]}))["resultType"] == "complete"
                task = await peer.task_in(handle["taskId"], "cancelled", "completed", "failed")
                assert task["status"] == status, name
        assert ended == ["obedient", "stubborn"]

    run(backend, test)


@both_loops
@pytest.mark.spec("I2", "I4", "X1")
@pytest.mark.parametrize("tells", ["progress", "log"])
def test_work_that_only_computes_and_tells_of_it_holds_nobody_up_and_can_be_cancelled(backend: str, tells: str) -> None:
    app = application()
    steps = 0

    @app.tool()
    async def compute(context: ToolContext) -> None:
        nonlocal steps
        while steps < 20_000:  # a loop that nobody else gets into ends too
            steps += 1
            await (context.progress(steps) if tells == "progress" else context.log("debug", steps))

    app.tool("compute_in_task", task="always")(compute)

    async def test() -> None:
        nonlocal steps
        async with served(app) as server:
            peer = server.peer
            request_id = await peer.start("tools/call", {"name": "compute", "arguments": {}})
            assert "tools" in await peer.result("tools/list")
            await peer.cancel(request_id)
            await peer.result("tools/list")
            assert peer.unclaimed == []
            assert steps < 20_000
            steps = 0
            task_id = (await peer.call("compute_in_task"))["taskId"]
            await peer.result("tasks/cancel", {"taskId": task_id})
            assert (await peer.task_in(task_id, "completed", "cancelled"))["status"] == "cancelled"

    run(backend, test)


# --- questions in a task


@both_loops
@pytest.mark.spec("U1", "U6", "D7")
def test_a_task_asks_and_goes_on_with_a_checked_answer(backend: str) -> None:
    app = application()
    answers: list[ElicitationAnswer] = []

    @app.tool(task="always")
    async def ask(context: ToolContext) -> str:
        answers.append(await context.elicit("name", "Who?", NAME))
        return "done"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            handle = await peer.call("ask")
            task = await peer.task_in(handle["taskId"], "input_required")
            assert task["inputRequests"]["name"] == {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Who?",
                    "requestedSchema": {"type": "object", "properties": NAME, "required": ["name"]},
                },
            }
            bad = {"taskId": handle["taskId"], "inputResponses": {"name": accept(name=3)}}
            assert (await peer.error("tasks/update", bad))["code"] == -32602
            assert (await peer.task(handle["taskId"]))["status"] == "input_required"
            good = {"taskId": handle["taskId"], "inputResponses": {"name": accept(name="Ada")}}
            assert (await peer.result("tasks/update", good))["resultType"] == "complete"
            await peer.task_in(handle["taskId"], "completed")
        assert answers == [ElicitationAnswer("accept", {"name": "Ada"})]

    run(backend, test)


@both_loops
@pytest.mark.spec("G2")
def test_a_task_may_ask_several_questions_at_once_and_in_parallel(backend: str) -> None:
    app = application()
    told: dict[str, Any] = {}

    @app.tool(task="always")
    async def ask(context: ToolContext) -> None:
        async def one(key: str) -> None:
            told[key] = await context.elicit(key, "Who?", NAME)

        async with anyio.create_task_group() as group:
            group.start_soon(one, "a")
            group.start_soon(one, "b")
            told.update(
                await context.ask({"c": {"method": "roots/list"}, "d": {"method": "roots/list"}}),
            )

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            task_id = (await peer.call("ask"))["taskId"]
            await peer.task_where(task_id, lambda task: len(task.get("inputRequests", {})) == 4)
            roots = {"roots": [{"uri": "file:///a"}]}
            responses = {"a": accept(name="1"), "b": {"action": "decline"}, "c": roots, "d": roots}
            await peer.result("tasks/update", {"taskId": task_id, "inputResponses": responses})
            await peer.task_in(task_id, "completed")
            assert told["a"].content == {"name": "1"}
            assert told["b"] == ElicitationAnswer("decline")
            assert told["c"] == told["d"] == roots

    run(backend, test)


@both_loops
def test_a_question_that_the_work_gives_up_is_withdrawn(backend: str) -> None:
    app = application()
    give_up: list[anyio.Event] = []

    @app.tool(task="always")
    async def ask(context: ToolContext) -> str:
        with anyio.CancelScope() as scope:

            async def leave() -> None:
                give_up.append(anyio.Event())
                await give_up[0].wait()
                scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(leave)
                await context.elicit("name", "Who?", NAME)
        answer = await context.elicit("other", "Who else?", NAME)
        return answer.action

    async def test() -> None:
        async with served(app) as server:
            task_id = (await server.peer.call("ask"))["taskId"]
            await server.peer.task_in(task_id, "input_required")
            give_up[0].set()
            await server.peer.task_where(task_id, lambda task: list(task.get("inputRequests", {})) == ["other"])
            late = {"name": accept(name="late"), "other": {"action": "cancel"}}
            await server.peer.result("tasks/update", {"taskId": task_id, "inputResponses": late})
            task = await server.peer.task_in(task_id, "completed")
            assert text_of(task["result"]) == "cancel"

    run(backend, test)


@both_loops
@pytest.mark.spec("U7", "D27", "R4")
def test_a_question_of_a_kind_that_was_not_declared_is_never_asked(backend: str) -> None:
    app = application()
    caught: list[InputUnavailable] = []

    async def ask(context: ToolContext, catch: bool) -> str:
        try:
            await context.sample("joke", "Tell a joke", max_tokens=10)
        except InputUnavailable as error:
            caught.append(error)
            if not catch:
                raise
        return "without"

    app.tool("inline")(ask)
    app.tool("in_task", task="always")(ask)
    capabilities = {"elicitation": {}, "extensions": CAPABILITIES["extensions"]}

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            assert text_of(await peer.call("inline", {"catch": True}, capabilities=capabilities)) == "without"
            call = {"name": "inline", "arguments": {"catch": False}}
            error = await peer.error("tools/call", call, capabilities=capabilities)
            assert error["code"] == -32021
            assert error["data"]["requiredCapabilities"] == {"sampling": {}}
            handle = await peer.call("in_task", {"catch": True}, capabilities=capabilities)
            assert text_of((await peer.task_in(handle["taskId"], "completed"))["result"]) == "without"
            handle = await peer.call("in_task", {"catch": False}, capabilities=capabilities)
            task = await peer.task_in(handle["taskId"], "failed")
            assert task["error"]["code"] == -32021
            assert task["error"]["data"]["requiredCapabilities"] == {"sampling": {}}
        assert len(caught) == 4

    run(backend, test)


@both_loops
@pytest.mark.spec("U2")
def test_a_key_with_a_second_meaning_is_refused_in_the_tool(backend: str) -> None:
    app = application()

    async def ask(context: ToolContext) -> str:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(context.elicit, "name", "Who?", NAME)
                await anyio.lowlevel.checkpoint()
                await context.elicit("name", "Who else?", NAME)
        except ExceptionGroup as group_of:
            return str(group_of.exceptions[0])
        return "asked"

    app.tool("in_task", task="always")(ask)

    async def test() -> None:
        async with served(app) as server:
            handle = await server.peer.call("in_task")
            task = await server.peer.task_in(handle["taskId"], "completed")
            assert "already names another question" in text_of(task["result"])

    run(backend, test)


# --- questions inline


@both_loops
@pytest.mark.spec("R1", "R3", "R6", "C6")
def test_an_inline_question_is_answered_over_as_many_rounds_as_it_takes(backend: str) -> None:
    app = application()
    runs: list[str] = []

    async def body(context: ToolContext) -> str:
        runs.append("run")
        first = await context.elicit("first", "First?", NAME)
        try:
            second = await context.elicit("second", f"After {first.content}?", NAME)
        except Exception:
            return "a tool's own except must not swallow the question"
        third = await context.list_roots()
        assert first.content is not None
        assert second.content is not None
        return f"{first.content['name']} {second.content['name']} {third[0]['uri']}"

    app.tool("ask")(body)

    @app.tool()
    def ask_in_thread(context: SyncToolContext) -> str:
        runs.append("run")
        first = context.elicit("first", "First?", NAME)
        second = context.elicit("second", f"After {first.content}?", NAME)
        third = context.list_roots()
        return f"{(first.content or {})['name']} {(second.content or {})['name']} {third[0]['uri']}"

    async def test() -> None:
        async with served(app) as server:
            for name in ("ask", "ask_in_thread"):
                runs.clear()
                params: dict[str, Any] = {}
                for key, answer in (
                    ("first", accept(name="a")),
                    ("second", accept(name="b")),
                    ("roots", {"roots": [{"uri": "file:///r"}]}),
                ):
                    result = await server.peer.call(name, params=params)
                    assert result["resultType"] == "input_required"
                    assert list(result["inputRequests"]) == [key]
                    extra = {**params, "inputResponses": {**params.get("inputResponses", {}), "other": answer}}
                    again = await server.peer.call(name, params=extra)
                    assert list(again["inputRequests"]) == [key], "what is still missing is asked for again"
                    params = {"inputResponses": {key: answer}, "requestState": result["requestState"]}
                assert text_of(await server.peer.call(name, params=params)) == "a b file:///r"
                assert len(runs) == 7

    run(backend, test)


@both_loops
@pytest.mark.spec("R1")
def test_questions_that_are_asked_side_by_side_inline_go_out_together(backend: str) -> None:
    app = application()

    @app.tool()
    async def ask(context: ToolContext) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(context.elicit, "a", "A?", NAME)
            group.start_soon(context.elicit, "b", "B?", NAME)
        return "both"

    async def test() -> None:
        async with served(app) as server:
            result = await server.peer.call("ask")
            assert sorted(result["inputRequests"]) == ["a", "b"]
            params = {
                "inputResponses": {"a": accept(name="1"), "b": accept(name="2")},
                "requestState": result["requestState"],
            }
            assert text_of(await server.peer.call("ask", params=params)) == "both"

    run(backend, test)


@both_loops
@pytest.mark.spec("D7", "R2", "R5")
def test_a_bad_answer_to_an_inline_question_is_an_error_of_the_request(backend: str) -> None:
    app = application()

    @app.tool()
    async def ask(context: ToolContext) -> str:
        try:
            answer = await context.elicit("name", "Who?", NAME)
        except Exception:
            return "swallowed"
        return answer.action

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            without_state = {"name": "ask", "arguments": {}, "inputResponses": {"name": accept(name=3)}}
            error = await peer.error("tools/call", without_state)
            assert error["code"] == -32602
            assert "name" in error["message"]
            asked = await peer.call("ask")
            bad = {**without_state, "requestState": asked["requestState"]}
            assert (await peer.error("tools/call", bad))["code"] == -32602
            for action in ("decline", "cancel"):
                retry = {"inputResponses": {"name": {"action": action}}, "requestState": asked["requestState"]}
                assert text_of(await peer.call("ask", params=retry)) == action

    run(backend, test)


@both_loops
def test_a_form_may_be_a_class_and_its_answer_an_instance(backend: str) -> None:
    @attrs.frozen
    class Person:
        name: str
        age: int | None = None

    app = application()

    @app.tool()
    async def ask(context: ToolContext) -> str:
        answer = await context.elicit("who", "Who?", Person)
        return repr(answer.value)

    async def test() -> None:
        async with served(app) as server:
            asked = await server.peer.call("ask")
            schema = asked["inputRequests"]["who"]["params"]["requestedSchema"]
            assert schema == {
                "type": "object",
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                "required": ["name"],
            }
            retry = {"inputResponses": {"who": accept(name="Ada", age=36)}, "requestState": asked["requestState"]}
            assert "name='Ada', age=36" in text_of(await server.peer.call("ask", params=retry))

    run(backend, test)


@both_loops
def test_every_kind_of_question_takes_the_wire_form_of_the_specification(backend: str) -> None:
    app = application()

    @app.tool()
    async def ask(context: ToolContext) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(context.elicit_url, "pay", "Pay here", "https://example.org/pay")
            group.start_soon(context.list_roots)

            async def sample() -> None:
                await context.sample("joke", "A joke", max_tokens=9, system_prompt="Be brief", temperature=0.5)

            group.start_soon(sample)
        return "answered"

    async def test() -> None:
        async with served(app) as server:
            asked = await server.peer.call("ask")
            assert asked["inputRequests"] == {
                "pay": {
                    "method": "elicitation/create",
                    "params": {"mode": "url", "message": "Pay here", "url": "https://example.org/pay"},
                },
                "roots": {"method": "roots/list"},
                "joke": {
                    "method": "sampling/createMessage",
                    "params": {
                        "messages": [{"role": "user", "content": {"type": "text", "text": "A joke"}}],
                        "maxTokens": 9,
                        "systemPrompt": "Be brief",
                        "temperature": 0.5,
                    },
                },
            }
            joke = {"role": "assistant", "content": {"type": "text", "text": "ha"}, "model": "m"}
            responses = {"pay": {"action": "accept"}, "roots": {"roots": []}, "joke": joke}
            retry = {"inputResponses": responses, "requestState": asked["requestState"]}
            assert text_of(await server.peer.call("ask", params=retry)) == "answered"

    run(backend, test)


@both_loops
def test_a_question_that_cannot_be_is_refused_where_it_is_asked(backend: str) -> None:
    app = application()
    attempts: list[Callable[[ToolContext], Awaitable[Any]]] = [
        lambda c: c.elicit("", "Who?", NAME),
        lambda c: c.elicit("k", "", NAME),
        lambda c: c.elicit("k", "Who?", {"a": {"type": "object"}}),
        lambda c: c.elicit("k", "Who?", {"a": {}}),
        lambda c: c.elicit("k", "Who?", NAME, required=["nobody"]),
        lambda c: c.elicit("k", "Who?", "text"),  # type: ignore[arg-type]
        lambda c: c.elicit_url("k", "Pay", ""),
        lambda c: c.sample("k", "x", max_tokens=0),
        lambda c: c.sample("k", [{"role": "user", "content": math.nan}], max_tokens=1),
        lambda c: c.progress(math.nan),
        lambda c: c.progress(True),
        lambda c: c.progress(1, total=math.inf),
        lambda c: c.log("loud", "x"),
        lambda c: c.log("info", object()),
    ]

    @app.tool()
    async def ask(context: ToolContext, which: int) -> str:
        try:
            await attempts[which](context)
        except Exception as error:
            return type(error).__name__
        return "asked"

    async def test() -> None:
        async with served(app) as server:
            for which in range(len(attempts)):
                assert text_of(await server.peer.call("ask", {"which": which})) == "LocalProtocolError", which

    run(backend, test)


# --- gates


@both_loops
@pytest.mark.spec("C6")
def test_a_gate_refuses_or_asks_before_any_task_exists_and_its_answers_reach_the_work(backend: str) -> None:
    app = application()
    seen: list[Any] = []

    @app.gate
    def no_secrets(context: SyncGateContext) -> None:
        if context.raw_arguments.get("topic") == "secret":
            raise ToolError("Not that.")

    async def consent(context: GateContext) -> None:
        seen.append((context.tool_name, dict(context.arguments), context.becomes_task))
        answer = await context.elicit("consent", "Really?", NAME)
        if not answer.accepted:
            raise ProtocolError(4000, "No consent")

    @app.tool(task="always", gate=consent)
    async def work(context: ToolContext, topic: str) -> str:
        again = await context.elicit("consent", "Really?", NAME)
        return f"{(again.content or {})['name']} {context.answers['consent']['action']}"

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            assert text_of(await peer.call("work", {"topic": "secret"})) == "Not that."
            asked = await peer.call("work", {"topic": "x"})
            assert asked["resultType"] == "input_required"
            state = asked["requestState"]
            no = {"inputResponses": {"consent": {"action": "decline"}}, "requestState": state}
            call = {"name": "work", "arguments": {"topic": "x"}, **no}
            assert (await peer.error("tools/call", call))["code"] == 4000
            assert len(server.engine.store) == 0  # type: ignore[arg-type]
            yes = {"inputResponses": {"consent": accept(name="me")}, "requestState": state}
            handle = await peer.call("work", {"topic": "x"}, params=yes)
            assert handle["resultType"] == "task"
            task = await peer.task_in(handle["taskId"], "completed")
            assert text_of(task["result"]) == "me accept"
            inline = await peer.call("work", {"topic": "x"}, params=yes, capabilities=WITHOUT_TASKS)
            assert text_of(inline) == "me accept"
        assert seen[0] == ("work", {"topic": "x"}, True)
        assert seen[-1] == ("work", {"topic": "x"}, False)

    run(backend, test)


@both_loops
def test_the_work_may_ask_something_else_under_a_key_that_its_gate_used(backend: str) -> None:
    app = application()

    async def gate(context: GateContext) -> None:
        await context.elicit("name", "Who?", NAME)

    @app.tool(task="always", gate=gate)
    async def work(context: ToolContext) -> str:
        answer = await context.elicit("name", "Who else?", NAME)
        return str((answer.content or {})["name"])

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            handle = await peer.call("work", params={"inputResponses": {"name": accept(name="gate")}})
            task = await peer.task_in(handle["taskId"], "input_required")
            assert task["inputRequests"]["name"]["params"]["message"] == "Who else?"
            responses = {"taskId": handle["taskId"], "inputResponses": {"name": accept(name="work")}}
            await peer.result("tasks/update", responses)
            assert text_of((await peer.task_in(handle["taskId"], "completed"))["result"]) == "work"

    run(backend, test)


# --- other methods


@both_loops
@pytest.mark.spec("C9", "R1")
def test_methods_of_the_applications_own_get_and_give_raw_values(backend: str) -> None:
    app = application()
    seen: list[Any] = []

    @app.method("prompts/get")
    async def get_prompt(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
        seen.append((params, context.method, context.owner))
        answer = await context.elicit("name", "Who?", NAME)
        return {"messages": [], "description": str(answer.content)}

    @app.method("prompts/list")
    def list_prompts(params: dict[str, Any], context: SyncMethodContext) -> dict[str, Any]:
        return {"prompts": [{"name": "a"}]}

    @app.method("example/odd")
    async def odd(params: dict[str, Any], context: MethodContext) -> Any:
        match params["how"]:
            case "task":
                return {"resultType": "task"}
            case "list":
                return [1]
            case "nan":
                return {"a": math.nan}
            case "raise":
                raise ValueError("secret")
            case "tool error":
                raise ToolError("said plainly")
            case "protocol":
                raise ProtocolError(-32602, "params.how: something else")
            case "ask":
                return await context.elicit("name", "Who?", NAME)

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            listed = await peer.result("prompts/list")
            assert listed["prompts"] == [{"name": "a"}]
            assert listed["resultType"] == "complete"
            assert listed["cacheScope"] in ("public", "private")
            asked = await peer.result("prompts/get", {"name": "a"})
            assert asked["resultType"] == "input_required"
            retry = {"name": "a", "inputResponses": {"name": accept(name="Ada")}, "requestState": asked["requestState"]}
            assert (await peer.result("prompts/get", retry))["description"] == "{'name': 'Ada'}"
            assert seen[-1] == ({"name": "a"}, "prompts/get", LOCAL_OWNER)
            expected = {
                "task": (-32603, None),
                "list": (-32603, None),
                "nan": (-32603, None),
                "raise": (-32603, "example/odd failed"),
                "tool error": (-32603, "said plainly"),
                "protocol": (-32602, "params.how: something else"),
                "ask": (-32603, None),
            }
            for how, (code, message) in expected.items():
                error = await peer.error("example/odd", {"how": how})
                assert error["code"] == code, how
                assert message is None or error["message"] == message
                assert "secret" not in str(error)
            assert (await peer.error("resources/read", {"uri": "a"}))["code"] == -32601

    run(backend, test)


# --- engines and access rules of the application's own


class _Engine:
    """A task engine in memory."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.answered: list[Any] = []
        self.broken = False

    def start(self, task_id: str) -> None:
        self.tasks[task_id] = {
            "taskId": task_id,
            "status": "input_required",
            "createdAt": "2026-07-28T10:00:00.000Z",
            "lastUpdatedAt": "2026-07-28T10:00:00.000Z",
            "ttlMs": None,
            "inputRequests": {"roots": {"method": "roots/list"}},
        }

    def read(self, task_id: TaskId) -> EngineTask | None:
        if self.broken:
            raise OSError("the engine is down")
        state = self.tasks.get(task_id)
        return None if state is None else EngineTask(owner=LOCAL_OWNER, state=state)

    async def answer(self, task_id: TaskId, answers: Any) -> bool:
        self.answered.append(dict(answers))
        return True

    async def cancel(self, task_id: TaskId) -> bool:
        task = self.tasks[task_id]
        del task["inputRequests"]
        task["status"] = "cancelled"
        return True


@both_loops
def test_an_engine_of_the_applications_own_holds_its_tasks(backend: str) -> None:
    app = application()
    engine = _Engine()
    app.source("job-", engine)

    @app.tool()
    async def submit() -> TaskClaim:
        engine.start("job-1")
        return TaskClaim(TaskId("job-1"), ttl=None, poll_interval=timedelta(seconds=2))

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            handle = await peer.call("submit")
            assert (handle["resultType"], handle["taskId"]) == ("task", "job-1")
            assert (await peer.task("job-1"))["inputRequests"] == {"roots": {"method": "roots/list"}}
            roots = {"roots": {"roots": []}}
            await peer.result("tasks/update", {"taskId": "job-1", "inputResponses": roots})
            assert engine.answered == [roots]
            await peer.result("tasks/cancel", {"taskId": "job-1"})
            assert (await peer.task("job-1"))["status"] == "cancelled"
            assert (await peer.error("tasks/get", {"taskId": "job-2"}))["code"] == -32602
            engine.broken = True
            assert (await peer.error("tasks/get", {"taskId": "job-1"}))["code"] == -32603
            refused = await peer.call("submit", capabilities=WITHOUT_TASKS)
            assert (text_of(refused), refused["isError"]) == ("Tool submit failed", True)

    run(backend, test)


@both_loops
@pytest.mark.spec("A3", "D5")
def test_an_access_rule_of_the_applications_own_decides_every_access(backend: str) -> None:
    asked: list[Any] = []

    async def rule(caller: Owner, access: Access, task_id: TaskId, owner: Owner) -> bool:
        asked.append((access, caller == owner))
        if access is Access.ANSWER:
            raise RuntimeError("a broken rule denies")
        return access is Access.READ

    app = application(authorize=rule)
    app.tool("work", task="always")(lambda: "done")

    async def test() -> None:
        async with served(app) as server:
            peer = server.peer
            task_id = (await peer.call("work"))["taskId"]
            await peer.task_in(task_id, "completed")
            unknown = await peer.error("tasks/get", {"taskId": "unknown"})
            assert await peer.error("tasks/cancel", {"taskId": task_id}) == unknown
            update = {"taskId": task_id, "inputResponses": {}}
            assert await peer.error("tasks/update", update) == unknown
        assert {access for access, _ in asked} == {Access.READ, Access.CANCEL, Access.ANSWER}

    run(backend, test)


def test_what_a_body_leaves_running_can_say_nothing_after_the_answer() -> None:
    app = application()
    left: list[asyncio.Task[Any]] = []
    go_on: list[asyncio.Event] = []

    @app.tool()
    async def leave(context: ToolContext) -> str:
        event = asyncio.Event()
        go_on.append(event)

        async def later() -> str:
            await event.wait()
            await context.progress(2)
            await context.log("info", "late")
            try:
                await context.elicit("name", "Who?", NAME)
            except Exception as error:
                return str(error)
            return "asked"

        left.append(asyncio.get_running_loop().create_task(later()))
        return "answered"

    async def test() -> None:
        async with served(app) as server:
            meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
            assert text_of(await server.peer.call("leave", **meta)) == "answered"
            go_on[0].set()
            assert "the call has ended" in await left[0]
            await server.peer.result("tools/list")
            assert server.peer.unclaimed == []

    run("asyncio", test)  # trio leaves nothing running
