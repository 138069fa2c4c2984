"""From what a tool returns to the result of tools/call."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import msgspec
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_trio import Application, ContentBlock, ToolResult, audio, image, resource, resource_link, text
from mcp_tasks_trio.results import UnfitResult, error_to_wire, to_wire


@attrs.frozen
class Report:
    title: str
    pages: int


@dataclasses.dataclass
class Line:
    words: list[str]


class Point(msgspec.Struct):
    x: float


def output_of(function: Callable[..., Any], **options: Any) -> Any:
    app = Application("test", version="1")
    app.tool("tool", **options)(function)
    return app.tools["tool"].output


def returns(annotation: Any, **options: Any) -> Any:
    def tool() -> Any: ...

    tool.__annotations__["return"] = annotation
    return output_of(tool, **options)


def test_a_text_is_a_text_block_and_nothing_is_no_block() -> None:
    assert to_wire("hello", None) == {"content": [{"type": "text", "text": "hello"}]}
    assert to_wire(None, None) == {"content": []}


@pytest.mark.spec("C11")
@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ({"a": 1}, {"a": 1}),
        ([1, "b", None], [1, "b", None]),
        (Report("x", 2), {"title": "x", "pages": 2}),
        (Line(["a"]), {"words": ["a"]}),
        (Point(1.5), {"x": 1.5}),
        (7, 7),
        (True, True),
        (2**64, 2**64),
        (int("9" * 400), int("9" * 400)),
        (Decimal("1.10"), "1.10"),
        (datetime(2026, 7, 28, tzinfo=UTC), "2026-07-28T00:00:00Z"),
        ({"nested": [Report("y", 1)]}, {"nested": [{"title": "y", "pages": 1}]}),
    ],
)
def test_other_values_are_structured_content_with_their_json_as_text(value: Any, structured: Any) -> None:
    wire = to_wire(value, None)
    assert wire["structuredContent"] == structured
    assert json.loads(wire["content"][0]["text"]) == structured
    assert "isError" not in wire


def test_blocks_are_content() -> None:
    assert to_wire(text("a"), None) == {"content": [{"type": "text", "text": "a"}]}
    assert to_wire([text("a"), "b"], None)["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    picture = to_wire(image(b"\x00\xff", "image/png"), None)["content"][0]
    assert picture == {"type": "image", "data": base64.b64encode(b"\x00\xff").decode(), "mimeType": "image/png"}
    assert audio(b"", "audio/wav") == {"type": "audio", "data": "", "mimeType": "audio/wav"}
    assert resource_link("file:///a", "a", mime_type="text/x") == {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
        "mimeType": "text/x",
    }
    assert resource("file:///a", text="b")["resource"] == {"uri": "file:///a", "text": "b"}
    assert resource("file:///a", blob=b"b")["resource"] == {"uri": "file:///a", "blob": "Yg=="}
    with pytest.raises(LocalProtocolError, match="either a text or a blob"):
        resource("file:///a")


def test_a_whole_result_says_everything_itself() -> None:
    result = ToolResult(["no", {"type": "text", "text": "really"}], is_error=True, meta={"a": 1})
    assert to_wire(result, None) == {
        "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "really"}],
        "isError": True,
        "_meta": {"a": 1},
    }
    assert to_wire(ToolResult(structured=None), None) == {
        "content": [{"type": "text", "text": "null"}],
        "structuredContent": None,
    }
    assert to_wire(ToolResult(["one page"], structured=Report("x", 1)), None) == {
        "content": [{"type": "text", "text": "one page"}],
        "structuredContent": {"title": "x", "pages": 1},
    }


@pytest.mark.spec("B10")
@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        {"a": [math.inf]},
        "lone \ud800 surrogate",
        {"a": "\udfff"},
        text("\ud800"),
        b"bytes",
        {"a": bytearray(b"x")},
        {"a": memoryview(b"x")},
        object(),
        {"a": object()},
        {("a", "b"): 1},
        ToolResult([{"no": "type"}]),
        ToolResult([1]),  # type: ignore[list-item]
        ToolResult(structured=math.nan),
        ToolResult(["x"], meta={"a": math.nan}),
        [text("a"), 1],
    ],
)
def test_what_has_no_json_form_never_becomes_a_result(value: Any) -> None:
    with pytest.raises(UnfitResult):
        to_wire(value, None)


@pytest.mark.spec("B10")
def test_a_value_that_contains_itself_or_is_nested_without_end_is_refused() -> None:
    looped: list[Any] = []
    looped.append(looped)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (looped, deep):
        with pytest.raises(UnfitResult):
            to_wire(value, None)


def test_an_error_text_is_always_writable() -> None:
    wire = error_to_wire("bad \ud800")
    assert wire == {"content": [{"type": "text", "text": "bad ?"}], "isError": True}


@pytest.mark.spec("C11")
def test_a_typed_return_value_promises_an_output_schema_and_is_held_to_it() -> None:
    output = returns(Report)
    assert output.schema == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}},
        "required": ["title", "pages"],
    }
    assert to_wire(Report("x", 1), output)["structuredContent"] == {"title": "x", "pages": 1}
    for value in ({"title": "x"}, Report("x", "1"), "x", None):  # type: ignore[arg-type]
        with pytest.raises(UnfitResult, match="output schema"):
            to_wire(value, output)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_plain_types_promise_a_schema(annotation: Any, schema: Any) -> None:
    assert returns(annotation).schema == schema


@pytest.mark.parametrize(
    "annotation",
    [None, Any, str, str | None, str | Report, ToolResult, ContentBlock, list[ContentBlock], json.JSONDecoder],
)
def test_types_whose_content_is_not_structured_promise_nothing(annotation: Any) -> None:
    assert returns(annotation) is None


@pytest.mark.spec("C11", "B13")
def test_a_result_is_held_to_an_explicit_output_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}
    output = returns(Any, output_schema=schema)
    assert output.schema == schema
    assert to_wire({"n": 3}, output)["structuredContent"] == {"n": 3}
    assert to_wire(ToolResult(["x"], structured={"n": 1}), output)["structuredContent"] == {"n": 1}
    assert "structuredContent" not in to_wire(ToolResult(["x"], is_error=True), output)
    for value in ({"n": 4}, {}, "text", ToolResult(["x"]), ToolResult(structured={"n": 9})):
        with pytest.raises(UnfitResult):
            to_wire(value, output)
    with pytest.raises(LocalProtocolError, match="never fetched"):
        returns(Any, output_schema={"$ref": "https://example.org/x"})


@pytest.mark.spec("C11")
def test_an_explicit_output_schema_may_be_of_any_kind() -> None:
    output = returns(Any, output_schema={"type": "string"})
    assert to_wire("x", output) == {"content": [{"type": "text", "text": '"x"'}], "structuredContent": "x"}
