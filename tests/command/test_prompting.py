"""Questions as a person sees them, and what they type as answers; without a terminal."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from mcp_tasks_core.answers import check_answer
from mcp_tasks_trio.prompting import NotAnswerable, ask_person, host_of


class Person:
    """Types lines, one at each prompt; ends the input when there are no more."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.seen: list[str] = []

    async def read_line(self, prompt: str) -> str | None:
        self.seen.append(prompt)
        return self._lines.pop(0) if self._lines else None

    def say(self, line: str, *, style: str = "") -> None:
        self.seen.append(line)

    @property
    def screen(self) -> str:
        return "\n".join(self.seen)

    @property
    def has_typed_all(self) -> bool:
        return not self._lines


def ask(person: Person, request: dict[str, Any]) -> Any:
    async def run() -> Any:
        return await ask_person("key", request, person.read_line, person.say)

    return anyio.run(run)


def form(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return {"method": "elicitation/create", "params": {"message": "Say", "requestedSchema": schema}}


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, ["Ada"], "Ada"),
        ({"type": "string"}, ["  Ada  "], "Ada"),
        ({"type": "string"}, ["", '""'], ""),
        ({"type": "string"}, [":declined"], ":declined"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["a", "abcd", "abc"], "abc"),
        ({"type": "string", "format": "email"}, ["ada", "ada@example.com"], "ada@example.com"),
        ({"type": "string", "format": "date"}, ["tomorrow", "2026-07-28"], "2026-07-28"),
        ({"type": "string", "enum": ["red", "blue"]}, ["green", "blue"], "blue"),
        ({"type": "string", "enum": ["red", "blue"]}, ["2"], "blue"),
        ({"type": "string", "enum": ["red", "blue"]}, ["BLUE"], "blue"),
        ({"type": "string", "enum": ["2", "1"]}, ["1"], "1"),
        ({"type": "string", "enum": ["a", "A"]}, ["A"], "A"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}, ["red"], "r"),
        ({"type": "string", "enum": ["r"], "enumNames": ["Red"]}, ["Red"], "r"),
        ({"type": "string", "enum": ["red", "blue"], "default": "red"}, [""], "red"),
        ({"type": "integer"}, ["1.5", "one", "1e2", "5"], 5),
        ({"type": "integer", "minimum": 2, "maximum": 4}, ["1", "5", "3"], 3),
        ({"type": "integer", "default": 0}, [""], 0),
        ({"type": "integer", "minimum": 1, "default": 0}, ["", "2"], 2),
        ({"type": "integer"}, ["true", str(2**64)], 2**64),
        ({"type": "number"}, ["NaN", "Infinity", "1,5", "1.5"], 1.5),
        ({"type": "number"}, ["3"], 3),
        ({"type": "boolean"}, ["perhaps", "Yes"], True),
        ({"type": "boolean"}, ["n"], False),
        ({"type": "boolean", "default": False}, [""], False),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, ["a, d", "c,1"], ["c", "a"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}]}}, ["first"], ["a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, ["a", "a,b"], ["a", "b"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["b"]}, [""], ["b"]),
    ],
)
@pytest.mark.spec("P4")
def test_field_is_read_as_its_type_and_asked_again_until_it_fits(schema: Any, typed: list[str], value: Any) -> None:
    person, request = Person(*typed), form({"field": schema})
    answer = ask(person, request)
    assert answer == {"action": "accept", "content": {"field": value}}
    assert type(answer["content"]["field"]) is type(value)
    assert check_answer(request, answer) is None
    assert person.has_typed_all


def test_wrong_entry_is_told_what_is_allowed() -> None:
    person = Person("green", "red")
    ask(person, form({"colour": {"type": "string", "enum": ["red", "blue"]}}))
    assert 'colour: one of "red", "blue", not "green"' in person.screen


def test_required_field_cannot_be_left_out_and_any_other_can() -> None:
    person = Person("", "Ada", "")
    answer = ask(person, form({"name": {"type": "string"}, "note": {"type": "string"}}, ["name"]))
    assert answer == {"action": "accept", "content": {"name": "Ada"}}
    assert "name is required" in person.screen


def test_titles_descriptions_bounds_and_choices_are_shown() -> None:
    person = Person("1", "")
    choices = [{"const": "q1", "title": "First quarter"}]
    ask(
        person,
        form(
            {
                "quarter": {"type": "string", "title": "Quarter", "description": "of this year", "oneOf": choices},
                "pages": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
            }
        ),
    )
    for shown in (
        "'key': Say",
        "Quarter: of this year",
        "1. q1, First quarter",
        "Quarter (one of these, required): ",
        "pages (integer, at least 1, at most 9) [3]: ",
    ):
        assert shown in person.screen


@pytest.mark.parametrize(
    ("typed", "action"),
    [([":decline"], "decline"), ([" :Cancel "], "cancel"), (["Ada", ":decline"], "decline"), (["Ada"], "cancel")],
)
def test_person_may_decline_or_dismiss_at_any_field(typed: list[str], action: str) -> None:
    answer = ask(Person(*typed), form({"name": {"type": "string"}, "town": {"type": "string"}}))
    assert answer == {"action": action}


@pytest.mark.parametrize(("typed", "action"), [("yes", "accept"), ("no", "decline"), (":cancel", "cancel")])
def test_form_without_fields_is_a_matter_of_consent(typed: str, action: str) -> None:
    answer = ask(Person("hm", typed), form({}))
    assert answer == ({"action": "accept", "content": {}} if action == "accept" else {"action": action})


@pytest.mark.spec("P11")
@pytest.mark.parametrize(
    ("typed", "action"),
    [("yes", "accept"), ("Y", "accept"), ("no", "decline"), (":decline", "decline"), (":cancel", "cancel")],
)
def test_url_is_shown_whole_with_its_host_before_consent(typed: str, action: str) -> None:
    url = "https://user@example.com:8443/sign-in?next=https://evil.example"
    request = {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in", "url": url}}
    person = Person("", typed)
    assert ask(person, request) == {"action": action}
    assert person.seen.index(f"  {url}") < person.seen.index("  Do you agree to go there? [yes/no]: ")
    assert "It leads to example.com." in person.screen


@pytest.mark.spec("P11")
@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/", "example.com"),
        ("https://example.com@evil.example/", "evil.example"),
        ("https://EXAMPLE.com", "example.com"),
        ("https://ex\u0430mple.com/", "xn--exmple-4nf.com (written ex\u0430mple.com)"),
        ("https://[::1]/", "::1"),
        ("https://[broken/", "an address without a readable host"),
        ("https://" + "a" * 70 + ".com", "an address without a readable host"),
        ("mailto:ada@example.com", "an address without a readable host"),
    ],
)
def test_host_is_shown_as_what_it_really_is(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
def test_what_a_person_cannot_type_is_not_asked(method: str) -> None:
    person = Person("anything")
    answer = ask(person, {"method": method, "params": {}})
    assert isinstance(answer, NotAnswerable)
    assert method in answer.reason
    assert person.seen == []


def test_no_text_of_the_server_can_steer_the_terminal() -> None:
    nasty = "\x1b[2J\x07\u202enasty\r\x9b"
    schema = {"type": "string", "title": nasty, "description": nasty, "enum": [nasty], "default": nasty}
    request = form({nasty: schema})
    request["params"]["message"] = nasty
    person = Person("green", "1")
    assert ask(person, request)["content"] == {nasty: nasty}
    assert not set("\x1b\x07\u202e\r\x9b") & set(person.screen)
    assert "\\x1b[2J" in person.screen
