"""The contract suite of task stores: subclass ``StoreContract`` in a test module, and pytest judges your store.

::

    class TestMyStore(StoreContract):
        def make_store(self) -> TaskStore:
            return MyStore(...)
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import CapacityExceeded, StoredTask, TaskStore

_FAR_MS = 4_102_444_800_000  # the year 2100: no bound that a store might have in its column


def row(
    name: str,
    revision: int = 1,
    *,
    due_at_ms: int | None = None,
    status: str = "working",
    owner: tuple[str, str] = ("tenant", "subject"),
    executor: str | None = None,
    payload: bytes = b"payload",
) -> StoredTask:
    """A row with what a test does not care about filled in."""
    return StoredTask(
        task_id=TaskId(name),
        owner=owner,
        status=status,
        revision=Revision(revision),
        due_at_ms=due_at_ms,
        executor=executor,
        payload=payload,
    )


class StoreContract:
    """What every task store keeps. Each test gets a store of its own from ``make_store``."""

    def make_store(self) -> TaskStore:
        """An empty store. Release what it holds in ``teardown_method``, if anything."""
        raise NotImplementedError("a contract test says how its store is made: define make_store")

    def make_small_store(self, capacity: int) -> TaskStore | None:
        """An empty store that keeps so many rows at the most; ``None`` where the store knows no such bound."""
        return None

    def reopen(self, store: TaskStore) -> TaskStore:
        """The same store as another process, or the next one, would find it; itself where it is not durable."""
        return store

    # --- what the store says of itself

    def test_a_store_says_whether_its_calls_block(self) -> None:
        assert type(self.make_store().blocks) is bool

    # --- create and load

    def test_a_created_row_is_read_back_equal(self) -> None:
        store = self.make_store()
        wanted = row("a", due_at_ms=_FAR_MS, executor="p1", payload=bytes(range(256)))
        assert store.create(wanted) is True
        assert store.load(TaskId("a")) == wanted

    def test_a_row_without_due_time_and_executor_is_read_back_equal(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        assert store.load(TaskId("a")) == row("a")

    def test_an_empty_and_a_large_payload_are_read_back_equal(self) -> None:
        store = self.make_store()
        large = b"\x00\xff\n" * 400_000
        assert store.create(row("empty", payload=b""))
        assert store.create(row("large", payload=large))
        assert _loaded(store, "empty").payload == b""
        assert _loaded(store, "large").payload == large

    def test_every_text_survives_as_an_id_and_an_owner(self) -> None:
        store = self.make_store()
        for name in ("Ä-ω-\U0001f600", "it's", 'a"b', "a%b_c", " a ", "A", "a", "x" * 1024, "a\x00b", "-- ;"):
            assert store.create(row(name, owner=(name, "s"))), name
            assert _loaded(store, name) == row(name, owner=(name, "s"))

    def test_ids_are_told_apart_by_every_character_and_by_case(self) -> None:
        store = self.make_store()
        assert store.create(row("abc", payload=b"1"))
        assert store.create(row("ABC", payload=b"2"))
        assert store.create(row("abc ", payload=b"3"))
        assert [_loaded(store, name).payload for name in ("abc", "ABC", "abc ")] == [b"1", b"2", b"3"]

    def test_an_unknown_id_loads_nothing(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        assert store.load(TaskId("b")) is None
        assert store.load(TaskId("")) is None

    def test_a_taken_id_is_refused_and_the_first_row_stays(self) -> None:
        store = self.make_store()
        assert store.create(row("a", payload=b"first"))
        assert store.create(row("a", payload=b"second", owner=("other", "owner"))) is False
        assert _loaded(store, "a") == row("a", payload=b"first")

    def test_a_taken_id_is_refused_at_any_later_revision(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        assert store.swap(row("a", 2, payload=b"second"))
        assert store.create(row("a", payload=b"third")) is False
        assert _loaded(store, "a").payload == b"second"

    # --- swap

    def test_a_swap_replaces_every_field(self) -> None:
        store = self.make_store()
        assert store.create(row("a", due_at_ms=5, executor="p1"))
        changed = row("a", 2, due_at_ms=None, status="completed", executor=None, payload=b"changed")
        assert store.swap(changed) is True
        assert store.load(TaskId("a")) == changed

    def test_a_swap_takes_the_next_revision_and_no_other(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        for wrong in (1, 3, 4, 100):
            assert store.swap(row("a", wrong, payload=b"wrong")) is False, wrong
        assert _loaded(store, "a") == row("a")
        assert store.swap(row("a", 2))
        for wrong in (1, 2, 4):
            assert store.swap(row("a", wrong, payload=b"wrong")) is False, wrong

    def test_of_two_writers_who_read_the_same_row_the_first_wins(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        read = _loaded(store, "a")
        first = attrs.evolve(read, revision=Revision(2), payload=b"first")
        second = attrs.evolve(read, revision=Revision(2), payload=b"second")
        assert store.swap(first) is True
        assert store.swap(second) is False
        assert _loaded(store, "a").payload == b"first"

    def test_a_swap_of_an_unknown_or_deleted_row_is_refused_and_makes_none(self) -> None:
        store = self.make_store()
        assert store.swap(row("a", 2)) is False
        assert store.load(TaskId("a")) is None
        assert store.create(row("a"))
        assert store.delete(TaskId("a"), Revision(1))
        assert store.swap(row("a", 2)) is False
        assert store.load(TaskId("a")) is None

    def test_a_long_chain_of_swaps_loses_none(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        for revision in range(2, 102):
            assert store.swap(row("a", revision, payload=b"%d" % revision))
        assert _loaded(store, "a") == row("a", 101, payload=b"101")

    # --- what is due

    def test_due_rows_come_earliest_first_and_only_until_the_moment_asked(self) -> None:
        store = self.make_store()
        for name, due in (("c", 30), ("a", 10), ("never", None), ("b", 20), ("later", 31)):
            assert store.create(row(name, due_at_ms=due))
        assert _names(store.list_due(30, 10)) == ["a", "b", "c"]
        assert _names(store.list_due(29, 10)) == ["a", "b"]
        assert store.list_due(9, 10) == []

    def test_the_limit_keeps_the_earliest(self) -> None:
        store = self.make_store()
        for due in (40, 20, 10, 30):
            assert store.create(row(f"t{due}", due_at_ms=due))
        assert _names(store.list_due(100, 2)) == ["t10", "t20"]
        assert _names(store.list_due(100, 1)) == ["t10"]

    def test_listing_takes_nothing_away(self) -> None:
        store = self.make_store()
        for due in (1, 2, 3):
            assert store.create(row(f"t{due}", due_at_ms=due))
        assert store.list_due(3, 10) == store.list_due(3, 10)
        assert len(store.list_due(3, 10)) == 3

    def test_rows_that_are_due_at_one_moment_all_come(self) -> None:
        store = self.make_store()
        for index in range(20):
            assert store.create(row(f"t{index}", due_at_ms=7))
        assert {str(found.task_id) for found in store.list_due(7, 100)} == {f"t{index}" for index in range(20)}

    def test_a_swap_moves_the_due_time_both_ways_and_away(self) -> None:
        store = self.make_store()
        assert store.create(row("a", due_at_ms=10))
        assert store.swap(row("a", 2, due_at_ms=20))
        assert store.list_due(10, 5) == []
        assert store.list_due(20, 5) == [row("a", 2, due_at_ms=20)]
        assert store.swap(row("a", 3, due_at_ms=5))
        assert store.list_due(10, 5) == [row("a", 3, due_at_ms=5)]
        assert store.swap(row("a", 4, due_at_ms=None))
        assert store.list_due(1_000, 5) == []
        assert store.swap(row("a", 5, due_at_ms=10))
        assert store.list_due(10, 5) == [row("a", 5, due_at_ms=10)]

    def test_a_row_comes_once_however_often_its_due_time_came_back(self) -> None:
        store = self.make_store()
        assert store.create(row("a", due_at_ms=10))
        for revision, due in enumerate((20, 10, 20, 10, 10), start=2):
            assert store.swap(row("a", revision, due_at_ms=due))
        assert _names(store.list_due(100, 10)) == ["a"]
        assert _names(store.list_due(100, 10)) == ["a"]

    def test_what_is_listed_is_the_newest_row(self) -> None:
        store = self.make_store()
        assert store.create(row("a", due_at_ms=10, payload=b"old"))
        assert store.swap(row("a", 2, due_at_ms=10, payload=b"new"))
        assert [found.payload for found in store.list_due(10, 5)] == [b"new"]

    # --- delete

    def test_a_deleted_row_is_gone_everywhere_and_its_id_is_free(self) -> None:
        store = self.make_store()
        assert store.create(row("a", due_at_ms=1))
        assert store.delete(TaskId("a"), Revision(1)) is True
        assert store.load(TaskId("a")) is None
        assert store.list_due(10, 5) == []
        assert store.create(row("a", due_at_ms=2, payload=b"again"))
        assert store.list_due(10, 5) == [row("a", due_at_ms=2, payload=b"again")]

    def test_a_row_that_changed_meanwhile_is_not_deleted(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        assert store.swap(row("a", 2))
        assert store.delete(TaskId("a"), Revision(1)) is False
        assert store.delete(TaskId("a"), Revision(3)) is False
        assert _loaded(store, "a") == row("a", 2)

    def test_deleting_what_is_not_there_says_so(self) -> None:
        store = self.make_store()
        assert store.delete(TaskId("a"), Revision(1)) is False
        assert store.create(row("a"))
        assert store.delete(TaskId("a"), Revision(1)) is True
        assert store.delete(TaskId("a"), Revision(1)) is False

    # --- rows, one beside the other

    def test_rows_do_not_touch_each_other(self) -> None:
        store = self.make_store()
        for name in ("a", "b", "c"):
            assert store.create(row(name, due_at_ms=1))
        assert store.swap(row("b", 2, payload=b"changed"))
        assert store.delete(TaskId("c"), Revision(1))
        assert _loaded(store, "a") == row("a", due_at_ms=1)
        assert _loaded(store, "b") == row("b", 2, payload=b"changed")

    def test_what_was_read_does_not_change_when_the_store_does(self) -> None:
        store = self.make_store()
        assert store.create(row("a", payload=b"old"))
        read = _loaded(store, "a")
        assert store.swap(row("a", 2, payload=b"new"))
        assert read == row("a", payload=b"old")

    def test_two_stores_share_nothing(self) -> None:
        first, second = self.make_store(), self.make_store()
        assert first.create(row("a"))
        assert second.load(TaskId("a")) is None

    def test_refused_changes_leave_no_trace_and_made_ones_stay(self) -> None:
        store = self.make_store()
        assert store.create(row("kept", due_at_ms=3, payload=b"kept"))
        assert store.create(row("changed", due_at_ms=1))
        assert store.swap(row("changed", 2, due_at_ms=2, payload=b"changed"))
        assert store.create(row("gone"))
        assert store.delete(TaskId("gone"), Revision(1))
        assert not store.swap(row("kept", 7, payload=b"wrong"))
        again = self.reopen(store)
        assert again.load(TaskId("kept")) == row("kept", due_at_ms=3, payload=b"kept")
        assert again.load(TaskId("gone")) is None
        assert _names(again.list_due(10, 10)) == ["changed", "kept"]
        assert again.swap(row("changed", 3)) is True

    # --- capacity

    def test_a_full_store_refuses_new_rows_and_serves_the_old_ones(self) -> None:
        store = self.make_small_store(2)
        if store is None:
            return
        assert store.create(row("a"))
        assert store.create(row("b"))
        for name in _three_times("c"):
            try:
                store.create(row(name))
            except CapacityExceeded:
                pass
            else:
                raise AssertionError("a full store kept a new row")
            assert store.load(TaskId(name)) is None
        assert store.swap(row("a", 2))
        assert store.create(row("a")) is False
        assert store.delete(TaskId("b"), Revision(1))
        assert store.create(row("c"))


def _loaded(store: TaskStore, name: str) -> StoredTask:
    found = store.load(TaskId(name))
    assert found is not None, f"there is no row {name!r}"
    return found


def _names(rows: list[StoredTask]) -> list[str]:
    return [str(found.task_id) for found in rows]


def _three_times(name: str) -> Iterator[str]:
    yield from (name, name, name)
