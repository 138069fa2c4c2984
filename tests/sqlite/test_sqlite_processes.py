"""Several processes on one file: one winner for each revision, and nothing acknowledged is lost when one is killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_sqlite import SqliteTaskStore

PROCESS = Path(__file__).with_name("store_process.py")
KILLS = int(os.environ.get("MCP_TASKS_KILLS", "8"))


def start(*arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, PROCESS, *map(str, arguments)]
    # Unbuffered: no acknowledgement may lie in a buffer of this process when the other one is killed.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)


@pytest.mark.spec("T1")
def test_four_processes_that_create_swap_and_delete_the_same_tasks_each_see_one_winner(path):
    tasks = 60
    # No file yet: they also race for making it.
    processes = [start("race", path, f"p{index}", tasks) for index in range(4)]
    said: list[str] = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert errors == b""
        assert process.returncode == 0
        lines = output.decode().splitlines()
        assert lines.pop() == "end"
        said += lines
    counted = Counter(said)
    # A deleted task may be created anew by a process that comes later: then its revisions are won once more each.
    for index in range(tasks):
        lives = counted[f"created t{index}"]
        assert lives == 1 or (index % 2 and lives > 1), f"t{index} was created {lives} times"
        assert [counted[f"swapped t{index} {revision}"] for revision in (2, 3, 4)] == [lives] * 3
        assert counted[f"deleted t{index}"] == (lives if index % 2 else 0)
    with SqliteTaskStore(path) as store:
        assert sorted(found.task_id for found in store.rows()) == sorted(f"t{index}" for index in range(0, tasks, 2))
        assert {found.revision for found in store.rows()} == {4}
        assert [problem for problem in store.check() if "payload" not in problem] == []


@pytest.mark.spec("C5")
def test_what_a_killed_process_was_told_is_there_and_nothing_is_there_by_half(path):
    chance = random.Random(20260728)
    acknowledged: dict[str, int] = {}
    for kill in range(KILLS):
        writers = [start("write", path, f"k{kill}w{index}") for index in range(2)]
        for writer in writers:
            # A random moment: after so many acknowledgements, wherever the process is by then.
            for _ in range(chance.randrange(1, 40)):
                line = writer.stdout.readline()
                assert line, writer.stderr.read()
                remember(acknowledged, line)
        for writer in writers:
            writer.kill()
            output, errors = writer.communicate(timeout=60)
            assert errors == b""
            for line in output.splitlines(keepends=True):
                if line.endswith(b"\n"):
                    remember(acknowledged, line)
        with SqliteTaskStore(path) as store:
            for task_id, revision in acknowledged.items():
                found = store.load(TaskId(task_id))
                assert found is not None, f"{task_id} was acknowledged and is lost"
                assert found.revision in (revision, revision + 1)
            for found in store.rows():
                index = int(found.task_id.rpartition(" ")[2])
                assert found.payload == b"%d %d " % (index, found.revision) * 300
            assert [problem for problem in store.check() if "payload" not in problem] == []
    assert len(acknowledged) > KILLS


def remember(acknowledged: dict[str, int], line: bytes) -> None:
    task_id, _, revision = line.decode().rstrip("\n").rpartition(" ")
    acknowledged[task_id] = int(revision)
