"""A server of fastmcp and fastmcp-tasks with a tool of every kind that they have, for the doctor to examine.

    fastmcp_server.py stdio
    fastmcp_server.py http PORT

Run it where these packages are installed; nothing of this project is needed there.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Annotated, Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import Field

server = FastMCP("fastmcp-patient")
server.add_extension(TasksExtension())
optional = TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=200))
required = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=200))


@server.tool
async def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.tool(task=optional)
async def quick(text: str) -> str:
    """A task that completes at once."""
    return text


@server.tool(task=optional)
async def slow() -> str:
    """A task that works for a minute."""
    await asyncio.sleep(60)
    return ""


@server.tool(task=optional)
async def fail_as_tool() -> str:
    """A task whose tool fails."""
    raise ToolError("no paper left")


@server.tool(task=optional)
async def fail() -> str:
    """A task that fails as a request."""
    raise MCPError(7, "the printer is on fire")


@server.tool(task=required)
async def only_as_task() -> str:
    """A task or nothing."""
    return "done"


def question(name: str) -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=f"Which {name}?", requested_schema=schema))


@server.tool(task=optional)
async def ask(context: Context) -> str | InputRequiredResult:
    """A task that asks two questions at once, and then another one."""
    answers = context.input_responses or {}
    if context.request_state is None:
        asked = {"size": question("size"), "colour": question("colour")}
        return InputRequiredResult(input_requests=asked, request_state="first")
    if context.request_state == "first":
        return InputRequiredResult(input_requests={"place": question("place")}, request_state="second")
    return ", ".join(sorted(answers))


@server.tool
async def ask_inline(context: Context) -> str | InputRequiredResult:
    """An ordinary tool that asks."""
    if context.input_responses is None or "colour" not in context.input_responses:
        return InputRequiredResult(input_requests={"colour": question("colour")}, request_state="asked")
    return f"{context.input_responses['colour']}"


@server.tool
async def report(context: Context) -> str:
    """Report progress while the call waits."""
    await context.report_progress(1, 2)
    await context.report_progress(2, 2)
    return "done"


@server.tool
async def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """A tool with a parameter that a header repeats."""
    return region


if sys.argv[1] == "http":
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="WARNING")
else:
    server.run(transport="stdio", show_banner=False, log_level="WARNING")
