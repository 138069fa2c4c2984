"""An application with a tool of every kind that the doctor knows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio

from mcp_tasks_trio import Application, ProtocolError, ToolContext, ToolError

app = Application("patient", version="1.0", default_poll_interval=timedelta(milliseconds=100))


@app.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@app.tool(output_schema={"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]})
def add(one: int, two: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": one + two}


@app.tool(task="always")
async def quick(text: str = "done") -> str:
    """A task that completes at once."""
    return text


@app.tool(task="always")
async def slow() -> str:
    """A task that works for an hour."""
    await anyio.sleep(3600)
    return ""


@app.tool(task="always")
async def ask(context: ToolContext) -> str:
    """A task that asks two questions at once, and then another one."""
    form = {"type": "object", "properties": {"value": {"type": "integer", "minimum": 1}}, "required": ["value"]}
    question = {"method": "elicitation/create", "params": {"message": "How many?", "requestedSchema": form}}
    answers = await context.ask({"first": question, "second": question})
    last = await context.elicit("third", "Which colour?", {"colour": {"type": "string", "enum": ["red", "blue"]}})
    return f"{answers['first']['action']}, {answers['second']['action']}, {last.action}"


@app.tool(task="always")
async def fail() -> str:
    """A task that fails as a request."""
    raise ProtocolError(7, "the printer is on fire")


@app.tool(task="always")
async def fail_as_tool() -> str:
    """A task whose tool fails."""
    raise ToolError("no paper left")


@app.tool(task="required")
async def only_as_task() -> str:
    """A task or nothing."""
    return "done"


@app.tool()
async def ask_inline(context: ToolContext) -> str:
    """An ordinary tool that asks."""
    answer = await context.elicit("colour", "Which colour?", {"colour": {"type": "string", "enum": ["red", "blue"]}})
    return f"{answer.action}: {answer.content}"


@app.tool()
async def ask_inline_too(context: ToolContext) -> str:
    """Another ordinary tool that asks."""
    answer = await context.elicit("size", "Which size?", {"size": {"type": "integer"}})
    return f"{answer.action}: {answer.content}"


@app.tool()
async def report(context: ToolContext) -> str:
    """Report progress while the call waits."""
    await context.progress(1, total=2)
    await context.progress(2, total=2)
    return "done"


@app.tool(
    input_schema={
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    }
)
def route(arguments: dict[str, Any]) -> str:
    """A tool with a parameter that a header repeats."""
    return str(arguments["region"])
