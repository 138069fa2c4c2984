"""Values made up from schemas: arguments for tools, and answers to questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_DEPTH_MAX: Final = 8
_WORD: Final = "doctor"
_FORMATS: Final = {
    "email": "doctor@example.com",
    "uri": "https://example.com/doctor",
    "date": "2026-07-28",
    "date-time": "2026-07-28T12:00:00Z",
    "time": "12:00:00Z",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def arguments_for(schema: Any) -> dict[str, Any]:
    """Arguments that a tool's inputSchema asks for: those that are required, and no others."""
    value = value_for(schema, schema, 0)
    return value if isinstance(value, dict) else {}


def value_for(schema: Any, root: Any, depth: int) -> Any:
    """A value that a schema describes, as far as that can be read from it without a validator."""
    if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
        return _WORD
    for member in ("const", "default"):
        if member in schema:
            return schema[member]
    for member in ("enum", "examples"):
        if isinstance(schema.get(member), list) and schema[member]:
            return schema[member][0]
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        return value_for(_pointed_at(root, reference), root, depth + 1)
    for member in ("anyOf", "oneOf", "allOf"):
        chosen = next(iter(schema[member]), None) if isinstance(schema.get(member), list) else None
        if isinstance(chosen, Mapping) and ("const" in chosen or "type" not in schema):
            return value_for(chosen, root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    return _value_of_kind(kind, schema, root, depth)


def _value_of_kind(kind: Any, schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    if kind == "object" or (kind is None and "properties" in schema):
        properties, required = schema.get("properties"), schema.get("required")
        named = required if isinstance(required, list) else []
        known = properties if isinstance(properties, Mapping) else {}
        return {name: value_for(known.get(name, {}), root, depth + 1) for name in named}
    if kind == "array":
        items = schema.get("items", {})
        least = schema.get("minItems")
        return [value_for(items, root, depth + 1) for _ in range(least if isinstance(least, int) else 0)]
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    return _text(schema)


def _number(schema: Mapping[str, Any]) -> Any:
    value: Any = 1
    if isinstance(schema.get("minimum"), int | float):
        value = max(value, schema["minimum"])
    if isinstance(schema.get("exclusiveMinimum"), int | float):
        value = max(value, schema["exclusiveMinimum"] + 1)
    if isinstance(schema.get("maximum"), int | float):
        value = min(value, schema["maximum"])
    return value


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), _WORD)
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) and len(text) < least:
        text += "x" * (least - len(text))
    return text[:most] if isinstance(most, int) else text


def _pointed_at(root: Any, reference: str) -> Any:
    found = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def answer_to(request: Any) -> dict[str, Any]:
    """An answer to an input request, whoever asks."""
    request = request if isinstance(request, Mapping) else {}
    params = request.get("params")
    params = params if isinstance(params, Mapping) else {}
    match request.get("method"):
        case "sampling/createMessage":
            content = {"type": "text", "text": _WORD}
            return {"role": "assistant", "content": content, "model": "mcp-tasks-doctor", "stopReason": "endTurn"}
        case "roots/list":
            return {"roots": [{"uri": "file:///doctor", "name": "doctor"}]}
        case _ if params.get("mode") == "url":
            return {"action": "accept"}
        case _:
            return {"action": "accept", "content": _filled_in(params.get("requestedSchema"))}


def _filled_in(schema: Any) -> dict[str, Any]:
    """Every field of a form, the optional ones too: what is asked for may matter to the tool."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    fields = properties if isinstance(properties, Mapping) else {}
    return {name: value_for(field, schema, 1) for name, field in fields.items()}
