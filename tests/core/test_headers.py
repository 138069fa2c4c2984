"""The routing headers: their values, the annotations that ask for them, and what a client sends."""

from __future__ import annotations

import base64

import pytest

from mcp_tasks_core.wire.headers import (
    HeaderParameter,
    HeaderValueError,
    InvalidAnnotation,
    decode_header_value,
    encode_header_value,
    header_matches,
    header_parameters,
    header_text,
    routing_headers,
)


def sentinel(data: bytes) -> str:
    return f"=?base64?{base64.b64encode(data).decode()}?="


@pytest.mark.spec("H6")
@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("two words", "two words"),
        ("", ""),
        ("Hello, 世界", sentinel("Hello, 世界".encode())),
        (" padded ", sentinel(b" padded ")),
        ("line1\nline2", sentinel(b"line1\nline2")),
        ("a\tb", sentinel(b"a\tb")),
        ("\x7f", sentinel(b"\x7f")),
        ("=?base64?literal?=", sentinel(b"=?base64?literal?=")),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("=?base64?=", sentinel(b"=?base64?=")),
    ],
)
def test_a_value_travels_plain_where_that_is_safe_and_comes_back_as_it_was(value: str, encoded: str) -> None:
    assert encode_header_value(value) == encoded
    assert decode_header_value(encoded) == value


@pytest.mark.spec("H6")
def test_a_plain_value_may_come_wrapped_without_need_and_a_tab_may_stand_inside() -> None:
    assert decode_header_value(sentinel(b"greet")) == "greet"
    assert decode_header_value("a\tb") == "a\tb"


@pytest.mark.spec("H6")
@pytest.mark.parametrize("raw", ["=?BASE64?SGVsbG8=?=", "=?base64?SGVsbG8=", "SGVsbG8=", "=?base64?="])
def test_what_does_not_look_like_the_sentinel_is_taken_literally(raw: str) -> None:
    assert decode_header_value(raw) == raw


@pytest.mark.spec("H6")
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("=?base64?SGVsbG8?=", "base64"),
        ("=?base64?SGVs!!!bG8=?=", "base64"),
        ("=?base64?SGVsbG9=?=", "canonical"),
        (sentinel(b"\xff\xfe"), "UTF-8"),
        ("caf\xe9", "visible ASCII"),
        ("a\x01b", "visible ASCII"),
        ("a\x7fb", "visible ASCII"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_with_the_reason(raw: str, reason: str) -> None:
    with pytest.raises(HeaderValueError, match=reason):
        decode_header_value(raw)


def schema(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


@pytest.mark.spec("H12")
def test_annotations_on_primitive_properties_are_found_along_properties_alone() -> None:
    nested = schema(zone={"type": "integer", "x-mcp-header": "Zone"})
    found = header_parameters(schema(region={"type": "string", "x-mcp-header": "Region"}, place=nested))
    assert found == (
        HeaderParameter("Region", ("region",), "string"),
        HeaderParameter("Zone", ("place", "zone"), "integer"),
    )
    assert found[1].value_in({"place": {"zone": 3}}) == 3
    assert found[1].value_in({"place": "elsewhere"}) is None
    assert found[1].value_in({}) is None


@pytest.mark.spec("H12")
@pytest.mark.parametrize(
    "broken",
    [
        schema(a={"type": "string", "x-mcp-header": ""}),
        schema(a={"type": "string", "x-mcp-header": "two words"}),
        schema(a={"type": "string", "x-mcp-header": "line\r\n"}),
        schema(a={"type": "string", "x-mcp-header": 5}),
        schema(a={"type": "number", "x-mcp-header": "A"}),
        schema(a={"type": "object", "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a={"type": ["string", "null"], "x-mcp-header": "A"}),
        schema(a={"type": "string", "x-mcp-header": "Same"}, b={"type": "string", "x-mcp-header": "sAME"}),
        schema(a={"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}),
        {"type": "object", "x-mcp-header": "Root"},
        {"type": "object", "anyOf": [schema(a={"type": "string", "x-mcp-header": "A"})]},
        {"type": "object", "if": schema(a={"type": "string", "x-mcp-header": "A"})},
        {"type": "object", "$defs": {"A": schema(a={"type": "string", "x-mcp-header": "A"})}},
        {"type": "object", "patternProperties": {"^a": {"type": "string", "x-mcp-header": "A"}}},
    ],
)
def test_an_annotation_against_the_rules_makes_the_tool_invalid(broken: dict[str, object]) -> None:
    with pytest.raises(InvalidAnnotation):
        header_parameters(broken)


@pytest.mark.spec("H12")
def test_a_property_of_that_name_and_data_that_holds_it_are_no_annotations() -> None:
    plain = schema(**{"x-mcp-header": {"type": "string"}, "a": {"default": {"x-mcp-header": "A"}}})
    assert header_parameters(plain) == ()


@pytest.mark.spec("H10")
@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("42", 42, True),
        ("42.0", 42, True),
        ("-7", -7, True),
        ("42.5", 42, False),
        ("4 2", 42, False),
        ("+42", 42, False),
        ("42.", 42, False),
        ("99999999999999999999", 42, False),
        ("true", True, True),
        ("True", True, False),
        ("1", True, False),
        ("Hello", "Hello", True),
        ("hello", "Hello", False),
        ("5", "5", True),
        ("x", ["x"], False),
    ],
)
def test_a_header_says_the_same_as_its_argument(text: str, value: object, matches: bool) -> None:
    assert header_matches(text, value) is matches


@pytest.mark.spec("H9")
def test_a_client_repeats_method_name_and_annotated_arguments() -> None:
    parameters = header_parameters(
        schema(region={"type": "string", "x-mcp-header": "Region"}, dry={"type": "boolean", "x-mcp-header": "Dry"})
    )
    params = {"name": "süß", "arguments": {"region": "us-west1", "dry": False}}
    assert routing_headers("tools/call", params, "2026-07-28", parameters) == [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", sentinel("süß".encode())),
        ("Mcp-Param-Region", "us-west1"),
        ("Mcp-Param-Dry", "false"),
    ]


@pytest.mark.spec("H5", "H6")
def test_an_empty_argument_is_an_empty_header_and_null_or_absent_is_none() -> None:
    parameters = header_parameters(schema(region={"type": "string", "x-mcp-header": "Region"}))

    def sent(arguments: dict[str, object]) -> list[tuple[str, str]]:
        return routing_headers("tools/call", {"name": "t", "arguments": arguments}, "v", parameters)[3:]

    assert sent({"region": ""}) == [("Mcp-Param-Region", "")]
    assert sent({"region": None}) == []
    assert sent({}) == []


@pytest.mark.spec("H5")
@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tasks/get", {"taskId": "t1"}, "t1"),
        ("tasks/update", {"taskId": "t1"}, "t1"),
        ("tasks/cancel", {"taskId": "t1"}, "t1"),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("prompts/get", {"name": "p"}, "p"),
        ("tools/list", {"name": "p"}, None),
    ],
)
def test_the_name_header_repeats_what_the_method_is_about(
    method: str, params: dict[str, str], name: str | None
) -> None:
    assert dict(routing_headers(method, params, "v")).get("Mcp-Name") == name


def test_an_argument_that_no_header_can_repeat_is_refused_before_anything_is_sent() -> None:
    parameters = header_parameters(schema(n={"type": "integer", "x-mcp-header": "N"}))
    with pytest.raises(HeaderValueError, match="cannot be repeated"):
        routing_headers("tools/call", {"name": "t", "arguments": {"n": 2**53}}, "v", parameters)
    assert header_text(2**53 - 1) == "9007199254740991"
