"""Tools that are answered at once: kinds of content, progress, log messages, schemas and header parameters."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final

import msgspec

from mcp_tasks_trio import ContentBlock, ToolContext, ToolError, audio, image, resource, text
from tests.conformance.fixture_app import app

# One red pixel, and a tenth of a millisecond of silence: the smallest files of their kinds.
PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
WAV: Final = (
    b"RIFF" + (37).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    + (1).to_bytes(2, "little") + (1).to_bytes(2, "little") + (8000).to_bytes(4, "little")
    + (8000).to_bytes(4, "little") + (1).to_bytes(2, "little") + (8).to_bytes(2, "little")
    + b"data" + (1).to_bytes(4, "little") + b"\x80"
)  # fmt: skip

ADDRESS: Final = {
    "$anchor": "address",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
    "required": ["city"],
}


@app.tool()
def test_simple_text() -> str:
    """Give a text."""
    return "This is a simple text for testing."


@app.tool()
def test_image_content() -> ContentBlock:
    """Give an image."""
    return image(PNG, "image/png")


@app.tool()
def test_audio_content() -> ContentBlock:
    """Give sound."""
    return audio(WAV, "audio/wav")


@app.tool()
def test_embedded_resource() -> ContentBlock:
    """Give a resource that is embedded in the result."""
    return resource("test://embedded-resource", text="This is an embedded resource.", mime_type="text/plain")


@app.tool()
def test_multiple_content_types() -> list[ContentBlock]:
    """Give a text, an image and a resource."""
    described = resource("test://mixed-content-resource", text='{"mixed": true}', mime_type="application/json")
    return [text("Three kinds of content:"), image(PNG, "image/png"), described]


@app.tool()
def test_error_handling() -> str:
    """Fail as a tool: with a result that says why."""
    raise ToolError("This tool always fails, so that failing can be tested.")


@app.tool()
async def test_tool_with_progress(context: ToolContext) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await context.progress(done, total=100, message=f"{done} of 100 done")
    return "All 100 are done."


@app.tool()
async def test_missing_capability(context: ToolContext) -> str:
    """Have the client's model write something; clients that did not declare sampling are told so."""
    written = await context.sample("written", "Write one word.", max_tokens=10)
    return str(written["content"])


@app.tool()
async def test_streaming_elicitation(context: ToolContext) -> str:
    """Ask a person something in the middle of a call."""
    answer = await context.elicit("color", "Which color do you like?", {"color": {"type": "string"}})
    return f"{answer.action}: {answer.content}"


@app.tool()
async def test_logging_tool(context: ToolContext) -> str:
    """Write log messages, which reach those alone who asked for them."""
    for level in ("debug", "info", "warning"):
        await context.log(level, f"a message of level {level}", logger="conformance")
    return "Three messages were logged."


@app.tool()
def test_trigger_tool_change() -> str:
    """Tell listeners that the list of tools has changed; it stays as it is."""
    app.tools_changed()
    return "Whoever listens was told of tools."


@app.tool()
async def test_trigger_prompt_change() -> str:
    """Tell listeners that the list of prompts has changed; it stays as it is."""
    app.prompts_changed()
    return "Whoever listens was told of prompts."


@app.tool("test_custom_headers")
def custom_headers(
    region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})],
    priority: Annotated[int, msgspec.Meta(extra_json_schema={"x-mcp-header": "Priority"})] = 0,
    urgent: Annotated[bool, msgspec.Meta(extra_json_schema={"x-mcp-header": "Urgent"})] = False,
    note: str = "",
) -> str:
    """Give back what came, three of it in headers of the request, too."""
    return f"region={region} priority={priority} urgent={urgent} note={note}"


@app.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": ADDRESS},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contact": {"enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "required": ["name"],
        "additionalProperties": False,
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contact": {"const": "phone"}}, "required": ["contact"]},
        "then": {"required": ["phone"]},
        "else": {"properties": {"phone": {"maxLength": 20}}},
    }
)
def json_schema_2020_12_tool(arguments: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments back, which conform to a schema with keywords of 2020-12."""
    return arguments
