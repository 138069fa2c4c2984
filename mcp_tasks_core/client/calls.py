"""Requests on the wire: what each carries, how long it may take, and what a result to it may be.

Source: basic, Per-request protocol fields and Responses; cancellation, Timeouts; versioning.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.capabilities import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS_TOKEN,
    META_PROTOCOL_VERSION,
    advertise_tasks,
)
from mcp_tasks_core.client.config import ClientConfig
from mcp_tasks_core.client.events import CallId, OperationId
from mcp_tasks_core.client.outcomes import InvalidResponse, RemoteError, UnsupportedVersion
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, JSONValue, TaskId
from mcp_tasks_core.wire.meta import LOG_LEVELS

TOOLS_CALL: Final = "tools/call"
TASKS_GET: Final = "tasks/get"
TASKS_UPDATE: Final = "tasks/update"
TASKS_CANCEL: Final = "tasks/cancel"
LISTEN: Final = "subscriptions/listen"

_MAY_ASK: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
_NAMED_BY: Final = {
    TOOLS_CALL: "name",
    "prompts/get": "name",
    "resources/read": "uri",
    TASKS_GET: "taskId",
    TASKS_UPDATE: "taskId",
    TASKS_CANCEL: "taskId",
}
_OURS: Final = frozenset({META_PROTOCOL_VERSION, META_CLIENT_INFO, META_CLIENT_CAPABILITIES, META_PROGRESS_TOKEN})


class Purpose(enum.Enum):
    """What a request is for; it decides who gets the reply. ``ASIDE``: nobody, as for a last tasks/cancel."""

    STEP = "step"
    POLL = "poll"
    UPDATE = "update"
    CANCEL = "cancel"
    LISTEN = "listen"
    ASIDE = "aside"


@attrs.frozen(kw_only=True, slots=True)
class CallSettings:
    """What a request declares and how long it may take."""

    timeout_ms: int
    total_ms: int
    tasks: bool = False
    progress: bool = False
    log_level: str | None = None


@attrs.define(kw_only=True)
class OpenCall:
    """One request that waits for its answer.

    Args:
        expires_ms: when silence has lasted too long; moves with progress.
        latest_ms: when it is over in spite of progress.
        may_retry: its version may still be chosen anew once.
    """

    call_id: CallId
    operation_id: OperationId | None
    purpose: Purpose
    method: str
    params: JSONObject
    settings: CallSettings
    version: str
    expires_ms: int
    latest_ms: int
    may_retry: bool = True
    progress: float | None = None


@attrs.frozen(slots=True)
class Abandoned:
    """A request that was given up and whose answer may still come."""

    method: str
    cancels_late_task: bool


class CallTable:
    """The requests in progress, and the last of those that were given up. Ids count up and are never used again."""

    def __init__(self, config: ClientConfig) -> None:
        self._limits = config.client_limits
        self._next_id = 1
        self._open: dict[CallId, OpenCall] = {}
        self._by_operation: dict[OperationId | None, dict[CallId, OpenCall]] = {}
        self._abandoned: dict[CallId, Abandoned] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(self._open.values())

    def new_id(self) -> CallId:
        call_id = CallId(self._next_id)
        self._next_id += 1
        return call_id

    def add(self, call: OpenCall) -> None:
        self._open[call.call_id] = call
        self._by_operation.setdefault(call.operation_id, {})[call.call_id] = call

    def find(self, wire_id: object) -> OpenCall | None:
        """The open request with this id: an integer, as all of ours are, so ``"1"`` and ``1.0`` are nobody's."""
        return self._open.get(CallId(wire_id)) if type(wire_id) is int else None

    def close(self, call: OpenCall) -> None:
        del self._open[call.call_id]
        siblings = self._by_operation[call.operation_id]
        del siblings[call.call_id]
        if not siblings:
            del self._by_operation[call.operation_id]

    def abandon(self, call: OpenCall, *, cancels_late_task: bool) -> None:
        """Wait no longer, and remember the id in order to recognize a late answer."""
        self.close(call)
        self._abandoned[call.call_id] = Abandoned(call.method, cancels_late_task and call.settings.tasks)
        while len(self._abandoned) > self._limits.abandoned_max:
            del self._abandoned[next(iter(self._abandoned))]

    def take_abandoned(self, wire_id: object) -> Abandoned | None:
        return self._abandoned.pop(CallId(wire_id), None) if type(wire_id) is int else None

    def was_issued(self, wire_id: object) -> bool:
        return type(wire_id) is int and 0 < wire_id < self._next_id

    def of(self, operation_id: OperationId) -> list[OpenCall]:
        return list(self._by_operation.get(operation_id, {}).values())


def wire_params(call: OpenCall, config: ClientConfig) -> JSONObject:
    """The params as they go out: the caller's, and the protocol's members of ``_meta``."""
    declares_tasks = call.settings.tasks or call.method.startswith("tasks/")
    capabilities = advertise_tasks(config.capabilities) if declares_tasks else config.capabilities
    meta: JSONObject = {
        **call.params.get("_meta", {}),
        META_PROTOCOL_VERSION: call.version,
        META_CLIENT_CAPABILITIES: capabilities,
    }
    if config.client_info is not None:
        meta[META_CLIENT_INFO] = config.client_info
    if call.settings.progress:
        meta[META_PROGRESS_TOKEN] = call.call_id
    if call.settings.log_level is not None:
        meta[META_LOG_LEVEL] = call.settings.log_level
    return {**call.params, "_meta": meta}


def routing_name(method: str, params: JSONObject) -> str | None:
    """What a routing header names the request by. Source: http, Standard Request Headers; tasks, Routing Headers."""
    member = _NAMED_BY.get(method)
    name = None if member is None else params.get(member)
    return name if type(name) is str else None


def check_params(method: object, params: object, log_level: object) -> None:
    """Refuse what a caller may not send.

    Raises:
        LocalProtocolError: says what is wrong and what is allowed.
    """
    if type(method) is not str or not method:
        raise LocalProtocolError(f"method is a string of 1 character or more, not {method!r}")
    if type(params) is not dict:
        raise LocalProtocolError(f"params is a dict, not a {type(params).__name__}")
    meta = params.get("_meta", {})
    if type(meta) is not dict:
        raise LocalProtocolError(f"params['_meta'] is a dict, not a {type(meta).__name__}")
    taken = sorted(_OURS & meta.keys())
    if taken:
        raise LocalProtocolError(f"the client writes {', '.join(taken)} itself; leave it out of _meta")
    if log_level is not None and log_level not in LOG_LEVELS:
        raise LocalProtocolError(f"log_level is None or one of {', '.join(LOG_LEVELS)}, not {log_level!r}")


class ResultKind(enum.Enum):
    """What ``resultType`` says."""

    COMPLETE = "complete"
    INPUT_REQUIRED = "input_required"
    TASK = "task"


@attrs.frozen(slots=True)
class Succeeded:
    """A reply: a result of a kind that this request may have."""

    kind: ResultKind
    result: JSONObject


@attrs.frozen(slots=True)
class Silent:
    """A reply: none came in time."""

    method: str


@attrs.frozen(slots=True)
class StreamLost:
    """A reply: none can come, for the stream of this one request has ended."""

    method: str
    reason: str
    cause: object = None
    refused: bool = False


Reply: TypeAlias = Succeeded | RemoteError | InvalidResponse | UnsupportedVersion | Silent | StreamLost


def judge_result(call: OpenCall, result: JSONObject, lenient: bool) -> Succeeded | InvalidResponse:
    """Whether this request may have this result.

    Source: basic, Responses; tasks, Polymorphic Results; mrtr, Supported Requests.
    """
    raw_kind = result.get("resultType", "complete")
    if raw_kind == "complete":
        return Succeeded(ResultKind.COMPLETE, result)
    if raw_kind == "input_required" and call.method in _MAY_ASK:
        return Succeeded(ResultKind.INPUT_REQUIRED, result)
    if raw_kind == "task":
        if call.method == TOOLS_CALL and call.settings.tasks:
            return Succeeded(ResultKind.TASK, result)
        if call.method == TASKS_GET and lenient:
            return Succeeded(ResultKind.COMPLETE, result)
        reason = 'resultType "task" is allowed on tools/call alone, and only where the request declared tasks'
        return InvalidResponse(reason=reason, method=call.method, task_id=task_id_of(result))
    allowed = ("complete", "input_required") if call.method in _MAY_ASK else ("complete",)
    reason = f"resultType is {' or '.join(allowed)} here, not {str(raw_kind)[:80]!r}"
    return InvalidResponse(reason=reason, method=call.method)


def task_id_of(result: JSONObject) -> TaskId | None:
    """The id in a handle of whatever shape, flat or nested, so that it is not lost."""
    nested = result.get("task")
    for holder in (result, nested if type(nested) is dict else {}):
        if type(holder.get("taskId")) is str:
            return TaskId(holder["taskId"])
    return None


def common_version(data: JSONValue, versions: Collection[str]) -> tuple[str | None, tuple[str, ...]]:
    """The version to retry with, ``None`` if there is none, and what the server says it supports.

    Source: schema, UnsupportedProtocolVersionError.
    """
    listed = data.get("supported") if type(data) is dict else None
    supported = tuple(item for item in listed if type(item) is str) if type(listed) is list else ()
    return next((version for version in versions if version in supported), None), supported
