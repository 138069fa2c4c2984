"""Which store ``mcp-tasks serve`` keeps tasks in."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import MemoryTaskStore, StoreError
from mcp_tasks_sqlite.faults import StoreNotOpened
from mcp_tasks_trio.exit_codes import WrongUsage

if TYPE_CHECKING:
    from mcp_tasks_core.store import SharedTaskStore, TaskStore
    from mcp_tasks_trio.application import Application

MEMORY: Final = "memory"
"""In place of a file: tasks end with the process."""


def open_store(application: Application, chosen: str | None, *, origin: str, key_file: str | None = None) -> TaskStore:
    """The store that was chosen, else the application's own, else one file for it in the user's state folder.

    Args:
        chosen: a file's path, or ``memory``; ``None`` where nothing was chosen.
        origin: where the application is defined, to tell it from others of its name.
        key_file: the file with the keys that seal what tasks hold; for a store in a file.

    Raises:
        WrongUsage: the file cannot be opened as a store, or the keys cannot be used; the message says why.
    """
    if key_file is not None and (chosen == MEMORY or (chosen is None and application.store is not None)):
        raise WrongUsage("--key-file seals a store in a file, and this one is in memory or the application's own")
    if chosen == MEMORY:
        return MemoryTaskStore()
    if chosen is None and (application.store is not None or not application.server_config(()).tasks):
        return application.new_store()
    path = default_file(application.name, origin) if chosen is None else Path(chosen)
    from mcp_tasks_sqlite.store import SqliteTaskStore

    try:
        if chosen is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            print(f"mcp-tasks: tasks of {application.name} are kept in {path}", file=sys.stderr)
        store = SqliteTaskStore(path)
    except (StoreNotOpened, OSError) as error:
        raise WrongUsage(f"{path} cannot be used as a store: {error}") from None
    return store if key_file is None else _sealed(store, key_file)


def _sealed(store: SharedTaskStore, key_file: str) -> TaskStore:
    from mcp_tasks_sqlite.key_file import read_key_file
    from mcp_tasks_sqlite.sealing import SealedTaskStore

    try:
        sealed = SealedTaskStore(store, read_key_file(key_file))
        # Opens what the store holds already: keys that do not fit are told now, not when a task is asked for.
        sealed.request_state_secrets(secrets.token_bytes(32))
    except (LocalProtocolError, StoreError) as error:
        raise WrongUsage(f"the keys in {key_file} do not open the store: {error}") from None
    except ImportError:
        raise WrongUsage("sealed stores need the package cryptography: install mcp-tasks-sqlite[encryption]") from None
    return sealed


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
