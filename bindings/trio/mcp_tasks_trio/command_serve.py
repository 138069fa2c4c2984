"""``mcp-tasks serve MODULE:APP``: finds the application and serves it on stdin and stdout, or over HTTP."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import StoreError, TaskStore
from mcp_tasks_http import is_loopback
from mcp_tasks_trio.application import Application
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage
from mcp_tasks_trio.http_options import parse_address
from mcp_tasks_trio.served_store import open_store
from mcp_tasks_trio.stdio_server import run_stdio
from mcp_tasks_trio.store_start import START_WAIT_SECONDS

_LAST_WAIT_SECONDS: Final = 1.0  # for the server to begin, when opening the store took all of the wait


@attrs.frozen(kw_only=True)
class HttpOptions:
    """Where to listen, and whom to let in."""

    host: str
    port: int
    path: str
    origins: Sequence[str]
    hosts: Sequence[str]
    insecure_public: bool

    @classmethod
    def parse(
        cls,
        *,
        address: str | None,
        path: str | None,
        origins: Sequence[str],
        hosts: Sequence[str],
        insecure_public: bool,
    ) -> HttpOptions | None:
        """The options, checked; ``None`` where it is to be stdin and stdout.

        Raises:
            WrongUsage: an option is wrong, or has no meaning without ``--http``.
        """
        if address is None:
            if path is not None or origins or hosts or insecure_public:
                raise WrongUsage("--path, --allow-origin, --allow-host and --insecure-public go with --http HOST:PORT")
            return None
        host, port = parse_address(address)
        if not is_loopback(host) and not insecure_public:
            raise WrongUsage(
                f"other machines can reach {host}, and everybody who does could call every tool and read and cancel"
                " every task: listen on 127.0.0.1, or say --insecure-public. A server that asks who is there is"
                " written with serve_http and an owner_resolver"
            )
        return cls(
            host=host, port=port, path=path or "/mcp", origins=origins, hosts=hosts, insecure_public=insecure_public
        )


def run_serve(
    spec: str,
    *,
    backend: str,
    log_level: str,
    store: str | None = None,
    key_file: str | None = None,
    http: HttpOptions | None = None,
    start_wait_seconds: float = START_WAIT_SECONDS,
    subscriptions: bool = True,
) -> int:
    """Serve until the client closes stdin, or over HTTP until a signal; gives the exit status.

    Args:
        http: over HTTP.
        store: a file's path, or ``memory``; ``None`` for the application's own, else a file of the user's.
        key_file: the file with the keys that seal what tasks hold, ``None`` to leave it readable.
        start_wait_seconds: how long to wait for a store that other processes keep busy; above 0.
        subscriptions: ``False`` to serve none, whatever the application says.

    Raises:
        WrongUsage: there is no such application, or no such store, or it stayed busy.
        EndsEarly: it cannot listen there, or it was told to end before the store was free.
    """
    application = load_application(spec)
    application.subscriptions = application.subscriptions and subscriptions
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if http is None and sys.stdin.isatty():
        print(
            f"mcp-tasks: {application.name} is served on stdin and stdout, where a program is to speak to it, such as"
            f" mcp-tasks call TOOL -- mcp-tasks serve {spec}",
            file=sys.stderr,
        )
    until = time.monotonic() + start_wait_seconds
    tasks = open_store(
        application,
        store,
        origin=_origin_of(spec),
        key_file=key_file,
        wait_seconds=start_wait_seconds,
        input_fd=0 if http is None else None,
    )
    rest_seconds = max(until - time.monotonic(), min(start_wait_seconds, _LAST_WAIT_SECONDS))
    try:
        if http is None:
            return run_stdio(application, backend=backend, store=tasks, start_wait_seconds=rest_seconds)
        return _serve_http(application, tasks, http, backend, rest_seconds)
    except StoreError as error:
        raise WrongUsage(str(error)) from None


def _serve_http(
    application: Application, store: TaskStore | None, options: HttpOptions, backend: str, start_wait_seconds: float
) -> int:
    from mcp_tasks_trio.http_server import HttpListener, run_http

    def started(listener: HttpListener) -> None:
        print(f"mcp-tasks: {application.name} is served at {listener.url}", file=sys.stderr, flush=True)

    try:
        return run_http(
            application,
            backend=backend,
            store=store,
            start_wait_seconds=start_wait_seconds,
            host=options.host,
            port=options.port,
            path=options.path,
            allowed_origins=options.origins,
            allowed_hosts=options.hosts,
            insecure_public=options.insecure_public,
            started=started,
        )
    except LocalProtocolError as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise EndsEarly(ExitCode.SERVER, error.strerror or str(error)) from None


def _origin_of(spec: str) -> str:
    """Where the application that a MODULE:NAME names is defined."""
    module_name, _, name = spec.partition(":")
    file = getattr(sys.modules[module_name], "__file__", None)
    return f"{os.path.realpath(file) if file else module_name}:{name}"


def load_application(spec: str) -> Application:
    """The application that a MODULE:NAME names; modules of the current directory can be imported, too.

    Raises:
        WrongUsage: it names none; the message says what was wrong and what is allowed.
    """
    module_name, colon, name = spec.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), *name.split(".")]):
        raise WrongUsage(f"{spec!r} does not name an application: write MODULE:NAME, such as examples.reports:app")
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    with _stdout_is_stderr():
        module = _import(module_name)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise WrongUsage(f"the module {module_name!r} has no {name!r}; {_suggestion(module_name, module)}")
        found = getattr(found, part)
    if not isinstance(found, Application):
        what = f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"
        raise WrongUsage(f"{spec} is {what}, not an Application; {_suggestion(module_name, module)}")
    return found


def _import(module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise WrongUsage(
                f"there is no module {missing!r} in the current directory or among the installed packages"
            ) from None
        raise WrongUsage(f"the module {module_name!r} imports {missing!r}, which is not installed") from None
    except (Exception, SystemExit) as error:
        # The fault is in the person's own module: they need to see where.
        traceback.print_exc()
        raise WrongUsage(f"the module {module_name!r} failed to import: {type(error).__name__}: {error}") from None


def _suggestion(module_name: str, module: object) -> str:
    names = [f"{module_name}:{name}" for name, value in vars(module).items() if isinstance(value, Application)]
    return f"use {' or '.join(names)}" if names else f"no Application stands in {module_name!r}"


@contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """Stdout belongs to the protocol: what a module prints while it is imported goes to stderr."""
    sys.stdout.flush()
    stdout, stdout_fd = sys.stdout, os.dup(1)
    try:
        sys.stdout = sys.stderr
        os.dup2(2, 1)
        yield
    finally:
        sys.stdout = stdout
        os.dup2(stdout_fd, 1)
        os.close(stdout_fd)
