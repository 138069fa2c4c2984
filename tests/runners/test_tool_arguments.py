"""From a signature to an inputSchema, and from a call's arguments to typed values."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import attrs
import jsonschema
import msgspec
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_trio import Application, SyncToolContext, ToolContext
from mcp_tasks_trio.signatures import ArgumentsRefused


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


@attrs.frozen
class Place:
    city: str
    zip_code: Annotated[str, msgspec.Meta(min_length=5, max_length=5)] = "00000"


@dataclasses.dataclass
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


class Range(msgspec.Struct, forbid_unknown_fields=True):
    low: float
    high: float


def declared(function: Callable[..., Any], **options: Any) -> Any:
    app = Application("test", version="1")
    app.tool("tool", **options)(function)
    return app.tools["tool"]


def schema_of(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    return declared(function, **options).definition["inputSchema"]


def read(function: Callable[..., Any], arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
    return declared(function, **options).arguments.read(arguments)


def refusal(function: Callable[..., Any], arguments: dict[str, Any], **options: Any) -> str:
    with pytest.raises(ArgumentsRefused) as caught:
        read(function, arguments, **options)
    return str(caught.value)


def test_the_schema_is_a_closed_object_with_types_defaults_and_descriptions() -> None:
    def tool(
        topic: Annotated[str, msgspec.Meta(description="What it is about", min_length=1)],
        pages: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3,
        style: Literal["short", "long"] = "short",
        note: str | None = None,
    ) -> None: ...

    schema = schema_of(tool)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == {
        "type": "object",
        "properties": {
            "topic": {"type": "string", "minLength": 1, "description": "What it is about"},
            "pages": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            "style": {"enum": ["long", "short"], "default": "short"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["topic"],
        "additionalProperties": False,
    }


def test_a_tool_without_parameters_takes_only_the_empty_object() -> None:
    def tool() -> None: ...

    assert schema_of(tool) == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert read(tool, {}) == {}
    assert "unknown argument 'x'; allowed: none" in refusal(tool, {"x": 1})


def test_classes_become_local_definitions_and_come_back_as_instances() -> None:
    def tool(place: Place, colour: Colour, span: Range, day: date, tree: Node) -> None: ...

    schema = schema_of(tool)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert set(schema["$defs"]) == {"Place", "Colour", "Range", "Node"}
    values = read(
        tool,
        {
            "place": {"city": "Bonn", "zip_code": "53111"},
            "colour": "green",
            "span": {"low": 1, "high": 2.5},
            "day": "2026-07-28",
            "tree": {"value": 1, "children": [{"value": 2}]},
        },
    )
    assert values == {
        "place": Place("Bonn", "53111"),
        "colour": Colour.GREEN,
        "span": Range(1.0, 2.5),
        "day": date(2026, 7, 28),
        "tree": Node(1, [Node(2)]),
    }


def test_a_class_that_was_defined_beside_the_function_is_found() -> None:
    @dataclasses.dataclass
    class Local:
        size: int

    app = Application("test", version="1")

    @app.tool()
    def tool(thing: Local) -> None: ...

    assert app.tools["tool"].arguments.read({"thing": {"size": 2}}) == {"thing": Local(2)}


def test_defaults_are_given_anew_to_each_call() -> None:
    def tool(names: list[str] = ["a"], more: dict[str, int] = {}) -> None: ...  # noqa: B006

    entry = declared(tool)
    first = entry.arguments.read({})
    first["names"].append("b")
    first["more"]["c"] = 1
    assert entry.arguments.read({}) == {"names": ["a"], "more": {}}


def test_a_default_of_none_admits_null() -> None:
    def tool(size: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert read(tool, {}) == {"size": None}
    assert read(tool, {"size": None}) == {"size": None}


@pytest.mark.spec("C11")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["'topic' is missing"]),
        ({"topic": 1}, ["argument 'topic'", "'string'"]),
        ({"topic": None}, ["argument 'topic'", "'string'"]),
        ({"topic": "x", "pages": "3"}, ["argument 'pages'", "'integer'"]),
        ({"topic": "x", "pages": True}, ["argument 'pages'", "'integer'"]),
        ({"topic": "x", "pages": 5.9}, ["argument 'pages'", "'integer'"]),
        ({"topic": "x", "pages": 0}, ["argument 'pages'", "minimum of 1"]),
        ({"topic": "x", "style": "loud"}, ["argument 'style'", "'long'", "'short'"]),
        ({"topic": "x", "place": {"city": 1}}, ["argument 'place.city'", "'string'"]),
        ({"topic": "x", "nodes": [{"value": 1}, {"value": "y"}]}, ["argument 'nodes[1].value'", "'integer'"]),
        ({"topic": "x", "page": 3}, ["unknown argument 'page'", "'topic'", "'pages'", "'style'"]),
        ({"topic": 1, "pages": 0}, ["argument 'topic'", "argument 'pages'"]),
    ],
)
def test_a_refusal_names_the_argument_and_what_is_allowed(arguments: dict[str, Any], words: list[str]) -> None:
    def tool(
        topic: str,
        pages: Annotated[int, msgspec.Meta(ge=1)] = 3,
        style: Literal["short", "long"] = "short",
        place: Place | None = None,
        nodes: list[Node] = [],  # noqa: B006
    ) -> None: ...

    text = refusal(tool, arguments)
    for word in words:
        assert word in text


def test_a_whole_float_is_no_integer() -> None:
    def tool(pages: int) -> None: ...

    assert "'pages'" in refusal(tool, {"pages": 3.0})


def test_a_refusal_of_a_huge_value_stays_short() -> None:
    def tool(pages: int) -> None: ...

    assert len(refusal(tool, {"pages": "x" * 1_000_000})) < 500


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**64) - 1, 10**400])
def test_large_integers_pass_exactly(number: int) -> None:
    def tool(number: int, anything: Any, either: int | str, several: list[int]) -> None: ...

    values = read(tool, {"number": number, "anything": number, "either": number, "several": [number]})
    assert values == {"number": number, "anything": number, "either": number, "several": [number]}


def test_an_integer_that_a_float_cannot_hold_is_refused_and_not_rounded() -> None:
    def tool(ratio: float) -> None: ...

    assert read(tool, {"ratio": 2**60}) == {"ratio": float(2**60)}
    assert "too large to be kept exactly" in refusal(tool, {"ratio": 2**53 + 1})
    refusal(tool, {"ratio": 10**400})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_no_json_has_are_refused(number: float) -> None:
    def tool(ratio: float) -> None: ...

    def explicit(ratio: float) -> None: ...

    assert "not a JSON number" in refusal(tool, {"ratio": number})
    schema = {"type": "object", "properties": {"ratio": {"type": "number"}}, "required": ["ratio"]}
    assert "not a JSON number" in refusal(explicit, {"ratio": number}, input_schema=schema)


def test_the_context_is_found_by_its_annotation_and_is_no_argument() -> None:
    async def first(anything: ToolContext, topic: str) -> None: ...

    def second(topic: str, told: SyncToolContext) -> None: ...

    assert declared(first).context_parameter == "anything"
    assert declared(second).context_parameter == "told"
    assert list(schema_of(first)["properties"]) == list(schema_of(second)["properties"]) == ["topic"]


def test_the_functions_that_cannot_be_tools_say_why() -> None:
    def positional(name: str, /) -> None: ...

    def many(*names: str) -> None: ...

    def anything(**names: str) -> None: ...

    def strange(thing: json.JSONDecoder) -> None: ...

    def unknown(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def twice(a: ToolContext, b: ToolContext) -> None: ...

    async def generator(name: str) -> Any:
        yield name

    for function, words in [
        (positional, "given by name"),
        (many, "given by name"),
        (anything, "give input_schema"),
        (strange, "have no JSON Schema"),
        (unknown, "cannot be resolved"),
        (twice, "two contexts"),
        (generator, "is a generator"),
        ("text", "not 'text'"),
    ]:
        with pytest.raises(LocalProtocolError, match=words):
            declared(function)  # type: ignore[arg-type]


@pytest.mark.spec("B13", "C11")
def test_an_explicit_schema_judges_the_arguments_and_gives_them_as_they_came() -> None:
    schema = {
        "type": "object",
        "properties": {"add": {"type": "array", "items": {"type": "integer"}}, "unit": {"enum": ["m", "ft"]}},
        "required": ["add"],
    }

    def tool(add: list[int], unit: str = "m") -> None: ...

    assert schema_of(tool, input_schema=schema) == schema
    given = {"add": [1, 2**70]}
    values = read(tool, given, input_schema=schema)
    assert values == given
    assert values["add"] is not given["add"], "a tool that changes its arguments must not change the request"
    assert "argument 'add[1]'" in refusal(tool, {"add": [1, "2"]}, input_schema=schema)
    assert "'m'" in refusal(tool, {"add": [], "unit": "yd"}, input_schema=schema)
    assert "unknown argument 'extra'" in refusal(tool, {"add": [], "extra": 1}, input_schema=schema)


def test_one_parameter_may_take_all_arguments_of_an_explicit_schema() -> None:
    def whole(arguments: dict[str, Any]) -> None: ...

    def by_name(**named: Any) -> None: ...

    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert read(whole, {"a": 1}, input_schema=schema) == {"arguments": {"a": 1}}
    assert read(by_name, {"a": 1}, input_schema=schema) == {"a": 1}
    assert "'b'" in refusal(by_name, {"b": "x"}, input_schema=schema)


@pytest.mark.spec("B13")
def test_draft_07_is_accepted_and_other_dialects_are_refused_by_name() -> None:
    def tool(a: int) -> None: ...

    body = {"type": "object", "properties": {"a": {"type": "integer", "exclusiveMinimum": 0}}, "required": ["a"]}
    draft_07 = {"$schema": "http://json-schema.org/draft-07/schema#", **body}
    assert read(tool, {"a": 1}, input_schema=draft_07) == {"a": 1}
    assert "'a'" in refusal(tool, {"a": 0}, input_schema=draft_07)
    for dialect in ("http://json-schema.org/draft-04/schema#", "https://example.org/mine", 7):
        with pytest.raises(LocalProtocolError, match="unsupported dialect"):
            declared(tool, input_schema={"$schema": dialect, **body})


@pytest.mark.spec("B13")
def test_references_are_local_and_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*args: object) -> None:
        raise AssertionError("something was fetched")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    def tool(a: Any) -> None: ...

    def with_reference(reference: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"a": {"$ref": reference}},
            "required": ["a"],
            "$defs": {"b": {"type": "null"}},
        }

    assert read(tool, {"a": None}, input_schema=with_reference("#/$defs/b")) == {"a": None}
    for reference in (
        "https://example.org/schema",
        "http://127.0.0.1:9/s",
        "other.json",
        "#/$defs/missing",
        "#nowhere",
    ):
        with pytest.raises(LocalProtocolError, match="never fetched"):
            declared(tool, input_schema=with_reference(reference))


@pytest.mark.spec("B13")
def test_depth_and_number_of_subschemas_are_bounded() -> None:
    def tool(a: Any = None) -> None: ...

    def nested(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        for _ in range(depth):
            schema = {"items": schema}
        return {"type": "object", "properties": {"a": schema}}

    declared(tool, input_schema=nested(60))
    with pytest.raises(LocalProtocolError, match="deeper than 64"):
        declared(tool, input_schema=nested(62))
    looped: dict[str, Any] = {"type": "object", "properties": {}}
    looped["properties"]["a"] = looped
    with pytest.raises(LocalProtocolError, match="contains itself"):
        declared(tool, input_schema=looped)
    with pytest.raises(LocalProtocolError, match="more than 5000"):
        declared(tool, input_schema={"type": "object", "properties": {"a": {"anyOf": [{}] * 5_000}}})


@pytest.mark.spec("B13")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("text", "a dict"),
        ({"type": "object", "properties": {"a": {"type": "intger"}}}, "not a valid JSON Schema"),
        ({"properties": {}}, '"type": "object"'),
        ({"type": "object", "properties": {"b": {}}}, "no parameter for 'b'"),
        ({"type": "object", "properties": {"a": {}}}, "'a'.*no default"),
    ],
)
def test_an_explicit_schema_that_cannot_be_is_refused_where_it_is_written(schema: Any, words: str) -> None:
    def tool(a: int) -> None: ...

    with pytest.raises(LocalProtocolError, match=words):
        declared(tool, input_schema=schema)
