"""What a tool may raise, and what it is told with an exception."""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import JSONValue


class ToolError(Exception):
    """The tool could not do it, in words that the caller is to read: an ordinary result with ``isError: true``.

    Source: tools, Error Handling.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ProtocolError(Exception):
    """The request itself ends in a JSON-RPC error: inline as the answer, in a task as ``failed``.

    Args:
        code: a JSON-RPC code, or one of the application's own outside -32768 to -32000; any other becomes -32603.
        message: one sentence for people.
        data: anything more, as JSON; left out when ``None``.
    """

    def __init__(self, code: int, message: str, data: JSONValue = None) -> None:
        super().__init__(message)
        self.error: Final = ErrorObject(code, message, data)


class InputUnavailable(ProtocolError):
    """A question cannot be asked: the client did not declare its kind, or the question is not a sound one.

    A tool may catch it and go on without an answer. Uncaught it is the protocol error that it carries.
    """

    @classmethod
    def of(cls, error: ErrorObject) -> InputUnavailable:
        return cls(error.code, error.message, error.data)


class CallCancelled(BaseException):
    """Nobody waits for this call any longer, or its task is to stop.

    Not an ``Exception``, so that a tool's own ``except Exception`` does not swallow it.
    """


class BodyUnwound(BaseException):
    """Takes a body down to where it was called from: what its call is answered with stands already.

    Not an ``Exception``, so that a tool's own ``except Exception`` does not swallow it.
    """
