"""``mcp-tasks watch`` where servers, terminals and pipes do not do what they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command.scripted_peer import BOUND_SECONDS, Exchange, completed, scripted_peer, task

HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
IMPATIENT = """
import sys
from mcp_tasks_core.client.config import ClientLimits
from mcp_tasks_trio.command_watch import WatchOptions, run_watch

limits = ClientLimits(listen_ack_timeout_ms=100, listen_failures_max=1)
plain = dict(as_json=False, timeout=30, quiet=False, backend=sys.argv[1], http_url=sys.argv[2], limits=limits)
sys.exit(run_watch(WatchOptions.parse(sys.argv[3:], [], **plain)))
"""
# Neither the end of its input nor SIGTERM ends it.
STUBBORN = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        more = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
        send(id=message["id"], result={"resultType": "complete", **more})
    elif message["method"] == "subscriptions/listen":
        params = {"notifications": message["params"]["notifications"]}
        params["_meta"] = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        send(method="notifications/subscriptions/acknowledged", params=params)
print("there is no more input", file=sys.stderr, flush=True)
time.sleep(3600)
"""

both_loops = pytest.mark.parametrize("backend", ["asyncio", "trio"])
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and shells of POSIX")


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command; it is ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def run(*command: str) -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen(
                command,
                cwd=HERE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
        )
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def get_completed(exchange: Exchange) -> None:
    exchange.result(**completed(exchange.message["params"]["taskId"]))


def get_unknown(exchange: Exchange) -> None:
    exchange.error(-32602, "unknown task")


# --- subscriptions that do not last


@both_loops
@pytest.mark.spec("S7")
def test_a_task_that_a_server_no_longer_knows_is_named_while_others_go_on(start: Any, backend: str) -> None:
    def listen(exchange: Exchange) -> None:
        if exchange.task_ids == ["lost", "kept"] and peer.count("subscriptions/listen") == 1:
            exchange.acknowledge()
            exchange.push(task("lost"))
            exchange.push(task("kept"))
            exchange.end()
        else:
            exchange.acknowledge(["kept"])
            exchange.push(task("kept"))
            exchange.hold()

    def get(exchange: Exchange) -> None:
        task_id = exchange.message["params"]["taskId"]
        if peer.count("subscriptions/listen") > 1 and task_id == "lost":
            get_unknown(exchange)
        else:
            exchange.result(**task(task_id))

    with scripted_peer(listen=listen, get=get) as peer:
        command = start(*MCP_TASKS, "watch", "lost", "kept", "--backend", backend, "--http", peer.url)
        said = iter(command.stderr.readline, "")
        assert any(line == "lost: the server does not know it, or not for you\n" for line in said)
        assert next(said) == "watching 1 task\n"
        command.send_signal(signal.SIGINT)
        rest, _ = command.communicate(timeout=BOUND_SECONDS)
    assert command.returncode == 130
    assert rest == "lost working\nkept working\n"


def never_acknowledges(exchange: Exchange) -> None:
    exchange.hold()


def refuses(exchange: Exchange) -> None:
    exchange.error(-32603, "the database is locked")


@both_loops
@pytest.mark.parametrize("listen", [never_acknowledges, refuses])
def test_tasks_are_polled_where_a_subscription_does_not_last(start: Any, backend: str, listen: Any) -> None:
    with scripted_peer(listen=listen, get=get_completed) as peer:
        command = start(sys.executable, "-c", IMPATIENT, backend, peer.url, "one", "two")
        out, err = command.communicate(timeout=BOUND_SECONDS)
    assert command.returncode == 0, err
    assert err.count(": the tasks are polled\n") == 1
    assert sorted(out.splitlines()) == ["  one is done", "  two is done", "one completed", "two completed"]


def test_more_tasks_than_one_subscription_takes_are_spread_over_several(mcp_tasks: Any) -> None:
    def listen(exchange: Exchange) -> None:
        exchange.acknowledge()
        for task_id in exchange.task_ids:
            exchange.push(completed(task_id))
        exchange.end()

    task_ids = [f"t{number}" for number in range(1001)]
    with scripted_peer(listen=listen, get=get_completed) as peer:
        done = mcp_tasks("watch", *task_ids, "--http", peer.url)
    assert done.status == 0, done.stderr
    asked = [m["params"]["notifications"]["taskIds"] for m in peer.received if m["method"] == "subscriptions/listen"]
    assert sorted(map(len, asked)) == [1, 1000]
    assert sorted(line for line in done.stdout.splitlines() if "completed" in line) == sorted(
        f"{task_id} completed" for task_id in task_ids
    )


# --- states that are none


ASKS = {"method": "elicitation/create"}
BAD_STATES = {
    "content is a number": task("t1", "completed", result={"content": 5}),
    "content is null": task("t1", "completed", result={"content": None}),
    "content holds a string": task("t1", "completed", result={"content": ["a"]}),
    "params is null": task("t1", "input_required", inputRequests={"k": {**ASKS, "params": None}}),
    "params is a list": task("t1", "input_required", inputRequests={"k": {**ASKS, "params": [1]}}),
    "message is a number": task("t1", "input_required", inputRequests={"k": {**ASKS, "params": {"message": 5}}}),
    "error is a number": task("t1", "failed", error=5),
    "error has no code": task("t1", "failed", error={}),
}


@pytest.mark.parametrize("state", BAD_STATES.values(), ids=BAD_STATES)
@pytest.mark.parametrize("is_told", [True, False])
def test_state_that_breaks_the_protocol_is_named_in_one_line(mcp_tasks: Any, state: Any, is_told: bool) -> None:
    def listen(exchange: Exchange) -> None:
        exchange.acknowledge()
        exchange.push(state)
        exchange.hold()

    def get(exchange: Exchange) -> None:
        exchange.result(**state)

    with scripted_peer(listen=listen if is_told else refuses, get=get) as peer:
        done = mcp_tasks("watch", "t1", "--http", peer.url)
    assert done.status == 3, done.stderr
    assert "is invalid: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


# --- streams that are closed, and Ctrl-C


@both_loops
@posix_only
def test_a_reader_who_leaves_ends_it_quietly(start: Any, backend: str) -> None:
    has_left = threading.Event()

    def listen(exchange: Exchange) -> None:
        exchange.acknowledge()
        exchange.push(task("t1"))
        assert has_left.wait(BOUND_SECONDS)
        exchange.push(completed("t1"))
        exchange.hold()

    with scripted_peer(listen=listen, get=get_completed) as peer:
        command = start(*MCP_TASKS, "watch", "t1", "--backend", backend, "--http", peer.url)
        assert command.stdout.readline() == "t1 working\n"
        command.stdout.close()
        has_left.set()
        assert command.wait(BOUND_SECONDS) == 1
    assert command.stderr.read().splitlines()[2:] == ["asking for the states of 1 task", "watching 1 task"]


@both_loops
@posix_only
def test_a_second_ctrl_c_leaves_a_server_that_does_not_end(start: Any, backend: str) -> None:
    command = start(*MCP_TASKS, "watch", "t1", "--backend", backend, "--", sys.executable, "-c", STUBBORN)
    said = iter(command.stderr.readline, "")
    assert any(line == "watching 1 task\n" for line in said)
    command.send_signal(signal.SIGINT)
    assert any(line == "server| there is no more input\n" for line in said)
    command.send_signal(signal.SIGINT)
    rest = list(said)
    assert command.wait(BOUND_SECONDS) == 130
    assert rest[-1].startswith("mcp-tasks: interrupted")
    assert not any("Traceback" in line for line in rest)
