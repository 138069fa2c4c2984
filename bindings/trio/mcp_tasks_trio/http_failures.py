"""What a response over HTTP means in which there was no answer.

Source: streamable-http, Sending Messages; RFC 9110, section 15.
"""

from __future__ import annotations

import json
from typing import Any, Final

import anyio

from mcp_tasks_core.client.calls import LISTEN
from mcp_tasks_core.client.effects import Frame
from mcp_tasks_core.client.events import CallId
from mcp_tasks_core.errors import INVALID_REQUEST, LocalProtocolError
from mcp_tasks_http import EndKind, RefusalKind, Refused, ResponseEnded
from mcp_tasks_trio.client_errors import (
    ClientError,
    ConnectionLost,
    Forbidden,
    HttpError,
    InvalidResponse,
    Unauthorized,
)

_ENDED_WITHOUT_RESULT: Final = "the server ended the stream without a result"
# Statuses below 500 that may be another one when the same is sent again. Source: RFC 9110; RFC 8470; RFC 6585.
_PASSING: Final = frozenset({408, 425, 429})


class HttpCall:
    """One request that is on its way."""

    def __init__(self, frame: Frame, call_id: CallId) -> None:
        self.frame = frame
        self.call_id = call_id
        self.scope = anyio.CancelScope()
        self.ended: ResponseEnded | Refused | None = None
        self.mismatch: bytes | None = None  # an answer that says that the headers do not fit
        self.unread: bytes | None = None  # a reply that answered nothing
        self.wrong_path: str | None = None  # what a server says that has its endpoint elsewhere


def said_of_path(payload: bytes) -> str | None:
    """The message of an error at 404 that is about the path; a method that nobody knows has another code."""
    try:
        error = json.loads(payload)["error"]
        return str(error["message"]) if error["code"] == INVALID_REQUEST else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_notice(payload: bytes | None) -> bool:
    """Whether this is a message that answers nothing and need not: a stream may hold any number of them."""
    try:
        message = json.loads(payload or b"{}")
    except (ValueError, RecursionError):
        return False
    return not payload or (isinstance(message, dict) and "method" in message)


def failure_of(call: HttpCall) -> ClientError | None:
    """What a response means in which there was no answer; ``None`` where nobody waits for one any more."""
    ended, method = call.ended, call.frame.method
    match ended:
        case None:
            return None
        case Refused():
            return _refusal(ended)
        case ResponseEnded(kind=EndKind.CUT):
            return ConnectionLost(ended.reason)
        case ResponseEnded(kind=EndKind.ACCEPTED):
            return InvalidResponse(f"status {ended.status} without a body answers a notification", method, None)
        case ResponseEnded(kind=EndKind.COMPLETE, status=status) if status is not None and status >= 400:
            if call.wrong_path is not None:
                return HttpError(f"{call.wrong_path} (HTTP status {status})", status=status)
            excerpt = _beginning(call.unread)
            return HttpError(f"{method} was answered with HTTP status {status}", status=status, excerpt=excerpt)
        case ResponseEnded(kind=EndKind.COMPLETE) if _is_notice(call.unread):
            if method == LISTEN:  # an end like any other that comes too early
                return ConnectionLost(_ENDED_WITHOUT_RESULT)
            reason = "the response ended without an answer" if call.unread is None else _ENDED_WITHOUT_RESULT
            return InvalidResponse(reason, method, None)
        case ResponseEnded(kind=EndKind.COMPLETE):
            return InvalidResponse(
                f"the response ended without an answer but {_beginning(call.unread)!r}", method, None
            )
        case _:
            return InvalidResponse(ended.reason, method, None)


def _beginning(payload: bytes | None) -> str:
    return (payload or b"")[:200].decode("utf-8", "replace")


def turned_away(call: HttpCall, failure: ClientError | None) -> bool:
    """Whether the same request, sent again, would fail in the same way."""
    match call.ended:
        case None:
            return failure is not None and isinstance(failure.__cause__, LocalProtocolError)
        case Refused(status=status):
            return status < 500 and status not in _PASSING
        case ResponseEnded(kind=EndKind.CUT):
            return False
        case ResponseEnded(kind=EndKind.COMPLETE, status=status):
            return status is not None and 400 <= status < 500 and status not in _PASSING
        case _:
            return True


def _refusal(refused: Refused) -> HttpError:
    response: dict[str, Any] = {"status": refused.status, "excerpt": refused.excerpt, "fields": dict(refused.fields)}
    text = f"the server answered with HTTP status {refused.status}, as {refused.kind.value}"
    match refused.kind:
        case RefusalKind.UNAUTHORIZED:
            return Unauthorized(text, refused.challenges, **response)
        case RefusalKind.FORBIDDEN:
            return Forbidden(text, refused.challenges, **response)
        case RefusalKind.REDIRECTED:
            return HttpError(f"{text}: {refused.get('location') or 'nowhere'}", **response)
        case _:
            return HttpError(text, **response)
