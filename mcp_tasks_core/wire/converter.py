"""JSON values to typed values and back, through one converter that never coerces.

cattrs by itself makes 5 of 5.9, "None" of None, True of "no" and a list of "abc". Here every value has the
type that it claims or is refused, with the place of the fault in wire names.

Free-form members (``JSONObject``, ``list[Any]``, ``Any``) pass by identity: checked, never rebuilt.
"""

from __future__ import annotations

import json
import types
from collections import abc
from collections.abc import Callable
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.errors import AttributeValidationNote, BaseValidationError
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mcp_tasks_core.identifiers import JSONObject

T = TypeVar("T")

NULL_IS_ABSENT: Final = {"null_is_absent": True}
"""Metadata of an optional attribute that a peer may also write as ``null``."""


class Absent(Enum):
    """Stands for a member that is not there, where ``null`` would be a value."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class DecodeError(ValueError):
    """A value that is not of the type that its place demands.

    Args:
        path: the place, in wire names: ``params.inputResponses.quarter.action``. Cut where a peer's own names
            make it long.
        message: what is allowed there, and what stood there instead.
    """

    def __init__(self, path: str, message: str) -> None:
        self.path = path if len(path) <= 200 else f"{path[:199]}…"
        self.message = message
        super().__init__(f"{self.path}: {message}")


def decode(cls: type[T], value: object, path: str = "params") -> T:
    """The typed value that a JSON value is.

    Args:
        cls: an attrs class of the wire modules.
        path: the name of the value's own place, put before the places inside it.

    Raises:
        DecodeError: the value does not fit; the first fault is told.
    """
    hook = _readers.get(cls)
    if hook is None:
        hook = _readers[cls] = _converter.get_structure_hook(cls)
    try:
        return cast(T, hook(value, cls))
    except (DecodeError, BaseValidationError) as fault:
        raise _placed(fault, path) from None


def encode(value: object) -> JSONObject:
    """The JSON object of a typed value: optional members that are ``None`` are left out."""
    cls = type(value)
    hook = _writers.get(cls)
    if hook is None:
        hook = _writers[cls] = _converter.get_unstructure_hook(cls)
    return cast(JSONObject, hook(value))


def register(cls: type[T], read: Callable[[Any], T], write: Callable[[T], JSONObject]) -> None:
    """Give a class a reader and a writer of its own, for shapes that are not one member per attribute.

    Args:
        read: makes the value, or raises ``DecodeError`` with a path that is empty or starts with a dot.
    """
    _converter.register_structure_hook(cls, lambda value, _: read(value))
    _converter.register_unstructure_hook(cls, write)


def wire_name(name: str) -> str:
    """The JSON name of an attribute: ``task_id`` is ``taskId``, ``meta`` is ``_meta``."""
    if name == "meta":
        return "_meta"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def shown(value: object) -> str:
    """A JSON value as an error message names it: short, whatever a peer sent."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:59]}…"


# --- Faults, and where they stand


def _unfit(allowed: str, value: object, path: str = "") -> DecodeError:
    """The fault that a hook raises; its path leads on from where the hook was called: ``.action``, ``[3].name``."""
    return DecodeError(path, f"{allowed}, not {shown(value)}")


def _placed(fault: BaseException, path: str) -> DecodeError:
    """The first fault that a hook found, with its place from ``path`` on."""
    while isinstance(fault, BaseValidationError):
        fault = fault.exceptions[0]
        path += _step_to(fault)
    if isinstance(fault, DecodeError):
        return DecodeError(path + fault.path, fault.message)
    if isinstance(fault, KeyError):
        return DecodeError(path, "this member is required, and it is missing")
    return DecodeError(path, str(fault))


def _step_to(fault: BaseException) -> str:
    for note in getattr(fault, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return "." + wire_name(note.name)
    return ""


# --- Hooks

_Hook: TypeAlias = Callable[[Any, Any], Any]

_NAMES: Final[dict[Any, str]] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    NoneType: "null",
}


def _exactly(kind: type) -> _Hook:
    allowed = _NAMES[kind]

    def read(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise _unfit(allowed, value)

    return read


def _read_number(value: Any, _: Any) -> Any:
    if type(value) is float or type(value) is int:
        return value
    raise _unfit("a number", value)


def _read_raw_map(value: Any, _: Any) -> Any:
    if type(value) is not dict:
        raise _unfit("an object", value)
    for name, member in value.items():
        if type(member) is not dict:
            raise _unfit("an object", member, f".{name}")
    return value


def _read_raw_objects(value: Any, _: Any) -> Any:
    if type(value) is not list:
        raise _unfit("an array", value)
    for index, item in enumerate(value):
        if type(item) is not dict:
            raise _unfit("an object", item, f"[{index}]")
    return value


def _read_as_is(value: Any, _: Any) -> Any:
    return value


_RAW: Final[dict[Any, _Hook]] = {
    Any: _read_as_is,
    dict[str, Any]: _exactly(dict),
    list[Any]: _exactly(list),
    list[dict[str, Any]]: _read_raw_objects,
}


def _is_raw(kind: Any) -> bool:
    return kind is Any or (get_origin(kind) in (dict, list) and kind in _RAW)


def _is_raw_map(kind: Any) -> bool:
    """``Mapping[InputKey, JSONObject]`` and its like: named objects, each of them raw."""
    return get_origin(kind) is abc.Mapping and get_args(kind)[1:] == (dict[str, Any],)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _is_literal(kind: Any) -> bool:
    return get_origin(kind) is Literal


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _one_of(allowed: tuple[str, ...]) -> _Hook:
    names = ", ".join(map(json.dumps, allowed))
    expected = f"one of {names}" if len(allowed) > 1 else names

    def read(value: Any, _: Any) -> Any:
        if type(value) is str and value in allowed:
            return value
        raise _unfit(expected, value)

    return read


def _reader_of(kind: Any) -> _Hook:
    # The converter finds the hook of a base class first, and a StrEnum is a str.
    if _is_enum(kind):
        return _enum_reader(kind)
    if get_origin(kind) is Annotated:
        return _checked_reader(*get_args(kind))
    if not _has_strict_hook(kind):
        raise TypeError(f"cattrs would coerce to {kind}: there is no strict hook for it")
    return _converter.get_structure_hook(kind)


def _has_strict_hook(kind: Any) -> bool:
    if isinstance(kind, NewType):
        return _has_strict_hook(kind.__supertype__)
    return kind in _STRICT or attrs.has(kind) or any(matches(kind) for matches, _ in _FACTORIES)


def _writer_of(kind: Any) -> Callable[[Any], Any]:
    if _is_enum(kind):
        return lambda member: member.value
    if get_origin(kind) is Annotated:
        return _writer_of(get_args(kind)[0])
    if isinstance(kind, NewType):
        return identity
    return _converter.get_unstructure_hook(kind)


def _checked_reader(kind: Any, check: Callable[[Any], None]) -> _Hook:
    """``Annotated[kind, check]``: the check raises ``DecodeError`` with a path from the value on."""
    read_value = _reader_of(kind)

    def read(value: Any, _: Any) -> Any:
        result = read_value(value, kind)
        check(result)
        return result

    return read


def _enum_reader(kind: Any) -> _Hook:
    members = {member.value: member for member in kind}
    read_value = _one_of(tuple(members))
    return lambda value, _: members[read_value(value, _)]


def _union_reader(kind: Any) -> _Hook:
    """Members of a union are told apart by their JSON type alone."""
    members = get_args(kind)
    readers = {get_origin(member) or member: (_reader_of(member), member) for member in members}
    expected = " or ".join(_NAMES[kind] for kind in readers)

    def read(value: Any, _: Any) -> Any:
        reader = readers.get(type(value))
        if reader is None:
            raise _unfit(expected, value)
        return reader[0](value, reader[1])

    return read


def _tuple_reader(kind: Any) -> _Hook:
    item_kind = get_args(kind)[0]
    read_item = _reader_of(item_kind)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise _unfit("an array", value)
        items = []
        for index, item in enumerate(value):
            try:
                items.append(read_item(item, item_kind))
            except (DecodeError, BaseValidationError) as fault:
                raise _placed(fault, f"[{index}]") from None
        return tuple(items)

    return read


def _tuple_writer(kind: Any) -> Callable[[Any], Any]:
    write_item = _writer_of(get_args(kind)[0])
    return lambda items: [write_item(item) for item in items]


def _class_reader(cls: Any) -> _Hook:
    read_members: _Hook = make_dict_structure_fn(
        cls, _converter, _cattrs_detailed_validation=True, **_overrides(cls, reading=True)
    )

    def read(value: Any, kind: Any) -> Any:
        if type(value) is not dict:
            raise _unfit("an object", value)
        return read_members(value, kind)

    return read


def _class_writer(cls: Any) -> Callable[[Any], Any]:
    return make_dict_unstructure_fn(cls, _converter, **_overrides(cls, reading=False))


def _overrides(cls: Any, *, reading: bool) -> dict[str, Any]:
    """How each attribute stands on the wire.

    An optional attribute with a default may be absent, but not null; one without a default has to be there, and
    may be null.
    """
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {}
    for attribute in attrs.fields(cls):
        kind: Any = attribute.type
        may_be_absent = attribute.default is None or attribute.default is ABSENT
        if may_be_absent and not attribute.metadata.get("null_is_absent"):
            present = [member for member in get_args(kind) if member not in (NoneType, Absent)]
            kind = Union[tuple(present)] if _is_union(kind) else kind  # noqa: UP007 - made from values
        overrides[attribute.name] = override(
            rename=wire_name(attribute.name),
            omit_if_default=may_be_absent,
            struct_hook=_reader_of(kind) if reading else None,
            unstruct_hook=None if reading else _writer_of(kind),
        )
    return overrides


_STRICT: Final[dict[Any, _Hook]] = {
    str: _exactly(str),
    int: _exactly(int),
    bool: _exactly(bool),
    float: _read_number,
    NoneType: _read_as_is,
}
_FACTORIES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], _Hook]], ...]] = (
    (_is_literal, lambda kind: _one_of(get_args(kind))),
    (_is_tuple, _tuple_reader),
    (_is_union, _union_reader),
    (_is_raw_map, lambda _: _read_raw_map),
    (_is_raw, lambda kind: _RAW[kind]),
)


def _strict_converter() -> Converter:
    converter = Converter(detailed_validation=True)
    for kind, hook in _STRICT.items():
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_factory(attrs.has, _class_reader)
    for matches, reader in _FACTORIES:
        converter.register_structure_hook_factory(matches, reader)
    converter.register_unstructure_hook_factory(attrs.has, _class_writer)
    converter.register_unstructure_hook_factory(_is_tuple, _tuple_writer)
    for raw in (_is_union, _is_raw_map, _is_raw):
        converter.register_unstructure_hook_func(raw, identity)
    return converter


_converter: Final = _strict_converter()
_readers: Final[dict[Any, _Hook]] = {}
_writers: Final[dict[Any, Callable[[Any], Any]]] = {}
