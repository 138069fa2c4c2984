"""Tools, their calls and their results, and the description of a peer.

Source: tools; mrtr, InputRequiredResult; schema, Implementation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs

from mcp_tasks_core.identifiers import InputKey, JSONObject
from mcp_tasks_core.wire.content import check_content
from mcp_tasks_core.wire.converter import ABSENT, NULL_IS_ABSENT, Absent, DecodeError, shown


@attrs.frozen(kw_only=True)
class Icon:
    """A picture that stands for a tool or a program. Source: schema, Icon."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = None
    theme: Literal["light", "dark"] | None = None


@attrs.frozen(kw_only=True)
class Implementation:
    """Names a client or a server, for people; nothing may depend on it. Source: schema, Implementation."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: tuple[Icon, ...] | None = None
    website_url: str | None = None


def check_object_schema(schema: JSONObject) -> None:
    """Raises ``DecodeError`` unless a tool's inputSchema says that arguments are an object."""
    if schema.get("type") != "object":
        raise DecodeError(".type", f'"object", not {shown(schema.get("type"))}')


def _check_annotations(annotations: JSONObject) -> None:
    for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"):
        if name in annotations and type(annotations[name]) is not bool:
            raise DecodeError(f".{name}", f"true or false, not {shown(annotations[name])}")
    if "title" in annotations and type(annotations["title"]) is not str:
        raise DecodeError(".title", f"a string, not {shown(annotations['title'])}")


@attrs.frozen(kw_only=True)
class Tool:
    """A tool as a list of tools describes it.

    Args:
        input_schema: a JSON Schema of an object, raw.
        output_schema: a JSON Schema, raw.
        annotations: hints about the tool's behaviour, raw.

    Source: tools, Tool.
    """

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Annotated[JSONObject, check_object_schema]
    output_schema: JSONObject | None = None
    annotations: Annotated[JSONObject, _check_annotations] | None = None
    icons: tuple[Icon, ...] | None = None
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class ListToolsParams:
    """Params of ``tools/list``. An empty cursor is a cursor. Source: tools, Listing Tools; pagination."""

    cursor: str | None = None
    meta: JSONObject | None = None


def fresh_for_ms(ttl_ms: int) -> int:
    """How long a result is fresh: a negative number of milliseconds counts as none. Source: caching."""
    return max(ttl_ms, 0)


@attrs.frozen(kw_only=True)
class ListToolsResult:
    """Result of ``tools/list``.

    Args:
        ttl_ms: milliseconds; 0, stale at once, where a server wrote none.
        cache_scope: ``private`` where a server wrote none.

    Source: tools, Listing Tools; caching.
    """

    result_type: Literal["complete"] = "complete"
    tools: tuple[Tool, ...]
    next_cursor: str | None = None
    ttl_ms: int = attrs.field(default=0, converter=fresh_for_ms)
    cache_scope: Literal["public", "private"] = "private"
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class CallToolParams:
    """Params of ``tools/call``.

    Args:
        arguments: raw; they are judged by the tool's inputSchema.
        input_responses: answers by the key of their question, raw objects.
        request_state: to be given back as it was received; ``null`` counts as absent.

    Source: tools, Calling Tools; mrtr, Client Requirements.
    """

    name: str
    arguments: JSONObject = attrs.field(factory=dict)
    input_responses: Mapping[InputKey, JSONObject] | None = None
    request_state: str | None = attrs.field(default=None, metadata=NULL_IS_ABSENT)
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class CallToolResult:
    """Result of ``tools/call`` that ends the call.

    Args:
        content: blocks, raw.
        structured_content: any JSON value, ``None`` for null; ``ABSENT`` where there is none.
        is_error: whether the tool failed; ``None`` where it is not said, which means no.

    Source: tools, Tool Result.
    """

    result_type: Literal["complete"] = "complete"
    content: Annotated[list[Any], check_content]
    structured_content: Any | Absent = ABSENT
    is_error: bool | None = None
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class InputRequiredResult:
    """A result that asks for input before the request can be answered.

    Source: mrtr, InputRequiredResult.
    """

    result_type: Literal["input_required"]
    input_requests: Mapping[InputKey, JSONObject] | None = None
    request_state: str | None = None
    meta: JSONObject | None = None
