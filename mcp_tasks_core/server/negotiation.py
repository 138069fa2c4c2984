"""From bytes to an admitted request, in one order of checks (DECISIONS D24).

Envelope readable, ``_meta`` there and typed, version supported, method known, and the routing headers in between
where the transport has any; what comes after that is the method's own: capability, params, owner, state.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TypeAlias

import attrs

from mcp_tasks_core.capabilities import SUPPORTED_VERSIONS
from mcp_tasks_core.errors import INVALID_PARAMS, ErrorObject
from mcp_tasks_core.identifiers import JSONObject, JSONValue, RequestId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server import faults
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.headers import (
    METHOD_HEADER,
    NAME_HEADER,
    NAME_MEMBERS,
    PARAM_HEADER_PREFIX,
    VERSION_HEADER,
    HeaderParameter,
    HeaderValueError,
    RoutingHeaders,
    decode_header_value,
    header_matches,
)
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


def admit(
    request: Request, methods: Container[str], headers: RoutingHeaders | None, *, task_name_required: bool
) -> Admitted | Refused:
    """A request's standing before its own params are looked at. Source: basic, Per-request protocol fields.

    Args:
        headers: ``None`` on transports that have none.
        task_name_required: whether tasks/* must come with ``Mcp-Name`` (DECISIONS D23).
    """
    if headers is not None and headers.protocol_version is None:
        return Refused(request.id, faults.header_missing(VERSION_HEADER), request.method)
    try:
        meta = read_request_meta(request.params)
    except DecodeError as problem:
        return Refused(request.id, faults.invalid_params(str(problem)), request.method)
    if headers is not None and headers.protocol_version != meta.protocol_version:
        return Refused(request.id, faults.header_mismatch(VERSION_HEADER), request.method)
    if meta.protocol_version not in SUPPORTED_VERSIONS:
        return Refused(request.id, faults.unsupported_version(meta.protocol_version), request.method)
    if headers is not None and headers.method != request.method:
        missing = headers.method is None
        error = faults.header_missing(METHOD_HEADER) if missing else faults.header_mismatch(METHOD_HEADER)
        return Refused(request.id, error, request.method)
    if request.method not in methods:
        return Refused(request.id, faults.method_not_found(request.method), request.method)
    if headers is not None:
        fault = _fault_of_name(request, headers, task_name_required=task_name_required)
        if fault is not None:
            return Refused(request.id, fault, request.method)
    return Admitted(request, meta)


def _fault_of_name(request: Request, headers: RoutingHeaders, *, task_name_required: bool) -> ErrorObject | None:
    """What is wrong with ``Mcp-Name``. A body without the name that it repeats is the params' own fault."""
    member = NAME_MEMBERS.get(request.method)
    value = None if member is None else request.params.get(member)
    if not isinstance(value, str):
        return None
    if headers.name is None:
        required = task_name_required or not request.method.startswith("tasks/")
        return faults.header_missing(NAME_HEADER) if required else None
    try:
        matches = decode_header_value(headers.name) == value
    except HeaderValueError as problem:
        return faults.header_invalid(NAME_HEADER, str(problem))
    return None if matches else faults.header_mismatch(NAME_HEADER)


def fault_of_parameters(
    parameters: tuple[HeaderParameter, ...], arguments: JSONObject, headers: RoutingHeaders
) -> ErrorObject | None:
    """What is wrong with the ``Mcp-Param-*`` headers of a tool call. Source: streamable-http, Server Behavior."""
    for parameter in parameters:
        header = PARAM_HEADER_PREFIX + parameter.name
        raw, value = headers.params.get(parameter.name.lower()), parameter.value_in(arguments)
        if raw is None:
            if value is not None:
                return faults.header_missing(header)
            continue
        try:
            text = decode_header_value(raw)
        except HeaderValueError as problem:
            return faults.header_invalid(header, str(problem))
        if value is None or not header_matches(text, value):
            return faults.header_mismatch(header)
    return None
