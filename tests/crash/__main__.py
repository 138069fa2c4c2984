"""Kills servers with SIGKILL and looks whether anything that was promised is lost.

python -m tests.crash --rounds 1000
python -m tests.crash --rounds 200 --kill handle
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.crash.handle_rounds import kill_at_handles
from tests.crash.rounds import ROUNDS_PER_FILE, StoreLife, Tally, new_file
from tests.crash.server_child import ServerEnded

_BACKENDS = ("asyncio", "trio")
_KINDS = ("plain", "plain", "sealed")
_FAULTS_MAX = 100  # enough to be looked into
_FAULTS_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000, help="how often servers are started and killed (1000)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same plan of requests and kills")
    parser.add_argument(
        "--kill",
        choices=("random", "handle"),
        default="random",
        help="at random moments, or in the moment in which the bytes of a handle were read",
    )
    parser.add_argument("--start", choices=("fork", "exec"), default="fork", help="how server processes are made")
    parser.add_argument(
        "--store",
        choices=("plain", "sealed", "forgetful"),
        help="one kind of store rather than two plain files and a sealed one in turn; "
        "forgetful is one that answers before it writes, to see that losses are found",
    )
    parser.add_argument("--backend", choices=_BACKENDS, help="one event loop rather than both in turn")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is 1 or more")
    seed = Random().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    tally, begun = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-crash-") as folder:
        run(Path(folder), options, Random(seed), tally, begun)
    if not tally.handles:
        tally.faults.append("no handle was read, so nothing was tried")
    report(tally, time.monotonic() - begun)
    return 1 if tally.faults else 0


def run(folder: Path, options: argparse.Namespace, random: Random, tally: Tally, begun: float) -> None:
    number = 0
    while tally.rounds < options.rounds and len(tally.faults) < _FAULTS_MAX:
        rounds = min(ROUNDS_PER_FILE, options.rounds - tally.rounds)
        backend = options.backend or _BACKENDS[number % 2]
        made = new_file(folder, number)
        kind = options.store or _KINDS[number % 3]
        if options.kill == "handle":
            try:
                kill_at_handles(made, rounds, tally, backend=backend, kind=kind, start=options.start)
            except (ServerEnded, TimeoutError) as error:
                tally.faults.append(f"round {tally.rounds}: {error}")
                return
        else:
            StoreLife(made, random, tally, backend=backend, kind=kind, start=options.start).run(rounds)
        number += 1
        print(
            f"{tally.rounds} rounds, {tally.handles} handles, {tally.answers} answers, {len(tally.faults)} lost, "
            f"{time.monotonic() - begun:.0f} s",
            file=sys.stderr,
            flush=True,
        )


def report(tally: Tally, seconds: float) -> None:
    for fault in tally.faults[:_FAULTS_SHOWN]:
        print(fault)
    if len(tally.faults) > _FAULTS_SHOWN:
        print(f"... and {len(tally.faults) - _FAULTS_SHOWN} more")
    settled = sorted(tally.settled_ms)
    if settled:
        print(f"settled after a restart: {settled[len(settled) // 2]} ms in the middle, {settled[-1]} ms at the worst")
    print(f"{tally.kills} processes killed, {tally.resolved} times a handle was resolved, {tally.cancels} cancels")
    print(
        f"rounds {tally.rounds}, handles {tally.handles}, answers {tally.answers}, lost {len(tally.faults)} "
        f"({seconds:.0f} s)"
    )


if __name__ == "__main__":
    sys.exit(main())
