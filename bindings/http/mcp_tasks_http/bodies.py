"""Request bodies as their bytes arrive: counted, bounded, and whole when they are given out.

What a verdict is does not depend on how the bytes were cut. Source: RFC 9112, section 7.1.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import h11

from mcp_tasks_http.heads import BodyParser, Refusal, malformed

# h11 is fed this much at once, since asking it what it has not used copies that.
_SLICE_BYTES: Final = 4096


# A body that is complete, and the bytes behind it.
WholeBody: TypeAlias = tuple[bytes, bytes]


class LengthBody:
    """A body of known length. The length was compared with the limit before."""

    __slots__ = ("_length", "_received")

    def __init__(self, length: int) -> None:
        self._length = length
        self._received = bytearray()

    def receive_data(self, data: bytes | bytearray) -> WholeBody | None:
        if not self._received and len(data) >= self._length:
            return bytes(data[: self._length]), bytes(data[self._length :])
        missing = self._length - len(self._received)
        self._received += data[:missing]
        if len(data) < missing:
            return None
        return bytes(self._received), bytes(data[missing:])


class ChunkedBody:
    """A chunked body, read by h11. Its chunks' sizes, extensions and trailers are bounded as a whole.

    Args:
        framing_bytes_max: how much of such things is allowed.
    """

    __slots__ = ("_body_bytes_max", "_fed", "_framing_bytes_max", "_parser", "_received", "_tail")

    def __init__(self, parser: BodyParser, body_bytes_max: int, framing_bytes_max: int) -> None:
        self._parser = parser
        self._body_bytes_max = body_bytes_max
        self._framing_bytes_max = framing_bytes_max
        self._received = bytearray()
        self._fed = 0
        self._tail = b""

    def receive_data(self, data: bytes | bytearray) -> WholeBody | Refusal | None:
        for start in range(0, len(data), _SLICE_BYTES):
            piece = bytes(data[start : start + _SLICE_BYTES])
            self._fed += len(piece)
            self._parser.receive_data(piece)
            outcome = self._read(piece, data, start)
            if outcome is not None:
                return outcome
            self._tail = (self._tail + piece[-3:])[-3:]
        return None

    def _read(self, piece: bytes, data: bytes | bytearray, start: int) -> WholeBody | Refusal | None:
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError:
                return self._malformed
            if isinstance(event, h11.Data):
                self._received += event.data
                fault = self._fault_of_size(len(self._parser.trailing_data[0]))
                if fault is not None:
                    return fault
            elif isinstance(event, h11.EndOfMessage):
                unread = len(self._parser.trailing_data[0])
                used = len(piece) - unread
                return self._fault_of_size(unread) or self._end(piece[:used], bytes(data[start + used :]))
            else:
                # Nothing more can be read, so everything that was fed and is no data belongs to the framing.
                return self._fault_of_size(0)

    @property
    def _malformed(self) -> Refusal:
        """One answer to every fault of the coding: which one is met first can depend on how the bytes were cut."""
        return malformed(
            "the body is not valid in the chunked coding, or the coding adds more than "
            f"the {self._framing_bytes_max} bytes that are allowed"
        )

    def _fault_of_size(self, unread: int) -> Refusal | None:
        if self._fed - unread - len(self._received) > self._framing_bytes_max:
            return self._malformed
        if len(self._received) > self._body_bytes_max:
            return malformed(f"the body is larger than the {self._body_bytes_max} bytes that are allowed", status=413)
        return None

    def _end(self, used: bytes, rest: bytes) -> WholeBody | Refusal:
        # h11 takes a bare LF for the last line end; a proxy in front may not, and would see another message.
        if (self._tail + used[-4:])[-4:] != b"\r\n\r\n":
            return self._malformed
        return bytes(self._received), rest


Body: TypeAlias = LengthBody | ChunkedBody
