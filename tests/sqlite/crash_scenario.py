"""A fixed life of one store, broken at every operation on its files. Run under ``file_faults.c``; prints JSON.

``crash``: the process ends before the n-th operation, for every n. ``tear``: in the middle of the n-th write.
``fail ERRNO``, ``fail-write ERRNO``: the n-th operation, or the n-th write, fails, and the process goes on.
``record FILE``: every operation is written down.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import row_of
from mcp_tasks_core.store import StoredTask, StoreError, StoreUncertain
from mcp_tasks_core.tasks import TaskRecord, TaskStatus
from mcp_tasks_sqlite import SqliteTaskStore

EXIT_BEFORE, TEAR, FAIL, FAIL_WRITE = 1, 2, 3, 4
STRUCK = 66
UNCERTAIN = "a call could not say whether its change was made"

State = dict[str, StoredTask]


def row(name: str, revision: int, size: int = 100) -> StoredTask:
    record = TaskRecord(
        task_id=TaskId(name),
        owner=Owner("tenant", f"subject of {name}"),
        status=TaskStatus.WORKING,
        created_at_ms=1_000,
        last_updated_at_ms=1_000 + revision,
        ttl_ms=60_000,
        request={"text": f"{name}{revision} " * (size // 5)},
        capabilities=ClientCapabilities({}),
        executor="p1",
    )
    return row_of(record, Revision(revision), Limits())


def create_together(store: SqliteTaskStore, rows: list[StoredTask]) -> bool:
    """Creates that share one transaction: a leader holds it up until they all wait."""
    entered = threading.Event()
    commits = store._commits

    def gate(_: object) -> None:
        entered.set()
        while len(commits._waiting) < len(rows):
            pass

    outcomes: list[object] = []

    def keep(call: Callable[[], object]) -> None:
        try:
            outcomes.append(call())
        except StoreError as error:
            outcomes.append(error)
        finally:
            entered.set()  # also when the leader did not come as far as its operation

    threads = [threading.Thread(target=keep, args=(lambda: commits.run(gate),))]
    threads[0].start()
    entered.wait(10)
    threads += [threading.Thread(target=keep, args=(lambda new=new: store.create(new),)) for new in rows]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outcomes:
        if isinstance(outcome, StoreError):
            raise outcome
    return outcomes.count(True) == len(rows)


def often_checkpoint(store: SqliteTaskStore) -> bool:
    store._write(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 4").fetchall())
    return True


TOGETHER = [row(f"together{index}", 1) for index in range(3)]

# (what is done, what it changes): None takes a task away. A step is one transaction: all of it or nothing.
STEPS: list[tuple[Callable[[SqliteTaskStore], object], dict[str, StoredTask | None]]] = [
    (lambda store: store.create(row("a", 1)), {"a": row("a", 1)}),
    (lambda store: store.create(row("b", 1, 9_000)), {"b": row("b", 1, 9_000)}),
    (lambda store: store.swap(row("a", 2, 5_000)), {"a": row("a", 2, 5_000)}),
    (lambda store: create_together(store, TOGETHER), {new.task_id: new for new in TOGETHER}),
    (often_checkpoint, {}),
    (lambda store: store.delete(TaskId("b"), Revision(1)), {"b": None}),
    (lambda store: store.swap(row("a", 3)), {"a": row("a", 3)}),
    (lambda store: store.hold_lease("p1", 5_000) is None, {}),
    (lambda store: store.create(row("c", 1, 3_000)), {"c": row("c", 1, 3_000)}),
    (lambda store: store.swap(row("c", 2)), {"c": row("c", 2)}),
]
REOPEN_AFTER = {2, 6}


def states() -> list[State]:
    """What the store holds before the first step and after each."""
    held: State = {}
    all_states = [dict(held)]
    for _, change in STEPS:
        held = {name: found for name, found in {**held, **change}.items() if found is not None}
        all_states.append(held)
    return all_states


STATES = states()


def found_in(store: SqliteTaskStore) -> State:
    return {found.task_id: found for found in store.rows()}


def live(path: Path, acknowledge: Callable[[int], None]) -> None:
    """All steps; each acknowledged once its call has returned."""
    store = SqliteTaskStore(path)
    for number, (step, _) in enumerate(STEPS, start=1):
        if not step(store):
            raise AssertionError(f"step {number} was refused")
        acknowledge(number)
        if number in REOPEN_AFTER:
            store.close()
            store = SqliteTaskStore(path)
    store.close()


def problems_after(path: Path, acknowledged: int) -> Iterator[str]:
    """What is wrong with a store of which so many steps were acknowledged before it was broken."""
    try:
        with SqliteTaskStore(path, synchronous="NORMAL") as store:
            found = found_in(store)
            if found not in STATES[acknowledged : acknowledged + 2]:
                yield f"{acknowledged} steps were acknowledged, and the store holds {sorted(found)}"
            yield from store.check()
            if not store.create(row("afterwards", 1)):
                yield "a create afterwards was refused"
    except StoreError as error:
        yield f"{acknowledged} steps were acknowledged, and then: {error}"


def opened_at_last(path: Path) -> SqliteTaskStore:
    while True:
        with contextlib.suppress(StoreError):
            return SqliteTaskStore(path)


def found_at_last(path: Path) -> State:
    while True:
        with contextlib.suppress(StoreError), opened_at_last(path) as store:
            return found_in(store)


def live_with_a_failure(path: Path) -> Iterator[str]:
    """All steps, though one operation on the files fails. What each call says is held against what is there."""
    store = opened_at_last(path)
    held: State = {}
    for number, (step, change) in enumerate(STEPS, start=1):
        wanted = {name: found for name, found in {**held, **change}.items() if found is not None}
        allowed = [wanted]
        try:
            step(store)
        except StoreUncertain:
            allowed = [held, wanted]
            yield UNCERTAIN
        except StoreError:
            allowed = [held]
        try:
            held = found_in(store)
        except StoreError as error:
            yield f"step {number}: after one failure the store cannot be read: {error}"
            return
        if held not in allowed:
            yield f"step {number}: the store holds {sorted(held)}, and its call said otherwise"
        if held != wanted:
            step(store)
            held = wanted
        if number in REOPEN_AFTER:
            store.close()
            store = opened_at_last(path)
    yield from store.check()
    store.close()
    if found_at_last(path) != held:
        yield "reopened, the store holds something else"


def say(descriptor: int, text: str) -> None:
    """One line, written at once: what was said before the process ends was said."""
    os.write(descriptor, f"{text}\n".encode())


def strike_everywhere(folder: Path, faults: ctypes.CDLL, mode: int, error: int) -> dict[str, object]:
    problems: list[str] = []
    point = uncertain = 0
    faults.faults_arm(os.fsencode(folder), ctypes.c_long(0), 0, 0)
    while True:
        point += 1
        home = folder / str(point)
        home.mkdir()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            faults.faults_arm(os.fsencode(home), ctypes.c_long(point), mode, error)
            try:
                if mode >= FAIL:
                    for problem in live_with_a_failure(home / "tasks.db"):
                        say(writing, problem)
                else:
                    live(home / "tasks.db", lambda number, to=writing: say(to, str(number)))
            except BaseException as failure:
                say(writing, repr(failure))
            os._exit(0 if faults.faults_seen() < point else 1)
        os.close(writing)
        with os.fdopen(reading) as lines:
            said = lines.read().splitlines()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if mode >= FAIL:
            uncertain += said.count(UNCERTAIN)
            problems += [f"operation {point}: {text}" for text in said if text != UNCERTAIN]
        elif said != [str(number) for number in range(1, len(said) + 1)] or code not in (0, STRUCK):
            problems.append(f"operation {point}: exit code {code}, {said}")
        else:
            problems += [f"operation {point}: {text}" for text in problems_after(home / "tasks.db", len(said))]
        shutil.rmtree(home)
        if code == 0:
            return {"points": point - 1, "problems": problems, "uncertain": uncertain}


def main() -> None:
    folder, library, mode, *rest = sys.argv[1:]
    faults = ctypes.CDLL(library)
    if mode == "record":
        home = Path(folder, "home")
        home.mkdir()
        faults.faults_record(os.fsencode(rest[0]))
        faults.faults_arm(os.fsencode(home), ctypes.c_long(0), 0, 0)
        live(home / "tasks.db", lambda number: faults.faults_note(ctypes.c_uint64(number)))
        print(json.dumps({"points": int(faults.faults_seen()), "problems": []}))
        return
    how = {"crash": EXIT_BEFORE, "tear": TEAR, "fail": FAIL, "fail-write": FAIL_WRITE}[mode]
    print(json.dumps(strike_everywhere(Path(folder), faults, how, int(rest[0]) if rest else 0)))


if __name__ == "__main__":
    main()
