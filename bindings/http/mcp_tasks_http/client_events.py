"""What a client's connection tells its runner."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TypeAlias

import attrs

from mcp_tasks_http.challenges import Challenge


@attrs.frozen(slots=True)
class ReplyReceived:
    """One message of a response: a JSON body, or one event of a stream.

    Args:
        status: of the response. An error is read at any status.
    """

    call: int
    payload: bytes
    status: int


class EndKind(enum.Enum):
    """How a response ended."""

    COMPLETE = "it ended as it should"
    ACCEPTED = "it says that the message was taken in, and nothing else"
    CUT = "the connection ended before it did"
    MALFORMED = "it is not valid HTTP"
    TOO_LARGE = "it is larger than the limit"


@attrs.frozen(slots=True)
class ResponseEnded:
    """Nothing more comes for this call. Without a final message before, it fails.

    Args:
        status: ``None`` where no head came.
        unanswered: not one byte of a response came. The server may have acted all the same.
        reason: one sentence for people.
    """

    call: int
    kind: EndKind
    status: int | None
    unanswered: bool
    reason: str


class RefusalKind(enum.Enum):
    """Why a response holds no message."""

    UNAUTHORIZED = "authentication is required or was not accepted"
    FORBIDDEN = "what was asked is not allowed"
    REDIRECTED = "the endpoint is elsewhere, and redirects are not followed"
    NOT_MCP = "the response is no MCP message"
    FAILED = "the server or a proxy could not serve the request"


@attrs.frozen(slots=True)
class Refused:
    """A response that holds no message. It ends the call; ``ResponseEnded`` does not follow.

    Args:
        fields: of the response, names in lower case.
        excerpt: how the body begins, safe to print.
        challenges: of WWW-Authenticate.
    """

    call: int
    kind: RefusalKind
    status: int
    fields: Sequence[tuple[str, str]]
    excerpt: str
    challenges: tuple[Challenge, ...] = ()

    def get(self, name: str) -> str | None:
        """The first field of this name in any case, such as ``Retry-After``."""
        return next((value for key, value in self.fields if key == name.lower()), None)


HttpClientEvent: TypeAlias = ReplyReceived | ResponseEnded | Refused
