"""What a request declares, and what an answer to it may therefore hold.

Source: basic, Per-request protocol fields; tasks, Capability Negotiation; mrtr, Server Requirements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import JSONObject

PROTOCOL_VERSION: Final = "2026-07-28"
SUPPORTED_VERSIONS: Final = (PROTOCOL_VERSION,)
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_PROGRESS_TOKEN: Final = "progressToken"

ELICITATION: Final = "elicitation/create"
SAMPLING: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"
INPUT_REQUEST_METHODS: Final = (ELICITATION, SAMPLING, ROOTS)


@attrs.frozen(slots=True)
class ClientCapabilities:
    """What the client of one request declared, kept as it was written.

    Args:
        raw: the ``clientCapabilities`` object, of which ``problem_with_capabilities`` found nothing wrong.
    """

    raw: JSONObject

    @property
    def declares_tasks(self) -> bool:
        """Whether the tasks extension is declared; the former ``tasks`` capability does not count."""
        extensions = self.raw.get("extensions")
        return type(extensions) is dict and TASKS_EXTENSION in extensions

    def missing_for(self, request: Mapping[str, Any]) -> JSONObject | None:
        """The capabilities that this input request would need and that were not declared; ``None`` if all were.

        Source: elicitation, Capabilities; sampling, Capabilities; roots, Capabilities.
        """
        method = request.get("method")
        params = request.get("params") or {}
        if method == ELICITATION:
            return self._missing_for_elicitation(params.get("mode", "form"))
        if method == SAMPLING:
            return self._missing_for_sampling(params)
        if method == ROOTS:
            return None if "roots" in self.raw else {"roots": {}}
        return {}

    def _missing_for_elicitation(self, mode: str) -> JSONObject | None:
        declared = self.raw.get("elicitation")
        if declared is None:
            return {"elicitation": {mode: {}}}
        if mode == "form" and ("form" in declared or "url" not in declared):
            return None
        if mode == "url" and "url" in declared:
            return None
        return {"elicitation": {mode: {}}}

    def _missing_for_sampling(self, params: Mapping[str, Any]) -> JSONObject | None:
        declared = self.raw.get("sampling")
        needs_tools = "tools" in params or "toolChoice" in params
        if declared is None:
            return {"sampling": {"tools": {}} if needs_tools else {}}
        if needs_tools and "tools" not in declared:
            return {"sampling": {"tools": {}}}
        return None


NO_CAPABILITIES: Final = ClientCapabilities({})


def problem_with_capabilities(raw: object) -> str | None:
    """What is wrong with a ``clientCapabilities`` value, in one sentence; ``None`` when nothing is.

    Unknown members are accepted. Source: schema, ClientCapabilities.
    """
    if type(raw) is not dict:
        return "clientCapabilities is an object"
    for name in ("elicitation", "sampling", "roots"):
        if name in raw and type(raw[name]) is not dict:
            return f"clientCapabilities.{name} is an object"
    for name in ("elicitation", "sampling"):
        for part, value in raw.get(name, {}).items():
            if part in ("form", "url", "tools", "context") and type(value) is not dict:
                return f"clientCapabilities.{name}.{part} is an object"
    for name in ("extensions", "experimental"):
        settings = raw.get(name, {})
        if type(settings) is not dict:
            return f"clientCapabilities.{name} is an object"
        for key, value in settings.items():
            if type(value) is not dict:
                return f"clientCapabilities.{name}[{key!r}] is an object"
    return None


def advertise_tasks(capabilities: Mapping[str, Any]) -> JSONObject:
    """The same capabilities object with the tasks extension in it; for clients and servers alike."""
    extensions = {**capabilities.get("extensions", {}), TASKS_EXTENSION: {}}
    return {**capabilities, "extensions": extensions}


def declares_tasks(request: Mapping[str, Any]) -> bool:
    """Whether a whole JSON-RPC request declares the tasks extension."""
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    raw = meta.get(META_CLIENT_CAPABILITIES) if isinstance(meta, Mapping) else None
    return problem_with_capabilities(raw) is None and isinstance(raw, dict) and ClientCapabilities(raw).declares_tasks


def is_task_handle(result: object) -> bool:
    """Whether a result is a ``CreateTaskResult``. Source: tasks, Polymorphic Results."""
    return isinstance(result, Mapping) and result.get("resultType") == "task"
