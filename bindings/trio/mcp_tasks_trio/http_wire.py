"""What a connection's link and the pump of an event loop know of each other, and the bounds that pumps keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

RECEIVE_BYTES: Final = 64 * 1024
TLS_HANDSHAKE_S: Final = 10.0


class Wire(Protocol):
    """The bytes of one connection, as its link moves them. Nothing here waits, and everything may come too late."""

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not arrived, as far as is known here. It changes when the client takes something."""

    def write(self, data: bytes) -> None:
        """Send. What the client does not take at once is kept, and ``Link.output_stopped`` is told."""

    def end_writing(self) -> None:
        """Nothing more is written; what the client still sends is read. Closes where that cannot be."""

    def close(self) -> None:
        """Close when everything that was written is out."""

    def abort(self) -> None:
        """Close at once."""

    def pause_reading(self) -> None:
        """Take no bytes from the client for now."""

    def resume_reading(self) -> None:
        """Take them again."""


class Link(Protocol):
    """What a pump tells one connection's link."""

    def receive(self, data: bytes) -> None:
        """Bytes came."""

    def receive_eof(self) -> None:
        """The client sends nothing more."""

    def lose(self) -> None:
        """The connection is gone, whoever ended it; nothing is told after this."""

    def output_stopped(self) -> None:
        """The client has not taken everything that was written."""

    def output_resumed(self) -> None:
        """Now it has."""


Accept = Callable[[Wire], Link]
