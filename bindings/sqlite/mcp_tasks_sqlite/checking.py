"""Whether a store's file is sound: SQLite's own pages and indices, the sums kept beside the tasks, every record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from mcp_tasks_core.records import UnreadableRecord, decode_record
from mcp_tasks_core.store import StoredTask, StoreError

Query = Callable[[str], list[Any]]
OpenRow = Callable[[StoredTask], "StoredTask | None"]

# (what is compared, how it is kept, how it is counted). Each pair is read in one statement, so in one snapshot.
_SUMS: Final = (
    ("the number of tasks", "SELECT tasks FROM totals", "SELECT count(*) FROM tasks"),
    (
        "the number of owners whose tasks are miscounted",
        "SELECT 0",
        """
        SELECT count(*) FROM (SELECT tenant, subject, tasks FROM owners
            EXCEPT SELECT tenant, subject, count(*) FROM tasks GROUP BY tenant, subject)
        """,
    ),
    (
        "the number of owners with tasks",
        "SELECT count(*) FROM owners",
        "SELECT count(*) FROM (SELECT DISTINCT tenant, subject FROM tasks)",
    ),
)


def problems_of(query: Query, rows: Callable[[], Iterable[StoredTask]], open_row: OpenRow | None) -> Iterator[str]:
    """One sentence for each thing that is wrong.

    Args:
        open_row: gives a row its readable payload, where payloads are sealed; ``None`` for one that cannot be read
            here, and whose columns alone are looked at.
    """
    try:
        for (text,) in query("PRAGMA integrity_check"):
            if text != "ok":
                yield f"SQLite: {text}"
        for subject, kept, counted in _SUMS:
            [(is_kept, is_counted)] = query(f"SELECT ({kept}), ({counted})")
            if is_kept != is_counted:
                yield f"{subject}: {is_kept} is written down, {is_counted} was found"
        for row in rows():
            yield from _problems_of_row(row, open_row)
    except StoreError as error:
        yield str(error)


def _problems_of_row(row: StoredTask, open_row: OpenRow | None) -> Iterator[str]:
    if row.revision < 1:
        yield f"task {row.task_id}: revision {row.revision}, and the first one is 1"
    try:
        opened = row if open_row is None else open_row(row)
        record = None if opened is None else decode_record(opened.payload)
    except (StoreError, UnreadableRecord) as error:
        yield f"task {row.task_id}: {error}"
        return
    if record is None:
        return
    executor = None if record.is_terminal else record.executor
    for name, column, value in (
        ("task_id", row.task_id, record.task_id),
        ("owner", row.owner, (record.owner.tenant, record.owner.subject)),
        ("status", row.status, record.status.value),
        ("executor", row.executor, executor),
    ):
        if column != value:
            yield f"task {row.task_id}: its column {name} says {column!r}, its record {value!r}"
