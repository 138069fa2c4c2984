"""What stands between a pair of pipes and a server's engine: bytes in, bytes out, and how it ends. No I/O of its own.

A pump, one per event loop, moves the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import anyio

from mcp_tasks_core.access import Owner
from mcp_tasks_core.server.effects import Acknowledge, CutStream, Frame
from mcp_tasks_core.server.events import ServerEvent, StreamBlocked, StreamEnding, StreamUnblocked
from mcp_tasks_stdio import StdioServerConnection
from mcp_tasks_trio.engine import ServerEngine

_log = logging.getLogger("mcp_tasks_trio")

OUTPUT_HIGH_WATER: Final = 1024 * 1024  # bytes; above it, no more requests are read from a client that reads no answers
READ_BYTES: Final = 256 * 1024


class StdioLink:
    """One stdio channel of a server: the sink of its stream.

    Args:
        write: takes bytes for stdout; it never waits.
    """

    def __init__(self, engine: ServerEngine, owner: Owner, write: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._write = write
        self._stream_id = engine.open_stream(self)
        self._connection = StdioServerConnection(self._stream_id, owner, engine.limits)
        self._shutting_down = False
        self._ended = False
        self._blocked = False
        self.input_ended = anyio.Event()
        self.broken = anyio.Event()

    # --- towards the engine

    def receive(self, data: bytes) -> None:
        """Bytes came on stdin. All messages in them are handled, then their answers are written at once."""
        if not self._ended:
            events = self._connection.receive_data(data)
            self._engine.feed_all(self._ended_at_once(events) if self._shutting_down else events)

    def receive_eof(self) -> None:
        """Stdin has ended."""
        if not self._ended and not self.input_ended.is_set():
            self._engine.feed_all(self._connection.receive_eof())
            self.input_ended.set()

    def lose(self, reason: str) -> None:
        """Nothing can be read or written any longer."""
        if not self.broken.is_set():
            _log.info("The stdio channel is broken: %s", reason)
            self.broken.set()

    def shut_down(self) -> None:
        """End the subscriptions of this pipe in good order, and each that still comes right after its first states.

        Requests go on. So does whatever else the engine serves.
        """
        if not self._ended:
            self._shutting_down = True
            self._engine.feed(StreamEnding(self._stream_id))

    def _ended_at_once(self, events: Sequence[ServerEvent]) -> Iterator[ServerEvent]:
        for event in events:
            yield event
            yield StreamEnding(self._stream_id)

    def close(self) -> None:
        """End the stream: nobody waits for its requests any longer."""
        if not self._ended:
            self._ended = True
            self._engine.close_stream(self._stream_id)

    # --- towards stdout

    def send(self, frame: Frame) -> None:
        self._connection.send(frame)

    def acknowledge(self, effect: Acknowledge) -> None:
        """On a pipe nothing answers a notification."""

    def cut(self, effect: CutStream) -> None:
        """A pipe is everybody's: it breaks off as a whole."""
        self.lose(effect.reason)

    def flush(self) -> None:
        data = self._connection.data_to_send()
        if data:
            was_blocked = self._blocked
            self._write(data)
            if was_blocked:
                self._tell(StreamBlocked(self._stream_id))

    # --- from the pump

    def output_stopped(self) -> None:
        """The client has not taken everything that was written."""
        if not self._blocked:
            self._blocked = True
            self._tell(StreamBlocked(self._stream_id))

    def output_progressed(self) -> None:
        """It has taken some of it: it is slow, and has its time anew."""
        if self._blocked:
            self._tell(StreamBlocked(self._stream_id, progressed=True))

    def output_resumed(self) -> None:
        """Now it has taken everything."""
        if self._blocked:
            self._blocked = False
            self._tell(StreamUnblocked(self._stream_id))

    def _tell(self, event: StreamBlocked | StreamUnblocked) -> None:
        if not self._ended:
            self._engine.feed(event)
