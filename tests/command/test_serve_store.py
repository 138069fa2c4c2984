"""``mcp-tasks serve``: where tasks are kept, and that they are still there for the next process."""

from __future__ import annotations

import base64
import signal
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks_core.limits import Limits
from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio.served_store import default_file, state_folder

BACKENDS = ["asyncio", "trio"]
WAITS = "The server waits for its task store"


@pytest.mark.spec("C5")
def test_a_task_outlives_the_process_that_made_it_in_the_file_that_was_named(
    start_server: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.db"
    first = start_server("sample_app:app", "--store", str(file))
    task_id = first.tool("finish", {"text": "kept"})["taskId"]
    ended = first.ended_state(task_id)
    assert ended["status"] == "completed"
    first.close()
    second = start_server("sample_app:app", "--store", str(file))
    assert second.state(task_id) == ended
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_runs_at_the_end_of_input_is_settled_by_the_next_server_without_a_wait(
    start_server: Callable[..., Any], tmp_path: Path, backend: str
) -> None:
    options = ("sample_app:app", "--store", str(tmp_path / "tasks.db"), "--backend", backend)
    first = start_server(*options)
    running = [first.tool(tool)["taskId"] for tool in ("work", "work_in_a_thread", "ask_two")]
    finished = first.tool("finish")["taskId"]
    first.ended_state(finished)
    first.close_input()
    assert first.wait() == 0
    begun = time.monotonic()
    second = start_server(*options)
    for task_id in running:
        ended = second.ended_state(task_id)
        assert (ended["status"], ended["error"]["code"]) == ("failed", -32603)
        assert ended["error"]["data"] == {"reason": "worker_lost"}
    assert second.state(finished)["status"] == "completed"
    # A lease that nobody ended would have run on for twice as long.
    assert time.monotonic() - begun < Limits().lease_ms / 2000


def test_an_application_that_was_given_no_store_has_a_file_of_its_own_in_the_state_folder(
    start_server: Callable[..., Any], tmp_path: Path
) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    first = start_server(env=env)
    task_id = first.tool("finish")["taskId"]
    first.ended_state(task_id)
    first.close()
    (file,) = (tmp_path / "mcp-tasks").glob("*.db")
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert f"are kept in {file}" in first.stderr
    assert start_server(env=env).state(task_id)["status"] == "completed"


def test_memory_keeps_tasks_in_no_file(start_server: Callable[..., Any], tmp_path: Path) -> None:
    server = start_server("sample_app:app", "--store", "memory", env={"XDG_STATE_HOME": str(tmp_path)})
    assert server.ended_state(server.tool("finish")["taskId"])["status"] == "completed"
    assert list(tmp_path.iterdir()) == []


def test_an_application_without_tasks_makes_no_file(start_server: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "from mcp_tasks_trio import Application\n"
        "app = Application('plain', version='1')\n"
        "@app.tool()\n"
        "def one() -> int:\n"
        '    "One."\n'
        "    return 1\n"
    )
    server = start_server("plain:app", cwd=tmp_path, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert server.tool("one")["structuredContent"] == 1
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("made", ["missing/tasks.db", "text.db", "other.db"])
def test_a_file_that_cannot_be_a_store_is_refused_in_one_line(
    mcp_tasks: Callable[..., Any], tmp_path: Path, made: str
) -> None:
    (tmp_path / "text.db").write_text("This is a text and no database, however long it is made." * 20)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY)")
    other.close()
    done = mcp_tasks("serve", "sample_app:app", "--store", str(tmp_path / made))
    assert done.status == 2
    assert done.stdout == ""
    assert f"{tmp_path / made} cannot be used as a store: " in done.stderr
    assert "Traceback" not in done.stderr


# --- a store that another process keeps busy at the start


@pytest.fixture(params=["a new file", "a store"])
def locked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Holds the write lock of ``tasks.db`` until it is rolled back."""
    file = tmp_path / "tasks.db"
    file.touch(mode=0o600)
    if request.param == "a store":
        SqliteTaskStore(file).close()
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


@pytest.mark.spec("C5")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_waits_for_a_store_that_is_locked_at_its_start_and_serves_when_it_is_free(
    start_server: Callable[..., Any], locked: sqlite3.Connection, tmp_path: Path, backend: str
) -> None:
    options = ("sample_app:app", "--store", str(tmp_path / "tasks.db"), "--backend", backend)
    first, second = start_server(*options), start_server(*options)
    for server in (first, second):
        server.until_it_says(WAITS)
    locked.execute("ROLLBACK")
    task_ids = [server.tool("finish", {"text": "kept"})["taskId"] for server in (first, second)]
    for task_id in task_ids:
        assert first.ended_state(task_id) == second.ended_state(task_id)
    for server in (first, second):
        server.close_input()
        assert server.wait() == 0
        assert server.stderr.count(WAITS) == 1
        assert "Traceback" not in server.stderr


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transport", [(), ("--http", "127.0.0.1:0")])
def test_a_store_that_stays_locked_ends_the_start_in_one_line(
    mcp_tasks: Callable[..., Any],
    locked: sqlite3.Connection,
    tmp_path: Path,
    backend: str,
    transport: tuple[str, ...],
) -> None:
    file = str(tmp_path / "tasks.db")
    done = mcp_tasks(
        "serve", "sample_app:app", "--store", file, "--backend", backend, "--store-wait", "0.2", *transport
    )
    assert (done.status, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("mcp-tasks: ")
    assert "the server did not start, for it waited 0.2 s for its task store in vain: " in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("sealed", [True, False])
def test_a_store_that_was_locked_at_the_start_is_sealed_where_it_is_to_be(
    start_server: Callable[..., Any], locked: sqlite3.Connection, tmp_path: Path, sealed: bool
) -> None:
    options = ("--key-file", str(key_file(tmp_path, KEY))) if sealed else ()
    server = start_server("sample_app:app", "--store", str(tmp_path / "tasks.db"), *options)
    server.until_it_says(WAITS)
    locked.execute("ROLLBACK")
    server.ended_state(server.tool("finish", {"text": "a secret text"})["taskId"])
    server.close()
    readable = any(b"a secret text" in file.read_bytes() for file in tmp_path.glob("tasks.db*"))
    assert readable is not sealed


def test_keys_that_do_not_fit_are_told_at_once_although_the_store_is_locked(
    start_server: Callable[..., Any], mcp_tasks: Callable[..., Any], tmp_path: Path
) -> None:
    options = ("--store", str(tmp_path / "tasks.db"), "--key-file", str(key_file(tmp_path, KEY)))
    first = start_server("sample_app:app", *options)
    first.ended_state(first.tool("finish")["taskId"])
    first.close()
    key_file(tmp_path, OTHER_KEY)
    connection = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    done = mcp_tasks("serve", "sample_app:app", *options)
    connection.close()
    assert done.status == 2
    assert "was sealed with the key 'k1', which is not among those given: 'k2'" in done.stderr
    assert WAITS not in done.stderr


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("unread", [b"", b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}\n'])
def test_end_of_input_ends_a_server_that_waits_for_its_store(
    start_server: Callable[..., Any], locked: sqlite3.Connection, tmp_path: Path, backend: str, unread: bytes
) -> None:
    server = start_server("sample_app:app", "--store", str(tmp_path / "tasks.db"), "--backend", backend)
    server.until_it_says(WAITS)
    server.send_bytes(unread)
    server.close_input()
    assert server.wait() == 0
    assert locked.in_transaction
    assert server.rest() == []
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("transport", [(), ("--http", "127.0.0.1:0")])
def test_signal_ends_a_server_that_waits_for_its_store(
    start_server: Callable[..., Any],
    locked: sqlite3.Connection,
    tmp_path: Path,
    backend: str,
    name: str,
    transport: tuple[str, ...],
) -> None:
    file = str(tmp_path / "tasks.db")
    server = start_server("sample_app:app", "--store", file, "--backend", backend, *transport)
    server.until_it_says(WAITS)
    server.process.send_signal(getattr(signal, name))
    assert server.wait() == 0
    assert locked.in_transaction
    assert "Traceback" not in server.stderr


def test_applications_of_one_name_from_different_places_have_different_files() -> None:
    one, other = default_file("reports", "/one/reports.py:app"), default_file("reports", "/other/reports.py:app")
    assert one != other
    assert one.parent == other.parent == state_folder()
    assert one == default_file("reports", "/one/reports.py:app")


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b/c", "...", "世界", "x" * 500])
def test_no_name_leads_out_of_the_state_folder(name: str) -> None:
    file = default_file(name, "somewhere")
    assert file.parent == state_folder()
    assert len(file.name) < 100
    assert file.name.isascii()


def key_file(folder: Path, *lines: str) -> Path:
    file = folder / "keys"
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n")
    return file


KEY = f"k1 {base64.b64encode(b'1' * 32).decode()}"
OTHER_KEY = f"k2 {base64.b64encode(b'2' * 32).decode()}"


def test_a_key_file_seals_what_tasks_hold_and_opens_it_again(start_server: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--store", str(tmp_path / "tasks.db"), "--key-file", str(key_file(tmp_path, KEY)))
    first = start_server("sample_app:app", *options)
    task_id = first.tool("finish", {"text": "a secret text"})["taskId"]
    first.ended_state(task_id)
    first.close()
    assert all(b"a secret text" not in file.read_bytes() for file in tmp_path.glob("tasks.db*"))
    key_file(tmp_path, OTHER_KEY, KEY)
    second = start_server("sample_app:app", *options)
    assert second.state(task_id)["result"]["content"][0]["text"] == "a secret text"


def test_a_store_that_was_sealed_with_another_key_is_not_served_and_the_key_is_named(
    start_server: Callable[..., Any], mcp_tasks: Callable[..., Any], tmp_path: Path
) -> None:
    options = ("--store", str(tmp_path / "tasks.db"), "--key-file", str(key_file(tmp_path, KEY)))
    first = start_server("sample_app:app", *options)
    first.ended_state(first.tool("finish")["taskId"])
    first.close()
    key_file(tmp_path, OTHER_KEY)
    done = mcp_tasks("serve", "sample_app:app", *options)
    assert done.status == 2
    assert "was sealed with the key 'k1', which is not among those given: 'k2'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [("--key-file", "missing"), ("--store", "memory", "--key-file", "keys")])
def test_keys_that_cannot_be_used_are_refused_in_one_line(
    mcp_tasks: Callable[..., Any], tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = mcp_tasks("serve", "sample_app:app", *options, env={"XDG_STATE_HOME": str(tmp_path)})
    assert done.status == 2
    assert "key" in done.stderr
    assert "Traceback" not in done.stderr
