"""JSON Schemas that an application gives: checked when they are given, and validated against without any I/O.

Supported dialects are 2020-12, which is assumed where a schema names none, and draft-07. References stay
within the schema; nothing is ever fetched. Source: basic, JSON Schema Usage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject

if TYPE_CHECKING:
    # Imported where a schema is checked: servers whose schemas all come from signatures start without it.
    from jsonschema.exceptions import ValidationError

SCHEMA_DEPTH_MAX: Final = 64  # nesting of a schema; generated schemas of real tools stay under 20
SUBSCHEMAS_MAX: Final = 5_000  # objects in one schema; the largest generated ones in use have some hundreds
_ERRORS_SHOWN: Final = 5  # a caller repairs a few faults at a time
_VALUE_CHARS_SHOWN: Final = 200

_DRAFT_2020_12: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema"
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_DATA: Final = frozenset(
    {"const", "default", "enum", "examples"}
)  # values, not schemas: what is in them refers to nothing


class SchemaValidator:
    """A checked JSON Schema.

    Args:
        schema: the schema, raw.
        where: names it in error messages, such as ``the input_schema of the tool 'add'``.

    Raises:
        LocalProtocolError: the schema is not valid, of another dialect, too large, or refers to something outside.
    """

    def __init__(self, schema: object, where: str) -> None:
        if not isinstance(schema, dict):
            raise LocalProtocolError(f"{where} is a JSON Schema object, a dict, not {schema!r}")
        from jsonschema.exceptions import SchemaError
        from referencing import Registry

        dialect, specification = _dialect_of(schema, where)
        _check_size(schema, where)
        try:
            dialect.check_schema(schema)
        except SchemaError as error:
            raise LocalProtocolError(f"{where} is not a valid JSON Schema: {error.message}") from None
        resource = specification.create_resource(schema)
        registry: Any = Registry().with_resource(resource.id() or "", resource)
        _check_references(schema, registry.resolver(resource.id() or ""), where)
        self.schema: JSONObject = schema
        self._validator = dialect(schema, registry=registry)

    def problems_with(self, value: object, subject: str) -> str | None:
        """What is wrong with a value, each fault in one sentence; ``None`` when it conforms.

        Args:
            subject: what an entry of the value is called, such as ``argument``.
        """
        try:
            if self._validator.is_valid(value):
                return None
            errors = sorted(self._validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        except RecursionError:
            return "the value is nested too deeply"
        shown = [_sentence(error, subject) for error in errors[:_ERRORS_SHOWN]]
        if len(errors) > _ERRORS_SHOWN:
            shown.append(f"and {len(errors) - _ERRORS_SHOWN} more")
        return "; ".join(shown)


def _dialect_of(schema: JSONObject, where: str) -> tuple[Any, Any]:
    """The validator and the rules for references of the schema's dialect."""
    from jsonschema import Draft7Validator, Draft202012Validator
    from referencing.jsonschema import DRAFT7, DRAFT202012

    dialects = {_DRAFT_2020_12: (Draft202012Validator, DRAFT202012), _DRAFT_7: (Draft7Validator, DRAFT7)}
    name = schema.get("$schema", _DRAFT_2020_12)
    found = dialects.get(name.removesuffix("#")) if isinstance(name, str) else None
    if found is None:
        raise LocalProtocolError(
            f"{where} is written in an unsupported dialect, $schema {name!r}; supported are {', '.join(dialects)}"
        )
    return found


def _check_size(schema: JSONObject, where: str) -> None:
    count = 0
    layer: list[Any] = [schema]
    for _ in range(SCHEMA_DEPTH_MAX):
        count += sum(isinstance(node, dict) for node in layer)
        if count > SUBSCHEMAS_MAX:
            raise LocalProtocolError(f"{where} holds more than {SUBSCHEMAS_MAX} subschemas")
        layer = [
            child
            for node in layer
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not layer:
            return
    raise LocalProtocolError(f"{where} is nested deeper than {SCHEMA_DEPTH_MAX} levels, or contains itself")


def _references_in(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _references_in(item)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in _REFERENCES and isinstance(value, str):
                yield value
            elif name not in _DATA or isinstance(value, dict):
                yield from _references_in(value)


def _check_references(schema: JSONObject, resolver: Any, where: str) -> None:
    from referencing.exceptions import Unresolvable

    for reference in _references_in(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            raise LocalProtocolError(
                f"{where} refers to {reference!r}, which is not in it; references that lead outside are never fetched"
            ) from None


def _sentence(error: ValidationError, subject: str) -> str:
    error = _nearest(error)
    path = _path_text(error.absolute_path)
    if error.context:
        reasons = dict.fromkeys(alternative.message for alternative in error.context)
        return f"{subject} {path or 'object'}: {_cut('; '.join(reasons))}"
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = error.schema.get("properties", {})
        unknown = [name for name in error.instance if name not in allowed]
        inside = f" in {path}" if path else ""
        names = ", ".join(map(repr, unknown))
        return f"unknown {subject} {_cut(names)}{inside}; allowed: {', '.join(map(repr, allowed)) or 'none'}"
    if error.validator == "required":
        inside = f" in {path}" if path else ""
        missing = error.message.removesuffix(" is a required property")
        return f"{subject} {missing} is missing{inside}"
    return f"{subject} {path or 'object'}: {_cut(error.message)}"


def _nearest(error: ValidationError) -> ValidationError:
    """Of the faults in several alternatives the one that lies deepest: that alternative was meant."""
    while error.context:
        deepest = max(error.context, key=lambda alternative: len(alternative.absolute_path))
        if len(deepest.absolute_path) == len(error.absolute_path):
            break
        error = deepest
    return error


def _path_text(path: Any) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"'{text}'" if text else ""


def _cut(text: str) -> str:
    """A long text with its middle left out: a message may quote a value of any size."""
    if len(text) <= _VALUE_CHARS_SHOWN:
        return text
    half = _VALUE_CHARS_SHOWN // 2
    return f"{text[:half]} ... {text[-half:]}"


def unfit_number_in(value: object) -> str | None:
    """What is wrong with a number somewhere in a raw value: no JSON has NaN or infinities."""
    layer = [value]
    while layer:
        node = layer.pop()
        if isinstance(node, dict):
            layer.extend(node.values())
        elif isinstance(node, list):
            layer.extend(node)
        elif isinstance(node, float) and not math.isfinite(node):
            return f"{node} is not a JSON number"
    return None
