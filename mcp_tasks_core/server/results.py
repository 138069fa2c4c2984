"""What an application's result must be, and what is added to it before it is a result on the wire.

Source: basic, ResultType; caching, Cacheable Results; tools, Tool Result; tasks, Polymorphic Results.
"""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.events import Asked, Outcome, Returned
from mcp_tasks_core.wire.converter import DecodeError
from mcp_tasks_core.wire.methods import check_content

ASKING_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods whose answer may be input_required. Source: mrtr, Supported Requests."""

CACHEABLE_METHODS: Final = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)


class UnfitResult(Exception):
    """An application's result that may not be sent; the text is for its log."""


def plain_result(result: object, method: str) -> JSONObject:
    """The result with its ``resultType``; the very same members otherwise.

    Raises:
        UnfitResult: it is no object, is of another type than ``complete``, or has a ``_meta`` that is no object.
    """
    if type(result) is not dict:
        raise UnfitResult(f"the result of {method} is an object, not {type(result).__name__}")
    kind = result.get("resultType", "complete")
    if kind != "complete":
        raise UnfitResult(f"a result of {method} with the resultType {kind!r} is not the application's to return")
    if not isinstance(result.get("_meta", {}), dict):
        raise UnfitResult(f"the _meta of a result of {method} is an object")
    return {**result, "resultType": "complete"}


def tool_result(result: object) -> JSONObject:
    """A ``CallToolResult`` as it may be sent or stored.

    Raises:
        UnfitResult: it is none.
    """
    checked = plain_result(result, "tools/call")
    try:
        check_content(checked.get("content"), "content")
    except DecodeError as problem:
        raise UnfitResult(f"a tool's result: {problem}") from problem
    if type(checked.get("isError", False)) is not bool:
        raise UnfitResult("isError is true or false")
    return checked


def method_result(result: object, method: str, config: ServerConfig) -> JSONObject:
    """The result of a method that the application serves, with caching members where they belong.

    Raises:
        UnfitResult: it may not be sent.
    """
    checked = plain_result(result, method)
    if method in CACHEABLE_METHODS:
        ttl_ms = checked.setdefault("ttlMs", 0 if method == "resources/read" else config.list_ttl_ms)
        scope = checked.setdefault("cacheScope", "private" if method == "resources/read" else config.list_cache_scope)
        if type(ttl_ms) is not int or ttl_ms < 0:
            raise UnfitResult(f"the ttlMs of {method} is an integer of 0 or more, not {ttl_ms!r}")
        if scope not in ("public", "private"):
            raise UnfitResult(f'the cacheScope of {method} is "public" or "private", not {scope!r}')
    return checked


def as_asked(outcome: Outcome, method: str) -> Outcome:
    """A raw ``InputRequiredResult`` as the question it is; every other outcome unchanged.

    Raises:
        UnfitResult: the method may not ask, or the result is malformed.
    """
    raw = outcome.result if isinstance(outcome, Returned) and isinstance(outcome.result, dict) else {}
    if raw.get("resultType") == "input_required":
        requests, state = raw.get("inputRequests", {}), raw.get("requestState")
        if not isinstance(requests, dict) or not isinstance(state, str | None):
            raise UnfitResult("an input_required result has an object of inputRequests, a string requestState, or both")
        outcome = Asked(requests, state)
    if isinstance(outcome, Asked) and method not in ASKING_METHODS:
        raise UnfitResult(f"{method} may not answer input_required; {', '.join(sorted(ASKING_METHODS))} may")
    return outcome
