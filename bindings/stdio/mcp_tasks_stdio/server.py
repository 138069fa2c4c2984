"""The server's end of a pipe: bytes from stdin to the core's events, the core's frames to bytes for stdout.

One stream carries everything, so there is one connection, one stream id and one owner for a process's whole life.

Source: stdio, Receiving Messages; stdio, Shutdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import INVALID_REQUEST, PARSE_ERROR, ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import StreamId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.effects import Frame
from mcp_tasks_core.server.events import MessageReceived, MessageRefused
from mcp_tasks_stdio.lines import LineJoiner, LineSplitter

StdioServerEvent: TypeAlias = MessageReceived | MessageRefused


class StdioServerConnection:
    """Both directions of a server's stdio. It does no I/O and looks into no message.

    Args:
        stream_id: what the core calls this pipe.
        owner: on whose behalf everything on this pipe is asked; ``LOCAL_OWNER`` survives restarts.
        limits: of which ``frame_bytes_max`` bounds a line, its line end not counted.
    """

    __slots__ = ("_lines", "_outgoing", "_owner", "_refusal", "_stream_id")

    def __init__(self, stream_id: StreamId, owner: Owner, limits: Limits) -> None:
        self._stream_id = stream_id
        self._owner = owner
        self._lines = LineSplitter(limits.frame_bytes_max)
        self._outgoing = LineJoiner()
        text = (
            f"the line is longer than the {limits.frame_bytes_max} bytes that are allowed, and was skipped to its end"
        )
        self._refusal = MessageRefused(stream_id, ErrorObject(INVALID_REQUEST, text))

    @property
    def stream_id(self) -> StreamId:
        return self._stream_id

    @property
    def bytes_pending(self) -> int:
        """Bytes that ``data_to_send`` would give: what a slow reader makes pile up."""
        return self._outgoing.bytes_pending

    def receive_data(self, data: bytes) -> Sequence[StdioServerEvent]:
        """Take bytes from stdin, cut anywhere, and give an event for each line that they complete.

        Raises:
            LocalProtocolError: the end of the input was already received.
        """
        stream_id, owner, refusal = self._stream_id, self._owner, self._refusal
        return [
            MessageReceived(stream_id, line, owner) if type(line) is bytes else refusal
            for line in self._lines.receive_data(data)
        ]

    def receive_eof(self) -> Sequence[StdioServerEvent]:
        """Take the end of stdin. A line that was not ended is refused: it may be half a message."""
        if self._lines.receive_eof() is None:
            return ()
        text = "the input ended inside a line: a message ends with a newline, and what had come of this one was dropped"
        return (MessageRefused(self._stream_id, ErrorObject(PARSE_ERROR, text)),)

    def send(self, frame: Frame) -> None:
        """Add one frame to what is to be sent.

        Raises:
            LocalProtocolError: the frame is for another stream, holds a newline, or is empty; nothing was added.
        """
        if frame.stream_id != self._stream_id:
            raise LocalProtocolError(
                f"this pipe is stream {self._stream_id}, the frame is for stream {frame.stream_id}"
            )
        self._outgoing.send(frame.payload)

    def data_to_send(self) -> bytes:
        """The bytes for stdout that were added since the last call, to be written whole and in order."""
        return self._outgoing.data_to_send()
