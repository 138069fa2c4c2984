"""Judges our server and our client by the official conformance suite.

python -m tests.conformance
python -m tests.conformance --only server --url http://127.0.0.1:8000/mcp
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.judging import STATUSES, Verdict
from tests.conformance.official import CannotInstall, install
from tests.conformance.serving import ServerNotServing, serving_fixture
from tests.conformance.suite import Suite

_BACKENDS = ("asyncio", "trio")
_NAME_WIDTH = 46


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("server", "client"), help="judge one of the two alone")
    parser.add_argument("--backend", choices=_BACKENDS, default="asyncio", help="the loop that serves the fixture")
    parser.add_argument("--store", type=Path, metavar="FILE", help="keep the fixture's tasks in this SQLite file")
    parser.add_argument("--url", help="judge the server there, in place of the fixture")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what the suite wrote in this new folder")
    parser.add_argument("--install", action="store_true", help="install the official packages and do nothing more")
    options = parser.parse_args()
    try:
        official = install()
        if options.install:
            print(f"the official packages are in {official.folder}")
            return 0
        with _folder(options.keep) as folder:
            return _judge(Suite(official, folder), options)
    except (CannotInstall, ServerNotServing) as error:
        print(error, file=sys.stderr)
        return 2


def _judge(suite: Suite, options: argparse.Namespace) -> int:
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    if options.only != "client" and options.url:
        verdicts += shown(f"the server {options.url}", suite.judge_server(options.url))
    elif options.only != "client":
        with serving_fixture(options.backend, options.store) as url:
            verdicts += shown(f"our server, on {options.backend}", suite.judge_server(url))
    if options.only != "server":
        verdicts += shown("our client", suite.judge_client())
    failed = [verdict.name for verdict in verdicts if not verdict.passed]
    print(f"\n{len(verdicts) - len(failed)} passed, {len(failed)} failed ({time.monotonic() - begun:.0f} s)")
    return 1 if failed else 0


def shown(title: str, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The same verdicts, each printed as it comes."""
    print(f"\n{title:{_NAME_WIDTH}}        {' '.join(f'{status:>7}' for status in STATUSES)}")
    for verdict in verdicts:
        counts = " ".join(f"{verdict.counts[status] or '':>7}" for status in STATUSES)
        print(f"{verdict.name:{_NAME_WIDTH}} {'passed' if verdict.passed else 'FAILED'} {counts}".rstrip(), flush=True)
        for fault in verdict.faults:
            print(f"    {fault}", flush=True)
        yield verdict


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="mcp-tasks-conformance-") as made:
        yield Path(made)


if __name__ == "__main__":
    sys.exit(main())
