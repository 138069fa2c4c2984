"""How an exchange is answered: once, and never after it was closed."""

from __future__ import annotations

from typing import Final

from mcp_tasks_core.capabilities import META_SERVER_INFO
from mcp_tasks_core.errors import ErrorObject, problem_with_error
from mcp_tasks_core.identifiers import JSONObject, RequestId, StreamId
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.effects import Frame, Severity
from mcp_tasks_core.server.exchanges import Exchange, ExchangeTable
from mcp_tasks_core.server.machine import Machine, Procedure
from mcp_tasks_core.server.storing import Refusal
from mcp_tasks_core.wire.json import JsonError
from mcp_tasks_core.wire.jsonrpc import error_frame, notification_frame

_BEFORE_ID: Final = b'{"jsonrpc":"2.0","id":'
_BEFORE_RESULT: Final = b',"result":'
_END: Final = b"}"


class Replies:
    """Turns outcomes into frames, and closes the exchange with the last of them."""

    def __init__(self, machine: Machine, exchanges: ExchangeTable) -> None:
        self._machine = machine
        self._exchanges = exchanges
        info = machine.config.server_info
        self._meta: JSONObject = {} if info is None else {META_SERVER_INFO: info}
        self.acknowledgement = machine.codec.encode(self.with_server_info({"resultType": "complete"}))

    def with_server_info(self, result: JSONObject) -> JSONObject:
        """The result with serverInfo in its ``_meta``, beside what else stands there. Source: basic, General fields."""
        if not self._meta:
            return result
        return {**result, "_meta": {**(result.get("_meta") or {}), **self._meta}}

    def body(self, exchange: Exchange, body: bytes) -> None:
        """Answer with a result that is encoded already."""
        if exchange.closed:
            return
        self._exchanges.remove(exchange)
        payload = (_BEFORE_ID, exchange.id_bytes, _BEFORE_RESULT, body, _END)
        self._machine.effects.append(Frame(exchange.stream_id, payload, True))

    def result(self, exchange: Exchange, result: JSONObject) -> None:
        """Answer with a result; with -32603 if it cannot be written as JSON, or is too large to be read."""
        if exchange.closed:
            return
        try:
            body = self._machine.codec.encode(self.with_server_info(result))
        except JsonError as problem:
            self._machine.report(Severity.ERROR, f"the result of {exchange.method} cannot be sent: {problem}")
            self.error(exchange, faults.INTERNAL)
            return
        limit_bytes = self._machine.limits.result_bytes_max
        if len(body) > limit_bytes:
            error = faults.result_too_large(len(body), limit_bytes)
            self._machine.report(Severity.ERROR, f"{exchange.method}: {error.message}")
            self.error(exchange, error)
            return
        self.body(exchange, body)

    def error(self, exchange: Exchange, error: ErrorObject) -> None:
        """Answer with an error; a code that may not be sent, or data that is not JSON, becomes -32603."""
        if exchange.closed:
            return
        self._exchanges.remove(exchange)
        self.refuse(exchange.stream_id, exchange.request_id, error, exchange.method)

    def answering(self, exchange: Exchange, procedure: Procedure) -> Procedure:
        """The same procedure, whose refusals answer the exchange."""
        try:
            yield from procedure
        except Refusal as refusal:
            self.error(exchange, refusal.error)

    def refuse(self, stream_id: StreamId, request_id: RequestId | None, error: ErrorObject, method: str = "") -> None:
        """Send an error for a message that opened no exchange."""
        problem = problem_with_error(error)
        if problem is not None:
            self._machine.report(Severity.ERROR, f"{method or 'the transport'} ended in an unfit error: {problem}")
            error = faults.INTERNAL
        if method == "initialize":
            error = faults.naming_versions(error)
        try:
            payload = error_frame(request_id, error, self._machine.codec)
        except JsonError as refused:
            self._machine.report(Severity.ERROR, f"an error of {method} cannot be sent: {refused}")
            error = faults.INTERNAL
            payload = error_frame(request_id, error, self._machine.codec)
        self._machine.effects.append(Frame(stream_id, payload, True, error.code))

    def notify(self, exchange: Exchange, method: str, params: JSONObject) -> None:
        """Send a notification that belongs to an open request."""
        if exchange.closed:
            return
        try:
            payload = notification_frame(method, params, self._machine.codec)
        except JsonError as problem:
            self._machine.report(Severity.ERROR, f"{method} for {exchange.method} cannot be sent: {problem}")
            return
        self._machine.effects.append(Frame(exchange.stream_id, payload, False))
