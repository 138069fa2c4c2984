"""Which store ``mcp-tasks serve`` keeps tasks in."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import MemoryTaskStore, StoreBusy, StoreError
from mcp_tasks_sqlite.faults import StoreNotOpened
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage
from mcp_tasks_trio.signals import SIGNALS
from mcp_tasks_trio.starting import InputWatch
from mcp_tasks_trio.store_start import QUIET_WAIT_SECONDS, RETRY_SECONDS, START_WAIT_SECONDS, ToldOnce, still_busy

if TYPE_CHECKING:
    from mcp_tasks_core.store import SharedTaskStore, TaskStore
    from mcp_tasks_trio.application import Application

MEMORY: Final = "memory"
"""In place of a file: tasks end with the process."""

_ATTEMPT_WAIT_MS: Final = 50  # of one attempt: between them a look is taken at whether the client is still there


def open_store(
    application: Application,
    chosen: str | None,
    *,
    origin: str,
    key_file: str | None = None,
    wait_seconds: float = START_WAIT_SECONDS,
    input_fd: int | None = None,
) -> TaskStore:
    """The store that was chosen, else the application's own, else one file for it in the user's state folder.

    Args:
        chosen: a file's path, or ``memory``; ``None`` where nothing was chosen.
        origin: where the application is defined, to tell it from others of its name.
        key_file: the file with the keys that seal what tasks hold; for a store in a file.
        wait_seconds: how long to wait for a file that another process keeps locked.
        input_fd: when it has ended nobody waits for the server.

    Raises:
        WrongUsage: the file cannot be opened as a store, or the keys cannot be used; the message says why.
        EndsEarly: a signal came or the input ended while the file was locked.
    """
    if key_file is not None and (chosen == MEMORY or (chosen is None and application.store is not None)):
        raise WrongUsage("--key-file seals a store in a file, and this one is in memory or the application's own")
    if chosen == MEMORY:
        return MemoryTaskStore()
    if chosen is None and (application.store is not None or not application.server_config(()).tasks):
        return application.new_store()
    path = default_file(application.name, origin) if chosen is None else Path(chosen)
    seal = None if key_file is None else _reading_keys(key_file)
    try:
        if chosen is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            print(f"mcp-tasks: tasks of {application.name} are kept in {path}", file=sys.stderr)
        _when_free(lambda: _make(path, seal), wait_seconds, input_fd)
        from mcp_tasks_sqlite.store import SqliteTaskStore

        store = SqliteTaskStore(path)
    except (StoreNotOpened, StoreBusy, OSError) as error:
        raise WrongUsage(f"{path} cannot be used as a store: {error}") from None
    except StoreError as error:
        keys = "" if key_file is None else f"the keys in {key_file} do not open the store: "
        raise WrongUsage(f"{keys}{error}") from None
    return store if seal is None else seal(store)


def _make(path: Path, seal: Callable[[SharedTaskStore], SharedTaskStore] | None) -> None:
    """Make the file a store where it is none yet, and see that the keys open what it holds.

    Keys that do not fit are told now, not when a task is asked for.

    Raises:
        StoreBusy: it is locked.
        StoreError: it cannot be a store, or not with these keys.
    """
    from mcp_tasks_sqlite.store import SqliteTaskStore

    with SqliteTaskStore(path, busy_wait_ms=_ATTEMPT_WAIT_MS) as store:
        if seal is not None:
            seal(store).request_state_secrets(secrets.token_bytes(32))


def _when_free(attempt: Callable[[], None], wait_seconds: float, input_fd: int | None) -> None:
    """Try again for as long as the file is locked.

    Raises:
        StoreBusy: it was for all of that time.
        EndsEarly: a signal came or the input ended first.
    """
    give_up_at = time.monotonic() + wait_seconds
    watch = None if input_fd is None else InputWatch(input_fd)
    leave_at: float | None = None
    told = ToldOnce(wait_seconds)
    tell_at = time.monotonic() + QUIET_WAIT_SECONDS
    with _signals_noted() as noted:
        while True:
            busy: StoreBusy | None = None
            try:
                attempt()
            except StoreBusy as error:
                busy = error
            if noted:
                raise EndsEarly(ExitCode.RESULT, f"{noted[0]} came while the server opened its task store")
            if busy is None:
                return
            now = time.monotonic()
            if now >= give_up_at:
                raise still_busy(wait_seconds, busy)
            if now >= tell_at:
                told.tell()
            grace_seconds = None if watch is None else watch.grace_seconds
            if grace_seconds is not None and leave_at is None:
                leave_at = now + grace_seconds
            if leave_at is not None and now >= leave_at:
                raise EndsEarly(ExitCode.RESULT, "the client went away while the server opened its task store")
            time.sleep(RETRY_SECONDS)


@contextmanager
def _signals_noted() -> Iterator[list[str]]:
    """The names of the signals that came, to end in good order: raised from a handler, an end could be swallowed."""
    noted: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = [
        (number, signal.signal(number, lambda came, frame: noted.append(signal.Signals(came).name)))
        for number in SIGNALS
    ]
    try:
        yield noted
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _reading_keys(key_file: str) -> Callable[[SharedTaskStore], SharedTaskStore]:
    """What seals a store with the keys of this file.

    Raises:
        WrongUsage: they cannot be read or used; the message says why.
    """
    from mcp_tasks_sqlite.key_file import read_key_file
    from mcp_tasks_sqlite.sealing import SealedLocalTaskStore, SealedTaskStore

    try:
        keys = read_key_file(key_file)
        SealedLocalTaskStore(MemoryTaskStore(), keys)  # finds out whether they can be used at all
    except LocalProtocolError as error:
        raise WrongUsage(f"the keys in {key_file} cannot be used: {error}") from None
    return lambda store: SealedTaskStore(store, keys)


def default_file(name: str, origin: str) -> Path:
    """The file of an application that was given none: the same in every process that serves the same module.

    The name alone would not do: two applications of one name would take each other's tasks for those of a process
    that has died.
    """
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "application"
    return state_folder() / f"{readable[:64]}-{hashlib.sha256(origin.encode()).hexdigest()[:12]}.db"


def state_folder() -> Path:
    """Where this user's programs keep what is to outlive them."""
    given = os.environ.get("XDG_STATE_HOME")
    if given and os.path.isabs(given):
        return Path(given) / "mcp-tasks"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "mcp-tasks"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "mcp-tasks"
    return Path.home() / ".local" / "state" / "mcp-tasks"
