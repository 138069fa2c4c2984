"""The server that load generators drive over stdio: the tools that the peers' servers have.

    python -m benchmarks.stdio_server [--backend asyncio|trio]

``work(text)`` is a task that answers "ok: " and the text, ``echo(text)`` the same as a plain tool, and
``sleeper(text)`` a task that never ends.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta

import anyio

from mcp_tasks_trio import Application, run_stdio

app = Application("bench", version="1")


@app.tool()
async def echo(text: str) -> str:
    """Answer at once."""
    return "ok: " + text


@app.tool(task="always", ttl=timedelta(minutes=15), poll_interval=timedelta(seconds=1))
async def work(text: str) -> str:
    """Answer as a task."""
    return "ok: " + text


@app.tool(task="always", ttl=timedelta(minutes=15), poll_interval=timedelta(seconds=1))
async def sleeper(text: str) -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return "ok: " + text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    sys.exit(run_stdio(app, backend=parser.parse_args().backend))
