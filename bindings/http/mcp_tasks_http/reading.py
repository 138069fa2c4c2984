"""The bytes of one connection to heads and bodies, one request after the other, as far as it is asked for them."""

from __future__ import annotations

from mcp_tasks_http.bodies import Body, ChunkedBody, LengthBody
from mcp_tasks_http.heads import HeadReader, ReadHead, Refusal
from mcp_tasks_http.limits import HttpLimits


class RequestStream:
    """What came in and was not used yet, and where in a request it is. It holds no deadline and decides nothing."""

    __slots__ = ("_body", "_limits", "_pending", "_reader", "_scanned", "_skipped_line")

    def __init__(self, reader: HeadReader, limits: HttpLimits) -> None:
        self._reader = reader
        self._limits = limits
        self._pending: bytes | bytearray = b""
        # How much of the pending bytes was looked at for a head's end, and whether an empty line before it was ignored.
        self._scanned = 0
        self._skipped_line = False
        self._body: Body | None = None

    @property
    def bytes_pending(self) -> int:
        return len(self._pending)

    @property
    def in_head(self) -> bool:
        """Part of a head was seen, and no more."""
        return self._scanned > 0 or self._skipped_line

    def add(self, data: bytes) -> None:
        if not self._pending:
            self._pending = data
            return
        if type(self._pending) is not bytearray:
            self._pending = bytearray(self._pending)
        self._pending += data

    def clear(self) -> None:
        self._pending = b""
        self._body = None

    def read_head(self) -> ReadHead | Refusal | None:
        """The next head; its body follows. ``None`` while it is incomplete."""
        # One empty line before a request is ignored: some clients end a body with it. Source: RFC 9112, section 2.2.
        if not self._skipped_line and self._pending[:2] == b"\r\n":
            self._skipped_line = True
            self._pending = self._pending[2:]
        read = self._reader.read(self._pending, self._scanned)
        if read is None:
            self._scanned = len(self._pending)
            return None
        self._scanned = 0
        self._skipped_line = False
        if type(read) is ReadHead:
            self._pending = self._pending[read.end :]
            self._body = self._body_of(read)
        return read

    def read_body(self) -> bytes | Refusal | None:
        """The body behind the last head; ``None`` while it is incomplete."""
        assert self._body is not None
        outcome = self._body.receive_data(self._pending)
        self._pending = b""
        if outcome is None or isinstance(outcome, Refusal):
            return outcome
        payload, self._pending = outcome
        self._body = None
        return payload

    def drop(self, count: int) -> int:
        """Throw away up to so many bytes, and say how many there were."""
        dropped = min(count, len(self._pending))
        self._pending = self._pending[dropped:]
        return dropped

    def _body_of(self, read: ReadHead) -> Body:
        length = read.head.body_bytes
        if length is not None:
            return LengthBody(length)
        assert read.chunks is not None
        return ChunkedBody(read.chunks, self._limits.body_bytes_max, self._limits.chunk_framing_bytes_max)
