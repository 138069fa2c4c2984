"""The client's end of a pipe to a server: bytes from its stdout to messages, messages to bytes for its stdin.

Servers print banners and logs where only messages may stand. Such lines are skipped and reported; too many of
them in a row end the connection with a reason that a person can act on.

Source: stdio, introduction (what may stand on stdout); stdio, Sending Messages.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.limits import Limits
from mcp_tasks_stdio.lines import Line, LineJoiner, LineSplitter, OverlongLine

# Lines without a message between two messages. 1,000: a chatty start is a few hundred lines, a log never stops.
JUNK_LINES_MAX: Final = 1_000

# Characters of a skipped line that are shown: one line of a log.
_EXCERPT_BYTES: Final = 120


class SkipReason(enum.Enum):
    """Why a line is no message."""

    NOT_AN_OBJECT = "it is not a JSON object"
    TOO_LONG = "it is longer than the limit"
    UNFINISHED = "the output ended inside it"


@attrs.frozen(slots=True)
class LineReceived:
    """A line that looks like a JSON object, its bytes as they were. Whether it is a message, the core tells."""

    payload: bytes


@attrs.frozen(slots=True)
class LineSkipped:
    """A line that is no message; the connection goes on.

    Args:
        excerpt: how it begins, for a log; what cannot be printed is escaped.
    """

    excerpt: str
    reason: SkipReason


@attrs.frozen(slots=True)
class TooMuchJunk:
    """The connection is over: the output holds something else than messages. Everything later is ignored.

    Args:
        lines: how many lines in a row were no messages.
        message: one sentence for people.
    """

    lines: int
    message: str


StdioClientEvent: TypeAlias = LineReceived | LineSkipped | TooMuchJunk


class StdioClientConnection:
    """Both directions of a client's pipe to its server. It does no I/O and looks at no more than a line's first byte.

    Args:
        limits: of which ``frame_bytes_max`` bounds a line, its line end not counted.
        junk_lines_max: lines in a row that may be skipped, 0 or more; one more is too many. Blank lines are no junk.
    """

    __slots__ = ("_given_up", "_junk_lines", "_junk_lines_max", "_lines", "_outgoing")

    def __init__(self, limits: Limits, junk_lines_max: int = JUNK_LINES_MAX) -> None:
        if type(junk_lines_max) is not int or junk_lines_max < 0:
            raise LocalProtocolError(f"junk_lines_max is an integer of 0 or more, not {junk_lines_max!r}")
        self._lines = LineSplitter(limits.frame_bytes_max)
        self._outgoing = LineJoiner()
        self._junk_lines_max = junk_lines_max
        self._junk_lines = 0
        self._given_up = False

    @property
    def bytes_pending(self) -> int:
        """Bytes that ``data_to_send`` would give."""
        return self._outgoing.bytes_pending

    def receive_data(self, data: bytes) -> Sequence[StdioClientEvent]:
        """Take bytes from the server's stdout, cut anywhere, and give an event for each line that they complete.

        Raises:
            LocalProtocolError: the end of the output was already received.
        """
        if self._given_up:
            return ()
        events: list[StdioClientEvent] = []
        for line in self._lines.receive_data(data):
            events.append(self._event_for(line))
            if self._junk_lines > self._junk_lines_max:
                self._given_up = True
                events.append(TooMuchJunk(self._junk_lines, self._complaint()))
                break
        return events

    def receive_eof(self) -> Sequence[StdioClientEvent]:
        """Take the end of the server's stdout. A line that was not ended is skipped: it may be half a message."""
        rest = self._lines.receive_eof()
        if rest is None or self._given_up:
            return ()
        return (LineSkipped(_excerpt(rest), SkipReason.UNFINISHED),)

    def send(self, parts: Sequence[bytes]) -> None:
        """Add one message, given in parts that follow one another, to what is to be sent.

        Raises:
            LocalProtocolError: it holds a newline, or is empty; nothing was added.
        """
        self._outgoing.send(parts)

    def data_to_send(self) -> bytes:
        """The bytes for the server's stdin that were added since the last call."""
        return self._outgoing.data_to_send()

    def _event_for(self, line: Line) -> StdioClientEvent:
        if isinstance(line, OverlongLine):
            self._junk_lines += 1
            return LineSkipped(_excerpt(line.beginning), SkipReason.TOO_LONG)
        # A message is an object, and an object begins with a brace; blanks may stand before it.
        if line.startswith(b"{") or line.lstrip(b" \t\r").startswith(b"{"):
            self._junk_lines = 0
            return LineReceived(line)
        self._junk_lines += 1
        return LineSkipped(_excerpt(line), SkipReason.NOT_AN_OBJECT)

    def _complaint(self) -> str:
        return (
            f"{self._junk_lines} lines in a row on the server's stdout are no messages, "
            f"and {self._junk_lines_max} are allowed: is the server writing logs to stdout?"
        )


def _excerpt(line: bytes) -> str:
    """How a line begins, safe to print: no control character of it reaches a terminal."""
    text = line[:_EXCERPT_BYTES].decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return shown + "…" if len(line) > _EXCERPT_BYTES else shown
