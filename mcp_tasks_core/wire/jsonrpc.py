"""The JSON-RPC envelope: which kind of message a value is, and frames from parts that are encoded once.

Source: basic, Messages; JSON-RPC 2.0.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeGuard

import attrs

from mcp_tasks_core.errors import INVALID_PARAMS, INVALID_REQUEST, ErrorObject
from mcp_tasks_core.identifiers import JSONObject, JSONValue, RequestId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.json import JsonCodec

JSONRPC_VERSION: Final = "2.0"


@attrs.frozen(slots=True)
class Request:
    """A message that wants an answer. Absent params are an empty object. Source: basic, Requests."""

    id: RequestId
    method: str
    params: JSONObject


@attrs.frozen(slots=True)
class Notification:
    """A message that gets no answer, whatever is wrong with it. Source: basic, Notifications."""

    method: str
    params: JSONObject


@attrs.frozen(slots=True)
class Response:
    """An answer: exactly one of ``result`` and ``error`` is there.

    Args:
        id: the request's; ``None`` on an error whose sender could not read the id.

    Source: basic, Responses.
    """

    id: RequestId | None
    result: JSONObject | None
    error: ErrorObject | None


@attrs.frozen(slots=True)
class Malformed:
    """A value that is no message.

    Args:
        id: the message's id where it could be read.
        error: what was wrong with it and what is allowed.
        answer: whether the sender is told; not for what was meant as a notification or a response.
    """

    id: RequestId | None
    error: ErrorObject
    answer: bool


Message: TypeAlias = Request | Notification | Response


def read_message(value: JSONValue, limits: Limits) -> Message | Malformed:
    """The message that a JSON value is. Unknown members are accepted.

    Source: basic, Messages; DECISIONS D42 and D43.
    """
    if type(value) is not dict:
        text = "a message is one JSON object" + ("; batch arrays are not allowed" if type(value) is list else "")
        return _malformed(None, text)
    if "method" not in value and ("result" in value or "error" in value):
        return _read_response(value, limits)
    if "method" in value and "id" not in value:
        return _read_notification(value, limits)
    request_id = value.get("id")
    if not is_request_id(request_id, limits):
        return _malformed(None, f"id is an integer or a string of at most {limits.identifier_chars_max} characters")
    problem = _problem_with_head(value, limits)
    if problem is not None:
        return _malformed(request_id, problem)
    params = value.get("params", _ABSENT)
    if params is _ABSENT:
        params = {}
    elif type(params) is not dict:
        return Malformed(request_id, ErrorObject(INVALID_PARAMS, "params is an object or absent"), True)
    return Request(request_id, value["method"], params)


def is_request_id(value: object, limits: Limits) -> TypeGuard[RequestId]:
    """Whether a value may be a request's id: an integer or a string, no boolean, no float, not too long."""
    return type(value) is int or (type(value) is str and len(value) <= limits.identifier_chars_max)


_ABSENT: Final = object()


def _malformed(request_id: RequestId | None, text: str, *, answer: bool = True) -> Malformed:
    return Malformed(request_id, ErrorObject(INVALID_REQUEST, f"Invalid request: {text}"), answer)


def _problem_with_head(value: JSONObject, limits: Limits) -> str | None:
    """What is wrong with ``jsonrpc`` or ``method``."""
    if value.get("jsonrpc") != JSONRPC_VERSION:
        return 'jsonrpc is the string "2.0"'
    method = value.get("method")
    if type(method) is not str:
        return "method is a string"
    if len(method) > limits.identifier_chars_max:
        return f"method is a string of at most {limits.identifier_chars_max} characters"
    return None


def _read_notification(value: JSONObject, limits: Limits) -> Notification | Malformed:
    problem = _problem_with_head(value, limits)
    if problem is not None:
        return _malformed(None, problem, answer=False)
    params = value.get("params", _ABSENT)
    if params is _ABSENT:
        params = {}
    elif type(params) is not dict:
        return Malformed(None, ErrorObject(INVALID_PARAMS, "params is an object or absent"), False)
    return Notification(value["method"], params)


def _read_response(value: JSONObject, limits: Limits) -> Response | Malformed:
    request_id = value.get("id")
    readable = is_request_id(request_id, limits)
    problem = _problem_with_response(value, readable)
    if problem is not None:
        return _malformed(request_id if readable else None, problem, answer=False)
    if "result" in value:
        return Response(request_id, value["result"], None)
    error = value["error"]
    return Response(request_id, None, ErrorObject(error["code"], error["message"], error.get("data")))


def _problem_with_response(value: JSONObject, readable: bool) -> str | None:
    if value.get("jsonrpc") != JSONRPC_VERSION:
        return 'jsonrpc is the string "2.0"'
    if "result" in value and "error" in value:
        return "a response has a result or an error, not both"
    if not readable and not ("error" in value and value.get("id") is None):
        return "the id of a response is the request's"
    if "result" in value:
        return None if type(value["result"]) is dict else "result is an object"
    return _problem_with_error(value["error"])


def _problem_with_error(error: Any) -> str | None:
    if type(error) is not dict:
        return "error is an object"
    if type(error.get("code")) is not int:
        return "error.code is an integer"
    if type(error.get("message")) is not str:
        return "error.message is a string"
    return None


# --- Frames. A payload is parts, so that a body that many frames share is encoded once and never copied here.


def encode_id(request_id: RequestId, codec: JsonCodec) -> bytes:
    """A request id as it stands in a frame, its JSON type kept."""
    return b"%d" % request_id if type(request_id) is int else codec.encode(request_id)


def result_frame(request_id: RequestId, body: bytes, codec: JsonCodec) -> tuple[bytes, ...]:
    """A response around a result that is encoded already.

    Args:
        body: the encoded result, an object.
    """
    return (b'{"jsonrpc":"2.0","id":' + encode_id(request_id, codec) + b',"result":', body, b"}")


def error_frame(request_id: RequestId | None, error: ErrorObject, codec: JsonCodec) -> tuple[bytes, ...]:
    """An error response; without an id where the request's could not be read."""
    body = codec.encode(error.to_wire())
    if request_id is None:
        return (b'{"jsonrpc":"2.0","error":' + body + b"}",)
    return (b'{"jsonrpc":"2.0","id":' + encode_id(request_id, codec) + b',"error":' + body + b"}",)


def notification_frame(method: str, params: JSONObject, codec: JsonCodec) -> tuple[bytes, ...]:
    """A notification."""
    return (codec.encode({"jsonrpc": JSONRPC_VERSION, "method": method, "params": params}),)


def request_frame(request_id: RequestId, method: str, params: JSONObject, codec: JsonCodec) -> tuple[bytes, ...]:
    """A request."""
    return (codec.encode({"jsonrpc": JSONRPC_VERSION, "id": request_id, "method": method, "params": params}),)
