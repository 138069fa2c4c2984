"""What stands at the other end of a stream of an engine."""

from __future__ import annotations

from typing import Protocol

from mcp_tasks_core.server.effects import Acknowledge, CutStream, Frame


class Sink(Protocol):
    """Where the frames of one stream go."""

    def send(self, frame: Frame) -> None:
        """Take one frame; nothing waits."""

    def acknowledge(self, effect: Acknowledge) -> None:
        """A message that wants no answer was taken in, or could not be."""

    def cut(self, effect: CutStream) -> None:
        """End a stream without an answer, so that its client sees that it broke off. Nothing is told of it."""

    def flush(self) -> None:
        """The turn is over: whatever was taken is to be on its way."""
