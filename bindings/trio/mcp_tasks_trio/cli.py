"""The command line ``mcp-tasks``: what it takes. What it does stands in the modules of its commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from mcp_tasks_trio.command_doctor import doctor
from mcp_tasks_trio.command_options import SECONDS
from mcp_tasks_trio.command_process import open_missing_streams, reason_of, status_after
from mcp_tasks_trio.command_store import store
from mcp_tasks_trio.exit_codes import MEANINGS, ExitCode, WrongUsage

_BACKENDS: Final = click.Choice(["asyncio", "trio"])
_SERVER_LOG_LEVELS: Final = click.Choice(["debug", "info", "warning", "error"])
_MESSAGE_LOG_LEVELS: Final = click.Choice(
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
)
# No short option has more than one letter, and no long one a capital, a digit or an underscore before its value.
_DASHED_ID: Final = re.compile(r"-[^-].+|--[^=]*[A-Z0-9_][^=]*")
_WATCH_MEANINGS: Final = {
    ExitCode.RESULT: "every task completed",
    ExitCode.TOOL_FAILED: "a task failed, was cancelled, or has an error as its result (isError)",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.SERVER: "the server could not be started or reached, broke the protocol, or does not know a task",
    ExitCode.TIMED_OUT: "--timeout has passed, or the server was silent for too long; the tasks are left alone",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; the tasks are left alone",
}


def _exit_status(meanings: Mapping[ExitCode, str]) -> str:
    return "Exit status:\n\n\b\n" + "\n".join(f"{code:>4}  {text}" for code, text in meanings.items())


_EXIT_STATUS: Final = _exit_status(MEANINGS)
_WATCH_EXIT_STATUS: Final = _exit_status(_WATCH_MEANINGS)


class _WithServerCommand(click.Command):
    """A command whose arguments end with ``--`` and the command line of a server, or name a URL."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, divider, server = args, False, []
        if "--" in args:
            at = args.index("--")
            own, divider, server = args[:at], True, args[at + 1 :]
        ctx.meta["server"] = server
        rest = super().parse_args(ctx, self.own_words(own))
        if ctx.params.get("http_url") is not None:
            if divider:
                raise WrongUsage("a server is reached with --http, or started with what stands after '--', not both")
        elif not server and not ctx.resilient_parsing:
            end = "after '--' there is none" if divider else "there is no '--'"
            examples = "-- python server.py, or --http http://127.0.0.1:8000/mcp for one that runs already"
            raise WrongUsage(f"the server's command stands after '--', and {end}; for example: {examples}")
        return rest

    def own_words(self, words: list[str]) -> list[str]:
        """The words before ``--``, as options and arguments can be told apart in them."""
        return words

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "-- COMMAND... | --http URL"]


class _WithTaskIds(_WithServerCommand):
    """One whose arguments are task ids, which may begin with dashes as options do."""

    def own_words(self, words: list[str]) -> list[str]:
        ids = [word for word in words if _DASHED_ID.fullmatch(word)]
        return [word for word in words if word not in ids] + (["--", *ids] if ids else [])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mcp-tasks-trio", prog_name="mcp-tasks")
def cli() -> None:
    """MCP servers and clients with tasks: tool calls that may take minutes or days."""


@cli.command()
@click.argument("application", metavar="MODULE:APP")
@click.option("--backend", type=_BACKENDS, default="asyncio", show_default=True, help="The event loop to run on.")
@click.option(
    "--log-level", type=_SERVER_LOG_LEVELS, default="warning", show_default=True, help="What is logged on stderr."
)
@click.option(
    "--store",
    "store_file",
    metavar="FILE",
    help="Keep tasks in this file, which is made where there is none; 'memory' keeps them in no file. "
    "Without it each application has a file of its own in your state folder.",
)
@click.option(
    "--key-file",
    metavar="KEYS",
    help="Seal what tasks hold with the first key in this file; each of its keys opens what it has sealed.",
)
@click.option(
    "--store-wait",
    "store_wait_seconds",
    metavar="SECONDS",
    type=SECONDS,
    default=60.0,
    show_default="60",
    help="How long to wait at the start for a store that other processes keep busy.",
)
@click.option(
    "--no-subscriptions",
    is_flag=True,
    help="Answer subscriptions/listen with -32601, where no stream can be held open; clients poll.",
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    help="Serve over HTTP there, in place of stdin and stdout. Only this machine can reach 127.0.0.1.",
)
@click.option("--path", metavar="PATH", help="Of the HTTP endpoint.  [default: /mcp]")
@click.option(
    "--allow-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Let web pages of this origin send requests, such as https://app.example.com or 'http://localhost:*'.",
)
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A name under which clients reach it, behind a proxy."
)
@click.option(
    "--insecure-public",
    is_flag=True,
    help="Listen where other machines can reach it, although everybody who does may do everything.",
)
def serve(
    application: str,
    backend: str,
    log_level: str,
    store_file: str | None,
    key_file: str | None,
    store_wait_seconds: float,
    no_subscriptions: bool,
    **http: Any,
) -> int:
    """Serve an application on stdin and stdout, or over HTTP.

    MODULE:APP names an Application in a module that can be imported from the current directory, such as
    examples.reports:app. The server ends, with exit status 0, when its stdin ends; over HTTP with SIGTERM or Ctrl-C,
    when what was asked is answered.
    """
    from mcp_tasks_trio.command_serve import HttpOptions, run_serve

    return run_serve(
        application,
        backend=backend,
        log_level=log_level,
        store=store_file,
        key_file=key_file,
        start_wait_seconds=store_wait_seconds,
        subscriptions=not no_subscriptions,
        http=HttpOptions.parse(**http),
    )


@cli.command(cls=_WithServerCommand, epilog=_EXIT_STATUS)
@click.argument("tool")
@click.argument("arguments", metavar="[ARGUMENTS_JSON]", default="{}")
@click.option("--json", "as_json", is_flag=True, help="Write the result as one JSON object on one line of stdout.")
@click.option(
    "--answer",
    "answers",
    metavar="KEY=JSON",
    multiple=True,
    help='The answer to the question KEY: a form\'s content, such as \'{"quarter": "Q1"}\', or a whole answer '
    "with its action, role or roots. May be given several times.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="For the call, questions included.",
)
@click.option("--no-tasks", is_flag=True, help="Do not let the call become a task.")
@click.option(
    "--detach",
    is_flag=True,
    help="End as soon as the call is a task, and leave that running: its id is written on stdout, with --json the "
    "whole handle. A result that comes at once is written as ever.",
)
@click.option("--log-level", type=_MESSAGE_LOG_LEVELS, help="Ask the server for log messages from this level on.")
@click.option("--http", "http_url", metavar="URL", help="The server's endpoint, in place of a command.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Send this with every HTTP request.")
@click.option("-q", "--quiet", is_flag=True, help="Show the server's stderr only if something fails.")
@click.option("--backend", type=_BACKENDS, default="asyncio", show_default=True, help="The event loop to run on.")
@click.pass_context
def call(ctx: click.Context, /, tool: str, arguments: str, **options: Any) -> int:
    """Call a tool of a server that is started for it, or reached over HTTP, and follow the task to its end.

    COMMAND is the server's command line. Progress and questions go to stderr, the result to stdout.
    Questions are asked at the terminal, unless --answer answers them.
    """
    from mcp_tasks_trio.command_call import CallOptions, run_call

    return run_call(CallOptions.parse(tool, arguments, ctx.meta["server"], **options))


@cli.command(cls=_WithTaskIds, epilog=_WATCH_EXIT_STATUS)
@click.argument("task_ids", metavar="TASK_ID...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Write each state as one JSON object on one line of stdout.")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="For all tasks together.")
@click.option("--http", "http_url", metavar="URL", help="The server's endpoint, in place of a command.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Send this with every HTTP request.")
@click.option("-q", "--quiet", is_flag=True, help="Show the server's stderr only if something fails.")
@click.option("--backend", type=_BACKENDS, default="asyncio", show_default=True, help="The event loop to run on.")
@click.pass_context
def watch(ctx: click.Context, /, task_ids: tuple[str, ...], **options: Any) -> int:
    """Show the states of tasks as they come, until each has ended.

    Nothing is answered and nothing is cancelled; Ctrl-C leaves the tasks alone. A server without subscriptions, or
    whose subscriptions do not last, is polled. Progress begins anew where another process takes over the task of one
    that died. COMMAND is the command line of a server that finds the tasks in its store.
    """
    from mcp_tasks_trio.command_watch import WatchOptions, run_watch

    return run_watch(WatchOptions.parse(task_ids, ctx.meta["server"], **options))


@cli.command()
@click.option("--backend", type=_BACKENDS, default="asyncio", show_default=True, help="The event loop to run on.")
def demo(backend: str) -> int:
    """Watch a tool call become a task: a real server in a child process, and what goes over the wire.

    Asks you one question where there is a terminal, and answers it itself where there is none.
    """
    from mcp_tasks_trio.command_demo import run_demo

    return run_demo(backend=backend)


cli.add_command(doctor)
cli.add_command(store)


def main() -> None:
    """Run the command line, and end the process with its exit status."""
    open_missing_streams()
    try:
        status = cli.main(prog_name="mcp-tasks", standalone_mode=False)
    except BaseException as error:
        status = status_after(reason_of(error))
        if status is None:
            raise
    sys.exit(status)
