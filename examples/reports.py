"""An MCP server with an ordinary tool and one whose calls become tasks.

uv run mcp-tasks serve examples.reports:app
"""

from __future__ import annotations

from datetime import timedelta

import anyio

from mcp_tasks_trio import Application, ToolContext, ToolError

app = Application("reports", version="1.0", instructions="Writes reports. A report takes a few seconds.")


@app.tool()
def greet(name: str) -> str:
    """Greet somebody by name."""
    return f"Hello, {name}!"


@app.tool(task="always", ttl=timedelta(hours=1), poll_interval=timedelta(milliseconds=250))
async def generate_report(context: ToolContext, topic: str, pages: int = 3) -> str:
    """Write a report on a topic. Asks which quarter it is to cover."""
    await context.progress(0, total=pages, message="collecting sources")
    await anyio.sleep(0.6)
    quarter = {"type": "string", "title": "Quarter", "enum": ["Q1", "Q2", "Q3", "Q4"]}
    answer = await context.elicit("quarter", "Which quarter is the report to cover?", {"quarter": quarter})
    if answer.content is None:
        raise ToolError("There is no report without a quarter.")
    for page in range(1, pages + 1):
        await anyio.sleep(0.5)
        await context.progress(page, total=pages, message=f"wrote page {page} of {pages}")
    return f"Report on {topic}, {answer.content['quarter']}: {pages} pages."
