"""One process of several on one store. Reads nothing; says line by line what was acknowledged to it.

``race FILE NAME TASKS``: creates, swaps and deletes tasks that the others create, swap and delete too.
``write FILE NAME``: creates and swaps tasks of its own until it is killed.
"""

from __future__ import annotations

import os
import sys

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite import SqliteTaskStore


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def race(store: SqliteTaskStore, name: str, tasks: int) -> None:
    """Every task has one creator, one winner of each revision, one who deletes it."""
    for index in range(tasks):
        task_id = f"t{index}"
        if store.create(row(task_id, due_at_ms=index, payload=name.encode())):
            say(f"created {task_id}")
        while (found := store.load(TaskId(task_id))) is not None and found.revision < 4:
            if store.swap(row(task_id, found.revision + 1, due_at_ms=index, payload=name.encode())):
                say(f"swapped {task_id} {found.revision + 1}")
        if index % 2 and store.delete(TaskId(task_id), Revision(4)):
            say(f"deleted {task_id}")
    say("end")


def write(store: SqliteTaskStore, name: str) -> None:
    index = 0
    while True:
        index += 1
        task_id = f"{name} {index}"
        if not store.create(row(task_id, payload=b"%d 1 " % index * 300)):
            raise AssertionError(task_id)
        say(f"{task_id} 1")
        for revision in (2, 3):
            if not store.swap(row(task_id, revision, payload=b"%d %d " % (index, revision) * 300)):
                raise AssertionError(task_id)
            say(f"{task_id} {revision}")


def main() -> None:
    what, file, name, *rest = sys.argv[1:]
    with SqliteTaskStore(file) as store:
        if what == "race":
            race(store, name, int(rest[0]))
        else:
            write(store, name)


if __name__ == "__main__":
    main()
