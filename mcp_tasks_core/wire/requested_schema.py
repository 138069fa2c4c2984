"""The schema of a form: a flat object whose properties are primitives.

Source: elicitation, Requested Schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.converter import DecodeError, shown
from mcp_tasks_core.wire.formats import FORMATS

_ALLOWED_TYPES: Final = '"string", "number", "integer", "boolean" or "array"'


def check_requested_schema(schema: JSONObject) -> None:
    """Raises ``DecodeError`` unless a schema is of the kind that a form may have. Unknown members are accepted."""
    if schema.get("type") != "object":
        raise DecodeError(".type", f'"object", not {shown(schema.get("type"))}')
    properties = schema.get("properties")
    if type(properties) is not dict:
        raise DecodeError(".properties", f"an object, not {shown(properties)}")
    for name, property_schema in properties.items():
        _check_property(property_schema, f".properties.{name}")
    required = schema.get("required", [])
    if not _are_strings(required):
        raise DecodeError(".required", f"an array of strings, not {shown(required)}")
    for name in required:
        if name not in properties:
            raise DecodeError(".required", f"names of properties, and {shown(name)} is none")


def choices_of(schema: JSONObject) -> list[str] | None:
    """The values that an enumeration allows, of one choice or of many; ``None`` where any value is allowed."""
    if schema["type"] == "array":
        schema = schema["items"]
    if "enum" in schema:
        return list(schema["enum"])
    titled = schema.get("oneOf", schema.get("anyOf"))
    return None if titled is None else [choice["const"] for choice in titled]


def _check_property(schema: Any, path: str) -> None:
    if type(schema) is not dict:
        raise DecodeError(path, f"an object, not {shown(schema)}")
    kind = schema.get("type")
    check = _CHECKS.get(kind) if type(kind) is str else None
    if check is None:
        raise DecodeError(f"{path}.type", f"{_ALLOWED_TYPES}, not {shown(kind)}: a form is flat")
    for name in ("title", "description"):
        if name in schema and type(schema[name]) is not str:
            raise DecodeError(f"{path}.{name}", f"a string, not {shown(schema[name])}")
    check(schema, path)


def _check_string(schema: JSONObject, path: str) -> None:
    _check_counts(schema, path, "minLength", "maxLength")
    if "format" in schema and schema["format"] not in tuple(FORMATS):
        raise DecodeError(f"{path}.format", f"one of {', '.join(FORMATS)}, not {shown(schema['format'])}")
    if "enum" in schema:
        _check_plain_choices(schema["enum"], f"{path}.enum")
    if "oneOf" in schema:
        _check_titled_choices(schema["oneOf"], f"{path}.oneOf")
    _check_default(schema, path, lambda value: type(value) is str, "a string")


def _check_number(schema: JSONObject, path: str) -> None:
    for name in ("minimum", "maximum"):
        if name in schema and not _is_number(schema[name]):
            raise DecodeError(f"{path}.{name}", f"a number, not {shown(schema[name])}")
    _check_default(schema, path, _is_number, "a number")


def _check_boolean(schema: JSONObject, path: str) -> None:
    _check_default(schema, path, lambda value: type(value) is bool, "true or false")


def _check_many(schema: JSONObject, path: str) -> None:
    _check_counts(schema, path, "minItems", "maxItems")
    items = schema.get("items")
    if type(items) is not dict or ("enum" not in items and "anyOf" not in items):
        raise DecodeError(f"{path}.items", "an object with the choices as enum or anyOf: arrays are choices of many")
    if "enum" in items:
        _check_plain_choices(items["enum"], f"{path}.items.enum")
    if "anyOf" in items:
        _check_titled_choices(items["anyOf"], f"{path}.items.anyOf")
    _check_default(schema, path, _are_strings, "an array of strings")


_CHECKS: Final[dict[str, Callable[[JSONObject, str], None]]] = {
    "string": _check_string,
    "number": _check_number,
    "integer": _check_number,
    "boolean": _check_boolean,
    "array": _check_many,
}


def _check_counts(schema: JSONObject, path: str, *names: str) -> None:
    for name in names:
        if name in schema and not (type(schema[name]) is int and schema[name] >= 0):
            raise DecodeError(f"{path}.{name}", f"an integer of 0 or more, not {shown(schema[name])}")


def _check_default(schema: JSONObject, path: str, fits: Callable[[Any], bool], allowed: str) -> None:
    if "default" in schema and not fits(schema["default"]):
        raise DecodeError(f"{path}.default", f"{allowed}, not {shown(schema['default'])}")


def _check_plain_choices(choices: Any, path: str) -> None:
    if not _are_strings(choices) or not choices:
        raise DecodeError(path, f"an array of one string or more, not {shown(choices)}")


def _check_titled_choices(choices: Any, path: str) -> None:
    if type(choices) is not list or not choices:
        raise DecodeError(path, f"an array of one choice or more, not {shown(choices)}")
    for index, choice in enumerate(choices):
        if type(choice) is not dict or type(choice.get("const")) is not str or type(choice.get("title")) is not str:
            raise DecodeError(f"{path}[{index}]", "an object whose const and title are strings")


def _are_strings(value: Any) -> bool:
    return type(value) is list and all(type(item) is str for item in value)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float
