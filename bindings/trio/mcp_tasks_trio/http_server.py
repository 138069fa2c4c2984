"""Serves an application over HTTP, on asyncio or trio, until it is told to end.

Source: streamable-http.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import attrs
from anyio.abc import TaskGroup

from mcp_tasks_core.access import LOCAL_OWNER, Owner
from mcp_tasks_core.errors import INTERNAL_ERROR, LocalProtocolError
from mcp_tasks_core.store import TaskStore
from mcp_tasks_http import HttpLimits, HttpServer, HttpServerConfig, NameRules, is_loopback
from mcp_tasks_http.responses import refusal_body, whole_response
from mcp_tasks_trio.application import Application
from mcp_tasks_trio.authentication import OwnerResolver, ProtectedResource
from mcp_tasks_trio.collector import spare_what_is_kept
from mcp_tasks_trio.engine import ServerEngine
from mcp_tasks_trio.http_clock import DeadlineClock
from mcp_tasks_trio.http_link import HttpLink, monotonic_ms
from mcp_tasks_trio.http_wire import Accept, Link, Wire
from mcp_tasks_trio.listening_sockets import bind
from mcp_tasks_trio.signals import SIGNALS, leave, signalled
from mcp_tasks_trio.starting import reached_store
from mcp_tasks_trio.store_start import START_WAIT_SECONDS
from mcp_tasks_trio.threads import in_trio
from mcp_tasks_trio.waiting import first_of

_log = logging.getLogger("mcp_tasks_trio")

BACKENDS: Final = ("asyncio", "trio")
SHUTDOWN_GRACE_SECONDS: Final = 5.0  # for requests that are being answered when the server is told to end
CONNECTIONS_MAX: Final = 10_000  # about 10 MB when idle; the limit on open files is usually lower
_FLUSH_SECONDS: Final = 0.5  # for the last answers to get out
_EXIT_SECONDS: Final = 0.5  # for cancelled work to end, before the process ends without it


@attrs.frozen(kw_only=True)
class HttpSettings:
    """Where and for whom a server serves.

    Args:
        host: the address to listen on; loopback by default, so that nobody else reaches it.
        port: 0 for any that is free.
        path: of the one endpoint.
        unix_socket: listen on a socket in the file system in place of host and port; for this user alone.
        ssl_context: speak TLS with it.
        owner: on whose behalf everything is asked where there is no resolver.
        owner_resolver: says on whose behalf each request comes, or why it is not let in.
        protected_resource: served as the metadata document that tells clients where to get tokens.
        allowed_origins: pages that may send requests, such as ``https://app.example.com``, ``http://localhost:*``.
        allowed_hosts: more names that the server is known by, such as ``mcp.example.com``.
        insecure_public: serve without a resolver beyond loopback: everybody who reaches the port is one owner.
        connections_max: at the same time; more are turned away with 503.
        limits: the bounds of each connection, keep-alive times among them.

    Raises:
        LocalProtocolError: a value that cannot be, or an open server that the operator did not ask for.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    path: str = "/mcp"
    unix_socket: str | Path | None = None
    ssl_context: ssl.SSLContext | None = None
    owner: Owner = LOCAL_OWNER
    owner_resolver: OwnerResolver | None = None
    protected_resource: ProtectedResource | None = None
    allowed_origins: Collection[str] = ()
    allowed_hosts: Collection[str] = ()
    insecure_public: bool = False
    connections_max: int = CONNECTIONS_MAX
    limits: HttpLimits = attrs.field(factory=HttpLimits)

    def __attrs_post_init__(self) -> None:
        if type(self.port) is not int or not 0 <= self.port <= 65535:
            raise LocalProtocolError(f"port is an integer from 0 to 65535, not {self.port!r}")
        if type(self.connections_max) is not int or self.connections_max < 1:
            raise LocalProtocolError(f"connections_max is an integer of 1 or more, not {self.connections_max!r}")
        for name in ("allowed_origins", "allowed_hosts"):
            if isinstance(getattr(self, name), str):
                raise LocalProtocolError(f"{name} is a collection of strings, not one string")
        if self.is_open and not self.insecure_public:
            raise LocalProtocolError(
                f"{self.host} can be reached from other machines, and without an owner_resolver everybody who does"
                " may do everything: give an owner_resolver, listen on 127.0.0.1, or say insecure_public"
            )
        self.config(self.port)

    @property
    def is_open(self) -> bool:
        """Whether anybody on another machine may do everything."""
        return self.unix_socket is None and not is_loopback(self.host) and self.owner_resolver is None

    def config(self, port: int) -> HttpServerConfig:
        """What the connections are told, once the port is known.

        Raises:
            LocalProtocolError: a path, a name or an origin that cannot be.
        """
        bound_host = None if self.unix_socket is not None else self.host
        documents = {} if self.protected_resource is None else self.protected_resource.documents(self.path)
        return HttpServerConfig(
            names=NameRules.for_server(bound_host, port, hosts=self.allowed_hosts, origins=self.allowed_origins),
            path=self.path,
            documents=documents,
            announce_heads=self.owner_resolver is not None,
            limits=self.limits,
        )


class _Listeners(Protocol):
    def listening(self) -> AbstractAsyncContextManager[None]: ...

    def stop_accepting(self) -> None: ...


_FULL: Final = "this server has as many connections as it can serve; try again soon"
_ENDING: Final = "this server is about to end; try again when there is another"


class _TurnedAway:
    """A connection that is not served: it is told why, and closed."""

    def __init__(self, wire: Wire, why: str) -> None:
        body = refusal_body(INTERNAL_ERROR, why)
        fields = (("Content-Type", "application/json"), ("Retry-After", "1"))
        wire.write(whole_response(503, fields, body, close=True))
        wire.close()

    def receive(self, data: bytes) -> None: ...

    def receive_eof(self) -> None: ...

    def lose(self) -> None: ...

    def output_stopped(self) -> None: ...

    def output_resumed(self) -> None: ...


class HttpListener:
    """A server that listens: one engine, its sockets, and its connections."""

    def __init__(self, engine: ServerEngine, settings: HttpSettings, sockets: Sequence[socket.socket]) -> None:
        self.engine = engine
        self.settings = settings
        self.owner = settings.owner
        self.resolver = settings.owner_resolver
        self.clock = DeadlineClock(monotonic_ms)
        self.port: int | None = None if settings.unix_socket is not None else sockets[0].getsockname()[1]
        self.http = HttpServer(settings.config(self.port or 0), engine.new_stream_id)
        self._links: set[HttpLink] = set()
        self._ending = False
        self._changed = anyio.Event()
        self._listeners = _listeners_of_this_loop(sockets, settings.ssl_context, self._accept)
        self._task_group: TaskGroup | None = None
        _give_up_on_silent_peers(sockets, settings.limits.write_wait_ms)

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        if self.port is None:
            return f"unix:{self.settings.unix_socket}:{self.settings.path}"
        scheme = "http" if self.settings.ssl_context is None else "https"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self.port}{self.settings.path}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    async def connections_closed(self, until: int = 0) -> None:
        """Wait until no more than so many connections are open."""
        while len(self._links) > until:
            self._changed = anyio.Event()
            await self._changed.wait()

    def _accept(self, wire: Wire) -> Link:
        if self._ending:  # it was under way, such as in its handshake
            return _TurnedAway(wire, _ENDING)
        if len(self._links) >= self.settings.connections_max:
            return _TurnedAway(wire, _FULL)
        link = HttpLink(self, wire)
        self._links.add(link)
        return link

    def start_soon(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        assert self._task_group is not None
        self._task_group.start_soon(function, *args)

    def forget(self, link: HttpLink) -> None:
        self._links.discard(link)
        self._changed.set()

    @asynccontextmanager
    async def running(self, grace_seconds: float) -> AsyncIterator[HttpListener]:
        """Serve until the block ends; then end in good order, and within the grace."""
        async with anyio.create_task_group() as self._task_group:
            self._task_group.start_soon(self.clock.run)
            async with self._listeners.listening():
                yield self
                await self._shut_down(grace_seconds)
            self._task_group.cancel_scope.cancel()

    async def _shut_down(self, grace_seconds: float) -> None:
        """Accept nothing more; end subscriptions; answer what was asked within the grace; then cancel it.

        Tasks are left alone.
        """
        self._ending = True
        self._listeners.stop_accepting()
        for link in tuple(self._links):
            link.shut_down()
        with anyio.move_on_after(grace_seconds):
            await self.engine.quiet()
            with anyio.move_on_after(_FLUSH_SECONDS):
                await self.connections_closed()
        for link in tuple(self._links):
            link.abort()
        with anyio.move_on_after(_FLUSH_SECONDS):
            await self.connections_closed()


def _give_up_on_silent_peers(sockets: Sequence[socket.socket], wait_ms: int) -> None:
    """Have the kernel end connections of machines that have gone without a word, once something was written to them.

    What it keeps for them counts as taken, so no deadline of ours sees it; by itself it tries for a quarter of an hour.
    Connections inherit this from the socket that accepts them.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    for listening in sockets:
        if option is not None and listening.family in (socket.AF_INET, socket.AF_INET6):
            listening.setsockopt(socket.IPPROTO_TCP, option, wait_ms)


def _listeners_of_this_loop(
    sockets: Sequence[socket.socket], ssl_context: ssl.SSLContext | None, accept: Accept
) -> _Listeners:
    if in_trio():
        from mcp_tasks_trio.http_pump_trio import TrioListeners

        return TrioListeners(sockets, ssl_context, accept)
    from mcp_tasks_trio.http_pump_asyncio import AsyncioListeners

    return AsyncioListeners(sockets, ssl_context, accept)


@asynccontextmanager
async def serving_http(
    engine: ServerEngine, *, shutdown_grace_seconds: float = SHUTDOWN_GRACE_SECONDS, **settings: Any
) -> AsyncIterator[HttpListener]:
    """Serve an engine that is running, while the block runs. The settings are those of ``HttpSettings``.

    Raises:
        LocalProtocolError: a setting that cannot be.
        OSError: it cannot listen there.
    """
    chosen = HttpSettings(**settings)
    with contextlib.ExitStack() as stack:
        sockets = await bind(chosen.host, chosen.port, chosen.unix_socket, stack)
        async with _listening(engine, chosen, sockets, shutdown_grace_seconds) as listener:
            yield listener


@asynccontextmanager
async def _listening(
    engine: ServerEngine, settings: HttpSettings, sockets: Sequence[socket.socket], grace_seconds: float
) -> AsyncIterator[HttpListener]:
    listener = HttpListener(engine, settings, sockets)
    if settings.is_open:
        _log.warning(
            "%s has no owner resolver and can be reached from other machines: everybody who reaches it may call"
            " every tool and read and cancel every task",
            listener.url,
        )
    async with listener.running(grace_seconds):
        yield listener


async def serve_http(
    application: Application,
    *,
    store: TaskStore | None = None,
    shutdown_grace_seconds: float = SHUTDOWN_GRACE_SECONDS,
    start_wait_seconds: float = START_WAIT_SECONDS,
    started: Callable[[HttpListener], None] | None = None,
    shutting_down: Callable[[], None] | None = None,
    stop: anyio.Event | None = None,
    **settings: Any,
) -> None:
    """Serve over HTTP until SIGINT or SIGTERM comes, or ``stop`` is set.

    Then it accepts nothing more, answers within the grace what was asked, and leaves tasks alone.

    Args:
        store: where tasks are kept; the application's own when ``None``.
        shutdown_grace_seconds: how long requests in progress may still be answered.
        start_wait_seconds: how long the start may wait for a store that other processes keep busy; above 0.
        started: called when it listens; ``url`` and ``port`` say where.
        shutting_down: called when the end begins.
        settings: those of ``HttpSettings``: ``host``, ``port``, ``path``, ``owner_resolver`` …

    Raises:
        LocalProtocolError: a setting that cannot be.
        OSError: it cannot listen there.
        StoreBusy: the store was busy for all of ``start_wait_seconds``.
        StoreError: the store failed at the start.
    """
    chosen = HttpSettings(**settings)
    signals = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    with contextlib.ExitStack() as stack:
        # First of all: what goes wrong here is the caller's to see, and not inside of an exception group.
        sockets = await bind(chosen.host, chosen.port, chosen.unix_socket, stack)
        engine = ServerEngine(application, store=store, start_wait_seconds=start_wait_seconds)
        if not await reached_store(engine, signals=signals, stop=stop):
            return
        async with (
            engine.running(),
            signalled(signals) as signal_came,
            _listening(engine, chosen, sockets, shutdown_grace_seconds) as listener,
        ):
            if started is not None:
                started(listener)
            await first_of(signal_came.wait, *(() if stop is None else (stop.wait,)))
            if shutting_down is not None:
                shutting_down()


def run_http(
    application: Application,
    *,
    backend: str = "asyncio",
    shutdown_grace_seconds: float = SHUTDOWN_GRACE_SECONDS,
    **options: Any,
) -> int:
    """Serve over HTTP as the main thing that this process does; gives its exit status.

    Whatever tools do, the process ends within two seconds of the grace. Options are those of ``serve_http``.

    Raises:
        LocalProtocolError: there is no such backend, or a setting cannot be.
        OSError: it cannot listen there.
        StoreBusy: the store was busy for all of ``start_wait_seconds``.
        StoreError: the store failed at the start.
    """
    if backend not in BACKENDS:
        raise LocalProtocolError(f"backend is one of {', '.join(BACKENDS)}; not {backend!r}")
    grace = shutdown_grace_seconds

    def shutting_down() -> None:
        timer = threading.Timer(grace + 2 * _FLUSH_SECONDS + _EXIT_SECONDS, leave)
        timer.daemon = True
        timer.start()

    async def main() -> None:
        await serve_http(application, shutdown_grace_seconds=grace, shutting_down=shutting_down, **options)

    spare_what_is_kept()
    anyio.run(main, backend=backend)
    return 0
