"""Progress and log messages: of calls while they are open, of tasks as their status message."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId, Ticket
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import LoadTask, Report, StopWork, StoreTask
from mcp_tasks_core.server.events import CallLogged, CallProgressed, InputWithdrawn, WorkProgressed
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import HELD, Defer, ServerHarness
from mcp_tasks_core.testing.messages import text_result

LOG_LEVEL = "io.modelcontextprotocol/logLevel"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def bench() -> ServerHarness:
    tools = {"wait": lambda call: HELD, "slow": lambda call: Defer()}
    return ServerHarness(tools=tools, methods={"vendor/wait": lambda call: HELD})


def call(server: ServerHarness, meta: dict[str, Any] | None = None, method: str = "tools/call") -> Ticket:
    server.begin(method, name="wait", arguments={}, meta=meta)
    return server.calls[-1].ticket


# --- progress of calls


@pytest.mark.spec("L1")
@pytest.mark.parametrize("method", ["tools/call", "vendor/wait"])
@pytest.mark.parametrize("token", ["t", "", 0, -5, 2**60])
def test_progress_goes_out_under_the_requests_own_token(method: str, token: Any) -> None:
    server = bench()
    ticket = call(server, {"progressToken": token}, method)
    server.feed(CallProgressed(ticket=ticket, progress=1, total=4, message="one"))
    server.feed(CallProgressed(ticket=ticket, progress=1.5))
    assert server.notifications("notifications/progress") == [
        {"progressToken": token, "progress": 1, "total": 4, "message": "one"},
        {"progressToken": token, "progress": 1.5},
    ]
    assert [frame.final for frame in server.sent] == [False, False]


@pytest.mark.spec("L1")
def test_without_a_token_there_is_no_progress() -> None:
    server = bench()
    server.feed(CallProgressed(ticket=call(server), progress=1))
    assert server.frames == []


@pytest.mark.spec("L1")
def test_progress_strictly_increases_on_the_wire_whatever_the_tool_says() -> None:
    server = bench()
    ticket = call(server, {"progressToken": 1})
    for value in (0, 0, -1, 0.5, 0.5, 0.4, 3, 2, 3, 3.0, 4, 10**400 // 10**399):
        server.feed(CallProgressed(ticket=ticket, progress=value))
    values = [params["progress"] for params in server.notifications("notifications/progress")]
    assert values == [0, 0.5, 3, 4, 10]


@pytest.mark.spec("L1", "I2")
@pytest.mark.parametrize("how", ["answered", "deferred", "cancelled", "closed"])
def test_progress_and_logs_stop_at_the_answer_at_the_handle_and_at_a_cancellation(how: str) -> None:
    server = bench()
    ticket = call(server, {"progressToken": 1, LOG_LEVEL: "debug"})
    ends = {
        "answered": lambda: server.answer(server.calls[0], text_result()),
        "deferred": lambda: server.answer(server.calls[0], Defer()),
        "cancelled": lambda: server.cancel_request(1),
        "closed": server.close_stream,
    }
    ends[how]()
    server.forget()
    server.feed(CallProgressed(ticket=ticket, progress=5))
    server.feed(CallLogged(ticket=ticket, level="error", data="x"))
    assert server.frames == []


@pytest.mark.spec("L1")
def test_progress_stops_while_the_task_is_being_stored() -> None:
    server = bench()
    ticket = call(server, {"progressToken": 1})
    server.script(StoreTask, StoreFault.SLOW)
    server.answer(server.calls[0], Defer())
    server.feed(CallProgressed(ticket=ticket, progress=5))
    assert server.frames == []
    assert len(server.release()) == 1


@pytest.mark.spec("L1", "N4")
def test_two_calls_report_each_under_its_own_token() -> None:
    server = bench()
    first, second = call(server, {"progressToken": "same"}), call(server, {"progressToken": "same"})
    server.feed(CallProgressed(ticket=first, progress=5))
    server.feed(CallProgressed(ticket=second, progress=1))
    assert [params["progress"] for params in server.notifications("notifications/progress")] == [5, 1]


@pytest.mark.spec("B10")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, True])
def test_progress_that_is_no_finite_number_is_the_callers_mistake(value: Any) -> None:
    server = bench()
    ticket = call(server, {"progressToken": 1})
    with pytest.raises(LocalProtocolError, match="finite numbers"):
        server.feed(CallProgressed(ticket=ticket, progress=value))
    if value is not None:
        with pytest.raises(LocalProtocolError, match="finite numbers"):
            server.feed(CallProgressed(ticket=ticket, progress=1, total=value))
        with pytest.raises(LocalProtocolError, match="finite numbers"):
            server.feed(WorkProgressed(task_id=TaskId("t"), progress=value))
        with pytest.raises(LocalProtocolError, match="finite numbers"):
            server.feed(WorkProgressed(task_id=TaskId("t"), progress=1, total=value))
    assert server.frames == []


@pytest.mark.spec("B10")
def test_a_notification_that_is_not_json_is_left_out_with_a_line_in_the_log() -> None:
    server = bench()
    ticket = call(server, {"progressToken": 1, LOG_LEVEL: "debug"})
    server.feed(CallProgressed(ticket=ticket, progress=1, message="\ud800"))
    server.feed(CallLogged(ticket=ticket, level="error", data={"x": float("nan")}))
    assert (server.frames, len(server.effects_of(Report))) == ([], 2)


# --- logs of calls


@pytest.mark.spec("L2", "N4")
@pytest.mark.parametrize("wanted", [None, *LEVELS])
def test_log_messages_go_out_at_and_above_the_level_that_the_request_asked_for(wanted: str | None) -> None:
    server = bench()
    ticket = call(server, {LOG_LEVEL: wanted} if wanted else None)
    for level in LEVELS:
        server.feed(CallLogged(ticket=ticket, level=level, data={"at": level}, logger="l"))
    sent = server.notifications("notifications/message")
    expected = LEVELS[LEVELS.index(wanted) :] if wanted else []
    assert sent == [{"level": level, "data": {"at": level}, "logger": "l"} for level in expected]


@pytest.mark.spec("L2")
@pytest.mark.parametrize("level", ["verbose", "INFO", "", None, 5, [], {}])
def test_a_bad_level_is_bad_params(level: Any) -> None:
    server = bench()
    error = server.request("tools/call", name="wait", arguments={}, meta={LOG_LEVEL: level})["error"]
    assert (error["code"], "logLevel" in error["message"]) == (-32602, True)
    assert not server.calls


@pytest.mark.spec("L2")
def test_a_level_that_does_not_exist_is_the_callers_mistake() -> None:
    server = bench()
    with pytest.raises(LocalProtocolError, match="a log level is one of debug"):
        server.feed(CallLogged(ticket=call(server), level="verbose", data=1))


# --- progress of tasks


def create(server: ServerHarness) -> str:
    task_id: str = server.request("tools/call", name="slow", arguments={}, meta={"progressToken": 1})["result"][
        "taskId"
    ]
    server.forget()
    return task_id


def message(server: ServerHarness, task_id: str) -> str | None:
    found: str | None = server.request("tasks/get", taskId=task_id)["result"].get("statusMessage")
    return found


@pytest.mark.spec("L1")
def test_in_a_task_progress_becomes_the_status_message_and_no_notification() -> None:
    server = bench()
    task_id = create(server)
    server.feed(WorkProgressed(task_id=TaskId(task_id), progress=1, total=4))
    assert message(server, task_id) == "1 of 4"
    server.advance(1_000)
    server.feed(WorkProgressed(task_id=TaskId(task_id), progress=2.5))
    assert message(server, task_id) == "2.5"
    server.advance(1_000)
    server.feed(WorkProgressed(task_id=TaskId(task_id), progress=3, message="almost"))
    assert message(server, task_id) == "almost"
    server.feed(WorkProgressed(task_id=TaskId(task_id)))
    assert not server.notifications("notifications/progress")


def test_progress_is_stored_at_most_once_per_interval_and_the_last_word_is_not_lost() -> None:
    server = bench()
    task_id = create(server)
    for step in range(100):
        server.progress(task_id, f"step {step}")
        server.advance(50)
    assert len(server.effects_of(StoreTask)) == 6
    server.progress(task_id, "last")
    server.advance(1_000)
    assert (message(server, task_id), len(server.effects_of(StoreTask))) == ("last", 7)
    server.advance(60_000)
    assert len(server.effects_of(StoreTask)) == 7


def test_the_interval_of_one_task_is_not_that_of_another() -> None:
    server = bench()
    tasks = [create(server) for _ in range(3)]
    for task_id in tasks:
        server.progress(task_id, "one")
    assert [message(server, task_id) for task_id in tasks] == ["one"] * 3


@pytest.mark.spec("T1")
def test_progress_that_waits_for_its_interval_is_dropped_by_the_end() -> None:
    server = bench()
    task_id = create(server)
    server.progress(task_id, "one")
    server.progress(task_id, "two")
    server.complete(task_id, text_result())
    server.forget()
    server.advance(5_000)
    assert (message(server, task_id), server.effects_of(StoreTask)) == (None, [])


@pytest.mark.spec("D28")
def test_progress_does_not_hide_that_cancellation_was_requested() -> None:
    server = bench()
    task_id = create(server)
    server.request("tasks/cancel", taskId=task_id)
    server.progress(task_id, "still going")
    assert message(server, task_id) == "Cancellation requested"


def test_a_status_message_is_cut_to_its_limit() -> None:
    for length, kept in ((1_000, 1_000), (1_001, 1_000)):
        server = bench()
        task_id = create(server)
        server.progress(task_id, "x" * length)
        assert len(message(server, task_id) or "") == kept == Limits().status_message_chars_max


@pytest.mark.parametrize("target", ["ended", "unknown"])
def test_work_that_reports_on_a_task_that_is_over_or_gone_is_told_to_stop(target: str) -> None:
    server = bench()
    task_id = create(server)
    server.complete(task_id, text_result())
    server.progress(task_id if target == "ended" else "unknown", "more")
    assert len(server.effects_of(StopWork)) == 1


def test_progress_that_cannot_be_stored_is_lost_and_nothing_else_is() -> None:
    server = bench()
    task_id = create(server)
    server.progress(task_id, "\ud800")
    server.script(StoreTask, StoreFault.FAIL)
    server.advance(1_000)
    server.progress(task_id, "lost")
    assert (len(server.effects_of(Report)), message(server, task_id)) == (3, None)
    server.advance(1_000)
    server.progress(task_id, "kept")
    assert message(server, task_id) == "kept"


@pytest.mark.parametrize("text", [5, b"x", ["x"]])
def test_a_message_that_is_no_string_is_the_callers_mistake(text: Any) -> None:
    server = bench()
    with pytest.raises(LocalProtocolError, match="progress message is a string"):
        server.feed(WorkProgressed(task_id=TaskId("t"), message=text))
    assert not server.effects_of(LoadTask)


def test_changes_that_the_work_reports_at_once_are_made_in_their_order() -> None:
    server = bench()
    task_id = create(server)
    server.script(LoadTask, StoreFault.SLOW)
    server.progress(task_id, "one")
    server.feed(InputWithdrawn(TaskId(task_id), InputKey("never")))
    server.complete(task_id, text_result())
    assert server.effects_of(StoreTask) == []
    server.release()
    assert [effect.row.status for effect in server.effects_of(StoreTask)] == ["working", "completed"]
