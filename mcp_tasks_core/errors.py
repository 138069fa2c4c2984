"""Faults: ours and our caller's are exceptions, a peer's are values."""

from __future__ import annotations

from typing import Final

import attrs

from mcp_tasks_core.identifiers import JSONObject, JSONValue

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_REQUIRED_CLIENT_CAPABILITY: Final = -32021
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

_STANDARD_CODES: Final = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR})
_MCP_CODES: Final = frozenset({HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_JSONRPC_RESERVED: Final = range(-32768, -31999)
_FORMER_CODES: Final = frozenset({-32042})


class LocalProtocolError(Exception):
    """The caller used the library against its rules: a bug on this side, raised where it was made."""


class RemoteProtocolError(Exception):
    """A peer broke the protocol, in a way that ends what was asked of it."""


@attrs.frozen(slots=True)
class ErrorObject:
    """A JSON-RPC error as it stands on the wire.

    Args:
        code: an integer; which ones may be sent is told by ``code_may_be_sent``.
        message: one sentence for people.
        data: anything more, left out of the frame when ``None``.

    Source: basic, Error Responses.
    """

    code: int
    message: str
    data: JSONValue = attrs.field(default=None, eq=True)

    def to_wire(self) -> JSONObject:
        wire: JSONObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            wire["data"] = self.data
        return wire


def code_may_be_sent(code: object) -> bool:
    """Whether an error code may leave this implementation, whoever chose it.

    Allowed are the five JSON-RPC codes, the three of this revision, and every integer outside the
    range that JSON-RPC reserves, but for codes of former revisions. Source: basic, Error Codes.
    """
    if type(code) is not int:
        return False
    if code in _STANDARD_CODES or code in _MCP_CODES:
        return True
    return code not in _JSONRPC_RESERVED and code not in _FORMER_CODES


def problem_with_error(error: ErrorObject) -> str | None:
    """What is wrong with an error that is about to be sent, in one sentence; ``None`` when nothing is.

    Source: basic, Error Codes; schema, MissingRequiredClientCapabilityError and UnsupportedProtocolVersionError.
    """
    if not code_may_be_sent(error.code):
        return f"the code {error.code!r} may not be sent"
    if type(error.message) is not str:
        return f"its message is a string, not {error.message!r}"
    data = error.data if isinstance(error.data, dict) else {}
    if error.code == MISSING_REQUIRED_CLIENT_CAPABILITY and type(data.get("requiredCapabilities")) is not dict:
        return f"the data of {error.code} has requiredCapabilities, an object"
    if error.code == UNSUPPORTED_PROTOCOL_VERSION and not (
        type(data.get("supported")) is list and type(data.get("requested")) is str
    ):
        return f"the data of {error.code} has supported, an array, and requested, a string"
    return None
