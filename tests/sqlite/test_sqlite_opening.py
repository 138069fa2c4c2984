"""Which files become a store, who may read them, and what is said about the others."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import StoreBusy, StoreError
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite import SqliteTaskStore, StoreFileBusy, StoreNotOpened
from mcp_tasks_sqlite.opening import open_file
from mcp_tasks_sqlite.schema import APPLICATION_ID, MIGRATIONS, needs_migration


def connect(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


# --- permissions


def test_the_files_are_made_for_their_owner_alone_whatever_the_umask(path, open_store):
    before = os.umask(0)
    try:
        store = open_store()
        assert store.create(row("a"))
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["tasks.db", "tasks.db-shm", "tasks.db-wal"]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644])
def test_a_file_that_others_may_read_or_write_is_refused_with_the_command_that_helps(path, open_store, mode):
    open_store().close()
    path.chmod(mode)
    with pytest.raises(StoreNotOpened, match=f"mode {mode:04o}.*chmod 600 {path}"):
        open_store()
    path.chmod(0o600)
    open_store()


def test_a_log_that_others_may_read_is_refused(path, open_store):
    assert open_store().create(row("a"))
    Path(f"{path}-wal").chmod(0o644)
    with pytest.raises(StoreNotOpened, match=r"tasks\.db-wal is open to other users"):
        open_store()


# --- what is no store


def test_a_missing_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(StoreNotOpened, match=f"the folder {tmp_path / 'missing'} of the store is missing"):
        SqliteTaskStore(tmp_path / "missing" / "tasks.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_or_a_socket_is_no_store(tmp_path):
    with pytest.raises(StoreNotOpened, match="is not a file"):
        SqliteTaskStore(tmp_path)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        with pytest.raises(StoreNotOpened, match="is not a file"):
            SqliteTaskStore(f"{folder}/s")


def test_a_file_of_something_else_is_refused_and_left_as_it_is(path):
    text = b"these are my notes\n" * 100
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(StoreNotOpened, match="is not an SQLite database"):
        SqliteTaskStore(path)
    assert path.read_bytes() == text


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path):
    with connect(path) as foreign:
        foreign.execute("CREATE TABLE accounts (id)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(StoreNotOpened, match="database of another program"):
        SqliteTaskStore(path)
    assert path.read_bytes() == before


def test_an_empty_database_of_another_program_is_refused_by_its_application_id(path):
    with connect(path) as foreign:
        foreign.execute("PRAGMA application_id = 77")
    path.chmod(0o600)
    with pytest.raises(StoreNotOpened, match="0x4d"):
        SqliteTaskStore(path)


def test_an_empty_file_becomes_a_store(path, open_store):
    path.touch(mode=0o600)
    assert open_store().create(row("a"))


def test_a_damaged_file_is_named_when_it_is_opened_or_read(path, open_store):
    store = open_store()
    for index in range(200):
        assert store.create(row(f"t{index}", payload=b"x" * 500))
    store.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    with pytest.raises(StoreError, match="is damaged: stop every process"):
        open_store().load(TaskId("t7"))
    path.write_bytes(content[:100] + b"\xa5" * 3996 + content[4096:])
    with pytest.raises(StoreNotOpened, match="is damaged"):
        open_store()


@pytest.mark.parametrize("path", ["", ":memory:", "file:tasks.db?mode=memory", "a\0b", b"tasks.db"])
def test_what_is_no_path_of_a_file_is_a_mistake_of_the_caller(path):
    with pytest.raises(LocalProtocolError, match="path names a file"):
        SqliteTaskStore(path)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"synchronous": "OFF"}, 'synchronous is "FULL" or "NORMAL"'),
        ({"busy_wait_ms": -1}, "busy_wait_ms is an integer of 0 or more"),
        ({"open_wait_ms": -1}, "open_wait_ms is an integer of 0 or more"),
        ({"busy_wait_ms": 0.5}, "busy_wait_ms is an integer of 0 or more"),
        ({"capacity": 0}, "capacity is an integer of 1 or more"),
        ({"capacity": True}, "capacity is an integer of 1 or more"),
        ({"capacity_per_owner": None}, "capacity_per_owner is an integer of 1 or more"),
    ],
)
def test_wrong_settings_are_refused_before_a_file_is_made(path, options, complaint):
    with pytest.raises(LocalProtocolError, match=complaint):
        SqliteTaskStore(path, **options)
    assert not path.exists()


AS_NOBODY = """
import os, sys
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite import SqliteTaskStore, StoreNotOpened
if os.geteuid() == 0:
    os.setuid(65534)
try:
    SqliteTaskStore(sys.argv[1])
except StoreNotOpened as error:
    print(error)
"""


@pytest.mark.parametrize(("file_mode", "complaint"), [(0o400, "read-only"), (None, "cannot be made")])
def test_a_read_only_file_or_folder_is_named(file_mode, complaint):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tasks.db")
        if file_mode is not None:
            SqliteTaskStore(file).close()
            file.chmod(file_mode)
            if os.geteuid() == 0:
                os.chown(file, 65534, 65534)
        Path(folder).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(file)], capture_output=True, text=True, timeout=60, check=True
        )
        Path(folder).chmod(0o755)
    assert complaint in done.stdout, done
    assert str(file) in done.stdout


# --- versions of the schema

ADDED = ("ALTER TABLE tasks ADD COLUMN note TEXT", "UPDATE tasks SET note = 'migrated ' || task_id")


def test_a_file_of_an_earlier_version_is_brought_forward_with_all_its_tasks(path):
    with connect(path) as first:
        for statement in MIGRATIONS[0]:
            first.execute(statement)
        first.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        first.execute("PRAGMA user_version = 1")
        first.execute("INSERT INTO tasks VALUES ('a', 't', 's', 'working', 4, NULL, 'p1', 1, 1000, x'00ff')")
    path.chmod(0o600)
    open_file(path, synchronous="FULL", wait_ms=0, migrations=(MIGRATIONS[0], ADDED))
    with connect(path) as migrated:
        assert migrated.execute("PRAGMA user_version").fetchall() == [(2,)]
        found = migrated.execute("SELECT task_id, revision, payload, note FROM tasks").fetchall()
        assert found == [("a", 4, b"\x00\xff", "migrated a")]


def test_every_version_ever_released_can_be_opened(path, open_store):
    with connect(path) as first:
        for statement in MIGRATIONS[0]:
            first.execute(statement)
        first.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        first.execute("PRAGMA user_version = 1")
        first.execute("INSERT INTO tasks VALUES ('a', 't', 's', 'working', 4, NULL, 'p1', 1, 1000, x'00ff')")
    path.chmod(0o600)
    store = open_store()
    assert store.load(TaskId("a")) == row("a", 4, owner=("t", "s"), executor="p1", payload=b"\x00\xff")
    assert store.count() == 1


def test_a_migration_that_fails_leaves_the_file_as_it_was(path, open_store):
    assert open_store().create(row("a"))
    with pytest.raises(StoreNotOpened, match="no such table: missing"):
        open_file(
            path, synchronous="FULL", wait_ms=0, migrations=(*MIGRATIONS, (*ADDED, "INSERT INTO missing VALUES (1)"))
        )
    with connect(path) as unchanged:
        assert unchanged.execute("PRAGMA user_version").fetchall() == [(len(MIGRATIONS),)]
        with pytest.raises(sqlite3.OperationalError, match="no such column: note"):
            unchanged.execute("SELECT note FROM tasks")


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(path, open_store):
    open_store().close()
    open_file(path, synchronous="FULL", wait_ms=0, migrations=(*MIGRATIONS, ADDED))
    with pytest.raises(StoreNotOpened, match=f"has schema version {len(MIGRATIONS) + 1} and this mcp-tasks-sqlite"):
        open_store()
    with connect(path) as unchanged:
        assert unchanged.execute("SELECT note FROM tasks").fetchall() == []


def test_a_file_that_is_locked_while_it_is_to_be_made_is_refused_after_the_wait(path):
    path.touch(mode=0o600)
    with connect(path) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreFileBusy, match=r"another process has held .* locked for 30 ms") as said:
            SqliteTaskStore(path, busy_wait_ms=30)
        # Those who try again look for the one, and those who give up for the other.
        assert isinstance(said.value, StoreBusy)
        assert isinstance(said.value, StoreNotOpened)


@pytest.mark.spec("C5")
def test_a_new_file_may_be_waited_for_longer_than_a_write(path):
    path.touch(mode=0o600)
    with connect(path) as other, ThreadPoolExecutor() as threads:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFileBusy, match=r"locked for 60 ms"):
            SqliteTaskStore(path, busy_wait_ms=0, open_wait_ms=60)
        opening = threads.submit(SqliteTaskStore, path, busy_wait_ms=0, open_wait_ms=3_600_000)
        other.execute("ROLLBACK")
        with opening.result(60) as store:
            assert store.create(row("a"))


def test_a_file_that_is_no_store_is_not_said_to_be_busy(path):
    path.write_text("This is a text and no database, however long it is made." * 20)
    path.chmod(0o600)
    with pytest.raises(StoreNotOpened) as said:
        SqliteTaskStore(path)
    assert not isinstance(said.value, StoreBusy)


# --- while it is open


def test_a_child_of_a_fork_is_told_to_open_the_store_anew(path, open_store):
    store = open_store()
    assert store.create(row("a"))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        for call in (lambda: store.load(TaskId("a")), lambda: store.create(row("b")), store.close):
            try:
                call()
                os.write(writing, b"no error\n")
            except StoreError as error:
                os.write(writing, f"{error}\n".encode())
        anew = SqliteTaskStore(path)
        os.write(writing, f"anew: {anew.create(row('c'))}\n".encode())
        anew.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = lines.read().splitlines()
    os.waitpid(child, 0)
    assert all(f"was opened by process {os.getpid()}" in line for line in said[:3]), said
    assert said[3:] == ["anew: True"]
    assert store.create(row("d"))
    assert [found.task_id for found in store.rows()] == ["a", "c", "d"]


def test_a_file_that_was_removed_is_not_written_to(path, open_store):
    store = open_store()
    assert store.create(row("a"))
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(StoreError, match=r"tasks\.db is no longer there"):
        store.create(row("b"))


def test_a_file_that_was_replaced_is_not_written_to(path, open_store):
    store = open_store()
    assert store.create(row("a"))
    path.rename(path.with_name("moved.db"))
    SqliteTaskStore(path).close()
    with pytest.raises(StoreError, match="was replaced by another file"):
        store.create(row("b"))


def test_a_change_of_the_working_directory_changes_no_store(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with SqliteTaskStore("tasks.db") as store:
        monkeypatch.chdir("/")
        assert store.create(row("a"))
        assert store.load(TaskId("a")) == row("a")
        assert store.path == str(path)


def test_a_closed_store_says_that_it_is_closed_and_leaves_one_file(path):
    with SqliteTaskStore(path) as store:
        assert store.create(row("a"))
    store.close()
    for call in (lambda: store.load(TaskId("a")), lambda: store.create(row("b")), store.count):
        with pytest.raises(StoreError, match="is closed"):
            call()
    assert [file.name for file in path.parent.iterdir()] == ["tasks.db"]


def test_a_file_that_another_process_makes_a_store_of_meanwhile_is_not_taken_for_a_foreign_one(path):
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        made: list[str] = []

        def make_it_a_store(statement: str) -> None:
            if "user_version" in statement and not made:
                made.append(statement)
                SqliteTaskStore(path).close()

        connection.set_trace_callback(make_it_a_store)
        assert needs_migration(connection, str(path), MIGRATIONS)
        assert made
        connection.set_trace_callback(None)
        assert not needs_migration(connection, str(path), MIGRATIONS)
