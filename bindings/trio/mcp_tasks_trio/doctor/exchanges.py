"""What was sent to the server and what came back, and the seam that both transports stand behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, Protocol

import attrs

from mcp_tasks_core.identifiers import JSONObject

TransportName = Literal["http", "stdio"]

_SHOWN_CHARS: Final = 2_000


@attrs.frozen(kw_only=True)
class Sent:
    """One message to the server.

    Args:
        body: the bytes of the message; whatever a check wants, JSON or not.
        request_id: what answers it, where that can be said.
        headers: of an HTTP request, in order; other transports have none.
        verb: of the HTTP request.
        hostile: the bytes are wrong on purpose, so nothing is concluded from the answer but what the check says.
    """

    body: bytes
    method: str = ""
    request_id: Any = None
    params: JSONObject = attrs.field(factory=dict)
    headers: Sequence[tuple[str, str]] = ()
    verb: str = "POST"
    hostile: bool = False

    def declares(self, extension: str) -> bool:
        """Whether it declares an extension of the protocol."""
        meta = self.params.get("_meta")
        capabilities = meta.get("io.modelcontextprotocol/clientCapabilities") if isinstance(meta, dict) else None
        extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        return isinstance(extensions, dict) and extension in extensions

    def shown(self) -> str:
        head = "".join(f"{name}: {_printable(value)}\n" for name, value in self.headers)
        start = f"{self.verb}\n{head}" if self.headers else ""
        return start + _printable(_cut(self.body.decode("utf-8", "replace")))


@attrs.define(kw_only=True)
class Exchange:
    """One message and everything that came back for it.

    Args:
        messages: JSON values in the order in which they came, the answer among them.
        answer: the response to the request; ``None`` where none came.
        problem: why there is no answer, or what was wrong with the bytes around it.
        status: of the HTTP response, and ``fields`` its header fields with names in lower case.
        ended: the response was complete when reading stopped; an event stream may stay open after its answer.
    """

    sent: Sent
    messages: list[Any] = attrs.field(factory=list)
    answer: JSONObject | None = None
    problem: str = ""
    status: int | None = None
    fields: list[tuple[str, str]] = attrs.field(factory=list)
    ended: bool = True
    body: bytes = b""
    faults: list[str] = attrs.field(factory=list)

    @property
    def result(self) -> JSONObject | None:
        found = None if self.answer is None else self.answer.get("result")
        return found if isinstance(found, dict) else None

    @property
    def error(self) -> JSONObject | None:
        found = None if self.answer is None else self.answer.get("error")
        return found if isinstance(found, dict) else None

    @property
    def code(self) -> Any:
        return None if self.error is None else self.error.get("code")

    @property
    def notifications(self) -> list[JSONObject]:
        return [message for message in self.messages if isinstance(message, dict) and "method" in message]

    def field(self, name: str) -> str | None:
        """A header field of the HTTP response."""
        found = [value for key, value in self.fields if key == name]
        return ", ".join(found) if found else None

    def shown_answer(self) -> str:
        lines = []
        if self.status is not None:
            lines.append(f"HTTP {self.status}" + "".join(f", {k}: {v}" for k, v in self.fields if k in _TELLING))
        lines += [_cut(json.dumps(message, ensure_ascii=False)) for message in self.messages]
        if not self.messages and self.body:
            lines.append(_printable(_cut(self.body.decode("utf-8", "replace"))))
        if self.problem:
            lines.append(f"({self.problem})")
        return "\n".join(lines)


_TELLING: Final = ("content-type", "www-authenticate", "mcp-session-id", "x-accel-buffering", "allow")


class Listening(Protocol):
    """A stream that the server keeps open."""

    exchange: Exchange

    async def next(self, wait_seconds: float) -> Any | None:
        """The next message of the stream; ``None`` if none comes in time, or none ever will."""


class Transport(Protocol):
    """Carries messages to a server, right or wrong ones, and never raises for what the server does."""

    name: TransportName

    async def exchange(self, sent: Sent, wait_seconds: float) -> Exchange:
        """Send a message and wait for its answer."""

    def listening(self, sent: Sent) -> AbstractAsyncContextManager[Listening]:
        """Send a request, and keep its stream open while the block runs; then end it as this transport ends one."""


class ConnectionFailed(Exception):
    """The server cannot be reached or started."""


def encode(message: Any) -> bytes:
    """The bytes of a JSON value, on one line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def decode(data: bytes) -> Any:
    """The JSON value in these bytes.

    Raises:
        ValueError: it is not JSON, or not UTF-8. Numbers that JSON does not have are refused.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def same_id(one: Any, other: Any) -> bool:
    """Whether two ids are equal with their JSON types: 1 and "1" differ, and so do 1 and true."""
    return type(one) is type(other) and bool(one == other)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text):,} characters)"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
