"""The fixture application, served by the command line in a process of its own on a free port of loopback."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FIXTURE: Final = "tests.conformance.fixture:app"
_URL: Final = re.compile(r"http://\S+")
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
    command = [sys.executable, "-m", "mcp_tasks_trio", "serve", FIXTURE, "--http", "127.0.0.1:0", "--backend", backend]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said: list[str] = []
    heard_url = threading.Event()

    def listen() -> None:
        # To the end, so that a server that says more never waits for somebody to read it.
        for line in process.stderr or ():
            said.append(line)
            if _URL.search(line):
                heard_url.set()
        heard_url.set()

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        heard_url.wait(_START_SECONDS)
        url = _URL.search("".join(said))
        if url is None:
            raise ServerNotServing(f"{' '.join(command)} did not say where it listens:\n{''.join(said)}")
        yield url[0].rstrip(".,;")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.join()
        process.stderr.close()
