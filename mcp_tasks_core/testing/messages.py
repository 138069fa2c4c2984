"""Requests as a client writes them, for tests: whole messages with a complete ``_meta``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_tasks_core.capabilities import (
    META_CLIENT_CAPABILITIES,
    META_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    advertise_tasks,
)
from mcp_tasks_core.identifiers import JSONObject, JSONValue, RequestId

EVERY_INPUT: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
"""Capabilities of a client that can answer questions of every kind."""


def request_meta(*, capabilities: Mapping[str, Any] | None = None, tasks: bool = True, **members: Any) -> JSONObject:
    """A complete ``_meta``.

    Args:
        capabilities: what the client declares; ``EVERY_INPUT`` where ``None``.
        tasks: whether the tasks extension is declared beside them.
        members: more members, such as ``progressToken``.
    """
    declared = dict(EVERY_INPUT if capabilities is None else capabilities)
    return {
        META_PROTOCOL_VERSION: PROTOCOL_VERSION,
        META_CLIENT_CAPABILITIES: advertise_tasks(declared) if tasks else declared,
        **members,
    }


def request_message(request_id: RequestId, method: str, params: JSONObject) -> JSONObject:
    """A request, its params as they are."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def as_bytes(message: JSONValue) -> bytes:
    """A message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode()


def form_question(message: str = "Which one?", **properties: JSONObject) -> JSONObject:
    """An input request for a form; by default with one required string named ``value``."""
    fields = properties or {"value": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def url_question(url: str = "https://example.org/sign") -> JSONObject:
    """An input request that sends a person to a page."""
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign here", "url": url}}


def sampling_question(**members: Any) -> JSONObject:
    """An input request for a message of the client's model."""
    messages = [{"role": "user", "content": {"type": "text", "text": "Say hello"}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 10, **members}}


def roots_question() -> JSONObject:
    """An input request for the client's roots."""
    return {"method": "roots/list", "params": {}}


def accepted(**content: JSONValue) -> JSONObject:
    """The answer of a person who filled a form in."""
    return {"action": "accept", "content": content}


def text_result(text: str = "done", *, is_error: bool = False) -> JSONObject:
    """A tool's result that holds one text."""
    result: JSONObject = {"content": [{"type": "text", "text": text}]}
    return {**result, "isError": True} if is_error else result
