"""The application that the tests of this folder serve in a child process."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import anyio

from mcp_tasks_trio import Application, ProtocolError, ToolContext, ToolError, ToolResult

app = Application("sample", version="1.0", default_poll_interval=timedelta(milliseconds=100))
no_tasks = Application("ordinary", version="1.0")
a_number = 5

print("a module that prints while it is imported")


@app.tool()
@no_tasks.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    print("a tool that prints while it runs")
    return f"Hello, {name}!"


@app.tool(input_schema={"type": "object"})
def echo(arguments: dict[str, Any]) -> ToolResult:
    """Give the arguments back, once."""
    return ToolResult(["The arguments, as they came."], structured=arguments)


@app.tool()
def check_mark() -> str:
    """Give characters beyond ASCII."""
    return "✓ 🎉 é"


@app.tool()
def infinite() -> dict[str, float]:
    """Give a number that JSON does not have."""
    return {"value": math.inf}


@app.tool()
def refuse() -> str:
    """Fail as a tool."""
    raise ToolError("no paper left")


@app.tool()
def boom() -> str:
    """Fail as a request."""
    raise ProtocolError(7, "the printer is on fire", {"floor": 3})


@app.tool()
async def wait_for_ever() -> str:
    """Never answer."""
    await anyio.sleep_forever()
    raise AssertionError


@app.tool()
def sleep_in_a_thread() -> str:
    """Hold a worker thread for longer than any test waits."""
    time.sleep(3600)
    return ""


@app.tool(task="always")
async def work(message: str = "at it") -> str:
    """A task that works until it is cancelled."""
    await anyio.sleep_forever()
    return message


@app.tool(task="always")
async def say_and_work(context: ToolContext, message: str) -> str:
    """A task that says something and works until it is cancelled."""
    await context.status(message)
    await anyio.sleep_forever()
    return message


@app.tool(task="always")
def work_in_a_thread() -> str:
    """A task that holds a worker thread."""
    threading.Event().wait(3600)
    return ""


@app.tool(task="always")
async def finish(text: str = "done") -> str:
    """A task that completes at once."""
    return text


@app.tool(task="always")
async def fail() -> str:
    """A task that fails."""
    raise ProtocolError(7, "the printer is on fire")


@app.tool(task="always")
async def fail_as_tool() -> str:
    """A task whose tool fails."""
    raise ToolError("no paper left")


@app.tool(task="required")
async def only_as_task() -> str:
    """A task or nothing."""
    return "done"


@app.tool(task="always")
async def ask_two(context: ToolContext) -> str:
    """A task that asks two questions at once."""
    form = {"type": "object", "properties": {"value": {"type": "integer", "minimum": 1}}, "required": ["value"]}
    question = {"method": "elicitation/create", "params": {"message": "How many?", "requestedSchema": form}}
    answers = await context.ask({"first": question, "second": question})
    return f"{answers['first']['content']['value']} and {answers['second']['content']['value']}"


@app.tool()
async def ask_inline(context: ToolContext) -> str:
    """An ordinary tool that asks."""
    answer = await context.elicit("colour", "Which colour?", {"colour": {"type": "string", "enum": ["red", "blue"]}})
    return f"{answer.action}: {answer.content}"


@app.tool(task="always")
async def ask_form(context: ToolContext) -> str:
    """A task that asks for every kind of field."""
    fields = {
        "size": {"type": "integer", "title": "Size", "description": "how many pages", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number"},
        "draft": {"type": "boolean", "default": True},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2},
        "note": {"type": "string", "maxLength": 5},
    }
    answer = await context.elicit("form", "Fill in, please", fields, required=["size", "ratio"])
    return f"{answer.action}: {answer.content}"


@app.tool(task="always")
async def ask_to_visit(context: ToolContext) -> str:
    """A task that wants a page to be opened."""
    answer = await context.elicit_url("sign-in", "Sign in, please", "https://example.com/sign-in?for=tests")
    return answer.action


@app.tool(task="always")
async def ask_model(context: ToolContext) -> str:
    """A task that wants a model to write."""
    answer = await context.sample("summary", "Sum it up", max_tokens=10)
    return str(answer["content"]["text"])


@app.tool(task="always")
async def ask_roots(context: ToolContext) -> str:
    """A task that wants the client's directories."""
    return " ".join(root["uri"] for root in await context.list_roots())


@app.tool(title="Loud")
async def complain(context: ToolContext) -> str:
    """Log, and write to stderr."""
    print("\x1b[31mfrom the depths", file=sys.stderr)
    await context.log("warning", "the paper is low", logger="printer")
    await context.progress(1, total=2, message="half way")
    return "\x1b[31mred"


@app.tool(task="always")
async def die(context: ToolContext) -> str:
    """A task in the middle of which the server's process ends."""
    print("about to die", file=sys.stderr, flush=True)
    os._exit(3)
