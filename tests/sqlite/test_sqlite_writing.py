"""Writers and readers of one file: foreign locks, joined transactions, and what one operation does to the others."""

from __future__ import annotations

import sqlite3
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import CapacityExceeded, StoreBusy, StoreError, StoreUncertain
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite.committing import GroupCommit
from mcp_tasks_sqlite.opening import open_file

HOUR_MS = 3_600_000


@pytest.fixture
def foreign(path, open_store):
    """A connection of somebody else, who takes the write lock with BEGIN IMMEDIATE."""
    open_store()
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


# --- a foreign write lock


@pytest.mark.spec("C5")
def test_reads_go_on_and_writes_fail_cleanly_while_another_process_holds_the_write_lock(open_store, foreign):
    store = open_store(busy_wait_ms=40)
    assert store.create(row("a", due_at_ms=5, executor="p1"))
    foreign.execute("BEGIN IMMEDIATE")
    foreign.execute("UPDATE tasks SET status = 'never committed'")
    for write in (
        lambda: store.create(row("b")),
        lambda: store.swap(row("a", 2)),
        lambda: store.delete(TaskId("a"), Revision(1)),
        lambda: store.hold_lease("p1", 10),
    ):
        with pytest.raises(
            StoreError, match=r"another process has held the write lock of .*tasks\.db for \d+ ms"
        ) as said:
            write()
        assert type(said.value) is StoreBusy
        assert "nothing was changed" in str(said.value)
        assert store.load(TaskId("a")) == row("a", due_at_ms=5, executor="p1")
        assert [found.task_id for found in store.list_due(5, 10)] == ["a"]
        assert [found.task_id for found in store.list_orphans(5, 10)] == ["a"]
        assert store.list_changes(0, 10) == (1, ["a"])
    foreign.execute("ROLLBACK")
    assert store.load(TaskId("b")) is None
    assert store.create(row("b"))


@pytest.mark.spec("C5")
def test_a_write_that_waits_for_another_process_is_made_when_the_lock_is_free(open_store, foreign):
    store = open_store(busy_wait_ms=HOUR_MS)
    foreign.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(store.create, row(name)) for name in ("a", "b", "c", "a")]
        for name in ("a", "b", "c"):
            assert store.load(TaskId(name)) is None
        foreign.execute("COMMIT")
        assert sorted(write.result(60) for write in waiting) == [False, True, True, True]
    assert store.count() == 3


def test_closing_a_store_ends_the_wait_for_another_process(open_store, foreign):
    store = open_store(busy_wait_ms=HOUR_MS)
    foreign.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.create, row("a"))
        while not waiting.running():
            pass
        store.close()
        with pytest.raises(StoreError, match=r"has held the write lock|is closed"):
            waiting.result(60)


def test_a_lock_on_the_whole_file_is_named_to_readers(path, open_store):
    open_store().close()
    with closing(sqlite3.connect(path, isolation_level=None)) as greedy:
        store = open_store(busy_wait_ms=20)
        store.close()
        greedy.execute("PRAGMA locking_mode = EXCLUSIVE")
        greedy.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"another process has held .* locked for 20 ms"):
            open_store(busy_wait_ms=20)


@pytest.mark.spec("C5")
def test_a_first_write_that_meets_a_lock_on_the_whole_file_waits_for_it_like_any_other(path, open_store):
    store = open_store(busy_wait_ms=20)
    with closing(sqlite3.connect(path, isolation_level=None)) as greedy:
        greedy.execute("PRAGMA locking_mode = EXCLUSIVE")
        greedy.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match=r"has held the write lock of .*tasks\.db for [2-9]\d+ ms"):
            store.create(row("a"))
    assert store.create(row("a"))


@pytest.mark.spec("C5")
def test_a_store_is_opened_and_its_secrets_are_read_while_another_process_holds_the_write_lock(open_store, foreign):
    [(key_id, secret)] = open_store().request_state_secrets(b"1" * 32)
    foreign.execute("BEGIN IMMEDIATE")
    store = open_store(busy_wait_ms=0)
    assert store.request_state_secrets(b"2" * 32) == [(key_id, secret)] == [(key_id, b"1" * 32)]
    with pytest.raises(StoreBusy):
        store.hold_lease("p1", 10)


def test_the_first_secret_of_a_store_waits_for_the_write_lock_as_any_write_does(open_store, foreign):
    store = open_store(busy_wait_ms=0)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.request_state_secrets(b"1" * 32)
    foreign.execute("ROLLBACK")
    assert [secret for _, secret in store.request_state_secrets(b"2" * 32)] == [b"2" * 32]


# --- group commit


class Gate:
    """Holds the leader inside its transaction until the others wait behind it."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> str:
        self.entered.set()
        assert self.open.wait(60)
        return "leader"

    def let_go_when_waiting(self, number: int) -> None:
        while len(self._commits._waiting) < number:
            pass
        self.open.set()


@pytest.fixture
def commits(path):
    file = open_file(path, synchronous="FULL", wait_ms=1000)
    commits = GroupCommit(file, wait_ms=1000)
    yield commits
    commits.close()


def transactions_of(commits: GroupCommit) -> list[str]:
    """What the writing connection runs from now on, but for the statements of triggers."""
    statements: list[str] = []
    commits.run(lambda connection: connection.set_trace_callback(statements.append))
    statements.clear()
    return statements


def create(name: str):
    return lambda connection: (
        connection.execute("INSERT INTO leases VALUES (?, 1) ON CONFLICT DO NOTHING", (name,)).rowcount
    )


def behind_a_leader(commits: GroupCommit, operations) -> list:
    """The futures of operations that all waited while one transaction was open."""
    gate = Gate(commits)
    with ThreadPoolExecutor(len(operations) + 1) as threads:
        leader = threads.submit(commits.run, gate)
        assert gate.entered.wait(60)
        futures = [threads.submit(commits.run, operation) for operation in operations]
        gate.let_go_when_waiting(len(operations))
        assert leader.result(60) == "leader"
    return futures


def test_writers_that_come_during_a_transaction_share_the_next_one(commits):
    statements = transactions_of(commits)
    futures = behind_a_leader(commits, [create(f"t{index}") for index in range(16)])
    assert [future.result() for future in futures] == [1] * 16
    assert statements.count("BEGIN IMMEDIATE") == 2
    assert statements.count("COMMIT") == 2


def test_a_single_writer_commits_each_time_and_waits_for_nobody(commits):
    statements = transactions_of(commits)
    for index in range(5):
        assert commits.run(create(f"t{index}")) == 1
    assert statements.count("BEGIN IMMEDIATE") == statements.count("COMMIT") == 5
    assert len(statements) == 15


@pytest.mark.spec("T1")
def test_each_operation_of_one_transaction_has_its_own_outcome(commits):
    def full(connection):
        raise CapacityExceeded("full")

    def too_large(connection):
        connection.execute("INSERT INTO leases VALUES ('large', ?)", (2**63,))

    def wrong(connection):
        connection.execute("INSERT INTO leases VALUES ('null', NULL)")

    def broken(connection):
        raise KeyError("a mistake of ours")

    futures = behind_a_leader(
        commits, [create("a"), full, too_large, wrong, broken, create("a"), create("b"), create("b")]
    )
    outcomes = [future.exception() or future.result() for future in futures]
    assert sorted(outcome for outcome in outcomes if type(outcome) is int) == [0, 0, 1, 1]
    kinds = [type(outcome) for outcome in outcomes if type(outcome) is not int]
    assert sorted(kinds, key=str) == sorted([CapacityExceeded, StoreError, StoreError, KeyError], key=str)
    kept = commits.run(lambda connection: connection.execute("SELECT executor FROM leases ORDER BY 1").fetchall())
    assert kept == [("a",), ("b",)]


def test_a_transaction_that_fails_fails_for_all_who_share_it_and_for_nobody_else(commits):
    def fill(connection):
        [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        connection.execute("INSERT INTO leases VALUES (?, 1)", ("x" * 100_000,))

    futures = behind_a_leader(commits, [create("a"), fill, create("b")])
    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [StoreError] * 3
    assert all("is full" in str(error) and "nothing was changed" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 3
    assert commits.run(lambda connection: connection.execute("SELECT count(*) FROM leases").fetchall()) == [(0,)]
    assert commits.run(create("a")) == 1


def test_an_interrupt_inside_a_transaction_undoes_it_and_leaves_the_next_writer_free(commits):
    def interrupted(connection):
        connection.execute("INSERT INTO leases VALUES ('half', 1)")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commits.run(interrupted)
    assert commits.run(create("half")) == 1


def test_a_writer_that_was_interrupted_while_it_waited_holds_nobody_up(commits):
    gate = Gate(commits)
    outcome: list[object] = []

    class Interrupted:
        """A lock whose owner is interrupted as it waits."""

        def __init__(self, lock) -> None:
            self._lock, self.release, self.locked = lock, lock.release, lock.locked

        def acquire(self) -> None:
            raise KeyboardInterrupt

    def wait_and_be_interrupted() -> None:
        import mcp_tasks_sqlite.committing as committing

        made = committing._Entry.__init__

        def make(entry, operation) -> None:
            made(entry, operation)
            entry.turn = Interrupted(entry.turn)

        committing._Entry.__init__ = make
        try:
            commits.run(create("never"))
        except KeyboardInterrupt:
            outcome.append("interrupted")
        finally:
            committing._Entry.__init__ = made

    with ThreadPoolExecutor(2) as threads:
        leader = threads.submit(commits.run, gate)
        assert gate.entered.wait(60)
        threads.submit(wait_and_be_interrupted).result(60)
        gate.open.set()
        leader.result(60)
    assert outcome == ["interrupted"]
    assert commits.run(create("never")) == 1


def test_what_each_thread_is_told_is_an_error_of_its_own(open_store, foreign):
    store = open_store(busy_wait_ms=30)
    foreign.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(8) as threads:
        errors = [future.exception(60) for future in [threads.submit(store.create, row(f"t{n}")) for n in range(8)]]
    assert {type(error) for error in errors} == {StoreBusy}
    assert len({id(error) for error in errors}) == 8


@pytest.mark.spec("T1")
def test_of_many_threads_that_swap_one_revision_one_wins_each_time(open_store):
    store, other = open_store(), open_store()
    assert store.create(row("a"))
    with ThreadPoolExecutor(8) as threads:
        for revision in range(2, 32):
            handles = [store, other] * 4
            swaps = [threads.submit(handle.swap, row("a", revision)) for handle in handles]
            assert [swap.result(60) for swap in swaps].count(True) == 1
    found = store.load(TaskId("a"))
    assert found is not None
    assert found.revision == 31


def test_creators_that_race_for_the_last_place_do_not_go_beyond_the_capacity(open_store):
    store, other = open_store(capacity=10), open_store(capacity=10)
    with ThreadPoolExecutor(16) as threads:
        creates = [threads.submit((store, other)[index % 2].create, row(f"t{index}")) for index in range(40)]
        outcomes = [type(create.exception(60)) for create in creates]
    assert outcomes.count(type(None)) == 10
    assert outcomes.count(CapacityExceeded) == 30
    assert store.count() == 10


# --- capacity and values


def test_one_owner_cannot_fill_the_store_for_the_others(open_store):
    store = open_store(capacity=5, capacity_per_owner=3)
    for index in range(3):
        assert store.create(row(f"greedy{index}", owner=("t", "greedy")))
    with pytest.raises(CapacityExceeded, match="'greedy' in 't', the capacity for one owner"):
        store.create(row("greedy3", owner=("t", "greedy")))
    assert store.create(row("other tenant", owner=("u", "greedy")))
    assert store.create(row("other", owner=("t", "other")))
    with pytest.raises(CapacityExceeded, match="the store holds 5 tasks, its capacity"):
        store.create(row("another", owner=("t", "another")))
    assert store.swap(row("greedy0", 2, owner=("t", "heir")))
    assert store.delete(TaskId("other"), Revision(1))
    assert store.create(row("greedy3", owner=("t", "greedy")))
    assert [problem for problem in store.check() if "payload" not in problem] == []


@pytest.mark.parametrize(
    "wrong", [row("big", due_at_ms=2**63), row("\ud800"), row("surrogate", owner=("t", "\udfff"))], ids=repr
)
def test_what_sqlite_cannot_hold_is_refused_and_nothing_is_kept(open_store, wrong):
    store = open_store()
    with pytest.raises(StoreError, match="this row cannot be kept"):
        store.create(wrong)
    assert store.count() == 0
    if wrong.task_id == "\ud800":
        with pytest.raises(StoreError, match="this cannot be asked of a store"):
            store.load(wrong.task_id)
    assert store.create(row("a"))


def test_uncertain_is_a_store_error_that_a_full_disk_does_not_raise(open_store):
    store = open_store()
    assert issubclass(StoreUncertain, StoreError)
    [(pages,)] = store._query("PRAGMA page_count")
    store._write(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 1}").fetchall())
    with pytest.raises(StoreError, match=r"the disk that holds .* is full") as said:
        store.create(row("a", payload=b"x" * 100_000))
    assert type(said.value) is StoreError
    assert store.load(TaskId("a")) is None


# --- back to the baseline


def test_rows_memory_and_space_return_to_the_baseline_after_20000_short_tasks(path, open_store):
    store = open_store(synchronous="NORMAL")

    def live_and_go(first: int) -> None:
        for index in range(first, first + 500):
            name = f"t{index}"
            assert store.create(row(name, due_at_ms=index, executor=f"p{index % 7}", owner=("t", f"s{index % 100}")))
            assert store.swap(row(name, 2, due_at_ms=index, status="completed", owner=("t", f"s{index % 100}")))
            assert store.delete(TaskId(name), Revision(2))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(live_and_go, range(0, 4000, 500)))
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        pages = store._query("PRAGMA page_count")
        list(threads.map(live_and_go, range(4000, 20_000, 500)))
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    tables = ("tasks", "owners", "leases", "request_state_secrets")
    assert [store._query(f"SELECT count(*) FROM {table}") for table in tables] == [[(0,)]] * 4
    assert store.count() == 0
    assert store.list_changes(-1, 1)[0] == 40_000
    [(pages_before,)], [(pages_after,)] = pages, store._query("PRAGMA page_count")
    assert pages_after <= pages_before + 16
    assert after - before < 200_000
    assert store.check() == []
