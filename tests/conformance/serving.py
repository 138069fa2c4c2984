"""The fixture application, served in a process of its own on a free port of loopback.

python -m tests.conformance.serving asyncio
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 30
_STOP_SECONDS: Final = 15


class ServerNotServing(Exception):
    """The server's process did not come so far as to say where it listens."""


@contextmanager
def serving_fixture(backend: str = "asyncio") -> Iterator[str]:
    """The URL of a server that serves the fixture while the block runs.

    Raises:
        ServerNotServing: it ended, or was silent for too long.
    """
    command = [sys.executable, "-m", "tests.conformance.serving", backend]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        overdue = threading.Timer(_START_SECONDS, process.kill)
        overdue.start()
        try:
            url = process.stdout.readline().strip()
            overdue.cancel()
            if not url:
                raise ServerNotServing(f"{' '.join(command)} did not say where it listens")
            yield url
        finally:
            overdue.cancel()
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def main(backend: str) -> int:
    from mcp_tasks_trio import HttpListener, run_http
    from tests.conformance.fixture import app

    def started(listener: HttpListener) -> None:
        print(listener.url, flush=True)

    return run_http(app, backend=backend, port=0, started=started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
