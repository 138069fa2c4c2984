"""Bytes to lines and back: one message a line, bounded, whatever way the bytes were cut.

Source: stdio, introduction (messages are delimited by newlines and hold none).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError

OVERLONG_BEGINNING_BYTES: Final = 200
"""How much of an overlong line is kept, so that a log can show which one it was."""


@attrs.frozen(slots=True)
class OverlongLine:
    """A line over the limit, which was not kept. ``beginning`` holds its first bytes."""

    beginning: bytes = attrs.field(converter=bytes)


Line: TypeAlias = bytes | OverlongLine


class LineSplitter:
    """Cuts a byte stream into lines at LF, and only there. Lines of blanks alone are left out.

    A CR before the LF belongs to the line's end. Nothing is decoded, so a character may be cut anywhere and
    U+2028 and its like end no line. An overlong line is reported once, as soon as it is known to be one, and
    skipped to its end without being kept. Which lines come out does not depend on how the bytes were cut.

    Args:
        line_bytes_max: bytes of one line without its line end, 1 or more.
    """

    __slots__ = ("_beginning_bytes", "_ended", "_line_bytes_max", "_pending", "_skipping")

    def __init__(self, line_bytes_max: int) -> None:
        if type(line_bytes_max) is not int or line_bytes_max < 1:
            raise LocalProtocolError(f"line_bytes_max is an integer of 1 or more, not {line_bytes_max!r}")
        self._line_bytes_max = line_bytes_max
        # Never more than the limit: so much has been seen of any overlong line when it is found to be one.
        self._beginning_bytes = min(OVERLONG_BEGINNING_BYTES, line_bytes_max)
        self._pending = bytearray()
        self._skipping = False
        self._ended = False

    @property
    def line_bytes_max(self) -> int:
        return self._line_bytes_max

    def receive_data(self, data: bytes) -> list[Line]:
        """Take the next bytes, in order, and give the lines that they complete.

        Raises:
            LocalProtocolError: the end of the input was already received.
        """
        if self._ended:
            raise LocalProtocolError("no data can follow the end of the input")
        pieces = bytes(data).split(b"\n")
        rest = pieces.pop()
        lines: list[Line] = []
        if pieces:
            self._complete_pending(pieces, lines)
            self._append_whole(pieces, lines)
        if not self._skipping:
            self._keep(rest, lines)
        return lines

    def receive_eof(self) -> bytes | None:
        """Take the end of the input, and give what came of a line that was never ended, if there is anything.

        What is given may be half a message. Blanks alone, and a line that was reported as overlong, give ``None``.
        """
        self._ended = True
        rest = bytes(self._pending)
        self._pending = bytearray()
        return None if not rest or rest.isspace() else rest

    def _complete_pending(self, pieces: list[bytes], lines: list[Line]) -> None:
        """Make the first piece a whole line, with what was kept of it; take it away if the line was skipped."""
        if self._skipping:
            self._skipping = False
            del pieces[0]
        elif self._pending:
            # Bounded before the copy: what is kept never exceeds the limit by more than the CR of a line end.
            if len(self._pending) + len(pieces[0]) > self._line_bytes_max + 1:
                lines.append(self._overlong(pieces.pop(0)))
            else:
                pieces[0] = b"".join((self._pending, pieces[0]))
            self._pending = bytearray()

    def _append_whole(self, pieces: list[bytes], lines: list[Line]) -> None:
        """The hot path: thousands of short lines in one read."""
        limit = self._line_bytes_max
        append = lines.append
        for piece in pieces:
            line = piece[:-1] if piece.endswith(b"\r") else piece
            if len(line) > limit:
                append(OverlongLine(line[: self._beginning_bytes]))
            elif line and not line.isspace():
                append(line)

    def _keep(self, rest: bytes, lines: list[Line]) -> None:
        """Keep the beginning of a line whose end has not come, or find that it is too long already."""
        pending = self._pending
        size = len(pending) + len(rest)
        excess = size - self._line_bytes_max
        if excess <= 0 or (excess == 1 and (rest or pending).endswith(b"\r")):
            pending += rest
            return
        lines.append(self._overlong(rest))
        self._pending = bytearray()
        self._skipping = True

    def _overlong(self, more: bytes) -> OverlongLine:
        """What is said of a line that begins with what is pending and goes on with ``more``."""
        size = self._beginning_bytes
        return OverlongLine((self._pending[:size] + more[:size])[:size])


class LineJoiner:
    """Collects outgoing messages, each ended by one LF, until somebody has room to send them."""

    __slots__ = ("_bytes_pending", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes_pending = 0

    @property
    def bytes_pending(self) -> int:
        """Bytes that ``data_to_send`` would give."""
        return self._bytes_pending

    def send(self, parts: Sequence[bytes]) -> None:
        """Add one message, given in parts that follow one another.

        Raises:
            LocalProtocolError: it holds a newline, or nothing at all; no part of it was added.
        """
        size = 0
        for part in parts:
            if b"\n" in part:
                raise LocalProtocolError("a message on stdio holds no newline: encode it as JSON without line breaks")
            size += len(part)
        if not size:
            raise LocalProtocolError("a message on stdio is one JSON object, not an empty line")
        self._parts.extend(parts)
        self._parts.append(b"\n")
        self._bytes_pending += size + 1

    def data_to_send(self) -> bytes:
        """Everything that was added since the last call."""
        data = b"".join(self._parts)
        self._parts.clear()
        self._bytes_pending = 0
        return data
