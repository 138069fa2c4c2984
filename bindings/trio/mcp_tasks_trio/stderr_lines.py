"""What a server writes on its stderr, line by line, marked as the server's."""

from __future__ import annotations

from collections import deque

from mcp_tasks_trio.display import Display, printable

_PREFIX = "server| "
_LINE_BYTES_MAX = 8 * 1024  # a longer line is shown in parts
_HIDDEN_LINES_MAX = 100  # kept by --quiet, in case something fails


class StderrLines:
    """Shows lines as they come, or keeps the last ones.

    Args:
        quiet: show them only when ``show_hidden`` is called.
    """

    def __init__(self, display: Display, *, quiet: bool) -> None:
        self._display = display
        self._quiet = quiet
        self._pending = bytearray()
        self._hidden: deque[str] = deque(maxlen=_HIDDEN_LINES_MAX)

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        self._pending += data
        *lines, rest = self._pending.split(b"\n")
        while len(rest) > _LINE_BYTES_MAX:
            lines.append(rest[:_LINE_BYTES_MAX])
            rest = rest[_LINE_BYTES_MAX:]
        self._pending = rest
        for line in lines:
            self._show(bytes(line))

    def finish(self) -> None:
        """Show what stands in a line that was not ended."""
        if self._pending:
            self._show(bytes(self._pending))
            self._pending.clear()

    def show_hidden(self) -> None:
        """Show what was kept back, because something failed."""
        while self._hidden:
            self._say(self._hidden.popleft())

    def _show(self, line: bytes) -> None:
        text = printable(line.decode("utf-8", "backslashreplace").removesuffix("\r"))
        if self._quiet:
            self._hidden.append(text)
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        self._display.say(_PREFIX + text, style="dim")
