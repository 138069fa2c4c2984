"""What the kernel still holds of what was written to a socket."""

from __future__ import annotations

import sys
from typing import Final, Protocol

_INT_BYTES: Final = 4


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def unconfirmed_bytes(sock: _HasFileno | None) -> int:
    """Bytes that were given to the kernel and that the other side's has not confirmed; 0 where it does not say.

    A process is told of room only when a good part of a queue is free, which may be megabytes: what a slow reader takes
    is seen here first.
    """
    if sys.platform == "win32" or sock is None:
        return 0
    import fcntl
    import termios

    try:
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT_BYTES)), sys.byteorder)
    except (OSError, ValueError):  # closed, or no such question on this system
        return 0
