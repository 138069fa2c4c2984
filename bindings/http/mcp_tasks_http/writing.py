"""What is to be sent on one connection, until somebody has room for it."""

from __future__ import annotations

from collections.abc import Sequence


class Outgoing:
    """Bytes in order, how many they are, and since when the peer takes none."""

    __slots__ = ("_parts", "blocked_since", "bytes_pending")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.bytes_pending = 0
        # The last that it took something, by the connection's clock in ms; ``None`` while it takes all it is given.
        self.blocked_since: int | None = None

    def put(self, data: bytes) -> None:
        self._parts.append(data)
        self.bytes_pending += len(data)

    def put_all(self, parts: Sequence[bytes]) -> None:
        self._parts += parts
        self.bytes_pending += sum(map(len, parts))

    def take(self) -> bytes:
        """Everything that was put since the last call."""
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.drop()
        return data

    def drop(self) -> None:
        self._parts.clear()
        self.bytes_pending = 0
