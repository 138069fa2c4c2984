"""The store in memory, judged by the shipped contract suite and by what it promises beside it."""

from __future__ import annotations

import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import CapacityExceeded, MemoryTaskStore, StoreError, StoreUncertain, TaskStore
from mcp_tasks_core.testing.store_contract import StoreContract, row


class TestMemoryTaskStore(StoreContract):
    def make_store(self) -> TaskStore:
        return MemoryTaskStore()

    def make_small_store(self, capacity: int) -> TaskStore:
        return MemoryTaskStore(capacity=capacity)


class _ForgetfulStore(MemoryTaskStore):
    """Swaps whatever it is given: what a store without compare-and-swap does."""

    def swap(self, row: object) -> bool:
        self._rows[row.task_id] = row  # type: ignore[attr-defined]
        return True


class _UnorderedStore(MemoryTaskStore):
    """Lists what is due in the order of writing."""

    def list_due(self, until_ms: int, limit: int) -> list:  # type: ignore[type-arg]
        due = [r for r in self._rows.values() if r.due_at_ms is not None and r.due_at_ms <= until_ms]
        return due[:limit]


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (_ForgetfulStore, "test_of_two_writers_who_read_the_same_row_the_first_wins"),
        (_ForgetfulStore, "test_a_swap_takes_the_next_revision_and_no_other"),
        (_ForgetfulStore, "test_a_swap_of_an_unknown_or_deleted_row_is_refused_and_makes_none"),
        (_UnorderedStore, "test_due_rows_come_earliest_first_and_only_until_the_moment_asked"),
        (_UnorderedStore, "test_the_limit_keeps_the_earliest"),
    ],
)
def test_the_contract_suite_finds_stores_that_break_it(store: type[MemoryTaskStore], test: str) -> None:
    class Suite(StoreContract):
        def make_store(self) -> TaskStore:
            return store()

    with pytest.raises(AssertionError):
        getattr(Suite(), test)()


def test_a_contract_suite_without_a_store_says_what_to_define() -> None:
    with pytest.raises(NotImplementedError, match="make_store"):
        StoreContract().test_a_store_says_whether_its_calls_block()


@pytest.mark.parametrize("capacity", [0, -1, True, 1.5, None, "10"])
def test_a_capacity_that_is_none_is_refused_where_the_store_is_made(capacity: object) -> None:
    with pytest.raises(LocalProtocolError, match="capacity is an integer of 1 or more"):
        MemoryTaskStore(capacity=capacity)  # type: ignore[arg-type]


def test_a_store_of_one_row_keeps_one_row() -> None:
    store = MemoryTaskStore(capacity=1)
    assert store.create(row("a"))
    with pytest.raises(CapacityExceeded, match="holds 1 tasks"):
        store.create(row("b"))
    assert len(store) == 1


def test_full_and_uncertain_are_both_store_errors() -> None:
    assert issubclass(CapacityExceeded, StoreError)
    assert issubclass(StoreUncertain, StoreError)


def test_the_memory_store_never_blocks() -> None:
    assert MemoryTaskStore().blocks is False


@pytest.mark.spec("T4")
def test_moving_a_due_time_again_and_again_keeps_no_trace_of_the_former_ones() -> None:
    store = MemoryTaskStore()
    store.create(row("a", due_at_ms=1))
    for revision in range(2, 5_000):
        store.swap(row("a", revision, due_at_ms=10_000 + revision))
    assert len(store._due) < 100
    assert [found.revision for found in store.list_due(100_000, 10)] == [4_999]


def test_deleted_rows_leave_the_due_list_when_it_is_next_read() -> None:
    store = MemoryTaskStore()
    for index in range(500):
        store.create(row(f"t{index}", due_at_ms=index))
        store.delete(TaskId(f"t{index}"), Revision(1))
    assert store.list_due(1_000, 10) == []
    assert store._due == []
    assert len(store) == 0
