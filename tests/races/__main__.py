"""Lets several server processes race for the tasks of one file, and holds the file's lock against them.

python -m tests.races --tasks 200
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import anyio

from tests.races.locking import hold_the_lock
from tests.races.racing import race

_FAULTS_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.races", description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=200, help="tasks that each process makes (200)")
    parser.add_argument("--processes", type=int, default=4, help="server processes on the file, 2 or more (4)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same plan")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--seconds", type=float, default=600, help="a longer run is taken for a deadlock (600)")
    parser.add_argument("--lock-seconds", type=float, default=10, help="how long the lock is held, 0 for never (10)")
    options = parser.parse_args()
    if options.tasks < 1 or options.processes < 2 or options.lock_seconds < 0:
        parser.error("--tasks is 1 or more, --processes 2 or more, --lock-seconds 0 or more")
    seed = Random().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-races-") as folder:
        begun = time.monotonic()
        run = functools.partial(
            race,
            Path(folder, "races.db"),
            processes=options.processes,
            tasks=options.tasks,
            seed=seed,
            seconds=options.seconds,
            backend=options.backend,
        )
        tally = anyio.run(run)
        faults += tally.faults
        ends = ", ".join(f"{count} {status}" for status, count in sorted(tally.statuses.items()))
        print(
            f"{options.processes} processes, {tally.tasks} tasks, {tally.requests} requests, {ends}, "
            f"{len(tally.faults)} faults ({time.monotonic() - begun:.0f} s)"
        )
        # Once with a wait that outlasts the lock, once with one that does not.
        for busy_wait_ms in (15_000, 500) if options.lock_seconds else ():
            lock = functools.partial(
                hold_the_lock,
                Path(folder, f"lock-{busy_wait_ms}.db"),
                lock_seconds=options.lock_seconds,
                busy_wait_ms=busy_wait_ms,
                backend=options.backend,
            )
            held = anyio.run(lock)
            faults += held.faults
            print(
                f"lock held for {options.lock_seconds:g} s, writes wait {busy_wait_ms} ms: {held.reads} reads, "
                f"the slowest {1000 * held.slowest_read_seconds:.0f} ms, {len(held.handles)} handles, "
                f"{held.refused} refused, {len(held.faults)} faults"
            )
    for fault in faults[:_FAULTS_SHOWN]:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
