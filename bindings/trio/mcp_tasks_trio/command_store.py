"""``mcp-tasks store FILE ls|show|purge|check``: what an operator needs to look into a store and to clear it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage

if TYPE_CHECKING:
    from mcp_tasks_sqlite import SqliteStoreView

_STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_ALWAYS_MS: Final = 2**63 - 1
_TABLE_ROWS: Final = 50
# What the exit status 3 says in all of this program: what the work is done with cannot be reached.
_NOT_OPENED: Final = ExitCode.SERVER
_FAULTS: Final = ExitCode.TOOL_FAILED
_EXIT_STATUS: Final = """Exit status:

\b
   0  done; of check: the store is sound
   1  check found faults, show found no such task, or purge was not confirmed
   2  the command line is wrong
   3  the file is not there, is no store, or cannot be read or written"""


def _duration_ms(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number and a unit, as milliseconds."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a number and one of the units s, m, h, d, w, such as 90s or 7d")
    return int(match[1]) * _UNITS_MS[match[2]]


_key_file = click.option(
    "--key-file",
    metavar="KEYS",
    type=click.Path(),
    help="Open sealed payloads with the keys in this file: a line holds a key's id and its 32 bytes in Base64.",
)
_json = click.option("--json", "as_json", is_flag=True)


@click.group(epilog=_EXIT_STATUS)
@click.argument("file", type=click.Path())
@click.pass_context
def store(ctx: click.Context, file: str) -> None:
    """Look into the store FILE, check it, and remove old tasks from it.

    Servers may run on the file meanwhile. All but purge open it for reading alone. FILE is never made.
    """
    ctx.obj = file


@store.command(epilog=_EXIT_STATUS)
@_json
@click.option("--status", type=click.Choice(_STATUSES), help="Only tasks of this status.")
@click.option("--owner", metavar="TENANT/SUBJECT", help="Only tasks of this owner; local/local is the one of stdio.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"Tasks at the most, 0 for all. {_TABLE_ROWS} unless --json is given, which lists all.",
)
@_key_file
@click.pass_obj
def ls(file: str, as_json: bool, status: str | None, owner: str | None, limit: int | None, key_file: str | None) -> int:
    """List tasks, the one that changed last first.

    A table on a terminal, columns with tabs between them elsewhere; with --json one object a line.
    What was asked, answered and returned is shown by `show` alone.
    """
    from mcp_tasks_trio.store_report import Reader, write_list

    reader = Reader.of_key_file(key_file)
    shown_max = limit if limit is not None else 0 if as_json else _TABLE_ROWS
    with _viewing(file) as view:
        known = view.count(status=status, owner=owner)
        tasks = view.newest(status=status, owner=owner)
        shown = write_list(tasks, view.leases(), reader, _now_ms(), as_json=as_json, shown_max=shown_max)
    if shown < known and not as_json:
        click.echo(f"{shown} of {known} tasks; --limit 0 shows all", err=True)
    return ExitCode.RESULT


@store.command(epilog=_EXIT_STATUS)
@click.argument("task_id", metavar="ID")
@_json
@_key_file
@click.pass_obj
def show(file: str, task_id: str, as_json: bool, key_file: str | None) -> int:
    """Show one task: its state, its call, its questions with their answers, and its result or error.

    Long values are cut; with --json, which writes one object on one line, nothing is.
    """
    from mcp_tasks_core.identifiers import TaskId
    from mcp_tasks_trio.store_report import Reader, write_task

    reader = Reader.of_key_file(key_file)
    with _viewing(file) as view:
        viewed = view.find(TaskId(task_id))
        if viewed is None:
            raise EndsEarly(_FAULTS, f"there is no task {task_id!r} in {view.path}")
        write_task(viewed, view.leases(), reader, _now_ms(), as_json=as_json)
    return ExitCode.RESULT


@store.command(epilog=_EXIT_STATUS)
@click.option("--expired", is_flag=True, help="Ended tasks that a server would have cleared by now, had one run.")
@click.option(
    "--older-than", callback=_duration_ms, metavar="DURATION", help="Ended tasks unchanged for so long: 90s, 7d."
)
@click.option("--all-terminal", is_flag=True, help="Every task that has ended.")
@click.option("--dry-run", is_flag=True, help="Say how many there are, and remove none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(file: str, expired: bool, older_than: int | None, all_terminal: bool, dry_run: bool, yes: bool) -> int:
    """Remove tasks that have ended, for good. Unfinished ones are left alone, whatever is asked for.

    To clients these tasks become unknown at once, also where their time to live has not passed.
    """
    from mcp_tasks_sqlite import SqliteTaskStore

    if [expired, older_than is not None, all_terminal].count(True) != 1:
        raise WrongUsage("say which tasks to remove: one of --expired, --older-than DURATION and --all-terminal")
    now_ms = _now_ms()
    before_ms = _ALWAYS_MS if older_than is None else now_ms - older_than
    due_by_ms = now_ms if expired else None
    with _viewing(file) as view:
        found = view.count_purgeable(before_ms, due_by_ms=due_by_ms)
    if dry_run or not found:
        click.echo(f"{_tasks(found)} would be removed" if dry_run else "there is nothing to remove")
        return ExitCode.RESULT
    if not yes and not _confirmed(found, file):
        return _FAULTS
    with _store_errors(), SqliteTaskStore(file) as opened:
        removed = opened.purge(before_ms, due_by_ms=due_by_ms)
    click.echo(f"{_tasks(removed)} removed")
    return ExitCode.RESULT


@store.command(epilog=_EXIT_STATUS)
@_json
@_key_file
@click.pass_obj
def check(file: str, as_json: bool, key_file: str | None) -> int:
    """Read the whole store and say what is wrong with it: pages, indices, sums, records, and who may read it.

    Of sealed payloads without their key only the columns beside them are looked at. With --json one object on one
    line: file, tasks, unopened (sealed payloads whose key was not given), problems.
    """
    from mcp_tasks_trio.display import printable, write_json
    from mcp_tasks_trio.store_report import Reader

    reader = Reader.of_key_file(key_file)
    with _viewing(file) as view:
        problems = list(view.check(open_row=reader.open_row))
        tasks = 0 if problems else view.count()
        path = view.path
    if as_json:
        write_json({"file": path, "tasks": tasks, "unopened": reader.unopened, "problems": problems})
    else:
        for problem in problems:
            click.echo(printable(problem))
        if not problems:
            unopened = f"; {_tasks(reader.unopened)} sealed and not opened" if reader.unopened else ""
            click.echo(f"{path} is sound: {_tasks(tasks)}{unopened}")
    return _FAULTS if problems else ExitCode.RESULT


def _confirmed(found: int, file: str) -> bool:
    if not sys.stdin.isatty():
        raise WrongUsage("nobody is here to confirm it: say --yes, or --dry-run to see how many there are")
    return click.confirm(f"Remove {_tasks(found)} from {file}?", err=True)


def _tasks(number: int) -> str:
    return "1 task" if number == 1 else f"{number} tasks"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _viewing(file: str) -> Iterator[SqliteStoreView]:
    """The file, opened for reading alone.

    Raises:
        EndsEarly: it cannot be opened or read.
    """
    from mcp_tasks_sqlite import SqliteStoreView

    with _store_errors(), SqliteStoreView(file) as view:
        yield view


@contextmanager
def _store_errors() -> Iterator[None]:
    from mcp_tasks_core.errors import LocalProtocolError
    from mcp_tasks_core.store import StoreError

    try:
        yield
    except (StoreError, LocalProtocolError) as error:
        raise EndsEarly(_NOT_OPENED, str(error)) from None
