"""What importing the core costs, as a multiple of importing attrs and cattrs.

    python -m benchmarks.import_cost [--rounds 21]

Each import runs in a process of its own, in turn, with warm bytecode; a process that imports nothing is the zero.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CASES = {
    "attrs + cattrs": "import attrs, cattrs",
    "mcp_tasks_core": "import mcp_tasks_core",
    "mcp_tasks_core, server": "import mcp_tasks_core.server.protocol",
    "mcp_tasks_core, client": "import mcp_tasks_core.client.protocol",
    "mcp_tasks_core, server and client": "import mcp_tasks_core.server.protocol, mcp_tasks_core.client.protocol",
}
PROGRAM = """
import time
began = time.perf_counter_ns()
{statement}
print(time.perf_counter_ns() - began)
"""


def milliseconds(statement: str) -> float:
    program = PROGRAM.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    rounds = [{name: milliseconds(case) for name, case in CASES.items()} for _ in range(options.rounds + 1)][1:]
    print(f"medians of {len(rounds)} rounds, Python {sys.version.split()[0]}")
    print("| import | ms | times attrs + cattrs, round by round: min / median / max |")
    print("|---|---|---|")
    for name in CASES:
        ratios = sorted(each[name] / each["attrs + cattrs"] for each in rounds)
        spread = f"{ratios[0]:.2f} / {statistics.median(ratios):.2f} / {ratios[-1]:.2f}"
        print(f"| {name} | {statistics.median(each[name] for each in rounds):.1f} | {spread} |")


if __name__ == "__main__":
    main()
