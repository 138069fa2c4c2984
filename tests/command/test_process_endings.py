"""What a command's exceptions come to: one line, one exit status."""

from __future__ import annotations

import click
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_trio.command_process import reason_of, status_after
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage

EARLY = EndsEarly(ExitCode.SERVER, "gone")
UNREAD = BrokenPipeError()
CTRL_C = KeyboardInterrupt()
WRONG = LocalProtocolError("task_ids are strings")
FAULT = AssertionError("a fault of this program")


def group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("concurrent work", errors)


def raised_from(cause: BaseException) -> BaseException:
    error = RuntimeError("internal error of an event loop")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EARLY, EARLY),
        (UNREAD, UNREAD),
        (group(group(WRONG)), WRONG),
        (group(UNREAD, group(EARLY)), EARLY),
        (group(FAULT, group(CTRL_C)), CTRL_C),
        (raised_from(group(CTRL_C)), CTRL_C),
    ],
)
def test_reason_is_found_wherever_it_stands(error: BaseException, reason: BaseException) -> None:
    assert reason_of(error) is reason


@pytest.mark.parametrize("error", [FAULT, group(FAULT), group(UNREAD, FAULT), raised_from(EARLY)])
def test_fault_of_the_program_is_not_hidden(error: BaseException) -> None:
    assert reason_of(error) is error
    assert status_after(error) is None


@pytest.mark.parametrize(
    ("reason", "status", "line"),
    [
        (EARLY, 3, "mcp-tasks: gone\n"),
        (WrongUsage("no"), 2, "mcp-tasks: no\n"),
        (WRONG, 2, "mcp-tasks: task_ids are strings\n"),
        (click.UsageError("no such option"), 2, "Error: no such option\n"),
        (CTRL_C, 130, "mcp-tasks: interrupted\n"),
        (click.Abort(), 130, "mcp-tasks: interrupted\n"),
        (UNREAD, 1, ""),
    ],
)
def test_each_reason_has_its_status_and_its_line(
    capsys: pytest.CaptureFixture[str], reason: BaseException, status: int, line: str
) -> None:
    assert status_after(reason) == status
    assert capsys.readouterr().err == line
