"""A store looked into from outside: read only, beside its servers; and the file of its sealing keys."""

from __future__ import annotations

import base64
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.store import StoreError
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite import (
    SealedTaskStore,
    SealingKey,
    SqliteStoreView,
    SqliteTaskStore,
    StoreNotOpened,
    read_key_file,
    sealing_key_id,
)


def test_a_missing_file_is_not_made(path):
    with pytest.raises(StoreNotOpened, match="there is no store"):
        SqliteStoreView(path)
    assert not path.exists()


def test_what_is_no_store_is_refused_and_left_as_it_was(path, tmp_path):
    path.write_bytes(b"")
    with pytest.raises(StoreNotOpened, match="is empty"):
        SqliteStoreView(path)
    assert path.read_bytes() == b""
    path.write_bytes(b"not a database, and long enough to be looked at as one" * 40)
    with pytest.raises(StoreNotOpened, match="is not an SQLite database"):
        SqliteStoreView(path)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE tasks (a)")
    with pytest.raises(StoreNotOpened, match="of another program"):
        SqliteStoreView(foreign)
    with pytest.raises(StoreNotOpened, match="is not a file"):
        SqliteStoreView(tmp_path)


def test_a_store_of_a_later_version_is_refused(path, open_store):
    open_store().close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreNotOpened, match="schema version 99"):
        SqliteStoreView(path)


def test_a_view_sees_what_a_store_that_is_open_has_written_and_changes_nothing(path, open_store):
    store = open_store(clock=lambda: 5_000)
    assert store.create(row("a"))
    with SqliteStoreView(path) as view:
        assert view.count() == 1
        assert store.create(row("b"))
        assert [viewed.row.task_id for viewed in view.newest()] == ["b", "a"]
        assert {viewed.changed_at_ms for viewed in view.newest()} == {5_000}
        with pytest.raises(StoreError, match="cannot be written"):
            view._query("DELETE FROM tasks")
    with pytest.raises(StoreError, match="is closed"):
        view.count()


def test_a_file_whose_server_died_is_read_without_being_repaired(path, open_store):
    store = open_store()
    assert store.create(row("a"))
    content = path.read_bytes()  # the log still holds the task
    with SqliteStoreView(path) as view:
        assert view.count() == 1
        assert list(view.check(open_row=lambda row: None)) == []
    assert path.read_bytes() == content


def test_tasks_are_found_by_status_and_by_owner_newest_first(path, open_store):
    store = open_store()
    for index in range(600):
        status = "completed" if index % 2 else "working"
        assert store.create(row(f"t{index:03}", status=status, owner=("a" if index % 3 else "a/b", "s")))
    assert store.swap(row("t001", 2, status="failed", owner=("a", "s")))
    with SqliteStoreView(path) as view:
        names = [viewed.row.task_id for viewed in view.newest()]
        assert names == ["t001", *(f"t{index:03}" for index in reversed(range(600)) if index != 1)]
        assert view.count(status="completed") == 299
        assert view.count(owner="a/b/s") == 200
        assert {viewed.row.owner for viewed in view.newest(owner="a/b/s")} == {("a/b", "s")}
        assert view.count(status="working", owner="a/s") == len(list(view.newest(status="working", owner="a/s"))) == 200
        found = view.find(TaskId("t001"))
        assert found is not None
        assert found.row.status == "failed"
        assert view.find(TaskId("t600")) is None


def test_what_a_purge_would_remove_is_what_it_removes(path, open_store):
    now = [1_000]
    store = open_store(clock=lambda: now[0])
    for name, status, due in (
        ("a", "completed", 50),
        ("b", "failed", 5_000),
        ("c", "working", 50),
        ("d", "failed", None),
    ):
        assert store.create(row(name, status=status, due_at_ms=due))
    with SqliteStoreView(path) as view:
        assert view.count_purgeable(1_000) == 0
        assert view.count_purgeable(1_001) == 3
        assert view.count_purgeable(1_001, due_by_ms=49) == 0
        assert view.count_purgeable(1_001, due_by_ms=50) == 1
        assert store.purge(1_001, due_by_ms=50) == 1
        assert [found.task_id for found in store.rows()] == ["b", "c", "d"]
        assert view.count_purgeable(1_001) == store.purge(1_001) == 2
    assert [found.task_id for found in store.rows()] == ["c"]


def test_leases_are_shown(path, open_store):
    store = open_store()
    store.hold_lease("p1", 9_000)
    with SqliteStoreView(path) as view:
        assert view.leases() == {"p1": 9_000}


def test_a_file_that_others_may_read_is_a_problem_to_be_told(path, open_store):
    open_store().close()
    path.chmod(0o644)
    with SqliteStoreView(path) as view:
        [problem] = view.check()
        assert "is open to other users (mode 0644)" in problem


def test_columns_of_rows_that_cannot_be_read_are_looked_at_all_the_same(path, open_store):
    store = open_store()
    sealed = SealedTaskStore(store, [SealingKey("k1", bytes(32))])
    assert sealed.create(row("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as careless:
        careless.execute("UPDATE tasks SET revision = 0")
    with SqliteStoreView(path) as view:
        assert list(view.check(open_row=lambda row: None)) == ["task a: revision 0, and the first one is 1"]
        [viewed] = view.newest()
        assert sealing_key_id(viewed.row.payload) == "k1"


# --- the key file


def write_keys(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_text(text)
    file.chmod(mode)
    return file


SECRET = base64.b64encode(bytes(range(32))).decode()


def test_keys_are_read_in_their_order(tmp_path):
    file = write_keys(tmp_path, f"# the newest first\n\n  k2\t{SECRET}\nk1 {base64.b64encode(bytes(32)).decode()}\n")
    assert read_key_file(file) == [SealingKey("k2", bytes(range(32))), SealingKey("k1", bytes(32))]


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("", 0o600, "holds no key"),
        ("# nothing\n", 0o600, "holds no key"),
        (f"k1 {SECRET}\n", 0o640, "is open to other users"),
        (f"k1 {SECRET}\nk1 {SECRET}\n", 0o600, "two keys of one id"),
        (f"\n{SECRET}\n", 0o600, "line 2 of the key file"),
        (f"k1 {SECRET} more\n", 0o600, "line 1 of the key file"),
        (f"k1 {SECRET[:-4]}\n", 0o600, "no 32 bytes"),
        (f"k1 {SECRET[:-1]}\n", 0o600, "no 32 bytes"),
        ("k1 \N{SNOWMAN}\n", 0o600, "something else than ASCII"),
    ],
)
def test_a_key_file_that_is_none_is_refused_and_not_quoted(tmp_path, text, mode, problem):
    file = write_keys(tmp_path, text, mode)
    with pytest.raises(LocalProtocolError, match=problem) as refused:
        read_key_file(file)
    assert SECRET[:8] not in str(refused.value)


def test_a_missing_key_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(LocalProtocolError, match="cannot be read: No such file"):
        read_key_file(tmp_path / "keys")


# --- copies


def test_a_copy_that_sqlite_makes_beside_a_running_store_is_a_store(path, open_store, record_row, tmp_path):
    store = open_store()
    assert store.create(record_row("a"))
    copy = tmp_path / "copy.db"
    copy.touch(mode=0o600)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    assert store.create(record_row("b"))
    with SqliteStoreView(copy) as view:
        assert [viewed.row for viewed in view.newest()] == [record_row("a")]
        assert list(view.check()) == []
    with SqliteTaskStore(copy) as served:
        assert served.create(record_row("c"))
        assert [row.task_id for row in served.rows()] == ["a", "c"]
