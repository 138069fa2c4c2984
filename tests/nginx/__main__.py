"""Passes one tool call with two minutes of progress and quiet minutes through nginx with its defaults.

python -m tests.nginx
python -m tests.nginx --backend trio --quiet 70
"""

from __future__ import annotations

import argparse
import functools
import sys

import anyio

from mcp_tasks_trio import ClientError
from tests.nginx.passage import Moment, pass_through
from tests.nginx.proxying import NginxNotServing

# nginx gives up on a server that says nothing for longer than this.
_NGINX_READ_TIMEOUT_SECONDS = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nginx", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="the loop to run on")
    parser.add_argument(
        "--quiet", type=float, default=62, metavar="SECONDS", help="each of the two quiet spells, more than 60 (62)"
    )
    options = parser.parse_args()
    if options.quiet <= _NGINX_READ_TIMEOUT_SECONDS:
        parser.error(f"--quiet is more than {_NGINX_READ_TIMEOUT_SECONDS}: nginx must have time to give up")
    call = functools.partial(pass_through, (options.quiet, options.quiet), note=_show)
    try:
        passage = anyio.run(call, backend=options.backend)
    except (ClientError, NginxNotServing) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    faults = passage.faults()
    for fault in faults:
        print(f"failed: {fault}", file=sys.stderr)
    if not faults:
        print("passed: each progress notification arrived before the next was sent, and the result came")
    return 1 if faults else 0


def _show(moment: Moment) -> None:
    print(f"{moment.at:8.3f} s  {moment.what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
