"""What the exit status of ``mcp-tasks`` says, and how a command ends early with one."""

from __future__ import annotations

import enum
from typing import IO, Any, Final

import click


class ExitCode(enum.IntEnum):
    """0 is a result; 124 and 130 are what ``timeout`` and shells use."""

    RESULT = 0
    TOOL_FAILED = 1
    USAGE = 2
    SERVER = 3
    UNANSWERED = 4
    TIMED_OUT = 124
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.RESULT: "the tool gave its result, or with --detach the call is a task",
    ExitCode.TOOL_FAILED: "the result is an error (isError), or the task failed or was cancelled",
    ExitCode.USAGE: "the command line is wrong; an --answer that does not fit its question is, too",
    ExitCode.SERVER: "the server could not be started or reached, broke the protocol, or answered with an error",
    ExitCode.UNANSWERED: "the server asks something that nobody answered; the task was cancelled",
    ExitCode.TIMED_OUT: "--timeout has passed, or the server was silent for too long; the call was cancelled",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; the call was cancelled",
}


class EndsEarly(click.ClickException):
    """Ends the command with one line on stderr and an exit status."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"mcp-tasks: {self.message}", file=file, err=True)


class WrongUsage(EndsEarly):
    """The command line cannot be followed."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.USAGE, message)
