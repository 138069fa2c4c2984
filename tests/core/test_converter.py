"""The converter never coerces, and names the place of a fault as it stands on the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import attrs
import pytest

from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.wire.converter import ABSENT, NULL_IS_ABSENT, Absent, DecodeError, decode, encode, shown, wire_name


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


def _even(value: int) -> None:
    if value % 2:
        raise DecodeError("", f"an even integer, not {value}")


@attrs.frozen(kw_only=True)
class Inner:
    deep_name: str
    deep_count: int | None = None


@attrs.frozen(kw_only=True)
class Outer:
    text: str
    whole: int
    real: float
    yes: bool
    colour: Colour
    kind: Literal["a", "b"]
    either: str | int
    nullable: int | None
    raw: JSONObject
    items: list[Any]
    objects: list[JSONObject]
    by_key: Mapping[InputKey, JSONObject]
    task_ids: tuple[TaskId, ...]
    inners: tuple[Inner, ...]
    inner: Inner
    anything: Any
    even: Annotated[int, _even]
    optional_text: str | None = None
    optional_inner: Inner | None = None
    forgiving: str | None = attrs.field(default=None, metadata=NULL_IS_ABSENT)
    open_value: Any | Absent = ABSENT
    meta: JSONObject | None = None


WIRE: dict[str, Any] = {
    "text": "t",
    "whole": 5,
    "real": 5.5,
    "yes": True,
    "colour": "red",
    "kind": "a",
    "either": "x",
    "nullable": None,
    "raw": {"any": [1]},
    "items": [1, "a", None],
    "objects": [{}],
    "byKey": {"k": {"method": "m"}},
    "taskIds": ["t1"],
    "inners": [{"deepName": "n"}],
    "inner": {"deepName": "m", "deepCount": 3},
    "anything": None,
    "even": 4,
}


def fault(path_and_value: dict[str, Any]) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(Outer, {**WIRE, **path_and_value})
    return str(caught.value)


def test_what_is_read_is_written_equal() -> None:
    assert encode(decode(Outer, WIRE)) == WIRE
    whole = {
        **WIRE,
        "optionalText": "",
        "optionalInner": {"deepName": ""},
        "forgiving": "f",
        "openValue": None,
        "_meta": {"m": 1},
        "either": 7,
        "nullable": 7,
    }
    assert encode(decode(Outer, whole)) == whole


def test_values_have_the_types_that_the_class_says() -> None:
    value = decode(Outer, WIRE)
    assert value.colour is Colour.RED
    assert value.inners == (Inner(deep_name="n"),)
    assert value.task_ids == ("t1",)
    assert value.open_value is ABSENT
    assert type(encode(value)["colour"]) is str


def test_free_form_members_pass_by_identity() -> None:
    value = decode(Outer, {**WIRE, "_meta": {"m": 1}, "openValue": {"o": 1}})
    assert value.raw is WIRE["raw"]
    assert value.items is WIRE["items"]
    assert value.objects is WIRE["objects"]
    assert value.by_key is WIRE["byKey"]
    wire = encode(value)
    assert wire["raw"] is value.raw
    assert wire["items"] is value.items
    assert wire["byKey"] is value.by_key
    assert wire["_meta"] is value.meta
    assert wire["openValue"] is value.open_value


def test_integers_are_numbers_and_stay_integers() -> None:
    value = decode(Outer, {**WIRE, "real": 5})
    assert type(value.real) is int


def test_unknown_members_are_accepted() -> None:
    assert decode(Outer, {**WIRE, "unknown": object}) == decode(Outer, WIRE)


def test_null_is_absent_only_where_that_is_said() -> None:
    assert decode(Outer, {**WIRE, "forgiving": None}).forgiving is None
    assert decode(Outer, {**WIRE, "openValue": None}).open_value is None


@pytest.mark.spec("D12", "D13")
@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("text", None, "params.text: a string, not null"),
        ("text", 5, "params.text: a string, not 5"),
        ("whole", 5.9, "params.whole: an integer, not 5.9"),
        ("whole", 5.0, "params.whole: an integer, not 5.0"),
        ("whole", True, "params.whole: an integer, not true"),
        ("whole", "5", 'params.whole: an integer, not "5"'),
        ("real", True, "params.real: a number, not true"),
        ("real", "1", 'params.real: a number, not "1"'),
        ("yes", "no", 'params.yes: true or false, not "no"'),
        ("yes", 1, "params.yes: true or false, not 1"),
        ("yes", None, "params.yes: true or false, not null"),
        ("colour", "green", 'params.colour: one of "red", "blue", not "green"'),
        ("colour", ["red"], 'params.colour: one of "red", "blue", not an array'),
        ("kind", "c", 'params.kind: one of "a", "b", not "c"'),
        ("either", True, "params.either: a string or an integer, not true"),
        ("either", 1.0, "params.either: a string or an integer, not 1.0"),
        ("either", None, "params.either: a string or an integer, not null"),
        ("nullable", 1.0, "params.nullable: an integer or null, not 1.0"),
        ("nullable", False, "params.nullable: an integer or null, not false"),
        ("raw", [], "params.raw: an object, not an array"),
        ("raw", None, "params.raw: an object, not null"),
        ("items", "abc", 'params.items: an array, not "abc"'),
        ("items", {}, "params.items: an array, not an object"),
        ("objects", [{}, 5], "params.objects[1]: an object, not 5"),
        ("byKey", [], "params.byKey: an object, not an array"),
        ("byKey", {"k": 1}, "params.byKey.k: an object, not 1"),
        ("taskIds", "abc", 'params.taskIds: an array, not "abc"'),
        ("taskIds", ["a", 5], "params.taskIds[1]: a string, not 5"),
        ("inner", [], "params.inner: an object, not an array"),
        ("inner", {}, "params.inner.deepName: this member is required, and it is missing"),
        ("inner", {"deepName": 1}, "params.inner.deepName: a string, not 1"),
        ("inners", [{"deepName": "a"}, {"deepName": 1}], "params.inners[1].deepName: a string, not 1"),
        ("inners", [5], "params.inners[0]: an object, not 5"),
        ("even", 3, "params.even: an even integer, not 3"),
        ("even", 4.0, "params.even: an integer, not 4.0"),
        ("optionalText", None, "params.optionalText: a string, not null"),
        ("optionalInner", None, "params.optionalInner: an object, not null"),
        ("optionalInner", {"deepName": "a", "deepCount": None}, "params.optionalInner.deepCount: an integer, not null"),
        ("forgiving", 5, "params.forgiving: a string or null, not 5"),
        ("_meta", None, "params._meta: an object, not null"),
    ],
)
def test_nothing_is_coerced_and_the_place_is_named(member: str, value: Any, said: str) -> None:
    assert fault({member: value}) == said


@pytest.mark.parametrize("member", list(WIRE))
def test_required_members_are_required(member: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Outer, {name: value for name, value in WIRE.items() if name != member})
    assert str(caught.value) == f"params.{member}: this member is required, and it is missing"


@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_a_class_is_read_from_an_object_alone(value: Any) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Outer, value, "result")
    assert caught.value.path == "result"
    assert caught.value.message.startswith("an object, not ")


@attrs.frozen
class Loose:
    numbers: list[int]


def test_a_class_that_cattrs_would_coerce_for_cannot_be_read_at_all() -> None:
    with pytest.raises(TypeError, match="no strict hook"):
        decode(Loose, {"numbers": "123"})


def test_names_that_a_peer_chose_do_not_make_an_error_long() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Outer, {**WIRE, "byKey": {"k" * 1_000_000: 1}})
    assert len(str(caught.value)) < 300
    assert str(caught.value).startswith("params.byKey.kkk")


def test_names_on_the_wire_are_in_camel_case() -> None:
    assert wire_name("last_updated_at") == "lastUpdatedAt"
    assert wire_name("task_id") == "taskId"
    assert wire_name("name") == "name"
    assert wire_name("meta") == "_meta"


def test_what_a_peer_sent_is_shown_short() -> None:
    assert len(shown("x" * 10_000)) == 60
    assert shown({"a": 1}) == "an object"
    assert shown(b"x") == "a bytes"
