"""Carries a client's messages over HTTP: one POST for each, and closing its response cancels it.

Everything runs in one background task of its own, so that no scope of a caller is ever held open.

Source: streamable-http, Sending Messages; streamable-http, Cancellation; streamable-http, Custom Headers from Tool
Parameters.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
import attrs
from anyio.abc import TaskGroup

from mcp_tasks_core.client.calls import LISTEN
from mcp_tasks_core.client.effects import Frame
from mcp_tasks_core.client.events import CallId, ConnectionLost, MessageReceived, StreamEnded
from mcp_tasks_core.errors import HEADER_MISMATCH, LocalProtocolError
from mcp_tasks_core.wire.headers import NAME_MEMBERS, HeaderParameter, HeaderValueError, routing_headers
from mcp_tasks_http import EndKind, HttpClientEvent, Refused, ReplyReceived, ResponseEnded
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import ClientError
from mcp_tasks_trio.http_failures import HttpCall, failure_of, said_of_path, turned_away
from mcp_tasks_trio.http_pool import ConnectionPool, PooledConnection

HeaderSource: TypeAlias = "Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]"
Fields: TypeAlias = Sequence[tuple[str, str]]

_log: Final = logging.getLogger("mcp_tasks.client")

# Requests that change nothing: the ones that may be sent again when a kept connection turns out to be dead.
_READS: Final = frozenset(
    {
        "server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/read",
        "resources/templates/list", "completion/complete", "tasks/get", LISTEN,
    }
)  # fmt: skip
# What is still to reach the server when a client closes, and how long that may take.
_LAST_WORDS: Final = frozenset({"tasks/cancel", "tasks/update"})
_LAST_WORDS_S: Final = 2.0
# How long a stream may stay open behind its final answer, before its connection is given up.
_STREAM_END_S: Final = 1.0
# How long a subscription waits for a connection of its own. Longer than its last stream may take to end.
_LISTEN_SLOT_S: Final = 2.0


class HttpTransport:
    """The transport of one client to one endpoint.

    Args:
        headers: sent with every request, or asked before each.
        parameters: of a tool, those that headers repeat.
        relist: lists the tools anew.
        listen_quiet_s: without any byte for so long, the stream of a subscription counts as cut.
    """

    def __init__(
        self,
        client: Client,
        pool: ConnectionPool,
        *,
        headers: HeaderSource | None,
        parameters: Callable[[str], tuple[HeaderParameter, ...]],
        relist: Callable[[], Awaitable[object]],
        listen_quiet_s: float,
    ) -> None:
        self._client = client
        self._pool = pool
        self._headers = headers
        self._parameters = parameters
        self._relist = relist
        self._listen_quiet_s = listen_quiet_s
        self._group: TaskGroup | None = None
        self._early: list[HttpCall] = []
        self._calls: dict[CallId, HttpCall] = {}
        self._one_ended = anyio.Event()
        self._over = anyio.Event()
        self._gone = anyio.Event()

    # --- Transport

    def send(self, frame: Frame) -> None:
        if self._over.is_set():
            return
        if frame.call_id is None:
            raise LocalProtocolError("over HTTP a client sends requests alone")
        call = HttpCall(frame, frame.call_id)
        self._calls[call.call_id] = call
        if self._group is None:
            self._early.append(call)
        else:
            self._group.start_soon(self._carry, call)

    def close_stream(self, call_id: CallId) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            call.scope.cancel()

    def end(self, reason: str) -> None:
        _log.warning("the connection is ended: %s", reason)
        self._over.set()

    async def aclose(self) -> None:
        self._over.set()
        with anyio.CancelScope(shield=True):
            await self._gone.wait()

    # --- the background task

    async def run(self) -> None:
        """Carry everything until the client is closed."""
        try:
            async with anyio.create_task_group() as self._group:
                self._group.start_soon(self._client.keep_time)
                self._group.start_soon(self._pool.close_idle)
                for call in self._early:
                    self._group.start_soon(self._carry, call)
                await self._over.wait()
                await self._last_words()
                self._tell_lost()
                self._group.cancel_scope.cancel()
        except Exception:
            _log.exception("the client failed")
        finally:
            self._over.set()
            self._tell_lost()
            with anyio.CancelScope(shield=True):
                await self._pool.aclose()
            self._gone.set()

    async def _last_words(self) -> None:
        """What was asked about tasks still goes out: nobody else would cancel them."""
        with anyio.move_on_after(_LAST_WORDS_S):
            while any(call.frame.method in _LAST_WORDS for call in self._calls.values()):
                self._one_ended = anyio.Event()
                await self._one_ended.wait()

    def _tell_lost(self) -> None:
        self._client.feed(ConnectionLost(reason="the client was closed", closed_here=True))

    # --- one request

    async def _carry(self, call: HttpCall) -> None:
        """Send one request and hand on what answers it. Whatever fails is told to its caller alone."""
        failure: ClientError | None = None
        try:
            with call.scope:
                await self._exchange(call)
                failure = failure_of(call)
        except ClientError as error:
            failure = error
        except Exception as error:
            _log.debug("a request failed", exc_info=True)
            failure = ClientError(f"{call.frame.method} could not be sent: {error}")
            failure.__cause__ = error
        finally:
            del self._calls[call.call_id]
            self._one_ended.set()
        if self._client.awaits(call.call_id) and not call.scope.cancelled_caught:
            reason = str(failure or "the response ended without an answer")
            self._client.feed(StreamEnded(call.call_id, reason, failure, turned_away(call, failure)))

    async def _exchange(self, call: HttpCall) -> None:
        """Send the request; once more where that is safe and may help.

        Raises:
            ClientError: it could not be sent.
        """
        async with self._slot(call.frame.method):
            fields = await self._fields(call)
            if await self._attempt(call, fields):
                call.ended = None
                await self._attempt(call, fields, fresh=True)
        mismatch = call.mismatch
        if mismatch is None:
            return
        # The tool's annotations are other ones than those that were known, or were never asked for.
        try:
            await self._relist()
        except ClientError as error:
            _log.warning("the tools could not be listed anew: %s", error)
        again = await self._fields(call)
        if again == fields:
            self._client.feed(MessageReceived(mismatch, call.call_id))
            return
        call.mismatch, call.ended = None, None
        async with self._slot(call.frame.method):
            await self._attempt(call, again, retried=True)

    @contextlib.asynccontextmanager
    async def _slot(self, method: str) -> AsyncIterator[None]:
        """Wait until one more connection may be used. Subscriptions last, so that there they wait for nothing.

        Raises:
            LocalProtocolError: there are too many subscriptions.
        """
        slot = self._pool.slot(method)
        with anyio.move_on_after(_LISTEN_SLOT_S if method == LISTEN else math.inf) as patience:
            await slot.acquire()
        if patience.cancelled_caught:
            most = self._pool.connections_max
            raise LocalProtocolError(
                f"this client has {most} subscriptions open, and its connections_max, {most}, allows no more: "
                "end one, listen to more with one subscription, or connect with a higher connections_max"
            )
        try:
            yield
        finally:
            slot.release()

    async def _attempt(self, call: HttpCall, fields: Fields, *, fresh: bool = False, retried: bool = False) -> bool:
        """Send it on one connection and read what comes; whether the same may be tried on a fresh one.

        Raises:
            ClientError: no connection came about.
            LocalProtocolError: a header cannot be sent.
        """
        connection = await self._pool.take(fresh=fresh)
        try:
            data = connection.http.send_request(call.call_id, call.frame.payload, fields)
            # A server that refuses early may have answered all the same; otherwise reading says that it is gone.
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                await connection.stream.send(data)
            await self._read(call, connection, intercept=not retried)
        except BaseException:
            await self._pool.drop(connection)
            raise
        stale = (
            connection.was_used
            and isinstance(call.ended, ResponseEnded)
            and call.ended.kind is EndKind.CUT
            and call.ended.unanswered
            and call.frame.method in _READS
        )
        await self._pool.give_back(connection)
        return stale

    async def _read(self, call: HttpCall, connection: PooledConnection, *, intercept: bool) -> None:
        with anyio.CancelScope() as patience:
            while call.ended is None:
                for event in await self._next_events(call, connection):
                    match event:
                        case ReplyReceived(_, payload, status):
                            self._take_reply(call, payload, status, intercept=intercept)
                        case ResponseEnded() | Refused():
                            call.ended = event
                if call.ended is None and not self._client.awaits(call.call_id):
                    patience.deadline = min(patience.deadline, anyio.current_time() + _STREAM_END_S)

    async def _next_events(self, call: HttpCall, connection: PooledConnection) -> Sequence[HttpClientEvent]:
        """What came next. Servers send a comment now and then while a subscription is quiet: none means no server."""
        if call.frame.method != LISTEN:
            return await connection.receive()
        with anyio.move_on_after(self._listen_quiet_s):
            return await connection.receive()
        reason = f"nothing came on the stream for {self._listen_quiet_s:g} s"
        cut = connection.http.connection_lost()
        return [attrs.evolve(event, reason=reason) if isinstance(event, ResponseEnded) else event for event in cut]

    def _take_reply(self, call: HttpCall, payload: bytes, status: int, *, intercept: bool) -> None:
        if intercept and status == 400 and call.frame.method == "tools/call" and _is_mismatch(payload):
            call.mismatch = payload
            return
        if status == 404 and call.frame.method == "server/discover":
            call.wrong_path = said_of_path(payload)
            if call.wrong_path is not None:
                return
        self._client.feed(MessageReceived(payload, call.call_id))
        call.unread = payload if self._client.awaits(call.call_id) else None

    # --- headers

    async def _fields(self, call: HttpCall) -> list[tuple[str, str]]:
        """The headers of a request.

        Raises:
            LocalProtocolError: a header that is the client's own, or an argument that no header can repeat.
        """
        frame = call.frame
        member = NAME_MEMBERS.get(frame.method)
        params: dict[str, Any] = {} if member is None or frame.name is None else {member: frame.name}
        parameters: tuple[HeaderParameter, ...] = ()
        if frame.method == "tools/call" and frame.name is not None:
            parameters = self._parameters(frame.name)
            if parameters:
                params["arguments"] = json.loads(b"".join(frame.payload))["params"].get("arguments")
        try:
            fields = routing_headers(frame.method, params, frame.version or "", parameters)
        except HeaderValueError as error:
            raise LocalProtocolError(str(error)) from error
        return fields + await self._more_fields()

    async def _more_fields(self) -> list[tuple[str, str]]:
        source = self._headers
        if callable(source):
            given = source()
            source = await given if inspect.isawaitable(given) else given
        return checked_headers(source or {})


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers that a caller may add.

    Raises:
        LocalProtocolError: one of them is not the caller's.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise LocalProtocolError("headers are a mapping of names to values, all strings")
        if name.lower().startswith("mcp-"):
            raise LocalProtocolError(f"the client writes {name} itself")
    return list(headers.items())


def _is_mismatch(payload: bytes) -> bool:
    try:
        message = json.loads(payload)
        return bool(message["error"]["code"] == HEADER_MISMATCH)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
