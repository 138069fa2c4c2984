"""The fixture application, served in a process of its own on a free port of loopback.

python -m tests.conformance.serving asyncio
python -m tests.conformance.serving trio tasks.db
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
def serving_fixture(backend: str = "asyncio", store: Path | None = None) -> Iterator[str]:
    """The URL of a server that serves the fixture while the block runs.

    Args:
        store: an SQLite file for its tasks; ``None`` to keep them in memory.

    Raises:
        ServerNotServing: it ended, or was silent for too long.
    """
    command = [sys.executable, "-m", "tests.conformance.serving", backend, *([] if store is None else [str(store)])]
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


def main(backend: str, store: str | None = None) -> int:
    from mcp_tasks_sqlite import SqliteTaskStore
    from mcp_tasks_trio import HttpListener, run_http
    from tests.conformance.fixture import app

    def started(listener: HttpListener) -> None:
        print(listener.url, flush=True)

    kept = None if store is None else SqliteTaskStore(store)
    return run_http(app, backend=backend, port=0, store=kept, started=started)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
