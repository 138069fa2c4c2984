"""From a function's signature to a JSON Schema and to strict conversion of a call's arguments."""

from __future__ import annotations

import copy
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Protocol, Union

import msgspec

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.schemas import SchemaValidator, unfit_number_in

_EXACT_FLOAT_MAX: Final = 2**53  # beyond it not every integer has a float of its own
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ArgumentsRefused(Exception):
    """A call's arguments do not fit; the text names the argument and what is allowed."""


class Arguments(Protocol):
    """How the arguments of one tool are described and read."""

    @property
    def schema(self) -> JSONObject:
        """The tool's inputSchema."""

    def read(self, raw: JSONObject) -> dict[str, Any]:
        """What the function is called with, by parameter name.

        Raises:
            ArgumentsRefused: the arguments do not conform.
        """


class Signature:
    """A tool function's parameters, taken apart.

    Args:
        context_types: annotations of the parameter that receives the context.
        local_names: names that annotations may use beside the function's globals.

    Raises:
        LocalProtocolError: a parameter cannot be given by name, or an annotation cannot be resolved.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        what: str,
        context_types: tuple[type, ...],
        local_names: Mapping[str, Any],
    ) -> None:
        self.what = what
        self.context_parameter: str | None = None
        self.parameters: dict[str, tuple[Any, Any]] = {}
        self.takes_anything = False
        hints = _resolve_hints(function, what, local_names)
        self.returns: Any = hints.get("return", Any)
        for name, parameter in inspect.signature(function).parameters.items():
            annotation = hints.get(name, Any)
            if annotation in context_types:
                if self.context_parameter is not None:
                    raise LocalProtocolError(f"{what} takes two contexts, {self.context_parameter!r} and {name!r}")
                self.context_parameter = name
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self.takes_anything = True
            elif parameter.kind in _NAMED:
                self.parameters[name] = (annotation, parameter.default)
            else:
                raise LocalProtocolError(f"{what} takes {parameter}; arguments are given by name, so it cannot")


def _resolve_hints(function: Callable[..., Any], what: str, local_names: Mapping[str, Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, localns=dict(local_names), include_extras=True)
    except Exception as error:
        raise LocalProtocolError(f"an annotation of {what} cannot be resolved: {error}") from error


class TypedArguments:
    """Arguments described by the annotations of a function's parameters.

    Raises:
        LocalProtocolError: an annotation has no JSON Schema, or a default does not fit.
    """

    def __init__(self, signature: Signature) -> None:
        what = signature.what
        if signature.takes_anything:
            raise LocalProtocolError(f"{what} takes arguments of any name; say which there are, or give input_schema")
        try:
            fields = [_field(name, *parts) for name, parts in signature.parameters.items()]
            self._type: Any = msgspec.defstruct("arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = schema_of(self._type)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise LocalProtocolError(
                f"the parameters of {what} have no JSON Schema: {error}; annotate them with types that have one "
                "(attrs and dataclasses, msgspec Structs, enums, Literal, plain values), or give input_schema"
            ) from error
        self._names = tuple(signature.parameters)
        self._what = what

    @functools.cached_property
    def _validator(self) -> SchemaValidator:
        """Explains faults, all of them at once and with what is allowed; msgspec names the first alone."""
        return SchemaValidator(self.schema, f"the schema of {self._what}")

    def read(self, raw: JSONObject) -> dict[str, Any]:
        try:
            value = msgspec.convert(raw, self._type, strict=True)
        except msgspec.ValidationError as error:
            raise ArgumentsRefused(self._validator.problems_with(raw, "argument") or _plain(error)) from None
        except (RecursionError, OverflowError) as error:
            raise ArgumentsRefused(f"the arguments cannot be read: {error}") from None
        problem = unfit_number_in(raw) or _rounded_integer(raw, value)
        if problem is not None:
            raise ArgumentsRefused(problem)
        return {name: getattr(value, name) for name in self._names}


class ExplicitArguments:
    """Arguments described by a schema that the application wrote. The function gets the values as they came.

    Its parameters are the properties of the schema, or one parameter ``arguments`` that takes them all.

    Raises:
        LocalProtocolError: the schema is refused, or the function cannot be called with what it admits.
    """

    def __init__(self, signature: Signature, schema: object) -> None:
        what = signature.what
        self._validator = SchemaValidator(schema, f"the input_schema of {what}")
        self.schema = self._validator.schema
        if self.schema.get("type") != "object":
            raise LocalProtocolError(f'the input_schema of {what} says "type": "object" at its top')
        properties = self.schema.get("properties", {})
        self._whole = list(signature.parameters) == ["arguments"] and "arguments" not in properties
        self._names = frozenset(signature.parameters)
        self._takes_anything = signature.takes_anything
        if not self._whole:
            self._check_parameters(signature, properties)

    def _check_parameters(self, signature: Signature, properties: Mapping[str, Any]) -> None:
        for name in properties:
            if name not in self._names and not self._takes_anything:
                raise LocalProtocolError(f"{signature.what} has no parameter for {name!r} of its input_schema")
        required = self.schema.get("required", ())
        for name, (_, default) in signature.parameters.items():
            if default is inspect.Parameter.empty and name not in required:
                raise LocalProtocolError(
                    f"the parameter {name!r} of {signature.what} has no default and is not required by its input_schema"
                )

    def read(self, raw: JSONObject) -> dict[str, Any]:
        problem = self._validator.problems_with(raw, "argument") or unfit_number_in(raw)
        if problem is not None:
            raise ArgumentsRefused(problem)
        if self._whole:
            return {"arguments": copy.deepcopy(raw)}
        if not self._takes_anything and not self._names.issuperset(raw):
            unknown = ", ".join(repr(name) for name in raw if name not in self._names)
            raise ArgumentsRefused(f"unknown argument {unknown}; allowed: {', '.join(map(repr, sorted(self._names)))}")
        return copy.deepcopy(raw)


def schema_of(of_type: Any) -> JSONObject:
    """The JSON Schema of a type, its root inlined, everything else in local ``$defs``.

    Raises:
        TypeError: the type has none.
    """
    (root,), definitions = msgspec.json.schema_components((of_type,), ref_template="#/$defs/{name}")
    name = root.get("$ref", "").removeprefix("#/$defs/")
    if len(root) == 1 and name in definitions:
        root = dict(definitions[name])
        if not _mentions(definitions, f"#/$defs/{name}"):
            del definitions[name]
    root.pop("title", None)
    if definitions:
        root["$defs"] = definitions
    return dict(root)


def _mentions(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_mentions(child, reference) for child in node.values())
    return isinstance(node, list | tuple) and any(_mentions(child, reference) for child in node)


def _field(name: str, annotation: Any, default: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if default is inspect.Parameter.empty:
        return name, annotation
    if default is None and not _admits_none(annotation):
        annotation = annotation | None if isinstance(annotation, type) else Union[annotation, None]  # noqa: UP007
    if isinstance(default, list | dict | set | bytearray):
        return name, annotation, msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return name, annotation, default


def _admits_none(annotation: Any) -> bool:
    if annotation is Any or annotation is None or annotation is types.NoneType:
        return True
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _admits_none(typing.get_args(annotation)[0])
    return origin in (Union, types.UnionType) and any(map(_admits_none, typing.get_args(annotation)))


def _plain(error: msgspec.ValidationError) -> str:
    """msgspec's own words, with the argument in ours: ``argument 'pages': Expected `int`, got `float```."""
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    return f"argument {path!r}: {text}" if path else f"arguments: {text}"


def _rounded_integer(raw: JSONObject, value: Any) -> str | None:
    """Names an integer that conversion to float would have changed."""
    large = [number for number in _numbers_in(raw) if abs(number) > _EXACT_FLOAT_MAX]
    if not large:
        return None
    kept = set(_numbers_in(msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=True)))
    # A float that equals the integer is no loss, and set membership goes by value.
    for number in large:
        if number not in kept:
            return f"the number {str(number)[:40]} is too large to be kept exactly; allowed: up to 2**53 for a number"
    return None


def _numbers_in(value: object) -> list[int | float]:
    numbers: list[int | float] = []
    layer = [value]
    while layer:
        node = layer.pop()
        if isinstance(node, dict):
            layer.extend(node.values())
        elif isinstance(node, list | tuple | set | frozenset):
            layer.extend(node)
        elif type(node) in (int, float):
            numbers.append(typing.cast("int | float", node))
    return numbers
