"""What ``mcp-tasks store`` shows, checks and removes; and that it changes nothing unless it is told to."""

from __future__ import annotations

import base64
import json
import os
import pty
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.identifiers import InputKey, Revision, TaskId
from mcp_tasks_core.lifecycle import Answer, Ask, Complete, TaskInput, apply
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.records import row_of
from mcp_tasks_core.tasks import TaskRecord, TaskStatus
from mcp_tasks_sqlite import SealedTaskStore, SealingKey, SqliteTaskStore
from mcp_tasks_trio import cli

SECRET_TEXT = "nobody may see this in a list"
KEY = SealingKey("k1", bytes(range(32)))
HOUR_MS = 3_600_000
QUESTION = {"method": "elicitation/create", "params": {"message": SECRET_TEXT}}


@attrs.frozen
class Ended:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteTaskStore]:
    with SqliteTaskStore(path) as opened:
        yield opened


@pytest.fixture
def run(path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs ``mcp-tasks store FILE ...`` in this process."""

    def run(*arguments: str, file: Path = path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["mcp-tasks", "store", str(file), *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code is not None
        captured = capfdbinary.readouterr()
        return Ended(int(ended.value.code), captured.out.decode(), captured.err.decode())

    return run


def record(name: str, *inputs: TaskInput, age_ms: int = 0, **fields: Any) -> TaskRecord:
    now_ms = time.time_ns() // 1_000_000 - age_ms
    made = TaskRecord(
        task_id=TaskId(name),
        owner=fields.pop("owner", Owner("local", "local")),
        status=TaskStatus.WORKING,
        created_at_ms=now_ms,
        last_updated_at_ms=now_ms,
        ttl_ms=fields.pop("ttl_ms", HOUR_MS),
        request={"name": "report", "arguments": {"topic": SECRET_TEXT}},
        capabilities=ClientCapabilities({}),
        executor="0123456789abcdef",
        **fields,
    )
    for task_input in inputs:
        made = apply(made, task_input, now_ms)
    return made


def keep(store: Any, made: TaskRecord) -> None:
    assert store.create(row_of(made, Revision(1), Limits()))


RESULT = {"content": [{"type": "text", "text": SECRET_TEXT}]}


@pytest.fixture
def filled(store: SqliteTaskStore) -> SqliteTaskStore:
    """Three tasks: one works, one asks, one has ended."""
    store.hold_lease("0123456789abcdef", time.time_ns() // 1_000_000 + HOUR_MS)
    keep(store, record("works"))
    keep(store, record("asks", Ask(InputKey("quarter"), QUESTION), owner=Owner("acme", "ada/lovelace")))
    keep(store, record("ended", Complete(RESULT, "\x1b[31mdone\tand said")))
    return store


# --- ls


def test_tasks_are_listed_in_columns_newest_first_without_what_was_said(filled: SqliteTaskStore, run: Run) -> None:
    ended = run("ls")
    head, *rows = [line.split("\t") for line in ended.out.splitlines()]
    assert (ended.status, ended.err) == (0, "")
    assert head == ["TASK", "STATUS", "TOOL", "OWNER", "CHANGED", "DUE", "RUNS IN", "NOTE"]
    assert [row[:4] for row in rows] == [
        ["ended", "completed", "report", "local/local"],
        ["asks", "input_required", "report", "acme/ada/lovelace"],
        ["works", "working", "report", "local/local"],
    ]
    assert [row[6:] for row in rows] == [
        ["-", r"\x1b[31mdone\tand said"],
        ["01234567", "asks quarter"],
        ["01234567", ""],
    ]
    assert SECRET_TEXT not in ended.out


def test_json_is_one_object_a_line(filled: SqliteTaskStore, run: Run) -> None:
    ended = run("ls", "--json")
    assert ended.status == 0
    assert SECRET_TEXT not in ended.out
    newest, asking, oldest = ended.lines
    assert (newest["taskId"], newest["status"], newest["statusMessage"]) == (
        "ended",
        "completed",
        "\x1b[31mdone\tand said",
    )
    assert (asking["tenant"], asking["subject"], asking["outstanding"]) == ("acme", "ada/lovelace", ["quarter"])
    assert oldest["leaseUntilMs"] > oldest["changedAtMs"]
    assert oldest["dueAtMs"] == oldest["createdAtMs"] + HOUR_MS
    assert (oldest["tool"], oldest["revision"], oldest["sealedWith"]) == ("report", 1, None)


def test_lists_can_be_narrowed_and_say_what_they_leave_out(filled: SqliteTaskStore, run: Run) -> None:
    assert [task["taskId"] for task in run("ls", "--json", "--status", "working").lines] == ["works"]
    assert [task["taskId"] for task in run("ls", "--json", "--owner", "acme/ada/lovelace").lines] == ["asks"]
    assert run("ls", "--json", "--owner", "nobody/here").out == ""
    assert [task["taskId"] for task in run("ls", "--json", "--limit", "2").lines] == ["ended", "asks"]
    cut = run("ls", "--limit", "1")
    assert len(cut.out.splitlines()) == 2
    assert cut.err == "1 of 3 tasks; --limit 0 shows all\n"


def test_a_table_is_cut_at_50_tasks_and_json_is_not(store: SqliteTaskStore, run: Run) -> None:
    for index in range(60):
        keep(store, record(f"t{index}"))
    assert len(run("ls").out.splitlines()) == 51
    assert len(run("ls", "--limit", "0").out.splitlines()) == 61
    assert len(run("ls", "--json").lines) == 60


def test_work_of_a_process_that_holds_no_lease_is_marked(store: SqliteTaskStore, run: Run) -> None:
    keep(store, record("works"))
    assert "01234567 (dead)" in run("ls").out
    assert run("ls", "--json").lines[0]["leaseUntilMs"] is None


def test_on_a_terminal_tasks_stand_in_a_table(filled: SqliteTaskStore, path: Path) -> None:
    terminal, child = pty.openpty()
    command = [sys.executable, "-m", "mcp_tasks_trio", "store", str(path), "ls"]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    subprocess.run(command, stdout=child, stdin=child, env=environment, check=True, timeout=60)
    os.close(child)
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert b"\t" not in shown
    assert b"asks quarter" in shown
    assert rb"\x1b[31mdone" in shown
    assert b"\x1b[31m" not in shown


# --- show


def test_one_task_is_shown_whole(store: SqliteTaskStore, run: Run) -> None:
    answer = {"action": "accept", "content": {"quarter": "Q3"}}
    key = InputKey("quarter")
    keep(store, record("a", Ask(key, QUESTION), Answer({key: answer}), Complete(RESULT)))
    ended = run("show", "a")
    assert ended.status == 0
    for text in ("taskId: a", "owner: local/local", "status: completed", '"Q3"', SECRET_TEXT):
        assert text in ended.out
    [shown] = run("show", "a", "--json").lines
    assert shown["inputs"] == {"quarter": {"request": QUESTION, "answer": answer, "withdrawn": False}}
    assert (shown["result"], shown["error"]) == (RESULT, None)
    assert shown["request"]["arguments"] == {"topic": SECRET_TEXT}


def test_long_values_are_cut_for_people_and_whole_as_json(store: SqliteTaskStore, run: Run) -> None:
    long = {"content": [{"type": "text", "text": "x" * 100_000}]}
    keep(store, record("a", Complete(long)))
    ended = run("show", "a")
    assert ended.out.count("x") < 5_000
    assert "more characters; --json shows all]" in ended.out
    assert run("show", "a", "--json").lines[0]["result"] == long


def test_control_characters_of_a_task_do_not_reach_the_terminal(store: SqliteTaskStore, run: Run) -> None:
    keep(store, record("a", Complete({"content": [{"type": "text", "text": "\x9b31m\u202ered"}]}, "\x1b]0;title\x07")))
    out = run("show", "a").out
    assert not any(character in out for character in "\x1b\x07\x9b\u202e")


def test_an_unknown_task_is_said_to_be_unknown(filled: SqliteTaskStore, run: Run) -> None:
    ended = run("show", "nothing")
    assert (ended.status, ended.out) == (1, "")
    assert "there is no task 'nothing'" in ended.err


# --- sealed payloads


@pytest.fixture
def sealed(store: SqliteTaskStore) -> SealedTaskStore:
    made = SealedTaskStore(store, [KEY])
    keep(made, record("hidden", Complete(RESULT)))
    return made


def key_file(folder: Path, key: SealingKey, mode: int = 0o600) -> str:
    file = folder / "keys"
    file.write_text(f"{key.key_id} {base64.b64encode(key.secret).decode()}\n")
    file.chmod(mode)
    return str(file)


def test_sealed_payloads_are_shown_as_sealed_with_the_id_of_their_key(sealed: SealedTaskStore, run: Run) -> None:
    assert run("ls").out.splitlines()[1].endswith("\tsealed with k1")
    [listed] = run("ls", "--json").lines
    assert (listed["taskId"], listed["status"], listed["sealedWith"]) == ("hidden", "completed", "k1")
    assert "tool" not in listed
    ended = run("show", "hidden")
    assert ended.status == 0
    assert "payload: sealed with the key k1" in ended.out
    assert SECRET_TEXT not in ended.out
    checked = run("check")
    assert (checked.status, "1 task sealed and not opened" in checked.out) == (0, True)


def test_the_key_file_opens_sealed_payloads(sealed: SealedTaskStore, run: Run, tmp_path: Path) -> None:
    keys = key_file(tmp_path, KEY)
    assert run("ls", "--json", "--key-file", keys).lines[0]["tool"] == "report"
    assert run("show", "hidden", "--json", "--key-file", keys).lines[0]["result"] == RESULT
    assert run("check", "--json", "--key-file", keys).lines[0]["unopened"] == 0


def test_a_wrong_key_is_told_and_hides_no_task(sealed: SealedTaskStore, run: Run, tmp_path: Path) -> None:
    other_secret = key_file(tmp_path, SealingKey("k1", bytes(32)))
    assert "cannot be opened with the key 'k1'" in run("ls", "--key-file", other_secret).out
    other_id = key_file(tmp_path, SealingKey("k2", bytes(32)))
    assert (
        "sealed with the key 'k1', which is not among those given" in run("show", "hidden", "--key-file", other_id).out
    )
    assert run("check", "--key-file", other_id).status == 1


def test_a_key_file_that_others_may_read_is_wrong_usage(sealed: SealedTaskStore, run: Run, tmp_path: Path) -> None:
    ended = run("ls", "--key-file", key_file(tmp_path, KEY, 0o644))
    assert (ended.status, ended.out) == (2, "")
    assert "open to other users" in ended.err


# --- purge


@pytest.fixture
def aged(path: Path) -> SqliteTaskStore:
    """Tasks of which two have ended long ago, one of them with its time over, and one just now."""
    long_ago_ms = time.time_ns() // 1_000_000 - 10 * 24 * HOUR_MS
    with SqliteTaskStore(path, clock=lambda: long_ago_ms) as old:
        keep(old, record("overdue", Complete(RESULT), age_ms=10 * 24 * HOUR_MS))
        keep(old, record("for ever", Complete(RESULT), age_ms=10 * 24 * HOUR_MS, ttl_ms=None))
        keep(old, record("unfinished", age_ms=10 * 24 * HOUR_MS))
    with SqliteTaskStore(path) as new:
        keep(new, record("fresh", Complete(RESULT)))
    return new


def ids(path: Path) -> set[str]:
    with SqliteTaskStore(path) as opened:
        return {row.task_id for row in opened.rows()}


EVERY = {"overdue", "for ever", "unfinished", "fresh"}


@pytest.mark.parametrize(
    ("which", "removed"),
    [
        (("--expired",), {"overdue"}),
        (("--older-than", "7d"), {"overdue", "for ever"}),
        (("--older-than", "2w"), set()),
        (("--all-terminal",), {"overdue", "for ever", "fresh"}),
    ],
)
def test_purge_removes_what_was_asked_for_and_says_how_much(
    aged: SqliteTaskStore, path: Path, run: Run, which: tuple[str, ...], removed: set[str]
) -> None:
    tried = run("purge", *which, "--dry-run")
    number = len(removed)
    assert tried.out == f"{number} task{'' if number == 1 else 's'} would be removed\n"
    assert ids(path) == EVERY
    ended = run("purge", *which, "--yes")
    assert ended.status == 0
    assert ended.out == (tried.out.replace("would be ", "") if removed else "there is nothing to remove\n")
    assert ids(path) == EVERY - removed


def test_purge_without_a_person_wants_yes(
    aged: SqliteTaskStore, path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        ended = run("purge", "--all-terminal")
    assert ended.status == 2
    assert "say --yes" in ended.err
    assert ids(path) == EVERY


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_a_person_is_asked(aged: SqliteTaskStore, path: Path, typed: str, status: int) -> None:
    terminal, child = pty.openpty()
    command = [sys.executable, "-m", "mcp_tasks_trio", "store", str(path), "purge", "--all-terminal"]
    os.write(terminal, typed.encode())
    done = subprocess.run(command, stdin=child, capture_output=True, timeout=60, check=False)
    os.close(child)
    os.close(terminal)
    assert done.returncode == status
    assert b"Remove 3 tasks from" in done.stderr
    assert ids(path) == (EVERY if status else {"unfinished"})


@pytest.mark.parametrize(
    "arguments", [(), ("--expired", "--all-terminal"), ("--older-than", "7"), ("--older-than", "-1d")]
)
def test_purge_that_does_not_say_what_is_wrong_usage(
    aged: SqliteTaskStore, run: Run, arguments: tuple[str, ...]
) -> None:
    assert run("purge", *arguments, "--yes").status == 2


# --- check


def test_a_sound_store_is_said_to_be_sound(filled: SqliteTaskStore, path: Path, run: Run) -> None:
    ended = run("check")
    assert (ended.status, ended.out) == (0, f"{path} is sound: 3 tasks\n")
    assert run("check", "--json").lines == [{"file": str(path), "tasks": 3, "unopened": 0, "problems": []}]


def test_faults_are_named_and_end_with_1(filled: SqliteTaskStore, path: Path, run: Run) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as careless:
        careless.execute("UPDATE tasks SET status = 'failed' WHERE task_id = 'works'")
    ended = run("check")
    assert ended.status == 1
    assert ended.out == "task works: its column status says 'failed', its record 'working'\n"
    [checked] = run("check", "--json").lines
    assert checked["problems"] == [ended.out.strip()]


def test_a_row_that_cannot_be_read_does_not_keep_the_others_from_being_listed(
    filled: SqliteTaskStore, path: Path, run: Run
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as careless:
        careless.execute("UPDATE tasks SET payload = x'7b7d' WHERE task_id = 'asks'")
    listed = {task["taskId"]: task for task in run("ls", "--json").lines}
    assert set(listed) == {"works", "asks", "ended"}
    assert "no record" in listed["asks"]["problem"]
    assert "no record" in run("show", "asks").out


# --- the file


@pytest.mark.parametrize("verb", [("ls",), ("show", "a"), ("check",), ("purge", "--all-terminal", "--yes")])
def test_a_file_that_is_no_store_ends_with_3_and_is_left_alone(
    path: Path, run: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    missing = run(*verb)
    assert (missing.status, missing.out) == (3, "")
    assert "there is no store" in missing.err
    assert list(tmp_path.iterdir()) == []
    path.write_text("a letter to nobody in particular, as long as the head of a database would be. " * 10)
    content = path.read_bytes()
    foreign = run(*verb)
    assert foreign.status == 3
    assert "is not an SQLite database" in foreign.err
    assert path.read_bytes() == content


def test_reading_verbs_write_nothing(filled: SqliteTaskStore, path: Path, run: Run) -> None:
    before = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.suffix != ".db-shm"}
    for verb in (("ls",), ("show", "works"), ("check",), ("purge", "--all-terminal", "--dry-run")):
        assert run(*verb).status == 0
    assert {file.name: file.read_bytes() for file in path.parent.iterdir() if file.suffix != ".db-shm"} == before


SERVER = """
import sys
import anyio
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import Application, run_stdio

app = Application("test", version="1")

@app.tool(task="always")
async def wait() -> None:
    await anyio.sleep_forever()

sys.exit(run_stdio(app, store=SqliteTaskStore(sys.argv[1])))
"""


def test_the_commands_work_beside_a_server_on_the_file(path: Path, mcp_tasks: Callable[..., Any]) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert server.stdin is not None
        assert server.stdout is not None
        params = {"name": "wait", "arguments": {}, "_meta": META}
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode())
        server.stdin.write(b"\n")
        server.stdin.flush()
        task_id = json.loads(server.stdout.readline())["result"]["taskId"]
        listed = mcp_tasks("store", str(path), "ls", "--json")
        assert [json.loads(line)["taskId"] for line in listed.stdout.splitlines()] == [task_id]
        assert mcp_tasks("store", str(path), "check").status == 0
        assert (
            mcp_tasks("store", str(path), "purge", "--all-terminal", "--yes").stdout == "there is nothing to remove\n"
        )
    finally:
        server.kill()
        server.communicate()


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
