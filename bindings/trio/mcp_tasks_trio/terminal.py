"""Reads lines that a person types, without a thread: waiting for one can be cancelled at any time."""

from __future__ import annotations

import os
import sys

import anyio

_READ_BYTES = 4096


def person_is_here() -> bool:
    """Whether questions can be put to a person: what they see and what they type are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


class Terminal:
    """Lines of stdin, which is a terminal; prompts go to stderr."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._encoding = sys.stdin.encoding
        self._pending = bytearray()

    async def read_line(self, prompt: str) -> str | None:
        """Show a prompt and give the line that was typed, without its end; ``None`` for the end of the input."""
        while True:
            print(prompt, end="", file=sys.stderr, flush=True)
            line = await self._next_line()
            if line is None:
                print(file=sys.stderr)
                return None
            try:
                return line.decode(self._encoding)
            except UnicodeDecodeError:
                print(f"  That is no text in {self._encoding}. Type it again.", file=sys.stderr)

    async def _next_line(self) -> bytes | None:
        while b"\n" not in self._pending:
            await anyio.wait_readable(self._fd)
            data = os.read(self._fd, _READ_BYTES)
            if not data:
                self._pending.clear()
                return None
            self._pending += data
        line, _, rest = bytes(self._pending).partition(b"\n")
        self._pending = bytearray(rest)
        return line
