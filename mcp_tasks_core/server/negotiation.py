"""From bytes to an admitted request, in one order of checks (DECISIONS D24).

Envelope readable, ``_meta`` there and typed, version supported, method known; what comes after that is the
method's own: capability, params, owner, state.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TypeAlias

import attrs

from mcp_tasks_core.capabilities import SUPPORTED_VERSIONS
from mcp_tasks_core.errors import INVALID_PARAMS, ErrorObject
from mcp_tasks_core.identifiers import JSONValue, RequestId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server import faults
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.json import JsonCodec, JsonError
from mcp_tasks_core.wire.jsonrpc import Malformed, Notification, Request, Response, read_message
from mcp_tasks_core.wire.meta import RequestMeta, read_request_meta


@attrs.frozen(slots=True)
class Refused:
    """A message that goes no further. ``request_id`` is ``None`` where it could not be read."""

    request_id: RequestId | None
    error: ErrorObject
    method: str = ""


@attrs.frozen(slots=True)
class Ignored:
    """A message that nobody is answered for; ``reason`` is for the log."""

    reason: str


@attrs.frozen(slots=True)
class Admitted:
    """A request of a known method in a version that we speak."""

    request: Request
    meta: RequestMeta


Verdict: TypeAlias = Admitted | Refused | Ignored | Notification


def read(payload: bytes, codec: JsonCodec, limits: Limits) -> Request | Refused | Ignored | Notification:
    """The message in a payload, or what is wrong with it. Source: basic, Messages."""
    try:
        value = codec.decode(payload)
    except JsonError as problem:
        return _refusal_of_text(problem, limits)
    message = read_message(value, limits)
    match message:
        case Request() | Notification():
            return message
        case Response():
            return Ignored("a response from a client, which has nothing to respond to")
        case Malformed(answer=True):
            return Refused(message.id, message.error, _method_in(value))
        case Malformed():
            return Ignored(message.error.message)


def _refusal_of_text(problem: JsonError, limits: Limits) -> Refused | Ignored:
    """The answer to a text that was refused; with the id where all but some integers could be read."""
    error = ErrorObject(problem.code, problem.message)
    if problem.code != INVALID_PARAMS:
        return Refused(None, error)
    match read_message(problem.partial, limits):
        case Request() as request:
            return Refused(request.id, error, request.method)
        case Malformed(answer=True) as malformed:
            return Refused(malformed.id, malformed.error, _method_in(problem.partial))
        case _:
            return Ignored(problem.message)


def _method_in(value: JSONValue) -> str:
    """The method of a message that is no request for another reason; empty where it has none."""
    method = value.get("method") if isinstance(value, dict) else None
    return method if isinstance(method, str) else ""


def admit(request: Request, methods: Container[str]) -> Admitted | Refused:
    """A request's standing before its own params are looked at. Source: basic, Per-request protocol fields."""
    try:
        meta = read_request_meta(request.params)
    except DecodeError as problem:
        return Refused(request.id, faults.invalid_params(str(problem)), request.method)
    if meta.protocol_version not in SUPPORTED_VERSIONS:
        return Refused(request.id, faults.unsupported_version(meta.protocol_version), request.method)
    if request.method not in methods:
        return Refused(request.id, faults.method_not_found(request.method), request.method)
    return Admitted(request, meta)
