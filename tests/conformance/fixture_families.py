"""Prompts, resources and completion: methods that the application serves itself."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from mcp_tasks_trio import MethodContext, ProtocolError, image, resource, text
from tests.conformance.fixture_app import app
from tests.conformance.fixture_content import PNG

INVALID_PARAMS: Final = -32602

Message = dict[str, Any]
Render = Callable[[Mapping[str, str], MethodContext], Awaitable[list[Message]]]


def said(content: Mapping[str, Any]) -> Message:
    return {"role": "user", "content": dict(content)}


@attrs.frozen(kw_only=True)
class Prompt:
    """A prompt of this fixture.

    Args:
        arguments: what it takes, all of it required, with a description each.
        values: known values of its arguments, for completion.
    """

    description: str
    render: Render
    arguments: Mapping[str, str] = attrs.field(factory=dict)
    values: Mapping[str, list[str]] = attrs.field(factory=dict)


async def simple(arguments: Mapping[str, str], context: MethodContext) -> list[Message]:
    return [said(text("This is a simple prompt for testing."))]


async def with_arguments(arguments: Mapping[str, str], context: MethodContext) -> list[Message]:
    return [said(text(f"Prompt with arguments: arg1={arguments['arg1']!r}, arg2={arguments['arg2']!r}"))]


async def with_resource(arguments: Mapping[str, str], context: MethodContext) -> list[Message]:
    embedded = resource(arguments["resourceUri"], text="An embedded resource for testing.", mime_type="text/plain")
    return [said(embedded), said(text("Please look at the embedded resource above."))]


async def with_image(arguments: Mapping[str, str], context: MethodContext) -> list[Message]:
    return [said(image(PNG, "image/png")), said(text("Please look at the image above."))]


async def with_question(arguments: Mapping[str, str], context: MethodContext) -> list[Message]:
    answer = await context.elicit("subject", "What is the prompt about?", {"context": {"type": "string"}})
    return [said(text(f"A prompt about {answer.content['context'] if answer.content else 'nothing in particular'}."))]


PROMPTS: Final[Mapping[str, Prompt]] = {
    "test_simple_prompt": Prompt(description="A prompt without arguments.", render=simple),
    "test_prompt_with_arguments": Prompt(
        description="A prompt that holds its two arguments.",
        render=with_arguments,
        arguments={"arg1": "The first argument.", "arg2": "The second argument."},
        values={"arg1": ["paris", "park", "testValue1"], "arg2": ["testValue2"]},
    ),
    "test_prompt_with_embedded_resource": Prompt(
        description="A prompt that embeds a resource.",
        render=with_resource,
        arguments={"resourceUri": "The URI of the resource."},
    ),
    "test_prompt_with_image": Prompt(description="A prompt that holds an image.", render=with_image),
    "test_input_required_result_prompt": Prompt(
        description="A prompt that asks for something before it can be given.", render=with_question
    ),
}

RESOURCES: Final[list[dict[str, Any]]] = [
    {"uri": "test://static-text", "name": "static-text", "mimeType": "text/plain", "description": "A text."},
    {"uri": "test://static-binary", "name": "static-binary", "mimeType": "image/png", "description": "An image."},
]
TEMPLATE: Final = {
    "uriTemplate": "test://template/{id}/data",
    "name": "template-data",
    "mimeType": "application/json",
    "description": "A document for every id.",
}
TEMPLATE_URI: Final = re.compile(r"test://template/([^/]+)/data")


def invalid(message: str, data: Any = None) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, message, data)


def string_in(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise invalid(f"{name} is a string")
    return value


@app.method("prompts/list")
async def list_prompts(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    return {"prompts": [_listed(name, prompt) for name, prompt in PROMPTS.items()]}


def _listed(name: str, prompt: Prompt) -> dict[str, Any]:
    arguments = [{"name": key, "description": what, "required": True} for key, what in prompt.arguments.items()]
    return {"name": name, "description": prompt.description, **({"arguments": arguments} if arguments else {})}


@app.method("prompts/get")
async def get_prompt(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    prompt = PROMPTS.get(string_in(params, "name"))
    if prompt is None:
        raise invalid(f"there is no prompt {params['name']!r}")
    given = params.get("arguments", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise invalid("arguments is an object of strings")
    missing = [name for name in prompt.arguments if name not in given]
    if missing:
        raise invalid(f"the prompt {params['name']} needs the arguments {', '.join(missing)}")
    return {"description": prompt.description, "messages": await prompt.render(given, context)}


@app.method("resources/list")
async def list_resources(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    return {"resources": RESOURCES}


@app.method("resources/templates/list")
async def list_templates(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    return {"resourceTemplates": [TEMPLATE]}


@app.method("resources/read")
async def read_resource(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    uri = string_in(params, "uri")
    if uri == "test://static-text":
        held = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
    elif uri == "test://static-binary":
        held = {"mimeType": "image/png", "blob": base64.b64encode(PNG).decode("ascii")}
    elif matched := TEMPLATE_URI.fullmatch(uri):
        held = {"mimeType": "application/json", "text": f'{{"id": "{matched[1]}"}}'}
    else:
        raise invalid("Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, **held}]}


@app.method("completion/complete")
async def complete(params: dict[str, Any], context: MethodContext) -> dict[str, Any]:
    reference, argument = params.get("ref"), params.get("argument")
    if not isinstance(reference, dict) or not isinstance(argument, dict):
        raise invalid("ref and argument are objects")
    name, begun = string_in(argument, "name"), string_in(argument, "value")
    values: list[str] = []
    if reference.get("type") == "ref/prompt":
        prompt = PROMPTS.get(string_in(reference, "name"))
        if prompt is None:
            raise invalid(f"there is no prompt {reference['name']!r}")
        values = [value for value in prompt.values.get(name, []) if value.startswith(begun)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}
