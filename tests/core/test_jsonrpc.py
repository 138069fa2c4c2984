"""The envelope: what a message is, what answers a broken one, and how frames are put together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_tasks_core.errors import INVALID_PARAMS, INVALID_REQUEST, ErrorObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.json import StrictJson
from mcp_tasks_core.wire.jsonrpc import (
    Malformed,
    Notification,
    Request,
    Response,
    encode_id,
    error_frame,
    notification_frame,
    read_message,
    request_frame,
    result_frame,
)

LIMITS = Limits(identifier_chars_max=64)
CODEC = StrictJson(LIMITS)


def message(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **members}


@pytest.mark.spec("B2", "B3")
@pytest.mark.parametrize("request_id", ["", "0", "a" * 64, 0, -1, 1, 2**53 + 1, 10**400])
def test_strings_and_integers_are_ids_and_keep_their_type(request_id: Any) -> None:
    found = read_message(message(id=request_id, method="x"), LIMITS)
    assert found == Request(request_id, "x", {})
    assert isinstance(found, Request)
    assert type(found.id) is type(request_id)


@pytest.mark.spec("B2", "B3", "B7", "D42", "D43")
@pytest.mark.parametrize("request_id", [None, True, False, 1.0, 3100.0, {}, [], "a" * 65])
def test_anything_else_is_no_id_and_the_error_carries_none(request_id: Any) -> None:
    found = read_message(message(id=request_id, method="x"), LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == (None, INVALID_REQUEST, True)
    assert "id" in found.error.message


@pytest.mark.spec("B1", "B7")
@pytest.mark.parametrize("value", [[], [message(id=1, method="x")], None, True, 5, 1.5, "text"])
def test_batches_and_values_that_are_no_objects_are_no_messages(value: Any) -> None:
    found = read_message(value, LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == (None, INVALID_REQUEST, True)
    assert ("batch" in found.error.message) is (type(value) is list)


@pytest.mark.spec("B7")
@pytest.mark.parametrize("version", ["1.0", "2", 2, 2.0, None, "2.0 ", [], True])
def test_jsonrpc_is_exactly_two_point_zero(version: Any) -> None:
    found = read_message({"jsonrpc": version, "id": 7, "method": "x"}, LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == (7, INVALID_REQUEST, True)


@pytest.mark.spec("B7")
@pytest.mark.parametrize(
    "value",
    [
        {"id": 7, "method": "x"},
        message(id=7),
        message(id=7, method=None),
        message(id=7, method=5),
        message(id=7, method=["x"]),
        message(id=7, method="m" * 65),
    ],
)
def test_a_request_without_a_good_head_is_answered_under_its_id(value: dict[str, Any]) -> None:
    found = read_message(value, LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == (7, INVALID_REQUEST, True)


@pytest.mark.spec("B7")
@pytest.mark.parametrize("params", [[], [1], None, "x", 5, True])
def test_params_are_an_object_or_absent(params: Any) -> None:
    found = read_message(message(id="q", method="x", params=params), LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == ("q", INVALID_PARAMS, True)
    told = read_message(message(method="x", params=params), LIMITS)
    assert isinstance(told, Malformed)
    assert not told.answer


@pytest.mark.spec("B6")
@pytest.mark.parametrize(
    "value",
    [
        {"method": "x"},
        {"jsonrpc": "1.0", "method": "x"},
        message(method=5),
        message(method=None, params=[]),
        message(method="m" * 65),
    ],
)
def test_a_broken_notification_is_never_answered(value: dict[str, Any]) -> None:
    found = read_message(value, LIMITS)
    assert isinstance(found, Malformed)
    assert not found.answer


@pytest.mark.spec("B6")
def test_a_message_without_an_id_is_a_notification() -> None:
    assert read_message(message(method="n"), LIMITS) == Notification("n", {})
    params = {"a": 1}
    found = read_message(message(method="n", params=params), LIMITS)
    assert isinstance(found, Notification)
    assert found.params is params


def test_unknown_members_are_accepted() -> None:
    assert read_message(message(id=1, method="x", result=5, more={}), LIMITS) == Request(1, "x", {})


def test_responses_are_read() -> None:
    assert read_message(message(id=1, result={"a": 1}, more=1), LIMITS) == Response(1, {"a": 1}, None)
    error = {"code": -32021, "message": "no", "data": {"requiredCapabilities": {}, "more": [1]}, "more": 1}
    assert read_message(message(id="1", error=error), LIMITS) == Response(
        "1", None, ErrorObject(-32021, "no", {"requiredCapabilities": {}, "more": [1]})
    )


@pytest.mark.spec("B3", "D43")
@pytest.mark.parametrize(
    "value", [message(error={"code": 1, "message": ""}), message(id=None, error={"code": 1, "message": ""})]
)
def test_an_error_for_an_unreadable_id_has_none_or_null(value: dict[str, Any]) -> None:
    assert read_message(value, LIMITS) == Response(None, None, ErrorObject(1, ""))


@pytest.mark.spec("B8")
@pytest.mark.parametrize(
    ("value", "readable"),
    [
        (message(id=1, result=[]), 1),
        (message(id=1, result=None), 1),
        (message(id=1, error=None), 1),
        (message(id=1, error={}), 1),
        (message(id=1, error={"code": "1", "message": ""}), 1),
        (message(id=1, error={"code": 1.0, "message": ""}), 1),
        (message(id=1, error={"code": True, "message": ""}), 1),
        (message(id=1, error={"code": 1, "message": None}), 1),
        (message(id=1, result={}, error={"code": 1, "message": ""}), 1),
        ({"id": 1, "result": {}}, 1),
        (message(result={}), None),
        (message(id=None, result={}), None),
        (message(id=1.0, result={}), None),
        (message(id={}, error={"code": 1, "message": ""}), None),
    ],
)
def test_a_broken_response_is_never_answered_and_names_its_request_where_it_can(value: Any, readable: Any) -> None:
    found = read_message(value, LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.answer) == (readable, False)


def test_an_object_that_is_nothing_is_answered_without_an_id() -> None:
    found = read_message({}, LIMITS)
    assert isinstance(found, Malformed)
    assert (found.id, found.error.code, found.answer) == (None, INVALID_REQUEST, True)


# --- Frames


@pytest.mark.spec("B3")
@pytest.mark.parametrize("request_id", [0, -1, 10**400, "", "1", 'quote " and ☃', "\u2028"])
def test_ids_are_written_as_they_were_read(request_id: Any) -> None:
    assert json.loads(encode_id(request_id, CODEC)) == request_id
    frame = b"".join(result_frame(request_id, b'{"resultType":"complete"}', CODEC))
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete"}}


def test_a_result_body_is_shared_and_not_copied() -> None:
    body = CODEC.encode({"resultType": "complete"})
    assert any(part is body for part in result_frame(1, body, CODEC))


@pytest.mark.spec("B3", "D43")
def test_an_error_frame_has_the_requests_id_or_none() -> None:
    error = ErrorObject(-32602, "no", {"a": 1})
    wire = {"code": -32602, "message": "no", "data": {"a": 1}}
    assert json.loads(b"".join(error_frame("1", error, CODEC))) == {"jsonrpc": "2.0", "id": "1", "error": wire}
    assert json.loads(b"".join(error_frame(None, error, CODEC))) == {"jsonrpc": "2.0", "error": wire}


def test_requests_and_notifications_are_written_whole() -> None:
    assert read_message(CODEC.decode(b"".join(request_frame(1, "m", {"a": 1}, CODEC))), LIMITS) == Request(
        1, "m", {"a": 1}
    )
    assert read_message(CODEC.decode(b"".join(notification_frame("m", {}, CODEC))), LIMITS) == Notification("m", {})
