"""What an operator does with a store: look through it, check it, purge it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import attrs
import pytest

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.tasks import TaskStatus
from mcp_tasks_core.testing.store_contract import row


def test_every_row_is_walked_through_once_in_the_order_of_ids(open_store):
    store = open_store()
    names = [f"t{index:04}" for index in range(600)]
    for name in reversed(names):
        assert store.create(row(name))
    assert [found.task_id for found in store.rows()] == names
    assert store.count() == 600


def test_rows_that_come_and_go_during_a_walk_break_nothing(open_store):
    store = open_store()
    for index in range(300):
        assert store.create(row(f"t{index:04}"))
    walk = store.rows()
    assert next(walk).task_id == "t0000"
    assert store.delete(TaskId("t0299"), 1)
    assert store.create(row("z"))
    rest = [found.task_id for found in walk]
    assert rest == [*(f"t{index:04}" for index in range(1, 299)), "z"]


def test_purge_removes_what_ended_before_the_moment_and_nothing_else(open_store):
    now = [1_000]
    store = open_store(clock=lambda: now[0])
    for status in ("completed", "failed", "cancelled", "working", "input_required"):
        assert store.create(row(f"old {status}", status=status))
    assert store.create(row("ended later"))
    now[0] = 2_000
    assert store.swap(row("ended later", 2, status="completed"))
    assert store.create(row("new", status="completed"))
    assert store.purge(1_000) == 0
    assert store.purge(2_000) == 3
    left = [found.task_id for found in store.rows()]
    assert left == ["ended later", "new", "old input_required", "old working"]
    assert store.count() == 4
    assert store.purge(2_001) == 2


def test_purge_goes_through_many_pages(open_store):
    store = open_store(clock=lambda: 0, synchronous="NORMAL")
    for index in range(1_000):
        assert store.create(row(f"t{index}", status="completed" if index % 3 else "working"))
    assert store.purge(1) == 666
    assert store.count() == 334
    assert {found.status for found in store.rows()} == {"working"}


def test_a_sound_store_has_no_problems(open_store, record_row):
    store = open_store()
    assert store.check() == []
    for index in range(20):
        assert store.create(record_row(f"t{index}", status=list(TaskStatus)[index % 3]))
    assert store.delete(TaskId("t3"), 1)
    assert store.check() == []


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE sums SET tasks = 7 WHERE scope = 0", "the number of tasks: 7 is written down, 2 was found"),
        ("UPDATE sums SET tasks = 1 WHERE scope = 1", "the number of owners whose tasks are miscounted"),
        ("DELETE FROM sums WHERE scope = 1", "the number of owners with tasks: 0 is written down, 1 was found"),
        ("UPDATE tasks SET status = 'completed' WHERE task_id = 'a'", "task a: its column status says 'completed'"),
        ("UPDATE tasks SET subject = 'x' WHERE task_id = 'a'", "task a: its column owner says ('tenant', 'x')"),
        ("UPDATE tasks SET executor = 'p2' WHERE task_id = 'a'", "task a: its column executor says 'p2'"),
        ("UPDATE tasks SET task_id = 'c' WHERE task_id = 'a'", "task c: its column task_id says 'c', its record 'a'"),
        ("UPDATE tasks SET revision = 0 WHERE task_id = 'a'", "task a: revision 0"),
        ("UPDATE tasks SET payload = x'7b' WHERE task_id = 'a'", "task a: a payload that is no record"),
        ("UPDATE tasks SET payload = 'text' WHERE task_id = 'a'", "task a: the payload column holds str"),
    ],
)
def test_what_is_wrong_is_said_by_name(path, open_store, record_row, statement, problem):
    store = open_store()
    for name in ("a", "b"):
        assert store.create(record_row(name))
    with closing(sqlite3.connect(path, isolation_level=None)) as careless:
        careless.execute(statement)
    problems = store.check()
    assert problems
    assert any(text.startswith(problem) for text in problems), problems


def test_an_index_that_lost_an_entry_is_noticed(path, open_store, record_row):
    store = open_store()
    for index in range(3):
        assert store.create(record_row(f"t{index}"))
    with closing(sqlite3.connect(path, isolation_level=None)) as careless:
        careless.execute("PRAGMA writable_schema = ON")
        careless.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'IS NOT NULL', 'IS NULL') WHERE name = 'tasks_due'"
        )
    assert any(text.startswith("SQLite: ") for text in open_store().check())


def test_a_lease_that_ended_long_ago_leaves_no_row(open_store):
    store = open_store()
    day_ms = 24 * 60 * 60 * 1000
    store.hold_lease("first", 1_000)
    store.hold_lease("second", 1_000 + day_ms)
    assert store._query("SELECT executor FROM leases ORDER BY 1") == [("first",), ("second",)]
    store.hold_lease("third", 1_001 + day_ms)
    assert store._query("SELECT executor FROM leases ORDER BY 1") == [("second",), ("third",)]


@pytest.mark.parametrize(
    ("listing", "index"),
    [
        ("list_due", "tasks_due"),
        ("list_orphans", "tasks_executor"),
        ("list_changes", "tasks_changed"),
        ("load", "sqlite_autoindex_tasks_1"),
    ],
)
def test_no_call_looks_through_all_tasks(open_store, listing, index):
    store = open_store()
    asked: list[tuple[str, tuple[object, ...]]] = []
    query = store._reads.query
    store._reads.query = lambda statement, values=(): asked.append((statement, values)) or query(statement, values)
    getattr(store, listing)(*((TaskId("a"),) if listing == "load" else (5, 10)))
    [(statement, values)] = asked
    plan = [line[3] for line in query(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any(index in line for line in plan), plan
    assert not any(line.startswith("SCAN tasks") and "INDEX" not in line for line in plan), plan
    assert not any("TEMP B-TREE" in line for line in plan), plan


def test_what_the_store_holds_is_what_was_handed_in_to_the_last_field(open_store):
    store = open_store()
    wanted = row("a", due_at_ms=-(2**63), executor="", owner=("", ""), status="", payload=bytes(range(256)))
    assert store.create(wanted)
    assert store.load(TaskId("a")) == wanted
    assert attrs.asdict(next(store.rows())) == attrs.asdict(wanted)
