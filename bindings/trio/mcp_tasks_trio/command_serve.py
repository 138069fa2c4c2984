"""``mcp-tasks serve MODULE:APP``: finds the application and serves it on stdin and stdout."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mcp_tasks_trio.application import Application
from mcp_tasks_trio.exit_codes import WrongUsage
from mcp_tasks_trio.served_store import open_store
from mcp_tasks_trio.stdio_server import run_stdio


def run_serve(spec: str, *, backend: str, log_level: str, store: str | None = None, key_file: str | None = None) -> int:
    """Serve until the client closes stdin; gives the exit status.

    Args:
        store: a file's path, or ``memory``; ``None`` for the application's own, else a file of the user's.
        key_file: the file with the keys that seal what tasks hold, ``None`` to leave it readable.

    Raises:
        WrongUsage: there is no such application, or no such store.
    """
    application = load_application(spec)
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if sys.stdin.isatty():
        print(
            f"mcp-tasks: {application.name} is served on stdin and stdout, where a program is to speak to it, such as"
            f" mcp-tasks call TOOL -- mcp-tasks serve {spec}",
            file=sys.stderr,
        )
    tasks = open_store(application, store, origin=_origin_of(spec), key_file=key_file)
    return run_stdio(application, backend=backend, store=tasks)


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
