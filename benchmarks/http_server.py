"""The server that load generators drive over HTTP: the tools that the peers' servers have.

    python -m benchmarks.http_server [--backend asyncio|trio] [--port 9601]

``work(text)`` is a task that answers "ok: " and the text, ``echo(text)`` the same as a plain tool, and
``sleeper(text)`` a task that never ends.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.stdio_server import app
from mcp_tasks_trio import run_http

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--port", type=int, default=9601)
    options = parser.parse_args()
    sys.exit(run_http(app, backend=options.backend, port=options.port))
