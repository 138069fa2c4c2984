"""The tables of a store, and how a file of an earlier version becomes one of this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, TypeAlias

from mcp_tasks_sqlite.faults import StoreNotOpened

APPLICATION_ID: Final = 0x4D435054  # "MCPT": tells a store from any other SQLite file

Migration: TypeAlias = "tuple[str, ...]"

# A table with rowid: measured against WITHOUT ROWID, creates are a quarter faster at 100,000 tasks and the file is
# a fifth smaller, since payloads do not widen the tree of ids. Everything that most tasks lack is a partial index.
# Sums are kept by triggers: a create is one statement, atomic in itself, and no limit needs a count.
_VERSION_1: Final[Migration] = (
    """
    CREATE TABLE tasks (
        task_id TEXT NOT NULL PRIMARY KEY,
        tenant TEXT NOT NULL,
        subject TEXT NOT NULL,
        status TEXT NOT NULL,
        revision INTEGER NOT NULL,
        due_at_ms INTEGER,
        executor TEXT,
        changed INTEGER NOT NULL,
        changed_at_ms INTEGER NOT NULL,
        payload BLOB NOT NULL
    )
    """,
    "CREATE INDEX tasks_due ON tasks (due_at_ms) WHERE due_at_ms IS NOT NULL",
    "CREATE INDEX tasks_executor ON tasks (executor) WHERE executor IS NOT NULL",
    "CREATE UNIQUE INDEX tasks_changed ON tasks (changed)",
    # The whole store's sums (scope 0) and each owner's (scope 1) in one tree: with few owners, one page to write.
    # Its position is that of the newest change whose task is gone; the others stand in the tasks, so that a swap
    # writes nothing here.
    """
    CREATE TABLE sums (
        scope INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        subject TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        position INTEGER,
        PRIMARY KEY (scope, tenant, subject)
    ) WITHOUT ROWID
    """,
    "INSERT INTO sums (scope, tenant, subject, tasks, position) VALUES (0, '', '', 0, 0)",
    """
    CREATE VIEW totals AS
        SELECT tasks, max(position, coalesce((SELECT max(changed) FROM tasks), 0)) AS position
        FROM sums WHERE scope = 0
    """,
    "CREATE VIEW owners AS SELECT tenant, subject, tasks FROM sums WHERE scope = 1",
    """
    CREATE TRIGGER task_created AFTER INSERT ON tasks BEGIN
        UPDATE sums SET tasks = tasks + 1 WHERE scope = 0;
        INSERT INTO sums (scope, tenant, subject, tasks) VALUES (1, NEW.tenant, NEW.subject, 1)
            ON CONFLICT (scope, tenant, subject) DO UPDATE SET tasks = tasks + 1;
    END
    """,
    """
    CREATE TRIGGER task_moved AFTER UPDATE OF tenant, subject ON tasks
    WHEN OLD.tenant <> NEW.tenant OR OLD.subject <> NEW.subject BEGIN
        UPDATE sums SET tasks = tasks - 1 WHERE scope = 1 AND tenant = OLD.tenant AND subject = OLD.subject;
        DELETE FROM sums WHERE scope = 1 AND tenant = OLD.tenant AND subject = OLD.subject AND tasks = 0;
        INSERT INTO sums (scope, tenant, subject, tasks) VALUES (1, NEW.tenant, NEW.subject, 1)
            ON CONFLICT (scope, tenant, subject) DO UPDATE SET tasks = tasks + 1;
    END
    """,
    """
    CREATE TRIGGER task_deleted AFTER DELETE ON tasks BEGIN
        UPDATE sums SET tasks = tasks - 1, position = max(position, OLD.changed) WHERE scope = 0;
        UPDATE sums SET tasks = tasks - 1 WHERE scope = 1 AND tenant = OLD.tenant AND subject = OLD.subject;
        DELETE FROM sums WHERE scope = 1 AND tenant = OLD.tenant AND subject = OLD.subject AND tasks = 0;
    END
    """,
    "CREATE TABLE leases (executor TEXT NOT NULL PRIMARY KEY, until_ms INTEGER NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE request_state_secrets (
        position INTEGER NOT NULL PRIMARY KEY,
        key_id TEXT NOT NULL UNIQUE,
        secret BLOB NOT NULL
    )
    """,
)

MIGRATIONS: Final[tuple[Migration, ...]] = (_VERSION_1,)
"""Each entry makes one version more of a file: the first makes version 1 of an empty one."""


def needs_migration(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> bool:
    """Whether the file is empty or of an earlier version. Reads only.

    Raises:
        StoreNotOpened: it is somebody else's file, or of a later version.
    """
    application_id, version, tables = _identity(connection)
    if application_id != APPLICATION_ID and (application_id or version or tables):
        raise StoreNotOpened(
            f"{path} is an SQLite database of another program (application id {application_id:#x}, "
            f"{tables} tables and indices); name a file of its own for the store"
        )
    if version > len(migrations):
        raise StoreNotOpened(
            f"{path} has schema version {version} and this mcp-tasks-sqlite knows versions up to {len(migrations)}: "
            "use the newer release that wrote it"
        )
    return version < len(migrations)


def migrate(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    """Bring the file to the newest version, whole or not at all. To be called with the write lock held.

    Raises:
        StoreNotOpened: as ``needs_migration``.
    """
    if not needs_migration(connection, path, migrations):
        return  # another process was first
    for migration in migrations[_pragma(connection, "user_version") :]:
        for statement in migration:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(migrations)}")


def _identity(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Application id, version, and how many tables and indices: as they were at one moment.

    Read one after the other, a file that another process makes a store of meanwhile would look like somebody else's.
    """
    outside = not connection.in_transaction
    try:
        if outside:
            connection.execute("BEGIN")
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0]
        return _pragma(connection, "application_id"), _pragma(connection, "user_version"), tables
    finally:
        if outside and connection.in_transaction:
            connection.execute("ROLLBACK")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchall()[0][0]
    return value
