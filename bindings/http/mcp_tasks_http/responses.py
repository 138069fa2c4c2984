"""Response bytes, written by hand from prepared heads: the status table, JSON answers, event streams, refusals.

Source: streamable-http, Receiving Messages; DECISIONS on the status of errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from mcp_tasks_core.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, LocalProtocolError
from mcp_tasks_http.heads import Refusal

_STATUS_BY_CODE: Final = {None: 200, METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}

_REASONS: Final = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
# What the connection decides alone.
_OWN_FIELDS: Final = frozenset({"content-length", "transfer-encoding", "connection", "upgrade", "trailer"})

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT: Final = b":\n\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_STREAM_FIELDS: Final = b"Content-Type: text/event-stream\r\nCache-Control: no-store\r\nX-Accel-Buffering: no\r\n"


def status_of(code: int | None) -> int:
    """The HTTP status of a message by its JSON-RPC error code; ``None`` for a result."""
    return _STATUS_BY_CODE.get(code, 400)


def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\n".encode("ascii")


def _json_head(status: int, more: bytes) -> bytes:
    return _status_line(status) + b"Content-Type: application/json\r\nCache-Control: no-store\r\n" + more


_JSON_HEADS: Final = {
    (status, close): _json_head(status, _CLOSE if close else b"") + b"Content-Length: %d\r\n\r\n"
    for status in (200, 400, 404, 500)
    for close in (False, True)
}


def json_answer(code: int | None, payload: Sequence[bytes], *, close: bool) -> list[bytes]:
    """A whole answer with one message."""
    length = len(payload[0]) if len(payload) == 1 else sum(map(len, payload))
    return [_JSON_HEADS[_STATUS_BY_CODE.get(code, 400), close] % length, *payload]


def accepted(*, close: bool) -> bytes:
    """The answer to a notification that was taken in. Source: streamable-http, Sending Messages."""
    return _status_line(202) + (_CLOSE if close else b"") + b"Content-Length: 0\r\n\r\n"


def stream_head(*, close: bool, chunked: bool) -> bytes:
    """The beginning of an event stream; without chunks it lasts until the connection ends."""
    more = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    return _status_line(200) + _STREAM_FIELDS + (_CLOSE if close else b"") + more + b"\r\n"


def stream_event(payload: Sequence[bytes], *, chunked: bool) -> list[bytes]:
    """One message as one event with one data line."""
    if not chunked:
        return [b"data: ", *payload, b"\n\n"]
    return [b"%x\r\ndata: " % (sum(map(len, payload)) + 8), *payload, b"\n\n\r\n"]


def stream_comment(*, chunked: bool) -> bytes:
    """A line that clients ignore and proxies count as a sign of life."""
    return b"%x\r\n%b\r\n" % (len(COMMENT), COMMENT) if chunked else COMMENT


def check_payload(payload: Sequence[bytes]) -> None:
    """Raises ``LocalProtocolError`` for a message that is empty or holds a line end."""
    for part in payload:
        if b"\n" in part or b"\r" in part:
            raise LocalProtocolError("a message holds no line end: encode it as JSON without line breaks")
    if not any(payload):
        raise LocalProtocolError("a message is one JSON object, not nothing")


def whole_response(
    status: int,
    fields: Iterable[tuple[str, str]],
    body: bytes,
    *,
    close: bool,
    with_body: bool = True,
) -> bytes:
    """Any response that is complete.

    Args:
        fields: beside Content-Length and Connection, which are added.
        with_body: false for the answer to HEAD, which names the length of a body it does not have.

    Raises:
        LocalProtocolError: a status that ends nothing, or a field that HTTP does not allow or that is not the caller's.
    """
    if type(status) is not int or not 200 <= status <= 599 or status in (204, 205, 304):
        raise LocalProtocolError(f"a status that a body may follow is 200 to 599, not {status!r}")
    lines = [_status_line(status)]
    for name, value in fields:
        lines.append(_field_line(name, value))
    if close:
        lines.append(_CLOSE)
    lines.append(b"Content-Length: %d\r\n\r\n" % len(body))
    return b"".join(lines) + (body if with_body else b"")


def _field_line(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name) or name.lower() in _OWN_FIELDS:
        raise LocalProtocolError(f"{name!r} is no name of a field that may be given here")
    if not _VALUE.fullmatch(value):
        raise LocalProtocolError(f"{name} = {value!r}: a value is visible ASCII with blanks inside only")
    return f"{name}: {value}\r\n".encode("ascii")


def refusal_body(code: int, message: str) -> bytes:
    """A JSON-RPC error without an id, since no message was read."""
    error = {"jsonrpc": "2.0", "error": {"code": code, "message": message}}
    return json.dumps(error, separators=(",", ":")).encode("ascii")


def refusal_response(refusal: Refusal, *, close: bool, with_body: bool = True) -> bytes:
    """What the transport itself answers."""
    fields = (("Content-Type", "application/json"), ("Cache-Control", "no-store"), *refusal.fields)
    body = refusal_body(refusal.code, refusal.message)
    return whole_response(refusal.status, fields, body, close=close, with_body=with_body)
