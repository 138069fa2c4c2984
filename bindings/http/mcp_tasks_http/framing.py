"""One message as one event of a stream. What many streams get alike is looked through and framed once.

Source: streamable-http, Receiving Messages; the Server-sent events chapter of the HTML standard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mcp_tasks_http.responses import check_payload, stream_event

# A larger state is framed for each stream: writing it costs far more, and it is not kept longer than it is needed.
_KEPT_BYTES_MAX: Final = 64 * 1024


class EventFraming:
    """Frames the messages of all streams of one server.

    A state that is told to many streams comes as three parts, of which the middle one alone is a stream's own: the
    other two are the same objects for each stream, and their framing is kept until others come.
    """

    __slots__ = ("_chunked", "_first", "_head", "_last", "_own_bytes", "_tail")

    def __init__(self) -> None:
        self._first: bytes | None = None
        self._last: bytes | None = None
        self._own_bytes = 0
        self._chunked = True
        self._head = b""
        self._tail = b""

    def event(self, payload: Sequence[bytes], *, chunked: bool) -> bytes:
        """The bytes of one event.

        Raises:
            LocalProtocolError: the message is empty or holds a line end.
        """
        if len(payload) == 3:
            first, own, last = payload
            if first is self._first and last is self._last and len(own) == self._own_bytes and chunked is self._chunked:
                if b"\n" in own or b"\r" in own:
                    check_payload(payload)
                return self._head + own + self._tail
        check_payload(payload)
        parts = stream_event(payload, chunked=chunked)
        if len(payload) == 3 and len(payload[0]) + len(payload[2]) <= _KEPT_BYTES_MAX:
            self._keep(parts, len(payload[1]), chunked)
        return b"".join(parts)

    def _keep(self, parts: Sequence[bytes], own_bytes: int, chunked: bool) -> None:
        begin, self._first, _, self._last, end = parts
        self._own_bytes = own_bytes
        self._chunked = chunked
        self._head = begin + self._first
        self._tail = self._last + end
