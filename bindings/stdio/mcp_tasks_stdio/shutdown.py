"""How a client ends its server: close its stdin, wait, terminate, wait, kill. And what the server last said on stderr.

Source: stdio, Shutdown; stdio, introduction (stderr).
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from mcp_tasks_core.errors import LocalProtocolError


class ShutdownStep(enum.Enum):
    """What is to be done to the server's process now."""

    CLOSE_INPUT = "close its standard input"
    TERMINATE = "terminate it: SIGTERM, or TerminateProcess"
    KILL = "kill it: SIGKILL, or TerminateProcess"
    ABANDON = "stop waiting: not even the operating system can end it"


def _at_least_one(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise LocalProtocolError(f"{attribute.name} is an integer of 1 or more, not {value!r}")


@attrs.frozen(kw_only=True, slots=True)
class ShutdownWaits:
    """How long each step is given before the next one, in milliseconds, 1 or more.

    Args:
        input_closed_ms: to finish what can be finished and exit. 5 s: a server has its own bounded grace for work.
        terminated_ms: to exit on a termination signal. 2 s: nothing but cleaning up is left.
        killed_ms: for the operating system to report the end. 2 s: longer means a process that no signal reaches.
    """

    input_closed_ms: int = attrs.field(default=5_000, validator=_at_least_one)
    terminated_ms: int = attrs.field(default=2_000, validator=_at_least_one)
    killed_ms: int = attrs.field(default=2_000, validator=_at_least_one)


# After a step, the one that follows if the process has not exited in the time of that name.
_NEXT: Final = {
    ShutdownStep.CLOSE_INPUT: ("input_closed_ms", ShutdownStep.TERMINATE),
    ShutdownStep.TERMINATE: ("terminated_ms", ShutdownStep.KILL),
    ShutdownStep.KILL: ("killed_ms", ShutdownStep.ABANDON),
}


class ShutdownLadder:
    """Decides when which step is due; whoever owns the process takes it. Every step waits from when it was taken.

    Time is a monotonic clock's milliseconds, handed in with each call.
    """

    __slots__ = ("_deadline_ms", "_exited", "_step", "_waits")

    def __init__(self, waits: ShutdownWaits) -> None:
        self._waits = waits
        self._step: ShutdownStep | None = None
        self._deadline_ms: int | None = None
        self._exited = False

    @property
    def deadline_ms(self) -> int | None:
        """When ``tick`` is to be called next; ``None`` when nothing is waited for."""
        return self._deadline_ms

    @property
    def step(self) -> ShutdownStep | None:
        """The last step that was asked for; ``None`` before the shutdown began."""
        return self._step

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to wait for: the process exited, or it was given up."""
        return self._exited or self._step is ShutdownStep.ABANDON

    def begin(self, now_ms: int) -> ShutdownStep | None:
        """Begin the shutdown, and give its first step; ``None`` when it began before or the process is gone."""
        if self._exited or self._step is not None:
            return None
        return self._take(ShutdownStep.CLOSE_INPUT, now_ms)

    def tick(self, now_ms: int) -> ShutdownStep | None:
        """Give the step that is due, at most one however late the call is; ``None`` when none is."""
        if self._step is None or self._deadline_ms is None or now_ms < self._deadline_ms:
            return None
        return self._take(_NEXT[self._step][1], now_ms)

    def process_exited(self) -> None:
        """The process is gone, at whatever point: no further step is ever due."""
        self._exited = True
        self._deadline_ms = None

    def _take(self, step: ShutdownStep, now_ms: int) -> ShutdownStep:
        self._step = step
        following = _NEXT.get(step)
        self._deadline_ms = None if following is None else now_ms + self._wait_ms(following[0])
        return step

    def _wait_ms(self, name: str) -> int:
        wait_ms: int = getattr(self._waits, name)
        return wait_ms


class StderrTail:
    """Keeps the end of what a server wrote to stderr, whether or not it ever writes a newline.

    Args:
        bytes_max: how much of it is kept, 1 or more. Up to twice as much is held in memory between two trims.
    """

    __slots__ = ("_buffer", "_bytes_max", "_bytes_seen")

    def __init__(self, bytes_max: int = 16 * 1024) -> None:
        if type(bytes_max) is not int or bytes_max < 1:
            raise LocalProtocolError(f"bytes_max is an integer of 1 or more, not {bytes_max!r}")
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._bytes_seen = 0

    @property
    def bytes_seen(self) -> int:
        """Bytes that were ever received, kept or not."""
        return self._bytes_seen

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of stderr, cut anywhere."""
        self._bytes_seen += len(data)
        self._buffer += data[-self._bytes_max :]
        # Trimmed at twice the size, so that small writes do not move the whole tail each time.
        if len(self._buffer) > 2 * self._bytes_max:
            del self._buffer[: -self._bytes_max]

    def text(self) -> str:
        """The end of it as text, at most ``bytes_max`` bytes; bytes that are no UTF-8 are shown as escapes.

        Where the beginning was dropped, the text begins with a whole line, or with an ellipsis if it has none.
        """
        kept = bytes(self._buffer[-self._bytes_max :])
        if self._bytes_seen <= self._bytes_max:
            return kept.decode("utf-8", "backslashreplace")
        _, _, whole_lines = kept.partition(b"\n")
        if whole_lines.strip():
            return whole_lines.decode("utf-8", "backslashreplace")
        return "…" + _from_a_character_on(kept).decode("utf-8", "backslashreplace")


def _from_a_character_on(data: bytes) -> bytes:
    """The same bytes without a character's remainder in front: at most three continuation bytes."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
