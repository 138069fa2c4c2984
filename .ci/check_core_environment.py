"""Says whether an environment holds attrs, cattrs, pytest and what these need, and of ours the core alone.

To be run by the environment's own Python. Exit status 1 names what is too much.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, requires

ALLOWED_ROOTS = ("attrs", "cattrs", "pytest")
# The core itself, and what a new environment brings along.
ALLOWED_BESIDES = {"mcp-tasks-core", "pip", "setuptools", "wheel"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs_of(name: str) -> Iterator[str]:
    """The distributions that one needs, extras left out; whether a marker applies shows in what is installed."""
    for requirement in requires(name) or ():
        if "extra ==" not in requirement:
            yield normal(re.match(r"[A-Za-z0-9._-]+", requirement)[0])


def closure(roots: tuple[str, ...]) -> set[str]:
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            try:
                waiting.extend(needs_of(name))
            except PackageNotFoundError:
                continue
    return seen


def main() -> int:
    installed = {normal(distribution.metadata["Name"]) for distribution in distributions()}
    too_much = installed - closure(ALLOWED_ROOTS) - ALLOWED_BESIDES
    print("installed:", *sorted(installed))
    if too_much:
        print("more than the core may need:", *sorted(too_much))
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
