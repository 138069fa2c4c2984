"""What every request says about itself in ``_meta``.

Source: basic, Per-request protocol fields; logging, Per-request level; progress.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from mcp_tasks_core.capabilities import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
    META_PROTOCOL_VERSION,
    ClientCapabilities,
    problem_with_capabilities,
)
from mcp_tasks_core.identifiers import JSONObject, ProgressToken
from mcp_tasks_core.wire.converter import DecodeError, shown

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, in ascending severity. Source: logging, Log Levels; RFC 5424."""


@attrs.frozen(slots=True)
class RequestMeta:
    """A request's ``_meta``, read.

    Args:
        client_info: raw; nothing may depend on it.
        log_level: one of ``LOG_LEVELS``; without it the request gets no log messages.
        progress_token: without it the request gets no progress notifications.
        raw: the object as it was sent; trace context in it passes through untouched.
    """

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: JSONObject | None
    log_level: str | None
    progress_token: ProgressToken | None
    raw: JSONObject


def read_request_meta(params: JSONObject) -> RequestMeta:
    """What a request declares about itself.

    Raises:
        DecodeError: ``_meta``, its protocol version or its client capabilities are missing, or one of the
            members that this revision defines has the wrong type.
    """
    raw = params.get("_meta")
    if type(raw) is not dict:
        raise _wrong("", "an object with the protocol version and the client's capabilities", raw)
    version = raw.get(META_PROTOCOL_VERSION)
    if type(version) is not str:
        raise _wrong(META_PROTOCOL_VERSION, "a string", version)
    capabilities = raw.get(META_CLIENT_CAPABILITIES)
    if type(capabilities) is not dict:
        raise _wrong(META_CLIENT_CAPABILITIES, "an object", capabilities)
    problem = problem_with_capabilities(capabilities) if capabilities else None
    if problem is not None:
        raise DecodeError(f"params._meta[{META_CLIENT_CAPABILITIES!r}]", problem)
    client_info = raw.get(META_CLIENT_INFO)
    if client_info is not None or META_CLIENT_INFO in raw:
        _check_client_info(client_info)
    level = raw.get(META_LOG_LEVEL)
    if (level is not None or META_LOG_LEVEL in raw) and level not in LOG_LEVELS:
        raise _wrong(META_LOG_LEVEL, "one of " + ", ".join(LOG_LEVELS), level)
    token = raw.get(META_PROGRESS_TOKEN)
    if (token is not None or META_PROGRESS_TOKEN in raw) and type(token) is not int and type(token) is not str:
        raise _wrong(META_PROGRESS_TOKEN, "a string or an integer", token)
    return RequestMeta(version, ClientCapabilities(capabilities), client_info, level, token, raw)


def _check_client_info(info: Any) -> None:
    if type(info) is not dict:
        raise _wrong(META_CLIENT_INFO, "an object with a name and a version", info)
    for name in ("name", "version"):
        if type(info.get(name)) is not str:
            raise _wrong(META_CLIENT_INFO, f"an object whose {name} is a string", info)


def _wrong(name: str, allowed: str, value: object) -> DecodeError:
    path = f"params._meta[{name!r}]" if name else "params._meta"
    found = ", and it is missing" if value is None else f", not {shown(value)}"
    return DecodeError(path, allowed + found)
