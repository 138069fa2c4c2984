"""What every command needs of its process: the three standard streams, and one exit status for whatever ended it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

import click

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode

# In the order in which one of them is taken for the reason, where several came at once.
_REASONS: Final = (KeyboardInterrupt, click.Abort, click.ClickException, LocalProtocolError, BrokenPipeError)


def open_missing_streams() -> None:
    """Give a process that was started without some of its standard streams empty ones.

    Their numbers would go to the next files and sockets otherwise, and what is meant for people into those.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number is this one: those below are open by now.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        stream = open(fd, "w" if fd else "r", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def reason_of(error: BaseException) -> BaseException:
    """Why a command ended: what stands in the groups that concurrent work wraps exceptions in.

    A group that holds anything unexpected stays as it is, so that nothing of it is hidden; but for Ctrl-C.
    """
    parts = list(_parts(error))
    for kind in _REASONS:
        for part in parts:
            if isinstance(part, kind) and (kind is KeyboardInterrupt or all(isinstance(p, _REASONS) for p in parts)):
                return part
    return error


def _parts(error: BaseException) -> Iterator[BaseException]:
    """What stands in a group, and what event loops wrap that came up outside of every task."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _parts(part)
        return
    yield error
    if error.__cause__ is not None and not isinstance(error, _REASONS):
        yield from _parts(error.__cause__)


def status_after(reason: BaseException) -> int | None:
    """Say on stderr what ended the command, and give its exit status; ``None`` for what is a fault of this program."""
    _give_up_broken_stdout()
    match reason:
        case EndsEarly():
            _show(reason)
            return reason.code
        case click.ClickException():
            _show(reason)
            return reason.exit_code
        case LocalProtocolError():
            _show(EndsEarly(ExitCode.USAGE, str(reason)))
            return ExitCode.USAGE
        case click.Abort() | KeyboardInterrupt():
            _show(EndsEarly(ExitCode.INTERRUPTED, "interrupted"))
            return ExitCode.INTERRUPTED
        case BrokenPipeError():
            return ExitCode.TOOL_FAILED
    return None


def _give_up_broken_stdout() -> None:
    """Keep Python from finding out again, when it flushes at exit, that stdout takes nothing any longer."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None


def _show(end: click.ClickException) -> None:
    with contextlib.suppress(OSError):  # nobody reads stderr any longer, and the status says it, too
        end.show()
