"""Puts a server's questions to the person at the terminal, and reads what they type as answers.

What a person types is judged where it is typed: field by field, by the same rule that judges whole answers.

Source: elicitation, Elicitation Requests; elicitation, Safe URL Handling.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import attrs

from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.capabilities import ELICITATION
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.wire.requested_schema import choices_of
from mcp_tasks_trio.display import printable

DECLINE: Final = ":decline"
CANCEL: Final = ":cancel"
EMPTY: Final = '""'
_CONTROLS: Final = f"{DECLINE} says no, {CANCEL} or Ctrl-D dismisses the question"
_YES: Final = frozenset({"y", "yes", "true"})
_NO: Final = frozenset({"n", "no", "false"})

ReadLine = Callable[[str], Awaitable["str | None"]]
"""Shows a prompt and gives the line that was typed, without its end; ``None`` where the input has ended."""


class Say(Protocol):
    def __call__(self, line: str, *, style: str = "") -> None:
        """Show one line to the person."""


class _Left(Exception):
    """The person declined or cancelled: what an answer says as its action."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


@attrs.frozen
class NotAnswerable:
    """A question that this program cannot put to a person, and why."""

    reason: str


async def ask_person(key: str, request: JSONObject, read_line: ReadLine, say: Say) -> JSONObject | NotAnswerable:
    """The person's answer to an input request, as it stands on the wire.

    Args:
        key: names the question, as ``--answer`` would.
    """
    method, params = request["method"], request.get("params", {})
    if method != ELICITATION:
        return NotAnswerable(f"{method} asks for something that a person does not type")
    say("")
    say(f"The server asks {printable(key)!r}: {printable(params['message'])}", style="bold")
    try:
        say(f"  ({_CONTROLS})", style="dim")
        if params.get("mode", "form") == "url":
            await _visit(params["url"], read_line, say)
            return {"action": "accept"}
        return {"action": "accept", "content": await _fill_in(params["requestedSchema"], read_line, say)}
    except _Left as left:
        return {"action": left.action}


async def _fill_in(schema: JSONObject, read_line: ReadLine, say: Say) -> JSONObject:
    required = frozenset(schema.get("required", ()))
    if not schema["properties"]:
        await _agree("Do you agree?", read_line, say)
    content: JSONObject = {}
    for name, field_schema in schema["properties"].items():
        field = Field(name=name, schema=field_schema, required=name in required)
        for line in field.explanation():
            say(f"  {line}", style="dim")
        while True:
            text = await read_line(f"  {field.prompt()}: ")
            value = field.read(_kept(text))
            if isinstance(value, Problem):
                say(f"  {value.text}", style="red")
                continue
            if value is not LeftOut.LEFT_OUT:
                content[name] = value
            break
    return content


async def _visit(url: str, read_line: ReadLine, say: Say) -> None:
    """Show the whole address and ask; nothing is opened or fetched, now or later."""
    say(f"  {printable(url)}", style="underline")
    say(f"  It leads to {printable(host_of(url))}. Nothing is opened for you: visit it yourself if you trust it.")
    await _agree("Do you agree to go there?", read_line, say)


async def _agree(question: str, read_line: ReadLine, say: Say) -> None:
    while True:
        word = _kept(await read_line(f"  {question} [yes/no]: ")).strip().lower()
        if word in _YES:
            return
        if word in _NO:
            raise _Left("decline")
        say("  Type yes or no.", style="red")


def host_of(url: str) -> str:
    """The host that a URL really leads to; in its ASCII form where it has other characters, which may deceive."""
    unreadable = "an address without a readable host"
    try:
        host = urlsplit(url).hostname
        if not host:
            return unreadable
        ascii_host = host.encode("idna").decode("ascii")
    except (UnicodeError, ValueError):
        return unreadable
    return host if ascii_host == host else f"{ascii_host} (written {host})"


def _kept(text: str | None) -> str:
    if text is None:
        raise _Left("cancel")
    word = text.strip().lower()
    if word in (DECLINE, CANCEL):
        raise _Left(word.removeprefix(":"))
    return text


@attrs.frozen
class Problem:
    """What is wrong with what was typed, and what is allowed."""

    text: str


class LeftOut(enum.Enum):
    """The field was left out, which it may be."""

    LEFT_OUT = enum.auto()


@attrs.frozen(kw_only=True)
class Field:
    """One property of a form, as a person fills it in.

    Args:
        schema: of the property, raw and well-formed.
    """

    name: str
    schema: JSONObject
    required: bool

    @property
    def label(self) -> str:
        return printable(self.schema.get("title") or self.name)

    @property
    def takes_many(self) -> bool:
        return bool(self.schema["type"] == "array")

    def explanation(self) -> list[str]:
        """What to know before filling it in: its description, and its choices with a number each."""
        lines = []
        if "description" in self.schema:
            lines.append(f"{self.label}: {printable(self.schema['description'])}")
        for number, (value, title) in enumerate(self._choices(), 1):
            shown = value if title == value else f"{value}, {title}"
            lines.append(f"  {number}. {printable(shown)}")
        return lines

    def prompt(self) -> str:
        facts = [self._kind(), *self._bounds()]
        if "default" in self.schema:
            return f"{self.label} ({', '.join(facts)}) [{printable(self._shown_default())}]"
        return f"{self.label} ({', '.join(facts)}, {'required' if self.required else 'may be left empty'})"

    def read(self, text: str) -> JSONValue | LeftOut | Problem:
        """The value that was typed."""
        text = text.strip()
        if not text and "default" not in self.schema:
            return self._missing() if self.required else LeftOut.LEFT_OUT
        value = _READERS[self.schema["type"]](self, text) if text else self.schema["default"]
        if isinstance(value, Problem):
            return value
        problem = self._problem_with(value)
        return value if problem is None else Problem(problem)

    def _missing(self) -> Problem:
        may_be_empty = self.schema["type"] == "string" and choices_of(self.schema) is None
        hint = f"; {EMPTY} stands for an empty text" if may_be_empty else ""
        return Problem(f"{self.label} is required{hint}")

    def _problem_with(self, value: JSONValue) -> str | None:
        schema = {"type": "object", "properties": {self.name: self.schema}}
        question = {"method": ELICITATION, "params": {"message": "", "requestedSchema": schema}}
        problem = check_answer(question, {"action": "accept", "content": {self.name: value}})
        return None if problem is None else printable(problem.removeprefix("content."))

    def _kind(self) -> str:
        if self.takes_many:
            return "choices, separated by commas"
        if choices_of(self.schema) is not None:
            return "one of these"
        kind: str = self.schema["type"]
        text_format: str = self.schema.get("format", "text")
        return {"string": text_format, "boolean": "yes or no"}.get(kind, kind)

    def _bounds(self) -> list[str]:
        unit = {"string": "characters", "array": "choices"}.get(self.schema["type"], "")
        least = self.schema.get("minLength", self.schema.get("minItems", self.schema.get("minimum")))
        most = self.schema.get("maxLength", self.schema.get("maxItems", self.schema.get("maximum")))
        bounds = (("at least", least), ("at most", most))
        return [f"{word} {bound} {unit}".rstrip() for word, bound in bounds if bound is not None]

    def _shown_default(self) -> str:
        default = self.schema["default"]
        if isinstance(default, bool):
            return "yes" if default else "no"
        return ", ".join(default) if isinstance(default, list) else str(default)

    def _choices(self) -> list[tuple[str, str]]:
        """Values with what they are called."""
        schema = self.schema["items"] if self.takes_many else self.schema
        titled = schema.get("oneOf", schema.get("anyOf"))
        if titled is not None and "enum" not in schema:
            return [(choice["const"], choice["title"]) for choice in titled]
        names = schema.get("enumNames", [])
        values = choices_of(self.schema) or []
        return [(value, names[index] if index < len(names) else value) for index, value in enumerate(values)]

    def choose(self, text: str) -> str:
        """The choice that was meant: by its value, its number or its title; the text itself where it is none."""
        choices = self._choices()
        if any(text == value for value, _ in choices):
            return text
        if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= len(choices):
            return choices[int(text) - 1][0]
        meant: list[str] = [value for value, title in choices if text.lower() in (value.lower(), title.lower())]
        return meant[0] if len(meant) == 1 else text


def _read_string(field: Field, text: str) -> JSONValue | Problem:
    if choices_of(field.schema) is not None:
        return field.choose(text)
    return "" if text == EMPTY else text


def _read_many(field: Field, text: str) -> JSONValue | Problem:
    return [field.choose(part.strip()) for part in text.split(",") if part.strip()]


def _read_number(field: Field, text: str) -> JSONValue | Problem:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        value = None
    if type(value) is int or (type(value) is float and field.schema["type"] == "number"):
        return value
    return Problem(f"{field.label} is {'an integer' if field.schema['type'] == 'integer' else 'a number'}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _read_boolean(field: Field, text: str) -> JSONValue | Problem:
    word = text.lower()
    if word not in _YES | _NO:
        return Problem(f"{field.label} is yes or no")
    return word in _YES


_READERS: Final[dict[str, Callable[[Field, str], JSONValue | Problem]]] = {
    "string": _read_string,
    "number": _read_number,
    "integer": _read_number,
    "boolean": _read_boolean,
    "array": _read_many,
}
