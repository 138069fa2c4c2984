"""Pytest plugin: every frame that a test makes the cores emit is held against the official JSON Schemas.

``ServerProtocol.handle`` and ``ClientProtocol.handle`` are wrapped for the whole run. A frame that departs from its
schema fails the test that caused it. Tests that read raw bytes of a child process call ``validate_server_frame``
and ``validate_client_frame`` themselves.

Deviation: what a person enters into a form's ``number`` may be a float, where the schema file says integer; the
TypeScript source that it is generated from says number.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

CORE = "urn:mcp-core"
TASKS = "https://modelcontextprotocol.io/ext-tasks/schema.json"
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

_RESULTS = {
    "server/discover": (CORE, "DiscoverResult"),
    "tools/list": (CORE, "ListToolsResult"),
    "tools/call": (CORE, "CallToolResult"),
    "prompts/list": (CORE, "ListPromptsResult"),
    "prompts/get": (CORE, "GetPromptResult"),
    "resources/list": (CORE, "ListResourcesResult"),
    "resources/templates/list": (CORE, "ListResourceTemplatesResult"),
    "resources/read": (CORE, "ReadResourceResult"),
    "completion/complete": (CORE, "CompleteResult"),
    "subscriptions/listen": (CORE, "SubscriptionsListenResult"),
    "tasks/get": (TASKS, "GetTaskResult"),
    "tasks/update": (TASKS, "UpdateTaskResult"),
    "tasks/cancel": (TASKS, "CancelTaskResult"),
}
_MAY_ASK_FOR_INPUT = ("tools/call", "prompts/get", "resources/read")
_REQUESTS = {
    "server/discover": (CORE, "DiscoverRequest"),
    "tools/list": (CORE, "ListToolsRequest"),
    "tools/call": (CORE, "CallToolRequest"),
    "prompts/list": (CORE, "ListPromptsRequest"),
    "prompts/get": (CORE, "GetPromptRequest"),
    "resources/list": (CORE, "ListResourcesRequest"),
    "resources/templates/list": (CORE, "ListResourceTemplatesRequest"),
    "resources/read": (CORE, "ReadResourceRequest"),
    "completion/complete": (CORE, "CompleteRequest"),
    "subscriptions/listen": (CORE, "SubscriptionsListenRequest"),
    "tasks/get": (TASKS, "GetTaskRequest"),
    "tasks/update": (TASKS, "UpdateTaskRequest"),
    "tasks/cancel": (TASKS, "CancelTaskRequest"),
}
_NOTIFICATIONS = {
    "notifications/cancelled": (CORE, "CancelledNotification"),
    "notifications/progress": (CORE, "ProgressNotification"),
    "notifications/message": (CORE, "LoggingMessageNotification"),
    "notifications/subscriptions/acknowledged": (CORE, "SubscriptionsAcknowledgedNotification"),
    "notifications/tools/list_changed": (CORE, "ToolListChangedNotification"),
    "notifications/prompts/list_changed": (CORE, "PromptListChangedNotification"),
    "notifications/resources/list_changed": (CORE, "ResourceListChangedNotification"),
    "notifications/resources/updated": (CORE, "ResourceUpdatedNotification"),
    "notifications/tasks": (TASKS, "TaskStatusNotification"),
}
_ERROR_FRAMES = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
_ERROR_OBJECTS = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
}


class FrameViolation(AssertionError):
    """A frame departs from the protocol."""


def spec_directory() -> Path | None:
    """Where the official schemas are: ``MCP_SPEC_DIR``, else ``../shared/spec`` beside the checkout."""
    given = os.environ.get("MCP_SPEC_DIR")
    path = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "spec"
    return path if path.is_dir() else None


# --- One frame


def validate_server_frame(raw: bytes, request: dict[str, Any] | None) -> None:
    """Holds a frame of a server against the schemas.

    Args:
        raw: the whole message, without a line end.
        request: the message that it answers, decoded; ``None`` where that is not known.

    Raises:
        FrameViolation: naming the frame and what is wrong with it.
    """
    frame = _parsed(raw)
    if "method" in frame:
        _demand("id" not in frame, raw, "a server sends no requests")
        _validate_notification(frame, raw)
        return
    if request is not None and _is_id(request.get("id")):
        own, asked = frame.get("id"), request["id"]
        _demand(type(own) is type(asked) and own == asked, raw, f"its id is not the request's, {asked!r}")
    if "error" in frame:
        _validate_error(frame, raw)
        return
    _validate(CORE, "JSONRPCResultResponse", frame, raw)
    if request is not None:
        _validate_result(frame["result"], request, raw)


def validate_client_frame(raw: bytes) -> None:
    """Holds a frame of a client against the schemas.

    Raises:
        FrameViolation: naming the frame and what is wrong with it.
    """
    frame = _parsed(raw)
    _demand("method" in frame, raw, "a client sends no responses")
    if "id" not in frame:
        _validate_notification(frame, raw)
        return
    method = frame["method"]
    _validate(CORE, "JSONRPCRequest", frame, raw)
    _validate(CORE, "RequestMetaObject", frame.get("params", {}).get("_meta"), raw)
    _validate(*_REQUESTS.get(method, (CORE, "JSONRPCRequest")), frame, raw)
    if method.startswith("tasks/") or "taskIds" in frame["params"].get("notifications", {}):
        _demand(_declares_tasks(frame), raw, "it does not declare the tasks extension")


def _validate_notification(frame: dict[str, Any], raw: bytes) -> None:
    _validate(CORE, "JSONRPCNotification", frame, raw)
    _validate(*_NOTIFICATIONS.get(frame["method"], (CORE, "JSONRPCNotification")), frame, raw)
    if frame["method"] == "notifications/subscriptions/acknowledged":
        _validate(TASKS, "TaskSubscriptionAcknowledgedNotifications", frame["params"]["notifications"], raw)


def _validate_error(frame: dict[str, Any], raw: bytes) -> None:
    _demand("result" not in frame, raw, "it has a result and an error")
    _validate(CORE, "JSONRPCErrorResponse", frame, raw)
    code = frame["error"]["code"]
    if code in _ERROR_FRAMES:
        _validate(CORE, _ERROR_FRAMES[code], frame, raw)
    elif code in _ERROR_OBJECTS:
        _validate(CORE, _ERROR_OBJECTS[code], frame["error"], raw)
    else:
        _demand(not -32768 <= code <= -32000, raw, f"the code {code} is reserved")


def _validate_result(result: dict[str, Any], request: dict[str, Any], raw: bytes) -> None:
    method, kind = request["method"], result["resultType"]
    if kind == "task":
        _demand(method == "tools/call", raw, f"{method} cannot become a task")
        _demand(_declares_tasks(request), raw, "the request did not declare the tasks extension")
        _validate(TASKS, "CreateTaskResult", result, raw)
        _demand(not {"result", "error", "inputRequests"} & result.keys(), raw, "a handle carries no payload")
    elif kind == "input_required":
        _demand(method in _MAY_ASK_FOR_INPUT, raw, f"{method} may not ask for input")
        _demand("inputRequests" in result or "requestState" in result, raw, "it asks for nothing")
        _validate(CORE, "InputRequiredResult", result, raw)
    else:
        _demand(kind == "complete", raw, f"the resultType {kind!r} is unknown")
        _validate(*_RESULTS.get(method, (CORE, "Result")), result, raw)


def _parsed(raw: bytes) -> dict[str, Any]:
    _demand(b"\n" not in raw and b"\r" not in raw, raw, "it has a line end inside")
    try:
        frame = json.loads(raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        raise FrameViolation(f"{_shown(raw)} is not JSON: {error}") from error
    _demand(type(frame) is dict, raw, "it is no object")
    return dict(frame)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _no_duplicates(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        raise ValueError("a member stands twice")
    return value


def _is_id(value: object) -> bool:
    return type(value) is int or type(value) is str


def _declares_tasks(request: dict[str, Any]) -> bool:
    capabilities = request.get("params", {}).get("_meta", {}).get(META_CAPABILITIES, {})
    return TASKS_EXTENSION in capabilities.get("extensions", {})


def _demand(holds: bool, raw: bytes, otherwise: str) -> None:
    if not holds:
        raise FrameViolation(f"{_shown(raw)}: {otherwise}")


def _shown(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return text if len(text) <= 2000 else f"{text[:2000]}… ({len(raw)} bytes)"


# --- Schemas


def _validate(document: str, name: str, value: Any, raw: bytes) -> None:
    key = (name, json.dumps(value, sort_keys=True))
    if key in _valid:
        return
    error = jsonschema.exceptions.best_match(validator_of(document, name).iter_errors(value))
    if error is not None:
        raise FrameViolation(f"{_shown(raw)} is no {name}: {error.json_path}: {error.message}")
    if len(_valid) < 100_000:
        _valid.add(key)


_valid: set[tuple[str, str]] = set()
"""What was found valid already: a run emits the same few frames thousands of times."""


@functools.cache
def validator_of(document: str, name: str) -> Any:
    """The validator of one type of ``CORE`` or ``TASKS``."""
    return _Validator({"$ref": f"{document}#/$defs/{name}"}, registry=_registry())


_Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    # JSON Schema calls 1.0 an integer. Here integers have no fraction part at all.
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)


@functools.cache
def _registry() -> Registry[Any]:
    directory = spec_directory()
    if directory is None:
        raise FileNotFoundError("needs the official schemas: set MCP_SPEC_DIR")
    registry: Registry[Any] = Registry()
    for uri, file in ((CORE, "mcp-2026-07-28.schema.json"), (TASKS, "ext-tasks.schema.json")):
        schema = json.loads((directory / file).read_text(encoding="utf-8"))
        _admit_floats_in_forms(schema)
        for definition in schema["$defs"].values():
            # A dialect of its own would bring its own, looser idea of an integer.
            definition.pop("$schema", None)
        registry = registry.with_resource(uri, DRAFT202012.create_resource(schema))
    return registry


def _admit_floats_in_forms(schema: dict[str, Any]) -> None:
    for member in schema["$defs"]["ElicitResult"]["properties"]["content"]["additionalProperties"]["anyOf"]:
        if isinstance(member["type"], list):
            member["type"] = [kind if kind != "integer" else "number" for kind in member["type"]]


# --- All frames of a run

_violations: list[FrameViolation] = []


class _Asked:
    """The requests that one server core was sent and has not answered yet, by stream and id."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, type, Any], list[dict[str, Any]]] = {}

    def note(self, stream_id: int, payload: bytes) -> None:
        try:
            message = json.loads(payload)
        except (ValueError, RecursionError):
            return
        if type(message) is not dict or type(message.get("method")) is not str:
            return
        if _is_id(message.get("id")):
            self._open.setdefault(_key(stream_id, message["id"]), []).append(message)
        elif message["method"] == "notifications/cancelled":
            params = message.get("params")
            request_id = params.get("requestId") if type(params) is dict else None
            if _is_id(request_id):
                self._open.pop(_key(stream_id, request_id), None)

    def check(self, stream_id: int, raw: bytes, final: bool) -> None:
        """Where an id is open twice, an error answers the later request and a result the earlier one."""
        frame = _parsed(raw)
        candidates = self._open.get(_key(stream_id, frame.get("id")), []) if "method" not in frame else []
        failure: FrameViolation | None = None
        for candidate in reversed(candidates) if "error" in frame else list(candidates):
            try:
                validate_server_frame(raw, candidate)
            except FrameViolation as violation:
                failure = failure or violation
            else:
                if final:
                    candidates.remove(candidate)
                return
        if failure is not None:
            raise failure
        validate_server_frame(raw, None)


def _key(stream_id: int, request_id: Any) -> tuple[int, type, Any]:
    return (stream_id, type(request_id), request_id)


_asked: WeakKeyDictionary[Any, _Asked] = WeakKeyDictionary()


def _record(check: Callable[[], None]) -> None:
    try:
        check()
    except FrameViolation as violation:
        if len(_violations) < 20:
            _violations.append(violation)


def _watch_server(protocol: type[Any]) -> None:
    handle = protocol.handle

    @functools.wraps(handle)
    def checked(self: Any, event: Any, now: Any) -> Sequence[Any]:
        asked = _asked.setdefault(self, _Asked())
        if type(event).__name__ == "MessageReceived":
            asked.note(event.stream_id, bytes(event.payload))
        effects = handle(self, event, now)
        for frame in _frames(effects):
            raw = b"".join(frame.payload)
            _record(functools.partial(asked.check, frame.stream_id, raw, frame.final))
        return effects  # type: ignore[no-any-return]

    protocol.handle = checked


def _watch_client(protocol: type[Any]) -> None:
    handle = protocol.handle

    @functools.wraps(handle)
    def checked(self: Any, event: Any, now: Any) -> Sequence[Any]:
        effects = handle(self, event, now)
        for frame in _frames(effects):
            _record(functools.partial(validate_client_frame, b"".join(frame.payload)))
        return effects  # type: ignore[no-any-return]

    protocol.handle = checked


def _frames(effects: Sequence[Any]) -> Iterator[Any]:
    return (effect for effect in effects if type(effect).__name__ == "Frame")


def pytest_sessionstart() -> None:
    if spec_directory() is None:
        return
    for module, name, watch in (
        ("mcp_tasks_core.server.protocol", "ServerProtocol", _watch_server),
        ("mcp_tasks_core.client.protocol", "ClientProtocol", _watch_client),
    ):
        if importlib.util.find_spec(module) is not None:
            watch(getattr(importlib.import_module(module), name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    _violations.clear()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    yield
    if _violations:
        raise FrameViolation("\n".join(str(violation) for violation in _violations))
