"""Judges answers to input requests: their shape, and the content of forms against the schema that was asked with.

Source: elicitation, Response Actions and Requested Schema; sampling; roots; mrtr, Server Requirements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcp_tasks_core.capabilities import ELICITATION, ROOTS, SAMPLING
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.wire.converter import DecodeError, decode, shown
from mcp_tasks_core.wire.formats import FORMATS
from mcp_tasks_core.wire.inputs import CreateMessageResult, ElicitResult, ListRootsResult
from mcp_tasks_core.wire.requested_schema import choices_of


def check_answer(request: JSONObject, answer: JSONValue) -> str | None:
    """What is wrong with an answer, in one sentence that names the place and what is allowed there; or ``None``.

    Only an accepted form is looked into: a declined or cancelled one reaches whoever asked as it is.

    Args:
        request: a well-formed input request, as ``check_input_request`` says.
        answer: raw. Extra members are accepted.
    """
    method = request["method"]
    try:
        if method == SAMPLING:
            decode(CreateMessageResult, answer, "the answer")
        elif method == ROOTS:
            decode(ListRootsResult, answer, "the answer")
        elif method == ELICITATION:
            _check_elicitation(request["params"], answer)
        else:
            return f"there is no answer to {shown(method)}: it is no input request"
    except DecodeError as fault:
        return str(fault)
    return None


def _check_elicitation(params: JSONObject, answer: JSONValue) -> None:
    if type(answer) is dict and answer.get("action") in ("decline", "cancel"):
        return
    result = decode(ElicitResult, answer, "the answer")
    if params.get("mode", "form") == "form":
        _check_form(params["requestedSchema"], result.content)


def _check_form(schema: JSONObject, content: JSONObject | None) -> None:
    if content is None:
        raise DecodeError("content", "an accepted form has its content as an object")
    properties: JSONObject = schema["properties"]
    for name in schema.get("required", []):
        if name not in content:
            raise DecodeError(f"content.{name}", "this property is required, and it is missing")
    for name, value in content.items():
        if name not in properties:
            known = ", ".join(map(shown, properties)) or "none"
            raise DecodeError("content", f"{shown(name)} was not asked for; the properties are {known}")
        _CHECKS[properties[name]["type"]](properties[name], value, f"content.{name}")


def _check_string(schema: JSONObject, value: Any, path: str) -> None:
    if type(value) is not str:
        raise DecodeError(path, f"a string, not {shown(value)}")
    _check_choice(schema, value, path)
    _check_size(schema, len(value), path, "minLength", "maxLength", "characters")
    name = schema.get("format")
    if name is not None and not FORMATS[name](value):
        raise DecodeError(path, f"a string in {name} format, not {shown(value)}")


def _check_number(schema: JSONObject, value: Any, path: str) -> None:
    if type(value) is not int and (schema["type"] == "integer" or type(value) is not float):
        raise DecodeError(path, f"{'an integer' if schema['type'] == 'integer' else 'a number'}, not {shown(value)}")
    if "minimum" in schema and value < schema["minimum"]:
        raise DecodeError(path, f"at least {schema['minimum']}, not {shown(value)}")
    if "maximum" in schema and value > schema["maximum"]:
        raise DecodeError(path, f"at most {schema['maximum']}, not {shown(value)}")


def _check_boolean(schema: JSONObject, value: Any, path: str) -> None:
    if type(value) is not bool:
        raise DecodeError(path, f"true or false, not {shown(value)}")


def _check_many(schema: JSONObject, value: Any, path: str) -> None:
    if type(value) is not list:
        raise DecodeError(path, f"an array of strings, not {shown(value)}")
    for index, item in enumerate(value):
        if type(item) is not str:
            raise DecodeError(f"{path}[{index}]", f"a string, not {shown(item)}")
        _check_choice(schema, item, f"{path}[{index}]")
    _check_size(schema, len(value), path, "minItems", "maxItems", "items")


_CHECKS: Final[dict[str, Callable[[JSONObject, Any, str], None]]] = {
    "string": _check_string,
    "number": _check_number,
    "integer": _check_number,
    "boolean": _check_boolean,
    "array": _check_many,
}


def _check_choice(schema: JSONObject, value: str, path: str) -> None:
    choices = choices_of(schema)
    if choices is not None and value not in choices:
        raise DecodeError(path, f"one of {', '.join(map(shown, choices))}, not {shown(value)}")


def _check_size(schema: JSONObject, size: int, path: str, least: str, most: str, unit: str) -> None:
    if size < schema.get(least, 0):
        raise DecodeError(path, f"at least {schema[least]} {unit}, not {size}")
    if most in schema and size > schema[most]:
        raise DecodeError(path, f"at most {schema[most]} {unit}, not {size}")
