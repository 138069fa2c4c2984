"""The contract suite of stores that several processes share: what ``StoreContract`` asks, and leases, hints and keys.

::

    class TestMyStore(SharedStoreContract):
        def make_store(self) -> SharedTaskStore:
            return MyStore(...)

        def reopen(self, store: TaskStore) -> SharedTaskStore:
            return MyStore(...)  # the same place
"""

from __future__ import annotations

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import SharedTaskStore, TaskStore
from mcp_tasks_core.testing.store_contract import StoreContract, row

_FRESH = bytes(range(32))
_OTHER_FRESH = bytes(range(32, 64))


class SharedStoreContract(StoreContract):
    """What every shared store keeps. ``reopen`` gives a second handle on the same store, as another process has."""

    def make_store(self) -> SharedTaskStore:
        """An empty store. Release what it holds in ``teardown_method``, if anything."""
        raise NotImplementedError("a contract test says how its store is made: define make_store")

    def reopen(self, store: TaskStore) -> SharedTaskStore:
        """The same store as another process finds it, while the first handle stays open."""
        raise NotImplementedError("a shared store can be opened twice: define reopen")

    # --- two handles

    def test_what_one_handle_did_the_other_sees_at_once(self) -> None:
        here = self.make_store()
        there = self.reopen(here)
        assert here.create(row("a", due_at_ms=5))
        assert there.load(TaskId("a")) == row("a", due_at_ms=5)
        assert there.swap(row("a", 2, due_at_ms=6, payload=b"there"))
        assert here.load(TaskId("a")) == row("a", 2, due_at_ms=6, payload=b"there")
        assert here.swap(row("a", 2)) is False
        assert here.list_due(6, 10) == there.list_due(6, 10) == [row("a", 2, due_at_ms=6, payload=b"there")]
        assert here.create(row("a")) is there.create(row("a")) is False
        assert there.delete(TaskId("a"), Revision(2))
        assert here.load(TaskId("a")) is None

    # --- leases and orphans

    def test_work_without_any_lease_is_orphaned(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        assert store.list_orphans(0, 10) == [row("a", executor="p1")]

    def test_work_whose_process_holds_a_lease_is_left_alone_until_it_ends(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        store.hold_lease("p1", 1_000)
        assert store.list_orphans(0, 10) == []
        assert store.list_orphans(999, 10) == []
        assert store.list_orphans(1_000, 10) == [row("a", executor="p1")]

    def test_a_lease_is_made_longer_and_never_shorter(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        store.hold_lease("p1", 1_000)
        store.hold_lease("p1", 2_000)
        assert store.list_orphans(1_999, 10) == []
        store.hold_lease("p1", 1_500)  # a heartbeat that was overtaken
        assert store.list_orphans(1_999, 10) == []
        assert len(store.list_orphans(2_000, 10)) == 1

    def test_a_process_that_ends_its_lease_leaves_its_work_to_others_at_once(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        store.hold_lease("p1", 1_000)
        store.end_lease("p1")
        assert store.list_orphans(0, 10) == [row("a", executor="p1")]
        store.end_lease("p1")
        store.end_lease("never held one")

    def test_a_lease_counts_for_one_process_alone_and_in_every_handle(self) -> None:
        here = self.make_store()
        there = self.reopen(here)
        for name, executor in (("a", "p1"), ("b", "p2"), ("c", "p10"), ("none", None)):
            assert here.create(row(name, executor=executor))
        here.hold_lease("p1", 1_000)
        there.hold_lease("p10", 1_000)
        assert here.list_orphans(0, 10) == there.list_orphans(0, 10) == [row("b", executor="p2")]

    def test_orphans_are_listed_up_to_the_limit_and_all_of_them_over_time(self) -> None:
        store = self.make_store()
        names = {f"t{index}" for index in range(7)}
        for index in range(7):
            assert store.create(row(f"t{index}", executor=f"dead{index % 3}"))
        assert len(store.list_orphans(0, 3)) == 3
        assert {str(found.task_id) for found in store.list_orphans(0, 100)} == names
        seen: set[str] = set()
        while found := store.list_orphans(0, 3):
            for orphan in found:
                seen.add(str(orphan.task_id))
                assert store.swap(row(orphan.task_id, 2, status="failed"))
        assert seen == names

    def test_settled_and_deleted_work_is_no_orphan(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        assert store.create(row("b", executor="p1"))
        assert store.swap(row("a", 2, status="failed", executor=None))
        assert store.delete(TaskId("b"), Revision(1))
        assert store.list_orphans(0, 10) == []

    def test_of_two_processes_that_settle_an_orphan_one_wins(self) -> None:
        here = self.make_store()
        there = self.reopen(here)
        assert here.create(row("a", executor="dead"))
        [orphan_here], [orphan_there] = here.list_orphans(0, 10), there.list_orphans(0, 10)
        assert orphan_here == orphan_there
        settled = [
            handle.swap(row("a", 2, status="failed", payload=payload))
            for handle, payload in ((here, b"here"), (there, b"there"))
        ]
        assert settled == [True, False]
        assert here.list_orphans(0, 10) == there.list_orphans(0, 10) == []

    def test_a_lease_outlives_the_handle_that_held_it(self) -> None:
        store = self.make_store()
        assert store.create(row("a", executor="p1"))
        store.hold_lease("p1", 1_000)
        assert self.reopen(store).list_orphans(999, 10) == []

    # --- hints of change

    def test_the_newest_position_comes_without_hints(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        position, hints = store.list_changes(-1, 10)
        assert hints == []
        assert store.list_changes(position, 10) == (position, [])

    def test_every_create_and_swap_of_any_process_is_hinted(self) -> None:
        here = self.make_store()
        there = self.reopen(here)
        assert here.create(row("old"))
        position, _ = there.list_changes(-1, 10)
        assert here.create(row("a"))
        assert here.create(row("b"))
        position, hints = there.list_changes(position, 10)
        assert set(hints) == {"a", "b"}
        assert there.list_changes(position, 10) == (position, [])
        assert here.swap(row("a", 2))
        later, hints = there.list_changes(position, 10)
        assert hints == ["a"]
        assert later > position

    def test_what_was_refused_is_not_hinted(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        position, _ = store.list_changes(-1, 10)
        assert store.create(row("a")) is False
        assert store.swap(row("a", 3)) is False
        assert store.swap(row("unknown", 2)) is False
        assert store.list_changes(position, 10) == (position, [])

    def test_hints_come_in_pages_that_miss_nothing(self) -> None:
        store = self.make_store()
        position, _ = store.list_changes(-1, 10)
        names = [f"t{index}" for index in range(10)]
        for name in names:
            assert store.create(row(name))
        seen: list[TaskId] = []
        while True:
            following, hints = store.list_changes(position, 3)
            assert len(hints) <= 3
            if not hints:
                break
            assert following > position
            position = following
            seen += hints
        assert set(seen) == set(names)

    def test_positions_grow_even_when_the_newest_task_is_gone(self) -> None:
        store = self.make_store()
        assert store.create(row("a"))
        position, _ = store.list_changes(-1, 10)
        assert store.delete(TaskId("a"), Revision(1))
        again = self.reopen(store)
        assert again.list_changes(-1, 10)[0] >= position
        assert again.create(row("b"))
        later, hints = again.list_changes(position, 10)
        assert later > position
        assert "b" in hints

    # --- the keys of request states

    def test_the_first_process_makes_the_key_and_all_others_get_it(self) -> None:
        here = self.make_store()
        there = self.reopen(here)
        [(key_id, secret)] = here.request_state_secrets(_FRESH)
        assert secret == _FRESH
        assert key_id
        assert there.request_state_secrets(_OTHER_FRESH) == [(key_id, _FRESH)]
        assert here.request_state_secrets(_OTHER_FRESH) == [(key_id, _FRESH)]
        assert self.reopen(here).request_state_secrets(_OTHER_FRESH) == [(key_id, _FRESH)]

    def test_keys_of_two_stores_differ(self) -> None:
        [(first_id, _)] = self.make_store().request_state_secrets(_FRESH)
        [(second_id, second)] = self.make_store().request_state_secrets(_OTHER_FRESH)
        assert second == _OTHER_FRESH
        assert first_id != second_id
