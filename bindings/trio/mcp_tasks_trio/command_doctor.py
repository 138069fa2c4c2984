"""``mcp-tasks doctor URL`` and ``mcp-tasks doctor -- COMMAND``: what it takes, and what it writes."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

import click

from mcp_tasks_trio.command_options import SECONDS
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage

if TYPE_CHECKING:
    from mcp_tasks_trio.doctor.examine import Subject
    from mcp_tasks_trio.doctor.tools import NamedTool

_HEADER: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x20-\x7e\t]*)")
_EXIT_STATUS: Final = """Exit status:

\b
   0  every MUST that was exercised is kept
   1  one or more are not
   2  the command line is wrong
   3  the server could not be started or reached, or does not speak
 130  interrupted by Ctrl-C"""
_TOOL_OPTIONS: Final = {
    "plain-tool": "A tool that answers with an ordinary result.",
    "task-tool": "A tool whose task completes within two seconds.",
    "slow-tool": "A tool whose task works for half a minute or more.",
    "ask-tool": "A tool whose task asks; best two questions at once, and another one after the answers.",
    "failing-tool": "A tool whose task fails with a JSON-RPC error.",
    "tool-error-tool": "A tool whose task completes with a result that says isError.",
    "required-tool": "A tool that runs as a task or not at all.",
    "round-tool": "A tool that answers the call itself with input_required.",
    "progress-tool": "A tool that reports progress while its call waits.",
    "header-tool": "A tool with a string parameter that a header repeats.",
}


class _WithTarget(click.Command):
    """A command that ends with a URL, or with ``--`` and the command line of a server."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, server = args, []
        if "--" in args:
            at = args.index("--")
            own, server = args[:at], args[at + 1 :]
        ctx.meta["server"] = server
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]", "URL | -- COMMAND..."]


def _tool_options(command: Any) -> Any:
    for name, text in reversed(_TOOL_OPTIONS.items()):
        command = click.option(f"--{name}", metavar="NAME[=JSON]", multiple=True, help=text)(command)
    return command


@click.command(cls=_WithTarget, epilog=_EXIT_STATUS)
@click.argument("url", required=False)
@click.option("--http", "http_url", metavar="URL", help="The same as URL.")
@click.option("--json", "as_json", is_flag=True, help="Write everything as one JSON object on one line.")
@_tool_options
@click.option("--check", "only", metavar="NAME", multiple=True, help="Make this check alone; --json tells the names.")
@click.option("--only-named", is_flag=True, help="Call no tools but those that are named.")
@click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Send this with every HTTP request.")
@click.option(
    "--other-header",
    "other_headers",
    metavar="'NAME: VALUE'",
    multiple=True,
    help="What another caller sends instead, for the checks that keep callers apart.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="For any one answer, and for anything that a task is to do.",
)
@click.option(
    "--time-limit",
    type=SECONDS,
    default=180.0,
    show_default=True,
    metavar="SECONDS",
    help="For the whole examination.",
)
@click.option("--show-stderr", is_flag=True, help="Show what a server that is started writes to stderr.")
@click.option("--backend", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
@click.pass_context
def doctor(ctx: click.Context, /, **options: Any) -> int:
    """Judge a server from outside, any server: a verdict for each requirement that can be seen there.

    The tools that the server lists are called, each a few times, to find out what they are good for, with arguments
    made up from their schemas. Tools that say they are destructive are called only if they are named. NAME=JSON
    gives a tool's arguments. What cannot be exercised is said to be so, and is no pass.
    """
    backend, as_json = options.pop("backend"), options.pop("as_json")
    return _run(_subject(ctx.meta["server"], **options), as_json=as_json, backend=backend)


def _subject(
    server: list[str],
    *,
    url: str | None,
    http_url: str | None,
    headers: tuple[str, ...],
    other_headers: tuple[str, ...],
    timeout: float,
    **rest: Any,
) -> Subject:
    """What the command line asks for.

    Raises:
        WrongUsage: it asks for nothing, for two things, or for something that cannot be.
    """
    from mcp_tasks_core.errors import LocalProtocolError
    from mcp_tasks_http.endpoints import Endpoint
    from mcp_tasks_trio.doctor.examination import Patience
    from mcp_tasks_trio.doctor.examine import Subject
    from mcp_tasks_trio.doctor.plan import checks_for

    targets = [target for target in (url, http_url) if target is not None]
    if len(targets) + bool(server) != 1:
        raise WrongUsage("give one server: a URL, or '--' and the command that starts it")
    if server and (headers or other_headers):
        raise WrongUsage("--header and --other-header are for HTTP: a server on stdio gets no headers")
    if other_headers and not headers:
        raise WrongUsage("--other-header says who another caller is: give --header for the first one, too")
    if server and shutil.which(server[0]) is None:
        raise EndsEarly(ExitCode.SERVER, f"{server[0]!r} is no command that can be run")
    names = {check.name for kind in ("http", "stdio") for _, check in checks_for(kind)}
    for unknown in sorted(set(rest["only"]) - names):
        raise WrongUsage(f"there is no check {unknown!r}; --json tells the names of all")
    for target in targets:
        try:
            Endpoint.parse(target)
        except LocalProtocolError as error:
            raise WrongUsage(str(error)) from None
    named = [_named(role, text) for role in _TOOL_OPTIONS for text in rest.pop(role.replace("-", "_"))]
    return Subject(
        url=targets[0] if targets else None,
        command=server,
        named=named,
        headers=[_header(text) for text in headers],
        other_headers=[_header(text) for text in other_headers],
        patience=Patience(answer=timeout, settle=timeout),
        **rest,
    )


def _named(role: str, text: str) -> NamedTool:
    from mcp_tasks_trio.answers_given import parse_object
    from mcp_tasks_trio.doctor.tools import NamedTool, Role

    name, equals, arguments = text.partition("=")
    given = parse_object(arguments, f"--{role} {name}") if equals else None
    return NamedTool(role=Role(role), name=name, arguments=given)


def _header(text: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(text)
    if match is None:
        raise WrongUsage(f"{text!r} is no header: write 'NAME: VALUE', in ASCII")
    return match[1], match[2].strip()


def _run(subject: Subject, *, as_json: bool, backend: str) -> int:
    """Examine, and write what was found on stdout."""
    import anyio

    from mcp_tasks_trio.doctor.examine import examine
    from mcp_tasks_trio.doctor.exchanges import ConnectionFailed
    from mcp_tasks_trio.doctor.verdicts import as_json as everything
    from mcp_tasks_trio.doctor.verdicts import as_text, failed_musts

    try:
        examined = anyio.run(examine, subject, backend=backend)
    except ConnectionFailed as error:
        raise EndsEarly(ExitCode.SERVER, str(error)) from None
    if as_json:
        click.echo(json.dumps(everything(examined), ensure_ascii=False, separators=(",", ":")))
    else:
        for line in as_text(examined):
            click.echo(line)
    return ExitCode.TOOL_FAILED if failed_musts(examined.findings) else ExitCode.RESULT
