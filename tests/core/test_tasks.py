"""What a task shows of itself on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.tasks import (
    TERMINAL,
    CancelledTask,
    InputEntry,
    TaskRecord,
    TaskStatus,
    WorkingTask,
    handle_to_wire,
    state_to_wire,
    timestamp,
)
from mcp_tasks_core.testing.messages import accepted, form_question, text_result


def record(**members: Any) -> TaskRecord:
    given = {
        "task_id": TaskId("t"),
        "owner": Owner("a", "b"),
        "status": TaskStatus.WORKING,
        "created_at_ms": 1_785_232_800_000,
        "last_updated_at_ms": 1_785_232_800_007,
        "ttl_ms": 1_000,
        "capabilities": ClientCapabilities({}),
    }
    return TaskRecord(**{**given, **members})


@pytest.mark.spec("T3", "D14")
@pytest.mark.parametrize(
    ("wall_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_785_232_800_000, "2026-07-28T10:00:00.000Z"),
        (1_785_232_799_999, "2026-07-28T09:59:59.999Z"),
        (4_102_444_800_123, "2100-01-01T00:00:00.123Z"),
    ],
)
def test_timestamps_are_utc_with_z_and_milliseconds(wall_ms: int, text: str) -> None:
    assert timestamp(wall_ms) == text


@pytest.mark.spec("T3")
def test_timestamps_of_later_moments_are_later_texts() -> None:
    moments = [1_785_232_800_000 + step for step in (0, 1, 9, 10, 99, 100, 999, 1_000, 59_999, 60_000, 86_400_000)]
    texts = [timestamp(moment) for moment in moments]
    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.spec("C4", "D12")
def test_a_handle_has_exactly_the_members_of_a_task() -> None:
    assert handle_to_wire(record()) == {
        "taskId": "t",
        "status": "working",
        "createdAt": "2026-07-28T10:00:00.000Z",
        "lastUpdatedAt": "2026-07-28T10:00:00.007Z",
        "ttlMs": 1_000,
    }
    full = handle_to_wire(record(poll_interval_ms=500, status_message="soon", ttl_ms=None))
    assert (full["ttlMs"], full["pollIntervalMs"], full["statusMessage"]) == (None, 500, "soon")


@pytest.mark.spec("C4")
@pytest.mark.parametrize("status", list(TaskStatus))
def test_a_handle_carries_no_payload_whatever_the_status(status: TaskStatus) -> None:
    full = record(
        status=status,
        result=text_result(),
        error=ErrorObject(1, "x"),
        inputs={InputKey("q"): InputEntry(request=form_question())},
    )
    assert not {"result", "error", "inputRequests"} & set(handle_to_wire(full))


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("status", "payload"),
    [
        ("working", None),
        ("input_required", "inputRequests"),
        ("completed", "result"),
        ("failed", "error"),
        ("cancelled", None),
    ],
)
def test_a_state_has_the_payload_of_its_status_and_no_other(status: str, payload: str | None) -> None:
    full = record(
        status=TaskStatus(status),
        result=text_result(),
        error=ErrorObject(1, "x"),
        inputs={InputKey("q"): InputEntry(request=form_question())},
    )
    shown = {"result", "error", "inputRequests"} & set(state_to_wire(full))
    assert shown == ({payload} if payload else set())


@pytest.mark.spec("G2")
def test_a_state_lists_every_outstanding_question_and_no_other() -> None:
    inputs = {
        InputKey("a"): InputEntry(request=form_question("a")),
        InputKey("b"): InputEntry(request=form_question("b"), answer=accepted(value="x")),
        InputKey("c"): InputEntry(request=form_question("c"), withdrawn=True),
        InputKey("d"): InputEntry(request=form_question("d")),
    }
    shown = state_to_wire(record(status=TaskStatus.INPUT_REQUIRED, inputs=inputs))
    assert shown["inputRequests"] == {"a": form_question("a"), "d": form_question("d")}
    assert list(shown["inputRequests"]) == ["a", "d"]


@pytest.mark.spec("T2")
def test_an_error_shows_its_data_only_where_it_has_some() -> None:
    failed = record(status=TaskStatus.FAILED, error=ErrorObject(1, "x"))
    assert state_to_wire(failed)["error"] == {"code": 1, "message": "x"}
    failed = record(status=TaskStatus.FAILED, error=ErrorObject(1, "x", {"a": 1}))
    assert state_to_wire(failed)["error"] == {"code": 1, "message": "x", "data": {"a": 1}}


@pytest.mark.spec("T1")
def test_three_statuses_are_terminal() -> None:
    assert {"completed", "failed", "cancelled"} == TERMINAL
    common = {"task_id": TaskId("t"), "created_at": "", "last_updated_at": "", "ttl_ms": None}
    assert CancelledTask(status=TaskStatus.CANCELLED, **common).is_terminal
    assert not WorkingTask(status=TaskStatus.WORKING, **common).is_terminal
    assert [record(status=status).is_terminal for status in TaskStatus] == [False, False, True, True, True]
