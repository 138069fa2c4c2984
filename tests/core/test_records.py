"""The codec between a task's record and what a store keeps, and when a task comes due."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import InputKey, Revision, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import UnreadableRecord, decode_record, due_at_ms, encode_record, row_of
from mcp_tasks_core.tasks import InputEntry, TaskRecord, TaskStatus
from mcp_tasks_core.testing.messages import accepted, form_question, text_result

FULL = TaskRecord(
    task_id=TaskId("t-Ä"),
    owner=Owner("tenant", "subject"),
    status=TaskStatus.INPUT_REQUIRED,
    created_at_ms=1_000,
    last_updated_at_ms=2_000,
    ttl_ms=3_000,
    request={"name": "tool", "arguments": {"big": 2**64, "deep": [[[None, True, 1.5, "ω\u0000"]]]}},
    capabilities=ClientCapabilities({"elicitation": {"form": {}}}),
    poll_interval_ms=500,
    status_message="half\n",
    inputs={
        InputKey("b"): InputEntry(request=form_question("b")),
        InputKey("a"): InputEntry(request=form_question("a"), answer=accepted(value="x")),
        InputKey("c"): InputEntry(request=form_question("c"), withdrawn=True),
    },
    cancel_requested_at_ms=1_500,
    executor="p1",
)


@pytest.mark.parametrize(
    "record",
    [
        FULL,
        attrs.evolve(FULL, status=TaskStatus.COMPLETED, result=text_result(), ttl_ms=None),
        attrs.evolve(FULL, status=TaskStatus.FAILED, error=ErrorObject(5, "x", [1, {"a": None}])),
        attrs.evolve(FULL, status=TaskStatus.FAILED, error=ErrorObject(5, "x")),
        attrs.evolve(FULL, status=TaskStatus.CANCELLED, inputs={}, executor=None, poll_interval_ms=None),
        attrs.evolve(FULL, expired=True, request={}, inputs={}, status_message=None, cancel_requested_at_ms=None),
    ],
)
def test_a_record_survives_its_store(record: TaskRecord) -> None:
    again = decode_record(encode_record(record))
    assert again == record
    assert list(again.inputs) == list(record.inputs)
    assert encode_record(again) == encode_record(record)


@pytest.mark.spec("B10")
@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"status_message": "\ud800"}, ValueError),
        ({"result": {"x": float("nan")}}, ValueError),
        ({"result": {"x": float("inf")}}, ValueError),
        ({"result": {"x": {1, 2}}}, TypeError),
        ({"task_id": "\udfff"}, ValueError),
    ],
)
def test_what_json_cannot_hold_is_refused_before_it_is_stored(members: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_record(attrs.evolve(FULL, **members))


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b"null", b"[]", b"{", b"\xff", b'{"v":1}', b'{"v":1,"error":null}', encode_record(FULL)[:-2]],
)
def test_a_payload_that_is_no_record_is_told_apart_from_one(payload: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(payload)


def test_a_record_of_another_version_says_which_one_is_read() -> None:
    wire = json.loads(encode_record(FULL))
    for version in (0, 2, "1", None):
        with pytest.raises(UnreadableRecord, match="this program reads version 1"):
            decode_record(json.dumps({**wire, "v": version}).encode())


@pytest.mark.parametrize(
    ("member", "value"),
    [("status", "asleep"), ("owner", ["only one"]), ("inputs", [["k"]]), ("owner", ["", ""]), ("error", [1])],
)
def test_a_member_that_makes_no_sense_makes_the_record_unreadable(member: str, value: object) -> None:
    wire = json.loads(encode_record(FULL))
    with pytest.raises(UnreadableRecord):
        decode_record(json.dumps({**wire, member: value}).encode())


def test_a_row_has_what_a_store_must_index_and_the_record_as_it_is() -> None:
    row = row_of(FULL, Revision(7), Limits())
    assert (row.task_id, row.owner, row.status, row.revision) == ("t-Ä", ("tenant", "subject"), "input_required", 7)
    assert (row.executor, row.due_at_ms) == ("p1", 4_000)
    assert decode_record(row.payload) == FULL


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_nobody_runs_the_work_of_a_task_that_has_ended(status: str) -> None:
    ended = attrs.evolve(FULL, status=TaskStatus(status), error=ErrorObject(1, "x"))
    assert row_of(ended, Revision(2), Limits()).executor is None


@pytest.mark.spec("T4", "T5", "D9", "D10")
def test_a_task_is_due_at_its_end_then_a_grace_later_then_when_its_tombstone_goes() -> None:
    limits = Limits(expiry_grace_ms=10, tombstone_ms=100)
    completed = attrs.evolve(FULL, status=TaskStatus.COMPLETED)
    assert due_at_ms(FULL, limits) == 1_000 + 3_000
    assert due_at_ms(completed, limits) == 1_000 + 3_000 + 10
    assert due_at_ms(attrs.evolve(completed, expired=True), limits) == 1_000 + 3_000 + 10 + 100


@pytest.mark.spec("T4")
@pytest.mark.parametrize("status", list(TaskStatus))
def test_a_task_without_a_time_to_live_is_never_due(status: TaskStatus) -> None:
    assert due_at_ms(attrs.evolve(FULL, ttl_ms=None, status=status), Limits()) is None
