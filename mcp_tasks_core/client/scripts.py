"""Requests that follow one another, written as they are read: one generator per kind of operation.

A script yields ``Send`` and gets a ``Reply``, or yields ``Gather`` and gets the answers by key. It returns the
outcome of its operation, or the handle that the operation goes on with. It holds no state but its place.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.capabilities import META_SERVER_INFO, ClientCapabilities
from mcp_tasks_core.client.calls import TOOLS_CALL, Reply, ResultKind, Silent, StreamLost, Succeeded
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.inputs import problem_with_requests
from mcp_tasks_core.client.outcomes import (
    Answered,
    Disconnected,
    Discovered,
    InvalidResponse,
    LegacyServer,
    Outcome,
    RemoteError,
    TimedOut,
    ToolResult,
    ToolsListed,
    UnsupportedVersion,
)
from mcp_tasks_core.client.states import problem_with_tool_result
from mcp_tasks_core.errors import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_tasks_core.identifiers import InputKey, JSONObject
from mcp_tasks_core.wire.converter import DecodeError, decode
from mcp_tasks_core.wire.discovery import DiscoverResult

DISCOVER: Final = "server/discover"
TOOLS_LIST: Final = "tools/list"
_MODERN_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY})


@attrs.frozen(slots=True)
class Send:
    """Send a request and go on with its reply."""

    method: str
    params: JSONObject


@attrs.frozen(slots=True)
class Gather:
    """Have all these questions answered and go on with the answers."""

    requests: Mapping[InputKey, JSONObject]


@attrs.frozen(slots=True)
class BecameTask:
    """The server made a task of the request; ``handle`` is its raw result."""

    handle: JSONObject


Answers: TypeAlias = dict[InputKey, JSONObject]
Script: TypeAlias = Generator[Send | Gather, "Reply | Answers", Outcome | BecameTask]


def _send(method: str, params: JSONObject) -> Generator[Send, Reply | Answers, Reply]:
    reply = yield Send(method, params)
    assert not isinstance(reply, dict)
    return reply


def _gather(requests: Mapping[InputKey, JSONObject]) -> Generator[Gather, Reply | Answers, Answers]:
    answers = yield Gather(requests)
    assert isinstance(answers, dict)
    return answers


def ending_of(reply: Silent | StreamLost | RemoteError | InvalidResponse | UnsupportedVersion) -> Outcome:
    """The outcome of an operation that ends with a reply that is no result."""
    match reply:
        case Silent(method):
            return TimedOut(method=method)
        case StreamLost(_, reason, cause):
            return Disconnected(reason=reason, cause=cause)
        case _:
            return reply


def discover(config: ClientConfig) -> Script:
    """Ask what the server is; one that does not know the question speaks another revision.

    Source: discover; stdio, Backward Compatibility.
    """
    reply = yield from _send(DISCOVER, {})
    match reply:
        case Succeeded(_, result):
            return _read_discovered(result, config)
        case Silent():
            return LegacyServer(evidence="it did not answer server/discover in time")
        case RemoteError() if reply.code not in _MODERN_CODES:
            return LegacyServer(evidence=f"it answered server/discover with error {reply.code}: {reply.message}")
        case _:
            return ending_of(reply)


def _read_discovered(result: JSONObject, config: ClientConfig) -> Outcome:
    try:
        read = decode(DiscoverResult, result, "result")
    except DecodeError as error:
        return InvalidResponse(reason=str(error), method=DISCOVER)
    if not set(read.supported_versions) & set(config.versions):
        return UnsupportedVersion(supported=read.supported_versions, requested=config.versions[0])
    server_info = (read.meta or {}).get(META_SERVER_INFO)
    return Discovered(
        supported_versions=read.supported_versions,
        capabilities=read.capabilities,
        instructions=read.instructions,
        server_info=server_info if type(server_info) is dict else None,
        result=result,
    )


def list_tools(config: ClientConfig) -> Script:
    """Follow nextCursor to the end, which is where there is none: an empty string is a cursor like any other.

    Source: tools, Listing Tools; pagination.
    """
    tools: list[JSONObject] = []
    seen: set[str] = set()
    params: JSONObject = {}
    for _ in range(config.client_limits.pages_max):
        reply = yield from _send(TOOLS_LIST, params)
        if not isinstance(reply, Succeeded):
            return ending_of(reply)
        problem = _problem_with_page(reply.result, seen)
        if problem is not None:
            return InvalidResponse(reason=problem, method=TOOLS_LIST)
        tools.extend(reply.result["tools"])
        cursor = reply.result.get("nextCursor")
        if cursor is None:
            return ToolsListed(tuple(tools))
        seen.add(cursor)
        params = {"cursor": cursor}
    reason = f"the list has more than {config.client_limits.pages_max} pages"
    return InvalidResponse(reason=reason, method=TOOLS_LIST)


def _problem_with_page(page: JSONObject, seen: set[str]) -> str | None:
    tools, cursor = page.get("tools"), page.get("nextCursor")
    if type(tools) is not list:
        return "tools is an array"
    for index, tool in enumerate(tools):
        if type(tool) is not dict or type(tool.get("name")) is not str:
            return f"tools[{index}] is an object with a name, which is a string"
        if type(tool.get("inputSchema")) is not dict:
            return f"tools[{index}].inputSchema is an object"
    if cursor is not None and type(cursor) is not str:
        return "nextCursor is a string or absent"
    if cursor in seen:
        return f"nextCursor {str(cursor)[:80]!r} came for the second time, so the list has no end"
    return None


def request(method: str, params: JSONObject, config: ClientConfig) -> Script:
    """One request and its rounds of questions. Its raw result is the outcome, a task's handle included.

    Source: mrtr, Basic Workflow.
    """
    ending = yield from _rounds(method, params, config)
    return ending if not isinstance(ending, Succeeded) else Answered(ending.result)


def call_tool(params: JSONObject, config: ClientConfig) -> Script:
    """A tool call up to its result or to the handle of its task. Source: tools, Calling Tools; tasks, Task Creation."""
    ending = yield from _rounds(TOOLS_CALL, params, config)
    if not isinstance(ending, Succeeded):
        return ending
    if ending.kind is ResultKind.TASK:
        return BecameTask(ending.result)
    problem = problem_with_tool_result(ending.result)
    return ToolResult(ending.result) if problem is None else InvalidResponse(reason=problem, method=TOOLS_CALL)


def _rounds(
    method: str, params: JSONObject, config: ClientConfig
) -> Generator[Send | Gather, Reply | Answers, Outcome | Succeeded]:
    """Send until there is an answer: each round is a request of its own, with all answers and the very state."""
    fresh = {name: value for name, value in params.items() if name not in ("inputResponses", "requestState")}
    sent = params
    for _ in range(config.client_limits.rounds_max):
        reply = yield from _send(method, sent)
        if not isinstance(reply, Succeeded):
            return ending_of(reply)
        if reply.kind is not ResultKind.INPUT_REQUIRED:
            return reply
        problem = _problem_with_round(reply.result, config)
        if problem is not None:
            return InvalidResponse(reason=problem, method=method)
        sent = dict(fresh)
        requests, state = reply.result.get("inputRequests"), reply.result.get("requestState")
        if requests is not None:
            sent["inputResponses"] = (yield from _gather(requests)) if requests else {}
        if state is not None:
            sent["requestState"] = state
    reason = f"it answered input_required {config.client_limits.rounds_max} times in a row"
    return InvalidResponse(reason=reason, method=method)


def _problem_with_round(result: JSONObject, config: ClientConfig) -> str | None:
    """What is wrong with an InputRequiredResult; null counts as absent. Source: mrtr, InputRequiredResult."""
    requests, state = result.get("inputRequests"), result.get("requestState")
    if state is not None and type(state) is not str:
        return "requestState is a string or absent"
    if requests is None:
        return None if state is not None else "an input_required result holds inputRequests or requestState"
    return problem_with_requests(requests, ClientCapabilities(config.capabilities), config.limits)
