"""A client of a server that is reached over HTTP.

Source: streamable-http.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.headers import HeaderParameter, InvalidAnnotation, header_parameters
from mcp_tasks_http import Endpoint, HttpClientLimits, is_loopback
from mcp_tasks_trio.client import DEFAULT_CLIENT_INFO, Client, configured, set_going
from mcp_tasks_trio.client_connection import LogHandler
from mcp_tasks_trio.http_pool import ConnectionPool
from mcp_tasks_trio.http_transport import HeaderSource, HttpTransport, checked_headers

CONNECTIONS_MAX: Final = 64

_log: Final = logging.getLogger("mcp_tasks.client")

Token = str | Callable[[], "str | Awaitable[str]"]


class HttpClient(Client):
    """The client, which over HTTP also repeats a tool's annotated arguments in headers.

    Source: streamable-http, Custom Headers from Tool Parameters.
    """

    def __init__(self, config: ClientConfig, on_log: LogHandler | None = None) -> None:
        super().__init__(config, on_log)
        self._parameters: dict[str, tuple[HeaderParameter, ...]] = {}

    async def list_tools(self, *, timeout: float | None = None) -> tuple[JSONObject, ...]:  # noqa: ASYNC109
        """All tools of the server, each raw, but for those whose annotations break the rules.

        Args:
            timeout: seconds for all pages together.

        Raises:
            ClientError: they could not be listed.
        """
        return tuple(tool for tool in await super().list_tools(timeout=timeout) if self._is_valid(tool))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Any
    ) -> JSONObject:  # the options of Client.request
        """The same as over any transport; a list of tools is without those whose annotations break the rules.

        Raises:
            ClientError: there is no result.
        """
        result = await super().request(method, params, **options)
        if method == "tools/list" and isinstance(result.get("tools"), list):
            return {**result, "tools": [tool for tool in result["tools"] if self._is_valid(tool)]}
        return result

    def parameters_of(self, tool: str) -> tuple[HeaderParameter, ...]:
        """What headers repeat of a tool's arguments, by the last list of tools."""
        return self._parameters.get(tool, ())

    def _is_valid(self, tool: Any) -> bool:
        if not isinstance(tool, dict) or not isinstance(tool.get("inputSchema"), dict):
            return True  # whatever it is, it has no annotations
        name = str(tool.get("name"))
        try:
            self._parameters[name] = header_parameters(tool["inputSchema"])
        except InvalidAnnotation as problem:
            self._parameters.pop(name, None)
            _log.warning("the tool %r is left out of the list: %s", name, problem)
            return False
        return True


def bearer(token: Token) -> HeaderSource:
    """Headers with a bearer token; a callable is asked for one before every request, and may be asynchronous."""
    if not callable(token):
        return {"Authorization": f"Bearer {token}"}

    async def ask() -> Mapping[str, str]:
        given = token()
        return {"Authorization": f"Bearer {await given if inspect.isawaitable(given) else given}"}

    return ask


async def open_http(
    url: str,
    *,
    headers: HeaderSource | None = None,
    ssl_context: ssl.SSLContext | None = None,
    unix_socket: str | Path | None = None,
    client_info: JSONObject | None = DEFAULT_CLIENT_INFO,
    capabilities: JSONObject | None = None,
    on_log: LogHandler | None = None,
    probe: bool = True,
    probe_timeout: float | None = None,
    connections_max: int = CONNECTIONS_MAX,
    config: ClientConfig | None = None,
) -> Client:
    """Connect to a server. Whoever opens it closes it: ``await client.aclose()``, from any task.

    Args:
        url: of the endpoint, such as ``https://mcp.example.com/mcp``.
        headers: sent with every request, such as credentials; a callable is asked before each.
        ssl_context: for https; the system's certificates by default.
        unix_socket: connect there, and let the URL only name the host and the path.
        client_info: what the client says it is; ``None`` to say nothing.
        capabilities: what the client can do for the server; form elicitation by default.
        on_log: called with log messages that requests asked for; it must not wait.
        probe: ask the server first whether it speaks this revision, and fail if it does not.
        probe_timeout: seconds of silence after which it does not; 10 by default.
        connections_max: at the same time for calls, 1 or more; further ones wait for their turn. Subscriptions have
            as many of their own.
        config: everything else, in place of ``client_info`` and ``capabilities``.

    Raises:
        ServerUnreachable: no connection came about.
        Unauthorized, Forbidden, HttpError: the server, or something in front of it, does not let the client in.
        LegacyServer: the server speaks another revision.
        ClientError: it could not be asked.
        LocalProtocolError: the URL, a header or the configuration makes no sense.
    """
    endpoint = Endpoint.parse(url)
    if type(connections_max) is not int or connections_max < 1:
        raise LocalProtocolError(f"connections_max is an integer of 1 or more, not {connections_max!r}")
    if ssl_context is not None and not endpoint.secure:
        raise LocalProtocolError("an ssl_context is for https URLs")
    if not callable(headers):
        checked_headers(headers or {})
    if headers and not endpoint.secure and unix_socket is None and not is_loopback(endpoint.host):
        _log.warning("what the headers hold goes to %s without encryption", endpoint.host)
    config = configured(config, client_info, capabilities)
    config = attrs.evolve(config, transport=TransportKind.PER_REQUEST)
    client = HttpClient(config, on_log)
    pool = ConnectionPool(
        endpoint,
        ssl_context=ssl_context,
        unix_socket=unix_socket,
        connections_max=connections_max,
        limits=HttpClientLimits(message_bytes_max=config.limits.frame_bytes_max),
    )
    transport = HttpTransport(
        client,
        pool,
        headers=headers,
        parameters=client.parameters_of,
        relist=client.list_tools,
        listen_quiet_s=config.client_limits.listen_quiet_ms / 1000,
    )
    await set_going(client, transport, probe=probe, probe_timeout=probe_timeout)
    return client


@contextlib.asynccontextmanager
async def connect_http(
    url: str,
    *,
    headers: HeaderSource | None = None,
    ssl_context: ssl.SSLContext | None = None,
    unix_socket: str | Path | None = None,
    client_info: JSONObject | None = DEFAULT_CLIENT_INFO,
    capabilities: JSONObject | None = None,
    on_log: LogHandler | None = None,
    probe: bool = True,
    probe_timeout: float | None = None,
    connections_max: int = CONNECTIONS_MAX,
    config: ClientConfig | None = None,
) -> AsyncIterator[Client]:
    """The same as a context: the client is closed with it. Arguments and errors are those of ``open_http``."""
    client = await open_http(
        url,
        headers=headers,
        ssl_context=ssl_context,
        unix_socket=unix_socket,
        client_info=client_info,
        capabilities=capabilities,
        on_log=on_log,
        probe=probe,
        probe_timeout=probe_timeout,
        connections_max=connections_max,
        config=config,
    )
    try:
        yield client
    finally:
        await client.aclose()
