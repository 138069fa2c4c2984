"""The application that the processes serve: ``python race_app.py FILE BACKEND BUSY_WAIT_MS``."""

from __future__ import annotations

import sys
from datetime import timedelta

from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import Application, ToolContext, run_stdio

app = Application("races", version="1", default_poll_interval=timedelta(milliseconds=50))


@app.tool(task="always")
async def decide(context: ToolContext, number: int) -> str:
    """Ask for a word, and give it back."""
    answer = await context.elicit("word", "Which word?", {"word": {"type": "string"}})
    return f"{number} {(answer.content or {})['word']}"


@app.tool(task="always")
async def quick(number: int) -> str:
    """Give an answer that is there already."""
    return f"{number} quick"


def main() -> None:
    file, backend, busy_wait_ms = sys.argv[1:]
    with SqliteTaskStore(file, busy_wait_ms=int(busy_wait_ms), open_wait_ms=60_000) as store:
        sys.exit(run_stdio(app, backend=backend, store=store))


if __name__ == "__main__":
    main()
