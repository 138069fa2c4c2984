"""The server of ``benchmarks.subscriptions``: one task that many listen to, and a tool that changes it.

    python -m benchmarks.subscription_server [--backend asyncio|trio] [--port 9531]

``watched()`` is a task that never ends. ``publish(n)`` gives it n new states, one after the other; each is stored
before anybody hears of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import timedelta

import anyio

from mcp_tasks_core.limits import Limits
from mcp_tasks_trio import Application, ToolContext, run_http

# The least there is: every message becomes a state, and none waits to be joined with the next one.
_INTERVAL_MS = 1
# With this a notification is as long as that of a small result, which the bare limits send.
_FILLER = "a message as long as the result of a small tool call is, with everything that stands around such a result"

app = Application("bench", version="1", limits=Limits(progress_interval_ms=_INTERVAL_MS))
_watched: list[ToolContext] = []


@app.tool(task="always", ttl=timedelta(minutes=15), poll_interval=timedelta(seconds=1))
async def watched(context: ToolContext) -> str:
    """Never answer, and change when it is asked for."""
    _watched.append(context)
    await anyio.sleep_forever()
    return "unreachable"


@app.tool()
async def publish(context: ToolContext, n: int) -> str:
    """Give each watched task n new states."""
    for number in range(n):
        stored_at = time.monotonic()
        for task in _watched:
            await task.progress(number, message=f"{number:6} {_FILLER}")
        pause = stored_at + _INTERVAL_MS / 1000 - time.monotonic()
        await anyio.sleep(max(pause, 0))
    return "published"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--port", type=int, default=9531)
    options = parser.parse_args()
    sys.exit(run_http(app, backend=options.backend, port=options.port))
