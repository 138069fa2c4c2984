"""Passes one tool call with quiet minutes between its progress, or one quiet listen, through nginx with its defaults.

python -m tests.nginx
python -m tests.nginx --backend trio --quiet 70
python -m tests.nginx --listen
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from mcp_tasks_trio import ClientError
from tests.nginx.moments import Chronicle, Moment
from tests.nginx.passage import pass_through
from tests.nginx.proxying import NginxNotServing
from tests.nginx.vigil import keep_vigil

# nginx gives up on a server that says nothing for longer than this.
_NGINX_READ_TIMEOUT_SECONDS = 60
_LISTEN_SECONDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nginx", description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="the loop to run on")
    parser.add_argument(
        "--quiet", type=float, default=62, metavar="SECONDS", help="each of the two quiet spells, more than 60 (62)"
    )
    parser.add_argument(
        "--listen",
        type=float,
        nargs="?",
        const=_LISTEN_SECONDS,
        metavar="SECONDS",
        help=f"a listen in place of the call, with one quiet spell ({_LISTEN_SECONDS})",
    )
    options = parser.parse_args()
    for name in ("quiet", "listen"):
        seconds = getattr(options, name)
        if seconds is not None and seconds <= _NGINX_READ_TIMEOUT_SECONDS:
            parser.error(f"--{name} is more than {_NGINX_READ_TIMEOUT_SECONDS}: nginx must have time to give up")
    run: Callable[[], Coroutine[Any, Any, Chronicle]]
    if options.listen is None:
        run = functools.partial(pass_through, (options.quiet, options.quiet), note=_show)
        passed = "each progress notification arrived before the next was sent, and the result came"
    else:
        run = functools.partial(keep_vigil, options.listen, note=_show)
        passed = "the stream lived through the silence, and what then changed arrived"
    try:
        faults = anyio.run(run, backend=options.backend).faults()
    except (ClientError, NginxNotServing) as error:
        faults = [str(error)]
    for fault in faults:
        print(f"failed: {fault}", file=sys.stderr)
    if not faults:
        print(f"passed: {passed}")
    return 1 if faults else 0


def _show(moment: Moment) -> None:
    print(f"{moment.at:8.3f} s  {moment.what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
