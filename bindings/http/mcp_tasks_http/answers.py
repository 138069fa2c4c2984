"""How one request is answered: which form, which status, and what keeps a quiet stream alive.

Source: streamable-http, Receiving Messages.
"""

from __future__ import annotations

from mcp_tasks_core.server.effects import Frame
from mcp_tasks_http import responses
from mcp_tasks_http.framing import EventFraming
from mcp_tasks_http.heads import Refusal, RequestHead
from mcp_tasks_http.media import AcceptedForms
from mcp_tasks_http.writing import Outgoing


class Answer:
    """The response to one request, as far as it has come.

    Args:
        forms: which the client takes. Frames before the last are left out where it takes no event stream.
        closes: the connection ends after this response, and the response says so.
    """

    __slots__ = ("_chunked", "_forms", "_outgoing", "closes", "streams")

    def __init__(self, outgoing: Outgoing, head: RequestHead, forms: AcceptedForms, *, closes: bool) -> None:
        self._outgoing = outgoing
        self._forms = forms
        self._chunked = not head.version_1_0
        self.closes = closes
        # An event stream has begun: its status stays 200 whatever comes.
        self.streams = False

    @property
    def may_stream(self) -> bool:
        return self._forms.event_stream

    def send(self, frame: Frame, framing: EventFraming) -> bool:
        """Add one frame, and say whether the answer is complete with it.

        Raises:
            LocalProtocolError: the frame is empty or holds a line end; nothing was added.
        """
        final = frame.final
        if not self.streams:
            responses.check_payload(frame.payload)
            if final and (self._forms.json or frame.code is not None):
                self._outgoing.put_all(responses.json_answer(frame.code, frame.payload, close=self.closes))
                return True
            if not self._forms.event_stream:
                return False
            self._begin_stream()
        self._outgoing.put(framing.event(frame.payload, chunked=self._chunked))
        if final:
            self._end_stream()
        return final

    def acknowledge(self, accepted: bool) -> None:
        """Complete the answer to a message that wants none."""
        if self.streams:
            self._end_stream()
        elif accepted:
            self._outgoing.put(responses.accepted(close=self.closes))
        else:
            refusal = Refusal(status=400, message="the message could not be taken in")
            self._outgoing.put(responses.refusal_response(refusal, close=self.closes))

    def comment(self) -> None:
        """Show a sign of life. Where nothing was sent yet, this begins the stream."""
        # To a peer that takes nothing a comment says nothing: the write deadline watches over it.
        if self._outgoing.blocked_since is not None:
            return
        if not self.streams:
            self._begin_stream()
        self._outgoing.put(responses.stream_comment(chunked=self._chunked))

    def _begin_stream(self) -> None:
        self.streams = True
        self._outgoing.put(responses.stream_head(close=self.closes, chunked=self._chunked))

    def _end_stream(self) -> None:
        if self._chunked:
            self._outgoing.put(responses.LAST_CHUNK)
