"""One examination from its beginning to its end, within its time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from mcp_tasks_trio.doctor.checks import Check, Failed, Finding, NotExercised, Outcome
from mcp_tasks_trio.doctor.examination import Examination, Patience
from mcp_tasks_trio.doctor.exchanges import ConnectionFailed, Transport
from mcp_tasks_trio.doctor.over_http import http_transport
from mcp_tasks_trio.doctor.over_stdio import open_stdio_transport
from mcp_tasks_trio.doctor.plan import checks_for
from mcp_tasks_trio.doctor.probing import probe_tools, reach
from mcp_tasks_trio.doctor.tools import NamedTool, Tool, ToolBook

TIME_LIMIT_SECONDS: Final = 180.0
_LAST_SECONDS: Final = 5.0
_SHAPES: Final = (AttributeError, KeyError, TypeError, ValueError)


@attrs.frozen(kw_only=True)
class Subject:
    """Whom to examine, and how.

    Args:
        url: of an HTTP endpoint; or ``command``, which starts a server on stdio.
        named: tools and what they are good for.
        only_named: call no other tools.
        headers: of every HTTP request; ``other_headers`` those of another caller.
        time_limit: seconds for all; checks that it leaves no time for are not exercised.
        only: names of the checks to make; none are all.
        show_stderr: let the child process write to this one's stderr.
    """

    url: str | None = None
    command: Sequence[str] = ()
    named: Sequence[NamedTool] = ()
    only_named: bool = False
    headers: Sequence[tuple[str, str]] = ()
    other_headers: Sequence[tuple[str, str]] = ()
    patience: Patience = attrs.field(factory=Patience)
    time_limit: float = TIME_LIMIT_SECONDS
    show_stderr: bool = False
    only: Collection[str] = ()


@attrs.frozen(kw_only=True)
class Examined:
    """What an examination has found.

    Args:
        titles: of the findings' subjects, one each.
        missing: named tools that the server does not list.
    """

    transport: str
    findings: Sequence[Finding]
    titles: Sequence[str]
    tools: Sequence[Tool]
    missing: Sequence[NamedTool]
    seconds: float


async def examine(subject: Subject, *, on_finding: Callable[[Finding], None] = lambda _: None) -> Examined:
    """Examine a server.

    Raises:
        ConnectionFailed: it cannot be started or reached, or does not speak.
        LocalProtocolError: the URL names no endpoint.
    """
    began = time.monotonic()
    async with _transport(subject) as transport:
        x = Examination(
            transport=transport,
            tools=ToolBook(named=subject.named),
            patience=subject.patience,
            headers=subject.headers,
            other_headers=subject.other_headers,
        )
        await reach(x)
        deadline = anyio.current_time() + subject.time_limit
        missing: Sequence[NamedTool] = ()
        with anyio.move_on_at(deadline):
            missing = await probe_tools(x, only_named=subject.only_named)
        plan = [(t, c) for t, c in checks_for(transport.name) if not subject.only or c.name in subject.only]
        findings = []
        for _title, check in plan:
            finding = await _made(check, x, deadline)
            findings.append(finding)
            on_finding(finding)
        with anyio.move_on_after(_LAST_SECONDS):
            await x.cancel_unfinished()
    return Examined(
        transport=transport.name,
        findings=findings,
        titles=[title for title, _ in plan],
        tools=x.tools.tools,
        missing=missing,
        seconds=time.monotonic() - began,
    )


async def _made(check: Check, x: Examination, deadline: float) -> Finding:
    """How one check ends. A fault of the server is a finding, whatever it breaks."""
    with anyio.move_on_at(deadline) as scope:
        try:
            # What only looks back would pass on what little there is to look at.
            await anyio.lowlevel.checkpoint()
            await check.run(x)
        except Failed as failure:
            return Finding(check=check, outcome=Outcome.FAIL, reason=failure.reason, exchanges=failure.exchanges)
        except NotExercised as want:
            return Finding(check=check, outcome=Outcome.NOT_EXERCISED, reason=str(want))
        except (ConnectionFailed, anyio.BrokenResourceError) as lost:
            return Finding(check=check, outcome=Outcome.NOT_EXERCISED, reason=f"needs a connection: {lost}")
        except _SHAPES as surprise:
            # Inside an answer is a value of a kind that no check foresaw. Which rule that breaks is not known.
            where = x.journal.exchanges[-1:]
            reason = f"needs an answer that can be read: {type(surprise).__name__}: {surprise}"
            return Finding(check=check, outcome=Outcome.NOT_EXERCISED, reason=reason, exchanges=where)
    if scope.cancelled_caught:
        return Finding(check=check, outcome=Outcome.NOT_EXERCISED, reason="needs more time (--time-limit SECONDS)")
    return Finding(check=check, outcome=Outcome.PASS)


@asynccontextmanager
async def _transport(subject: Subject) -> AsyncIterator[Transport]:
    if subject.url is not None:
        yield http_transport(subject.url)
        return
    async with open_stdio_transport(subject.command, show_stderr=subject.show_stderr) as transport:
        yield transport
