"""Strict JSON: what is refused, with which code, and what stays exact."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_tasks_core.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.json import JsonError, StrictJson

LIMITS = Limits()
CODEC = StrictJson(LIMITS)


def refused(data: bytes, codec: StrictJson = CODEC) -> JsonError:
    with pytest.raises(JsonError) as caught:
        codec.decode(data)
    assert caught.value.message == str(caught.value)
    return caught.value


@pytest.mark.spec("B1")
@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        1.5,
        1e300,
        "",
        'snow ☃, emoji 😀, line separator \u2028, quote " and backslash \\',
        [],
        {},
        {"a": [1, {"b": [None, False]}], "": "x"},
        2**53 + 1,
        2**63 - 1,
        2**64,
        10**400,
    ],
)
def test_values_survive_being_written_and_read(value: Any) -> None:
    again = CODEC.decode(CODEC.encode(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.spec("B1")
def test_output_is_compact_utf8_on_one_line() -> None:
    assert CODEC.encode({"a": [1, 2], "ü": "a\nb\u2028"}) == '{"a":[1,2],"ü":"a\\nb\u2028"}'.encode()


def test_input_may_have_white_space_around_and_inside() -> None:
    assert CODEC.decode(b' \t\r\n{ "a" :\n[ 1 , 2 ] }\r\n') == {"a": [1, 2]}


@pytest.mark.spec("B7", "B10")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"{", "not JSON"),
        (b"bare text", "not JSON"),
        (b'{"a":1}{"b":2}', "goes on after the value"),
        (b'{"a":1,}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":01}', "not JSON"),
        (b'{"a":+1}', "not JSON"),
        (b'{"a":.5}', "not JSON"),
        (b'{"a":"tab\there"}', "not JSON"),
        (b'{"a":"\x00"}', "not JSON"),
        (b"\x00", "not JSON"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":NaN}', "NaN"),
        (b'{"a":Infinity}', "Infinity"),
        (b'{"a":-Infinity}', "-Infinity"),
        (b'{"a":1e400}', "too large"),
        (b'{"a":-1e400}', "too large"),
        (b'{"a":1,"a":2}', "stands twice"),
        (b'{"b":{"a":1,"c":2,"a":1}}', "stands twice"),
        (b'{"a":"\\ud800"}', "surrogate"),
        (b'{"a":"\\uDC00 x"}', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
        (b'{"a":"\\ud800\\ud800"}', "surrogate"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"a":"\xff"}', "UTF-8"),
        (b'{"a":"\xc0\xaf"}', "UTF-8"),  # An overlong slash.
        (b'{"a":"\xed\xa0\x80"}', "UTF-8"),  # A surrogate written as UTF-8.
        ('{"a":1}'.encode("utf-16"), "UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
    ],
)
def test_texts_that_are_not_strict_json_are_parse_errors(data: bytes, said: str) -> None:
    error = refused(data)
    assert error.code == PARSE_ERROR
    assert said in error.message


def test_escaped_pairs_of_surrogates_are_one_character() -> None:
    assert CODEC.decode(b'"\\ud83d\\ude00"') == "😀"
    assert CODEC.decode(b'"\\\\ud800"') == "\\ud800"


@pytest.mark.spec("B10")
@pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
def test_a_depth_bomb_is_refused_before_it_is_parsed(bracket: bytes) -> None:
    error = refused(bracket * 200_000)
    assert error.code == INVALID_REQUEST
    assert str(LIMITS.json_depth_max) in error.message


@pytest.mark.spec("B10")
def test_nesting_is_allowed_up_to_the_limit_and_not_past_it() -> None:
    codec = StrictJson(Limits(json_depth_max=4))
    assert codec.decode(b'[[[{"a":1}]]]') == [[[{"a": 1}]]]
    assert refused(b"[[[[[1]]]]]", codec).code == INVALID_REQUEST


@pytest.mark.parametrize(
    "text",
    [
        r'["[[[[[[[[", {"}]]": "{\"[[[[[[\\"}]',
        r"[[],[],[],[],[],[],{},{},{}]",
        r'["\\", "[", "\\\"[[[[[[["]',
    ],
)
def test_brackets_in_strings_and_side_by_side_do_not_count_as_depth(text: str) -> None:
    assert StrictJson(Limits(json_depth_max=2)).decode(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "data",
    [b'"' + b'\\"' * 100_000 + b"[" * 200, b'"[' * 100_000, b"\\" * 100_000 + b"[" * 200, b'"' * 99_999 + b"[" * 200],
)
def test_hostile_quotes_do_not_make_the_depth_check_slow(data: bytes) -> None:
    refused(data)


@pytest.mark.spec("B10")
def test_messages_are_allowed_up_to_the_byte_limit_and_not_past_it() -> None:
    codec = StrictJson(Limits(frame_bytes_max=10))
    assert codec.decode(b'"12345678"') == "12345678"
    error = refused(b'"123456789"', codec)
    assert error.code == INVALID_REQUEST
    assert "10" in error.message


@pytest.mark.spec("B10")
def test_integers_are_exact_up_to_the_digit_limit_and_refused_past_it() -> None:
    codec = StrictJson(Limits(json_integer_digits_max=20))
    assert codec.decode(b'{"id":"a","n":-12345678901234567890}') == {"id": "a", "n": -12345678901234567890}
    error = refused(b'{"id":"a","n":[-123456789012345678901,7]}', codec)
    assert error.code == INVALID_PARAMS
    assert "21 digits" in error.message
    assert "20" in error.message
    assert error.partial == {"id": "a", "n": [None, 7]}


def test_long_runs_of_digits_in_strings_and_fractions_are_no_integers() -> None:
    codec = StrictJson(Limits(json_integer_digits_max=5))
    assert codec.decode(b'{"a":"1234567890","b":0.1234567890,"c":12345}') == {
        "a": "1234567890",
        "b": 0.1234567890,
        "c": 12345,
    }


@pytest.fixture
def few_digits_in_the_interpreter() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("few_digits_in_the_interpreter")
def test_the_interpreters_own_digit_limit_never_surfaces() -> None:
    codec = StrictJson(Limits(json_integer_digits_max=900))
    error = refused(b'{"id":3,"n":' + b"9" * 700 + b"}", codec)
    assert error.code == INVALID_PARAMS
    assert error.partial == {"id": 3, "n": None}
    with pytest.raises(JsonError):
        codec.encode(10**700)


def test_an_interpreters_limit_below_a_generous_one_of_ours_is_a_clear_error() -> None:
    codec = StrictJson(Limits(json_integer_digits_max=100_000))
    assert refused(b"9" * 50_000, codec).code == INVALID_PARAMS


class Level(enum.StrEnum):
    HIGH = "high"


def test_string_enumerations_are_written_as_their_strings() -> None:
    assert CODEC.encode({"level": Level.HIGH}) == b'{"level":"high"}'


@pytest.mark.spec("B10")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "not JSON compliant"),
        ({"a": [math.inf]}, "not JSON compliant"),
        (-math.inf, "not JSON compliant"),
        ("\ud800", "surrogate"),
        ({"a": {"\udc00": 1}}, "surrogate"),
        (b"bytes", "bytes"),
        ({"a": {1, 2}}, "set"),
        ({1: "a"}, "str"),
        ({"a": [{None: 1}]}, "str"),
        ({"a": ({True: 1},)}, "str"),
        (object(), "object"),
    ],
)
def test_values_that_are_not_json_are_not_written(value: Any, said: str) -> None:
    with pytest.raises(JsonError, match=said) as caught:
        CODEC.encode(value)
    assert caught.value.code == INTERNAL_ERROR


def test_a_value_that_holds_itself_is_not_written() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(JsonError):
        CODEC.encode(loop)
