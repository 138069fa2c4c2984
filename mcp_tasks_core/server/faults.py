"""The errors that a server answers with, each written once.

Source: basic, Error Codes; tasks, Protocol Errors.
"""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.capabilities import SUPPORTED_VERSIONS, TASKS_EXTENSION
from mcp_tasks_core.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ErrorObject,
)
from mcp_tasks_core.identifiers import JSONObject

TASK_NOT_FOUND: Final = ErrorObject(INVALID_PARAMS, "Task not found")
TASK_EXPIRED: Final = ErrorObject(INVALID_PARAMS, "Task has expired")
STATE_REFUSED: Final = ErrorObject(INVALID_PARAMS, "requestState is not valid for this request; call again without it")
INTERNAL: Final = ErrorObject(INTERNAL_ERROR, "Internal error")
STORE_UNAVAILABLE: Final = ErrorObject(
    INTERNAL_ERROR,
    "The task store did not answer; try again later",
    {"reason": "store_unavailable", "retryable": True},
)
STORE_FULL: Final = ErrorObject(
    INTERNAL_ERROR,
    "No more tasks can be kept at the moment; try again later",
    {"reason": "capacity", "retryable": True},
)
TOO_MANY_REQUESTS: Final = ErrorObject(
    INTERNAL_ERROR,
    "Too many requests are in progress here; wait for answers first",
    {"reason": "busy", "retryable": True},
)
TOO_MANY_SUBSCRIPTIONS: Final = ErrorObject(
    INTERNAL_ERROR,
    "Too many subscriptions are open here; end some first, or poll",
    {"reason": "busy", "retryable": True},
)
DUPLICATE_ID: Final = ErrorObject(INVALID_REQUEST, "A request with this id is still in progress")
TASKS_NOT_DECLARED: Final = ErrorObject(
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    f"Missing required client capability: this needs the extension {TASKS_EXTENSION}",
    {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
)


def invalid_params(message: str) -> ErrorObject:
    return ErrorObject(INVALID_PARAMS, message)


def header_missing(name: str) -> ErrorObject:
    return ErrorObject(HEADER_MISMATCH, f"The header {name} is missing")


def header_mismatch(name: str) -> ErrorObject:
    return ErrorObject(HEADER_MISMATCH, f"The header {name} says something else than the message")


def header_invalid(name: str, problem: str) -> ErrorObject:
    return ErrorObject(HEADER_MISMATCH, f"The header {name} cannot be read: {problem}")


def method_not_found(method: str) -> ErrorObject:
    return ErrorObject(METHOD_NOT_FOUND, f"Method not found: {method}")


def unsupported_version(requested: str) -> ErrorObject:
    return ErrorObject(
        UNSUPPORTED_PROTOCOL_VERSION,
        f"Unsupported protocol version; this server supports {', '.join(SUPPORTED_VERSIONS)}",
        {"supported": list(SUPPORTED_VERSIONS), "requested": requested},
    )


def capability_missing(required: JSONObject) -> ErrorObject:
    return ErrorObject(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"Missing required client capability: {_name_of(required)}",
        {"requiredCapabilities": required},
    )


def _name_of(required: JSONObject) -> str:
    name, parts = next(iter(required.items()))
    return ".".join([name, *parts]) if isinstance(parts, dict) else name


def naming_versions(error: ErrorObject) -> ErrorObject:
    """The same error for an ``initialize`` request, naming the versions that would work (REQUIREMENTS N6)."""
    versions = ", ".join(SUPPORTED_VERSIONS)
    data = error.data if isinstance(error.data, dict) else {}
    message = error.message if versions in error.message else f"{error.message}; this server supports {versions}"
    return ErrorObject(error.code, message, {"supported": list(SUPPORTED_VERSIONS), **data})


def result_too_large(size_bytes: int, limit_bytes: int) -> ErrorObject:
    message = f"The result has {size_bytes} bytes; {limit_bytes} are allowed"
    return ErrorObject(INTERNAL_ERROR, message, {"reason": "result_too_large"})


def took_too_long(limit_ms: int) -> ErrorObject:
    return ErrorObject(INTERNAL_ERROR, f"The call took longer than {limit_ms} ms", {"reason": "timeout"})
