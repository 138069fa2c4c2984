"""Listeners over HTTP: memory for each idle event stream, and notifications a second to all of them.

    python -m benchmarks.subscriptions [--streams 1000] [--events 20] [--rounds 5] [--only NAME,NAME]

Each round starts every server anew, opens the streams, lets them be idle, and has the server make so many changes of
one thing that all streams listen to, so that each is told of each. Ours stores each change as a state of the watched
task. The bare limits do the bytes and nothing else; the peers tell of a resource or of a list, as they have no tasks to
listen to.

Peers, limits and the sink are no part of this project. Their folder is MCP_BENCH_DIR, else ../shared/bench beside the
checkout; the environments that its setup.sh makes are in BENCH_VENVS, else in its folder venvs. Servers whose
environment is missing are left out, and named.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.subscription_load import LOAD_CORE, Measured, Target, compiled_sink, measure

_CHECKOUT = Path(__file__).resolve().parent.parent
_TASK_MARKER = '"notifications/tasks"'
_URI = "bench://x"
_BARE_TASK = {"taskIds": ["x" * 43]}
_FIRST_PORT = 9540
# Name: the mode of the bare server. "direct" writes to the socket from where the change is made.
_LIMITS = {
    "bare, h11 for each stream, asyncio": "h11_asyncio",
    "bare, h11 for each stream, trio": "h11_trio",
    "bare, h11, direct writes, trio": "h11d_trio",
    "bare, chunks by hand, asyncio": "raw_asyncio",
    "bare, chunks by hand, direct writes, trio": "rawd_trio",
}


Rounds: TypeAlias = dict[str, dict[int, Measured]]
"""What was measured, by server and by round."""


def ours(port: int) -> list[Target]:
    program = ["-m", "benchmarks.subscription_server"]
    return [
        Target(
            name=f"ours, {backend}",
            port=port + index,
            command=[sys.executable, *program, "--backend", backend, "--port", str(port + index)],
            listens_to=None,
            publish=("tools/call", {"name": "publish", "arguments": {}}),
            marker=_TASK_MARKER,
        )
        for index, backend in enumerate(("asyncio", "trio"))
    ]


def limits(peers: Path, port: int) -> list[Target]:
    program = str(peers / "limits" / "sse_limit.py")
    return [
        Target(
            name=name,
            port=port + index,
            command=[sys.executable, program, mode, "--port", str(port + index)],
            listens_to=_BARE_TASK,
            publish=("bench/publish", {}),
            marker=_TASK_MARKER,
        )
        for index, (name, mode) in enumerate(_LIMITS.items())
    ]


def installed_peers(peers: Path, venvs: Path, port: int) -> list[Target]:
    publish = ("tools/call", {"name": "publish", "arguments": {"uri": _URI}})
    resources = {"resourceSubscriptions": [_URI]}
    found: list[Target] = []
    program = str(peers / "servers" / "mcp_server.py")
    python_servers: list[tuple[str, str, list[str]]] = [
        ("mcp 2.3.0", "mcp", []),
        ("mcp 2.3.0, uvloop and httptools", "fastmcp_tuned", ["--loop", "uvloop", "--http", "httptools"]),
    ]
    for index, (name, venv, options) in enumerate(python_servers):
        python = venvs / venv / "bin" / "python"
        if _is_there(python, name):
            command = [str(python), program, "http", "--port", str(port + index), *options]
            marker = "notifications/resources/updated"
            found.append(
                Target(
                    name=name, port=port + index, command=command, listens_to=resources, publish=publish, marker=marker
                )
            )
    node = venvs / "node" / "node_modules"
    if _is_there(node, "@modelcontextprotocol/server 2.4.0"):
        found.append(
            Target(
                name="@modelcontextprotocol/server 2.4.0",
                port=port + 2,
                command=["node", str(peers / "servers" / "node_server.mjs"), "http", str(port + 2)],
                listens_to={"toolsListChanged": True},
                publish=publish,
                marker="notifications/tools/list_changed",
                environment={"BENCH_NODE_MODULES": f"{node.parent}/"},
            )
        )
    return found


def _is_there(path: Path, name: str) -> bool:
    if path.exists():
        return True
    print(f"left out: {name}, as there is no {path}; the setup.sh of the peers makes it", file=sys.stderr)
    return False


def spread(values: Sequence[float], digits: int = 0) -> str:
    return f"{min(values):.{digits}f} / {statistics.median(values):.{digits}f} / {max(values):.{digits}f}"


def middle(measured: Sequence[Measured], of: Callable[[Measured], float]) -> float:
    return statistics.median(of(each) for each in measured)


def table(rounds: Rounds, limit: str) -> list[str]:
    """Medians of all rounds. Ratios are taken round by round, so that what the machine does meanwhile meets both."""
    columns = (
        "server",
        "KiB for each idle stream",
        "after the notifications",
        "streams opened a second",
        "notifications a second: min / median / max",
        "times the first limit: min / median / max",
        "processor µs each",
        "first / last, ms",
        "delivered of wanted",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    bare = rounds.get(limit, {})
    for name, of_server in rounds.items():
        if of_server:
            lines.append(f"| {name} | {' | '.join(_cells(of_server, bare))} |")
    return lines


def _cells(of_server: dict[int, Measured], bare: dict[int, Measured]) -> list[str]:
    measured = list(of_server.values())
    ratios = [_speed(each) / _speed(bare[number]) for number, each in of_server.items() if number in bare]
    return [
        f"{middle(measured, lambda one: one.kib_per_stream):.1f}",
        f"{middle(measured, lambda one: one.kib_per_stream_after):.1f}",
        f"{middle(measured, lambda one: one.opened_per_s):.0f}",
        spread([_speed(one) for one in measured]),
        spread(ratios, 2) if ratios else "",
        f"{middle(measured, lambda one: one.cpu_us):.1f}",
        f"{middle(measured, lambda one: one.first_ms):.0f} / {middle(measured, lambda one: one.last_ms):.0f}",
        f"{min(one.delivered for one in measured)} of {measured[0].wanted}",
    ]


def _speed(measured: Measured) -> float:
    return measured.notifications_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="beginnings of names, with commas between them")
    options = parser.parse_args()
    peers = Path(os.environ.get("MCP_BENCH_DIR", _CHECKOUT.parent / "shared" / "bench"))
    venvs = Path(os.environ.get("BENCH_VENVS", peers / "venvs"))
    if not (peers / "load" / "sse_sink.c").exists():
        raise SystemExit(f"MCP_BENCH_DIR is the folder of peers and limits: there is no load/sse_sink.c in {peers}")
    targets = [
        *ours(_FIRST_PORT),
        *limits(peers, _FIRST_PORT + 10),
        *installed_peers(peers, venvs, _FIRST_PORT + 20),
    ]
    if options.only:
        wanted = tuple(options.only.split(","))
        targets = [target for target in targets if target.name.startswith(wanted)]
    os.sched_setaffinity(0, {LOAD_CORE})
    rounds: Rounds = {target.name: {} for target in targets}
    with tempfile.TemporaryDirectory() as folder:
        sink = compiled_sink(peers, Path(folder))
        for number in range(options.rounds):
            for target in targets:
                try:
                    measured = measure(target, sink, Path(folder), streams=options.streams, events=options.events)
                except (RuntimeError, OSError) as problem:
                    print(f"round {number}, {target.name}: not measured, as {problem}", file=sys.stderr)
                    continue
                rounds[target.name][number] = measured
                print(f"round {number}, {target.name}: {measured}", file=sys.stderr)
    print(f"{options.rounds} rounds, {options.streams} streams, {options.events} changes; medians")
    print("\n".join(table(rounds, next(iter(_LIMITS)))))


if __name__ == "__main__":
    main()
