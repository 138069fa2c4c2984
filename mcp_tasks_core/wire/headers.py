"""The routing headers of a message: what they must say, and how values travel in them.

Pure: transports with headers read and write them, and this module says what they mean.
Source: streamable-http, Request Metadata; tasks, Streamable HTTP: Routing Headers; tools, x-mcp-header.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import JSONObject

VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
PARAM_HEADER_PREFIX: Final = "Mcp-Param-"

NAME_MEMBERS: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of a method's params that ``Mcp-Name`` repeats."""

_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="
_TOKEN: Final = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_LEGAL: Final = re.compile(r"[\t -~]*")
_HEADER_INTEGER_MAX: Final = 2**53 - 1
_TYPES: Final = ("string", "integer", "boolean")


@attrs.frozen(kw_only=True, slots=True)
class RoutingHeaders:
    """The routing headers of one message as they were sent, outer blanks taken off; ``None`` where absent.

    Args:
        params: the ``Mcp-Param-*`` headers by what follows the prefix, in lower case.
    """

    protocol_version: str | None
    method: str | None
    name: str | None
    params: Mapping[str, str] = attrs.field(factory=dict)


class HeaderValueError(ValueError):
    """A header value that cannot be read; the text says why."""


def encode_header_value(value: str) -> str:
    """A value as it travels in ``Mcp-Name`` and ``Mcp-Param-*``: plain where that is safe, else base64.

    Tabs are encoded although they are legal: intermediaries fold them. Source: streamable-http, Value Encoding.
    """
    looks_encoded = value.startswith(_SENTINEL_START) and value.endswith(_SENTINEL_END)
    if not looks_encoded and value == value.strip(" ") and all(" " <= c <= "~" for c in value):
        return value
    encoded = base64.b64encode(value.encode("utf-8")).decode("ascii")
    return f"{_SENTINEL_START}{encoded}{_SENTINEL_END}"


def decode_header_value(raw: str) -> str:
    """What a value of ``Mcp-Name`` or ``Mcp-Param-*`` stands for.

    Raises:
        HeaderValueError: characters that no header value may hold, or base64 or UTF-8 that is not valid.
    """
    if not _LEGAL.fullmatch(raw):
        raise HeaderValueError("it holds characters other than visible ASCII, space and tab")
    long_enough = len(raw) >= len(_SENTINEL_START) + len(_SENTINEL_END)
    if not (long_enough and raw.startswith(_SENTINEL_START) and raw.endswith(_SENTINEL_END)):
        return raw
    encoded = raw[len(_SENTINEL_START) : -len(_SENTINEL_END)]
    try:
        decoded = base64.b64decode(encoded, validate=True)
        if base64.b64encode(decoded).decode("ascii") != encoded:
            raise HeaderValueError("its base64 is not in canonical form")
        return decoded.decode("utf-8")
    except binascii.Error as problem:
        raise HeaderValueError("its base64 is not valid") from problem
    except UnicodeDecodeError as problem:
        raise HeaderValueError("its base64 does not hold UTF-8") from problem


@attrs.frozen(slots=True)
class HeaderParameter:
    """A tool's parameter that a header repeats.

    Args:
        name: what follows ``Mcp-Param-``, as the annotation writes it.
        path: the property names that lead to it from the arguments.
        type: its JSON Schema type: ``string``, ``integer`` or ``boolean``.
    """

    name: str
    path: tuple[str, ...]
    type: str

    def value_in(self, arguments: Mapping[str, Any]) -> Any:
        """The argument at this path; ``None`` where it is absent or null."""
        value: Any = arguments
        for step in self.path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(step)
        return value


class InvalidAnnotation(ValueError):
    """A tool whose ``x-mcp-header`` annotations break the rules; the text says which and how."""


def header_parameters(input_schema: JSONObject) -> tuple[HeaderParameter, ...]:
    """The parameters of a tool that headers repeat.

    Raises:
        InvalidAnnotation: an annotation is malformed, stands where it may not, or names a header twice.
    """
    found = tuple(_annotated(input_schema, ()))
    reachable = {parameter.path for parameter in found}
    if _count_annotations(input_schema) != len(reachable):
        raise InvalidAnnotation("x-mcp-header stands only on properties that `properties` alone lead to")
    seen: set[str] = set()
    for parameter in found:
        if parameter.name.lower() in seen:
            raise InvalidAnnotation(f"two parameters have the x-mcp-header {parameter.name!r}")
        seen.add(parameter.name.lower())
    return found


def _annotated(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[HeaderParameter]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, property_schema in properties.items():
        if not isinstance(property_schema, Mapping):
            continue
        here = (*path, name)
        if "x-mcp-header" in property_schema:
            yield HeaderParameter(_checked_name(property_schema, here), here, _checked_type(property_schema, here))
        yield from _annotated(property_schema, here)


def _checked_name(schema: Mapping[str, Any], path: tuple[str, ...]) -> str:
    name = schema["x-mcp-header"]
    if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
        raise InvalidAnnotation(f"the x-mcp-header of {'.'.join(path)} is an HTTP token, not {name!r}")
    return name


def _checked_type(schema: Mapping[str, Any], path: tuple[str, ...]) -> str:
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        allowed = ", ".join(_TYPES)
        raise InvalidAnnotation(f"{'.'.join(path)} has an x-mcp-header, so its type is one of {allowed}, not {kind!r}")
    return kind


_DATA_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data, in which nothing is an annotation."""


def _count_annotations(schema: Any, *, of_names: bool = False) -> int:
    """Annotations anywhere in a schema. ``of_names``: the object's keys are names, not keywords."""
    if isinstance(schema, list):
        return sum(_count_annotations(item) for item in schema)
    if not isinstance(schema, Mapping):
        return 0
    count = int(not of_names and "x-mcp-header" in schema)
    for key, value in schema.items():
        if of_names or key not in _DATA_KEYWORDS:
            names = not of_names and key in ("properties", "patternProperties", "$defs", "dependentSchemas")
            count += _count_annotations(value, of_names=names)
    return count


def header_text(value: Any) -> str | None:
    """An argument as its header repeats it; ``None`` for a value that no header can repeat.

    Source: streamable-http, Value Encoding.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= _HEADER_INTEGER_MAX else None
    return value if isinstance(value, str) else None


def header_matches(text: str, value: Any) -> bool:
    """Whether a decoded header value says the same as an argument; integers are compared by value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer_of(text) == value
    return text == header_text(value)


def _integer_of(text: str) -> int | None:
    """The integer that a text writes, ``42.0`` included; ``None`` where it writes none."""
    whole, point, fraction = text.partition(".")
    digits = whole.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):
        return None
    if point and (not fraction or fraction.strip("0")):
        return None
    return int(whole)


def routing_headers(
    method: str, params: JSONObject, version: str, parameters: tuple[HeaderParameter, ...] = ()
) -> list[tuple[str, str]]:
    """The headers that a client sends with a message, in order, values encoded.

    Args:
        parameters: of the called tool, for ``tools/call``.

    Raises:
        HeaderValueError: an argument cannot be repeated in its header.
    """
    headers = [(VERSION_HEADER, version), (METHOD_HEADER, method)]
    member = NAME_MEMBERS.get(method)
    if member is not None and isinstance(params.get(member), str):
        headers.append((NAME_HEADER, encode_header_value(params[member])))
    arguments = params.get("arguments") or {}
    for parameter in parameters:
        value = parameter.value_in(arguments)
        if value is None:
            continue
        text = header_text(value)
        if text is None:
            raise HeaderValueError(f"{'.'.join(parameter.path)} = {value!r} cannot be repeated in a header")
        headers.append((PARAM_HEADER_PREFIX + parameter.name, encode_header_value(text)))
    return headers
