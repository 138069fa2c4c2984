"""What the durable store costs, against the same disk's bare SQLite commits in the same run.

``python -m benchmarks.durable_store [--rows 1000000] [--folder DIR]``

Creates: bare SQLite inserts the id and the payload of each task into a table with nothing but these two, one commit
each, on one connection with the same settings. Sizes: single calls, on rows picked at random, on stores that were
built in large transactions. All that is compared takes turns, block by block, so that whatever else the disk does
meets each of them.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import StoredTask
from mcp_tasks_sqlite import SqliteTaskStore

PAYLOAD = secrets.token_bytes(800)  # the record of a small tool call
BLOCK = 160
BLOCKS = 40
CREATORS = 16
SIZES = (1_000, 100_000, 1_000_000)
CALLS, CALL_BLOCKS = 40, 40


def row(task_id: str, revision: int = 1, number: int = 0) -> StoredTask:
    return StoredTask(
        task_id=TaskId(task_id),
        owner=("local", f"subject {number % 100}"),
        status="working",
        revision=Revision(revision),
        due_at_ms=1_800_000_000_000 + number,
        executor=f"executor {number % 4}",
        payload=PAYLOAD,
    )


def new_id() -> str:
    return secrets.token_urlsafe(24)


# --- creates


class BareCommits:
    """One connection, one insert in each transaction."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE tasks (task_id TEXT NOT NULL PRIMARY KEY, payload BLOB NOT NULL)")

    def create(self, number: int) -> None:
        for _ in range(number):
            self._connection.execute("INSERT INTO tasks VALUES (?, ?)", (new_id(), PAYLOAD))

    def close(self) -> None:
        self._connection.close()


class Creators:
    """Threads that create tasks side by side whenever they are let go, and wait for each other in between."""

    def __init__(self, store: SqliteTaskStore, number: int) -> None:
        self._store = store
        self._number = number
        self._share = 0
        self._start, self._end = threading.Barrier(number + 1), threading.Barrier(number + 1)
        for _ in range(number):
            threading.Thread(target=self._run, daemon=True).start()

    def create(self, number: int) -> None:
        self._share = number // self._number
        self._start.wait()
        self._end.wait()

    def _run(self) -> None:
        while True:
            self._start.wait()
            for _ in range(self._share):
                assert self._store.create(row(new_id()))
            self._end.wait()


def create_one_by_one(store: SqliteTaskStore) -> Callable[[int], None]:
    def create(number: int) -> None:
        for _ in range(number):
            assert store.create(row(new_id()))

    return create


def timed(create: Callable[[int], None], number: int) -> float:
    started = time.perf_counter()
    create(number)
    return time.perf_counter() - started


def measure_creates(folder: Path) -> None:
    with (
        closing(BareCommits(folder / "bare.db")) as bare,
        SqliteTaskStore(folder / "one.db") as one,
        SqliteTaskStore(folder / "many.db") as many,
    ):
        contenders = {
            "bare SQLite, one commit each": bare.create,
            "store, 1 writer": create_one_by_one(one),
            f"store, {CREATORS} creators": Creators(many, CREATORS).create,
        }
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        for block in range(BLOCKS + 2):
            order = list(contenders.items())
            random.shuffle(order)
            for name, create in order:
                took = timed(create, BLOCK)
                if block >= 2:  # the first ones fill caches
                    seconds[name].append(took)
    bare_name = next(iter(contenders))
    print(f"creates, {len(PAYLOAD)} bytes each, {BLOCKS} interleaved blocks of {BLOCK}, synchronous FULL")
    for name, spent in seconds.items():
        ratio = sum(seconds[bare_name]) / sum(spent)
        middle = statistics.median(bare / own for bare, own in zip(seconds[bare_name], spent, strict=True))
        rate = BLOCK * BLOCKS / sum(spent)
        print(f"  {name:30} {rate:8.0f}/s   {ratio:5.2f} of bare (median of the blocks {middle:.2f})")


# --- sizes


def fill(path: Path, size: int) -> None:
    """Tasks written past the store, many in one transaction; triggers keep its sums as ever."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO tasks (task_id, tenant, subject, status, revision, due_at_ms, executor, changed, "
            "changed_at_ms, payload) VALUES (?, 'local', ?, 'working', 1, ?, ?, ?, 0, ?)",
            (
                (
                    name_of(n),
                    f"subject {n % 100}",
                    1_800_000_000_000 + n,
                    f"executor {n % 4}",
                    n + 1,
                    PAYLOAD,
                )
                for n in range(size)
            ),
        )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def name_of(number: int) -> str:
    """Ids that are spread over the whole index, as random ones are, and can be found again."""
    return random.Random(number).randbytes(24).hex()[:32]


def latencies(call: Callable[[int], object], numbers: list[int]) -> Iterator[float]:
    for number in numbers:
        started = time.perf_counter()
        call(number)
        yield (time.perf_counter() - started) * 1_000_000


def measure_sizes(folder: Path, rows_max: int) -> None:
    """Stores of all sizes take turns too, in blocks of calls."""
    sizes = [size for size in SIZES if size <= rows_max]
    with contextlib.ExitStack() as opened:
        stores: dict[int, SqliteTaskStore] = {}
        for size in sizes:
            path = folder / f"{size}.db"
            SqliteTaskStore(path).close()
            fill(path, size)
            store = SqliteTaskStore(path, capacity=2 * size, capacity_per_owner=2 * size)
            stores[size] = opened.enter_context(store)
        measured: dict[int, dict[str, list[float]]] = {size: defaultdict(list) for size in sizes}
        for block in range(CALL_BLOCKS + 1):
            for size in random.sample(sizes, len(sizes)):
                for name, spent in measure_calls(stores[size], size, random.Random(block)).items():
                    if block:  # the first one fills caches
                        measured[size][name] += spent
    print("\nlatency in µs: median, 90th percentile, and the median against the smallest store's")
    for size, calls in measured.items():
        print(f"  {size:,} tasks, 100 owners, 4 executors")
        for name, spent in calls.items():
            median, high = statistics.median(spent), statistics.quantiles(spent, n=10)[-1]
            print(
                f"    {name:20} {median:8.1f} {high:8.1f}   {median / statistics.median(measured[sizes[0]][name]):5.2f}"
            )


def measure_calls(store: SqliteTaskStore, size: int, chosen: random.Random) -> dict[str, list[float]]:
    numbers = [chosen.randrange(size) for _ in range(2 * CALLS)]
    names = {number: TaskId(name_of(number)) for number in numbers}
    found: list[StoredTask | None] = [None]

    def get(number: int) -> None:
        found[0] = store.load(names[number])

    def swap(number: int) -> None:
        assert found[0] is not None
        assert store.swap(row(names[number], found[0].revision + 1, number))

    spent: dict[str, list[float]] = {"get": list(latencies(get, numbers[CALLS:])), "get after a write": [], "swap": []}
    for number in numbers[:CALLS]:
        spent["get after a write"] += latencies(get, [number])  # the write before it emptied the reader's cache
        spent["swap"] += latencies(swap, [number])
    fresh = [row(new_id(), 1, number) for number in range(CALLS)]
    spent["create"] = list(latencies(lambda number: store.create(fresh[number]), list(range(CALLS))))
    spent["due, 100 rows"] = list(latencies(lambda _: store.list_due(1_800_000_000_099, 100), [0]))
    spent["orphans, 16 rows"] = list(latencies(lambda _: store.list_orphans(0, 16), [0]))
    for new in fresh:
        store.delete(new.task_id, Revision(1))
    return spent


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.durable_store", description=__doc__.split("\n")[0])
    options.add_argument("--rows", type=int, default=SIZES[-1], help="the largest store, in tasks")
    options.add_argument("--folder", type=Path, help="on the disk to be measured; the temporary folder's otherwise")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        measure_creates(Path(folder))
        measure_sizes(Path(folder), chosen.rows)


if __name__ == "__main__":
    main()
