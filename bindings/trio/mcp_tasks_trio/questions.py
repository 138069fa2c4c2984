"""The questions that a tool may ask of a client, as input requests, and how their answers are read.

Source: elicitation, Elicitation Requests; sampling, Creating Messages; roots, Listing Roots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import attrs
import msgspec

from mcp_tasks_core.capabilities import ELICITATION, ROOTS, SAMPLING
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.results import UnfitResult, json_object
from mcp_tasks_trio.signatures import schema_of

T = TypeVar("T")

_PRIMITIVES: Final = frozenset({"string", "number", "integer", "boolean", "array"})


@attrs.frozen
class ElicitationAnswer:
    """What a person said to a question.

    Args:
        action: ``accept``, ``decline``, or ``cancel`` where the person chose neither.
        content: the form as it was filled in; ``None`` unless a form was accepted.
        value: the content as the type that was asked for, where the question was asked with a type.
    """

    action: Literal["accept", "decline", "cancel"]
    content: JSONObject | None = None
    value: Any = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


@attrs.frozen
class Question(Generic[T]):
    """An input request, and how to read its answer."""

    request: JSONObject
    read: Callable[[JSONObject], T]


def form(message: str, schema: Mapping[str, Any] | type, required: Sequence[str] | None) -> Question[ElicitationAnswer]:
    """A form for a person to fill in.

    Args:
        schema: the properties by name; or a whole object schema; or an attrs class, dataclass or Struct.
        required: names of the properties that must be given; ``None`` for all that have no default.

    Raises:
        LocalProtocolError: the schema is not a flat object of plain values, or the message is not a text.
    """
    of_type = schema if isinstance(schema, type) else None
    wanted = _flat_schema_of(schema) if isinstance(schema, type) else _object_schema(schema, required)
    _check_flat(wanted)
    if of_type is not None and required is not None:
        raise LocalProtocolError("the type says what is required; leave `required` out")
    params = {"mode": "form", "message": _checked_text(message, "message"), "requestedSchema": _checked(wanted)}

    def read(answer: JSONObject) -> ElicitationAnswer:
        content = answer.get("content") if answer["action"] == "accept" else None
        value = msgspec.convert(content, of_type, strict=True) if of_type is not None and content is not None else None
        return ElicitationAnswer(answer["action"], content, value)

    return Question({"method": ELICITATION, "params": params}, read)


def visit(message: str, url: str) -> Question[ElicitationAnswer]:
    """A page for a person to open; what is done there does not pass through the client.

    Raises:
        LocalProtocolError: the message or the URL is not a text.
    """
    params = {"mode": "url", "message": _checked_text(message, "message"), "url": _checked_text(url, "url")}
    return Question({"method": ELICITATION, "params": params}, lambda answer: ElicitationAnswer(answer["action"]))


def sampling(
    messages: str | Sequence[Mapping[str, Any]],
    *,
    max_tokens: int,
    system_prompt: str | None,
    temperature: float | None,
    stop_sequences: Sequence[str] | None,
    model_preferences: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    tools: Sequence[Mapping[str, Any]] | None,
    tool_choice: Mapping[str, Any] | None,
) -> Question[JSONObject]:
    """A message for the client's model to write.

    Args:
        messages: a text from the user, or the messages raw.
        max_tokens: 1 or more.

    Raises:
        LocalProtocolError: a value is not of that form.
    """
    if type(max_tokens) is not int or max_tokens < 1:
        raise LocalProtocolError(f"max_tokens is an integer of 1 or more, not {max_tokens!r}")
    if isinstance(messages, str):
        messages = [{"role": "user", "content": {"type": "text", "text": messages}}]
    optional = {
        "systemPrompt": system_prompt,
        "temperature": temperature,
        "stopSequences": stop_sequences,
        "modelPreferences": model_preferences,
        "metadata": metadata,
        "tools": tools,
        "toolChoice": tool_choice,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    params = _checked({"messages": list(messages), "maxTokens": max_tokens, **given})
    return Question({"method": SAMPLING, "params": params}, lambda answer: answer)


def roots() -> Question[list[JSONObject]]:
    """The client's roots: directories and files that it lets servers know of."""
    return Question({"method": ROOTS}, lambda answer: list(answer["roots"]))


def _checked_text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise LocalProtocolError(f"{name} is a text of 1 character or more, not {value!r}")
    return value


def _checked(value: Mapping[str, Any]) -> JSONObject:
    try:
        return json_object(value)
    except UnfitResult as error:
        raise LocalProtocolError(f"a question has a JSON form: {error}") from None


def _object_schema(schema: Mapping[str, Any], required: Sequence[str] | None) -> JSONObject:
    if not isinstance(schema, Mapping):
        raise LocalProtocolError(f"a form's schema is a dict or a class, not {schema!r}")
    if schema.get("type") == "object":
        if required is not None:
            raise LocalProtocolError("the schema says what is required; leave `required` out")
        return dict(schema)
    if required is None:
        required = [name for name, part in schema.items() if isinstance(part, Mapping) and "default" not in part]
    unknown = [name for name in required if name not in schema]
    if unknown:
        raise LocalProtocolError(f"required names {unknown}, which the form does not have")
    return {"type": "object", "properties": dict(schema), "required": list(required)}


def _check_flat(schema: JSONObject) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise LocalProtocolError('a form\'s schema is {"type": "object", "properties": ...}')
    for name, part in properties.items():
        if not isinstance(part, Mapping) or part.get("type") not in _PRIMITIVES:
            raise LocalProtocolError(
                f"the form's property {name!r} is a string, number, integer, boolean or array of choices; not {part!r}"
            )


def _flat_schema_of(of_type: type) -> JSONObject:
    """The schema of a class within the subset that a form admits: references inlined, null taken out."""
    try:
        schema = schema_of(of_type)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise LocalProtocolError(f"{of_type.__name__} has no JSON Schema: {error}") from None
    definitions = schema.get("$defs", {})
    properties = {name: _flat(part, definitions) for name, part in schema.get("properties", {}).items()}
    return {"type": "object", "properties": properties, "required": schema.get("required", [])}


def _flat(part: JSONObject, definitions: JSONObject) -> JSONObject:
    if "$ref" in part:
        part = {**definitions[part["$ref"].removeprefix("#/$defs/")], **{k: v for k, v in part.items() if k != "$ref"}}
    choices = part.get("anyOf")
    if choices is not None:
        real = [choice for choice in choices if choice.get("type") != "null"]
        if len(real) == 1 and len(real) < len(choices):
            rest = {k: v for k, v in part.items() if k != "anyOf"}
            part = {**_flat(real[0], definitions), **rest}
    part = {k: v for k, v in part.items() if not (k == "default" and v is None)}
    if "type" not in part and all(isinstance(choice, str) for choice in part.get("enum", [0])):
        part = {"type": "string", **part}
    if isinstance(part.get("items"), dict):
        part["items"] = _flat(part["items"], definitions)
    return part
