"""Tools of the tasks extension."""

from __future__ import annotations

from typing import Final

import anyio

from mcp_tasks_trio import GateContext, ProtocolError, ToolContext, ToolError
from tests.conformance.fixture_app import app
from tests.conformance.fixture_rounds import NAME_FORM, elicitation

INTERNAL_ERROR: Final = -32603


@app.tool()
def greet(name: str) -> str:
    """Greet somebody; never a task."""
    return f"Hello, {name}!"


@app.tool(task="always")
async def slow_compute(seconds: float, label: str = "computation") -> str:
    """Compute for some seconds; a task where the client declares tasks."""
    await anyio.sleep(seconds)
    return f"{label} is done after {seconds} seconds."


@app.tool(task="required")
async def failing_job() -> str:
    """Fail as a tool after a second; a task or nothing."""
    await anyio.sleep(1)
    raise ToolError("The job failed, as it always does.")


@app.tool(task="always")
async def protocol_error_job() -> str:
    """Fail as a request after a moment: the task ends as failed."""
    await anyio.sleep(0.2)
    raise ProtocolError(INTERNAL_ERROR, "The job broke, as it always does.")


@app.tool(task="always")
async def confirm_delete(context: ToolContext, filename: str) -> str:
    """Delete a file that does not exist, once somebody has confirmed it."""
    answer = await context.elicit("confirm", f"Delete {filename}?", {"confirm": {"type": "boolean"}})
    if answer.content is None or not answer.content["confirm"]:
        return f"{filename} was kept."
    return f"{filename} was deleted."


@app.tool(task="always")
async def multi_input(context: ToolContext) -> str:
    """Ask two questions at once, each of which may be answered on its own."""
    form = {"name": {"type": "string"}, "confirm": {"type": "boolean"}}
    answers = await context.ask(
        {"first": elicitation("Who is the first?", **form), "second": elicitation("Who is the second?", **form)}
    )
    names = [(answer.get("content") or {}).get("name", "nobody") for answer in answers.values()]
    return f"The two are {names[0]} and {names[1]}."


async def ask_for_the_name(context: GateContext) -> None:
    """Before there is a task: a question that the call itself is answered with."""
    await context.elicit("user_name", "What is your name?", NAME_FORM)


@app.tool(task="required", gate=ask_for_the_name)
async def test_tool_with_task(context: ToolContext) -> str:
    """Greet, in a task, whoever said their name before the task was made."""
    answer = await context.elicit("user_name", "What is your name?", NAME_FORM)
    if answer.content is None:
        raise ToolError("Nobody is greeted without a name.")
    return f"Hello, {answer.content['name']}!"
