"""Event streams to messages: lines that end with CR, LF or both, and only with these.

Source: the Server-sent events chapter of the HTML standard; streamable-http, Receiving Messages.
"""

from __future__ import annotations

import re
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventStreamDecoder:
    """Takes the bytes of one stream, cut anywhere, and gives the data of its ``message`` events.

    Comments, ids, retry times, unknown fields and events of other types are ignored. Data lines are joined with LF.
    An event that no empty line ends is not one.

    Args:
        event_bytes_max: bytes of one line, and of one event's data.
    """

    __slots__ = (
        "_data",
        "_data_bytes",
        "_event_bytes_max",
        "_event_type",
        "_line",
        "_skip_lf",
        "_start",
        "overlong",
    )

    def __init__(self, event_bytes_max: int) -> None:
        self._event_bytes_max = event_bytes_max
        # The stream's first bytes, until it is known whether they are a byte order mark.
        self._start: bytes | None = b""
        self._line = bytearray()
        self._skip_lf = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._event_type = b""
        # A line or an event was over the limit: the stream is given up, and everything later is ignored.
        self.overlong = False

    def receive_data(self, data: bytes) -> list[bytes]:
        """The data of every event that these bytes complete."""
        data = self._without_mark(data)
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        messages: list[bytes] = []
        start = 0
        for match in _LINE_END.finditer(data):
            piece = data[start : match.start()]
            start = match.end()
            if self._line:
                piece = bytes(self._line) + piece
                self._line.clear()
            self._take_line(piece, messages)
        # The LF of a CRLF may come with the next bytes; a lone CR ends a line at once.
        self._skip_lf = data.endswith(b"\r") if data else self._skip_lf
        self._line += data[start:]
        if len(self._line) > self._event_bytes_max:
            self._give_up()
        return messages

    def _without_mark(self, data: bytes) -> bytes:
        if self._start is None:
            return data
        data = self._start + data
        if len(data) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(data):
            self._start = data
            return b""
        self._start = None
        return data.removeprefix(_BYTE_ORDER_MARK)

    def _take_line(self, line: bytes, messages: list[bytes]) -> None:
        if self.overlong:
            return
        if len(line) > self._event_bytes_max:
            self._give_up()
        elif not line:
            self._dispatch(messages)
        else:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._add(value)
            elif name == b"event":
                self._event_type = value

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1
        if self._data_bytes - 1 > self._event_bytes_max:
            self._give_up()

    def _dispatch(self, messages: list[bytes]) -> None:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        if data and self._event_type in (b"", b"message"):
            messages.append(data)
        self._data = []
        self._data_bytes = 0
        self._event_type = b""

    def _give_up(self) -> None:
        self.overlong = True
        self._line.clear()
        self._data = []
