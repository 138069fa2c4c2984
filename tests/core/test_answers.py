"""Answers are judged by the question that they answer."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.wire.inputs import check_input_request


def form(*required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    asked = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}
    assert check_input_request(asked) is None
    return asked


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


URL = {"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://a.example/"}}
SAMPLING = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
ROOTS = {"method": "roots/list"}
NAME = form("name", name={"type": "string"})
CHOICE = {"type": "string", "enum": ["red", "blue"]}
TITLED = {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]}
MANY = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2}
MANY_TITLED = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}}


@pytest.mark.spec("U5", "D7")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (NAME, accept(name="Ada")),
        (NAME, {**accept(name=""), "more": 1, "_meta": {}}),
        (form(), accept()),
        (form(a=CHOICE), accept()),
        (form(a={"type": "integer", "minimum": 1, "maximum": 5}), accept(a=1)),
        (form(a={"type": "integer"}), accept(a=10**400)),
        (form(a={"type": "number", "minimum": 1, "maximum": 5}), accept(a=1.5)),
        (form(a={"type": "number"}), accept(a=1)),
        (form(a={"type": "boolean"}), accept(a=False)),
        (form(a=CHOICE), accept(a="blue")),
        (form(a=TITLED), accept(a="#00f")),
        (form(a=MANY), accept(a=["c", "a"])),
        (form(a=MANY_TITLED), accept(a=[])),
        (form(a={"type": "string", "minLength": 2, "maxLength": 2}), accept(a="😀é")),
        (URL, {"action": "accept"}),
        (URL, accept(anything=1)),
        (SAMPLING, {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}, "stopReason": "any"}),
        (SAMPLING, {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "x"}, {"type": "new"}]}),
        (ROOTS, {"roots": []}),
        (ROOTS, {"roots": [{"uri": "file:///a%20b", "name": "n", "more": 1}], "more": 1}),
    ],
)
def test_fitting_answers_are_accepted(asked: dict[str, Any], answer: Any) -> None:
    assert check_answer(asked, answer) is None


@pytest.mark.spec("D7")
@pytest.mark.parametrize("asked", [NAME, URL])
@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("content", [{}, {"content": {"name": 5}}, {"content": None}, {"content": [1]}])
def test_a_declined_or_cancelled_form_is_not_looked_into(
    asked: dict[str, Any], action: str, content: dict[str, Any]
) -> None:
    assert check_answer(asked, {"action": action, **content}) is None


@pytest.mark.spec("U5", "D7", "D13")
@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        (NAME, None, "the answer: an object, not null"),
        (NAME, [], "the answer: an object, not an array"),
        (NAME, 1, "the answer: an object, not 1"),
        (NAME, {}, "the answer.action: this member is required, and it is missing"),
        (NAME, {"action": "yes"}, 'the answer.action: one of "accept", "decline", "cancel", not "yes"'),
        (NAME, {"action": ["cancel"]}, "the answer.action: one of"),
        (NAME, {"action": "accept"}, "content: an accepted form has its content as an object"),
        (NAME, {"action": "accept", "content": None}, "the answer.content: an object, not null"),
        (NAME, {"action": "accept", "content": []}, "the answer.content: an object, not an array"),
        (NAME, accept(), "content.name: this property is required, and it is missing"),
        (NAME, accept(name=None), "content.name: a string, not null"),
        (NAME, accept(name=5), "content.name: a string, not 5"),
        (NAME, accept(name="a", input="b"), 'content: "input" was not asked for; the properties are "name"'),
        (form(), accept(a=1), 'content: "a" was not asked for; the properties are none'),
        (form(a={"type": "integer"}), accept(a=1.0), "content.a: an integer, not 1.0"),
        (form(a={"type": "integer"}), accept(a=True), "content.a: an integer, not true"),
        (form(a={"type": "integer"}), accept(a="1"), 'content.a: an integer, not "1"'),
        (form(a={"type": "number"}), accept(a=False), "content.a: a number, not false"),
        (form(a={"type": "number", "minimum": 1.5}), accept(a=1), "content.a: at least 1.5, not 1"),
        (form(a={"type": "number", "maximum": 2}), accept(a=2.5), "content.a: at most 2, not 2.5"),
        (form(a={"type": "boolean"}), accept(a=1), "content.a: true or false, not 1"),
        (form(a={"type": "boolean"}), accept(a="true"), 'content.a: true or false, not "true"'),
        (form(a=CHOICE), accept(a="green"), 'content.a: one of "red", "blue", not "green"'),
        (form(a=TITLED), accept(a="Red"), 'content.a: one of "#f00", "#00f", not "Red"'),
        (form(a=MANY), accept(a="a"), 'content.a: an array of strings, not "a"'),
        (form(a=MANY), accept(a=[]), "content.a: at least 1 items, not 0"),
        (form(a=MANY), accept(a=["a", "b", "c"]), "content.a: at most 2 items, not 3"),
        (form(a=MANY), accept(a=["a", 5]), "content.a[1]: a string, not 5"),
        (form(a=MANY), accept(a=["d"]), 'content.a[0]: one of "a", "b", "c", not "d"'),
        (form(a=MANY_TITLED), accept(a=["A"]), 'content.a[0]: one of "a", "b", not "A"'),
        (form(a={"type": "string", "minLength": 2}), accept(a="x"), "content.a: at least 2 characters, not 1"),
        (form(a={"type": "string", "maxLength": 1}), accept(a="xy"), "content.a: at most 1 characters, not 2"),
        (form(a={"type": "string", "format": "email"}), accept(a="ada"), "content.a: a string in email format"),
        (URL, {"action": "accepted"}, "the answer.action: one of"),
        (URL, [], "the answer: an object, not an array"),
        (SAMPLING, {"role": "assistant", "model": "m"}, "the answer.content: this member is required"),
        (SAMPLING, {"role": "robot", "model": "m", "content": []}, "the answer.role: one of"),
        (SAMPLING, {"role": "user", "content": []}, "the answer.model: this member is required"),
        (SAMPLING, {"role": "user", "model": "m", "content": "x"}, "the answer.content: a content block is an object"),
        (SAMPLING, {"role": "user", "model": "m", "content": {"type": "text"}}, "the answer.content.text: a string"),
        (SAMPLING, accept(), "the answer.role: this member is required"),
        (ROOTS, {}, "the answer.roots: this member is required"),
        (ROOTS, {"roots": {}}, "the answer.roots: an array, not an object"),
        (ROOTS, {"roots": [{}]}, "the answer.roots[0].uri: this member is required"),
        (ROOTS, {"roots": [{"uri": "home"}]}, 'the answer.roots[0].uri: an absolute URL, not "home"'),
        ({"method": "tools/call", "params": {}}, {}, 'there is no answer to "tools/call"'),
    ],
)
def test_other_answers_are_refused_with_what_is_allowed(asked: dict[str, Any], answer: Any, said: str) -> None:
    problem = check_answer(asked, answer)
    assert problem is not None
    assert problem.startswith(said)


FORMATS = {
    "email": (
        ["ada@example.com", "a.b+c@sub.example.co", "ü@exämple.de", "a@localhost"],
        ["", "ada", "@example.com", "ada@", "a b@c.d", "a@b@c", "a@b..c", "a@.b", "a@b.", "a" * 65 + "@b.c", "a\n@b.c"],
    ),
    "uri": (
        ["https://example.com", "http://[::1]:80/x?y=1#z", "file:///a/b", "urn:isbn:1", "mailto:a@b.c", "x:y"],
        ["", "example.com", "/path", "http:", "https://", "http:example.com", "https:///x", "ht tp://x", "http://a b"],
    ),
    "date": (
        ["2026-07-28", "2024-02-29", "0001-01-01"],
        [
            "",
            "2026-7-28",
            "2026-02-29",
            "2026-13-01",
            "28.07.2026",
            "2026-07-28T00:00:00Z",
            "2026-07-28\n",
            "٢٠٢٦-07-28",
        ],
    ),
    "date-time": (
        ["2026-07-28T10:00:00Z", "2026-07-28T10:00:00.5+02:00"],
        ["", "2026-07-28", "2026-07-28T10:00", "2026-07-28T25:00:00Z", "now"],
    ),
}


@pytest.mark.spec("D7")
@pytest.mark.parametrize(
    ("name", "text", "fits"),
    [(name, text, fits) for name, lists in FORMATS.items() for fits in (True, False) for text in lists[not fits]],
)
def test_formats_are_checked(name: str, text: str, fits: bool) -> None:
    problem = check_answer(form(a={"type": "string", "format": name}), accept(a=text))
    assert (problem is None) is fits


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", ["a" * 200_000, "a." * 100_000, "@" * 100_000, "a@" + "a." * 100_000, "0" * 100_000])
def test_hostile_texts_do_not_make_format_checks_slow(name: str, text: str) -> None:
    check_answer(form(a={"type": "string", "format": name}), accept(a=text))
