"""What SQLite's errors mean, in words for the people who run the store."""

from __future__ import annotations

import sqlite3
from typing import Final

from mcp_tasks_core.store import StoreBusy, StoreError


class StoreNotOpened(StoreError):
    """The file cannot be used as a store; the text says why and what can be done. Nothing was changed."""


class StoreFileBusy(StoreNotOpened, StoreBusy):
    """Another process has kept the file locked, so that it could not be made a store; to open it again may help."""


# Somebody else has the lock: to try again is the answer. PROTOCOL: the same, while the lock changes hands quickly.
_LOCK_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})

_BUSY_TEXT: Final = "another process stands in the way on {path}"
_STORAGE_TEXTS: Final[dict[int, str]] = {
    sqlite3.SQLITE_FULL: "the disk that holds {path} is full",
    sqlite3.SQLITE_READONLY: "{path} cannot be written: the file, its folder or its file system is read-only",
    sqlite3.SQLITE_PERM: "the permissions of {path} forbid it",
    sqlite3.SQLITE_AUTH: "the permissions of {path} forbid it",
    sqlite3.SQLITE_IOERR: "the disk that holds {path} failed",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged: stop every process that uses it and restore a copy",
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened: it, its -wal or its -shm file is missing or forbidden",
    sqlite3.SQLITE_NOMEM: "there is no memory left to work on {path}",
}


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 where the module itself raised the error."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_lock(error: sqlite3.Error) -> bool:
    """Whether another connection stood in the way, and nothing else is wrong."""
    return primary_code(error) in _LOCK_CODES


def is_storage(error: sqlite3.Error) -> bool:
    """Whether the file or the disk is at fault, so that no other statement of the transaction can be trusted."""
    return primary_code(error) in _STORAGE_TEXTS


def explain(error: sqlite3.Error, path: str) -> str:
    """One clear sentence, with SQLite's own words in brackets."""
    otherwise = _BUSY_TEXT if is_lock(error) else "SQLite refused to work on {path}"
    text = _STORAGE_TEXTS.get(primary_code(error), otherwise)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return f"{text.format(path=path)} ({name}: {error})"


def failure_of(error: sqlite3.Error, path: str) -> StoreError:
    """What callers of the store are to be told of an error that changed nothing."""
    kind = StoreBusy if is_lock(error) else StoreError
    return kind(f"{explain(error, path)}; nothing was changed")
