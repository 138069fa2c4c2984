"""Arguments and answers that are made up from schemas fit them."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.answers import check_answer
from mcp_tasks_trio.doctor.conformity import fault_of
from mcp_tasks_trio.doctor.dummies import answer_to, arguments_for
from mcp_tasks_trio.doctor.tools import NamedTool, Role, Tool, entries


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    "schema",
    [
        _object(name={"type": "string"}, pages={"type": "integer", "minimum": 3}, draft={"type": "boolean"}),
        _object(level={"enum": ["low", "high"]}, kind={"const": "x"}, size={"type": "number", "exclusiveMinimum": 4}),
        _object(code={"type": "string", "minLength": 12}, short={"type": "string", "maxLength": 2}),
        _object(at={"type": "string", "format": "date-time"}, mail={"type": "string", "format": "email"}),
        _object(
            tags={"type": "array", "items": {"type": "string"}, "minItems": 2}, where=_object(city={"type": "string"})
        ),
        {**_object(shape={"$ref": "#/$defs/shape"}), "$defs": {"shape": _object(sides={"type": "integer"})}},
        _object(maybe={"anyOf": [{"type": "integer"}, {"type": "null"}]}, either={"type": ["null", "string"]}),
        _object(small={"type": "integer", "maximum": -5}),
    ],
)
def test_arguments_fit_their_schema(schema: dict[str, Any]) -> None:
    assert fault_of(arguments_for(schema), schema) is None


def test_optional_arguments_are_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}
    assert arguments_for(schema) == {"a": "doctor"}


@pytest.mark.parametrize("schema", [None, 7, {}, {"type": "string"}, {"type": "object"}])
def test_schema_that_asks_for_nothing_gets_nothing(schema: Any) -> None:
    assert arguments_for(schema) == {}


def test_schema_that_refers_to_itself_comes_to_an_end() -> None:
    schema = {**_object(next={"$ref": "#"})}
    assert set(arguments_for(schema)) == {"next"}


@pytest.mark.parametrize(
    "request_",
    [
        {
            "method": "elicitation/create",
            "params": {
                "message": "?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "minimum": 3},
                        "ratio": {"type": "number"},
                        "draft": {"type": "boolean"},
                        "colour": {"type": "string", "enum": ["red", "blue"]},
                        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
                        "mail": {"type": "string", "format": "email"},
                        "named": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]},
                    },
                    "required": ["size"],
                },
            },
        },
        {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "?", "url": "https://example.com", "elicitationId": "1"},
        },
        {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
        {"method": "roots/list"},
    ],
)
def test_answers_fit_their_questions(request_: dict[str, Any]) -> None:
    assert check_answer(request_, answer_to(request_)) is None


def _definition(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def test_destructive_tool_is_called_only_when_it_is_named() -> None:
    listed = [_definition("wipe", annotations={"destructiveHint": True}), _definition("greet")]
    assert [tool.name for tool in entries(listed, [], only_named=False)] == ["greet"]
    named = [NamedTool(role=Role.PLAIN, name="wipe", arguments={"all": True})]
    assert [(t.name, t.arguments) for t in entries(listed, named, only_named=True)] == [("wipe", {"all": True})]


def test_tool_that_is_named_twice_with_other_arguments_is_called_twice() -> None:
    named = [
        NamedTool(role=Role.TASK, name="compute", arguments={"seconds": 0}),
        NamedTool(role=Role.SLOW, name="compute", arguments={"seconds": 60}),
    ]
    found = entries([_definition("compute")], named, only_named=False)
    assert [tool.arguments for tool in found] == [{"seconds": 0}, {"seconds": 60}]
    assert isinstance(found[0], Tool)


def test_nonsense_in_a_list_of_tools_is_passed_over() -> None:
    assert entries([None, 7, {}, {"name": 7}], [], only_named=False) == []
