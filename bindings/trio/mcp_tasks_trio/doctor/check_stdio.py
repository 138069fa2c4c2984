"""What stdio adds: lines, cancelled requests, one channel for all, and the end."""

from __future__ import annotations

import time

import anyio

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_result
from mcp_tasks_trio.doctor.examination import PLAIN, Examination
from mcp_tasks_trio.doctor.over_stdio import StdioTransport
from mcp_tasks_trio.doctor.tools import Role

STDIO = Subject("stdio")
STDIO_END = Subject("The end on stdio")


def _transport(x: Examination) -> StdioTransport:
    assert isinstance(x.transport, StdioTransport)
    return x.transport


@STDIO.check(
    "requests-run-side-by-side",
    "I4",
    SHOULD,
    "basic, Statelessness",
    "a call that takes long does not hold up other requests",
    only="stdio",
)
async def _(x: Examination) -> None:
    slow = x.need(Role.SLOW)
    sent = x.sent("tools/call", {"name": slow.name, "arguments": slow.arguments}, declares=PLAIN)
    async with x.transport.listening(sent) as listening:
        exchange = await x.ask("server/discover", wait=x.patience.probe)
        early = listening.exchange.answer
    if early is not None:
        raise NotExercised(f"needs a call that takes long without tasks, and one of {slow.name} was answered at once")
    demand_result(exchange, "a request while a call takes long")


@STDIO.check(
    "cancelled-request-is-not-answered",
    "I2",
    SHOULD,
    "cancellation, Behavior Requirements",
    "a request that was cancelled is not answered",
    only="stdio",
)
async def _(x: Examination) -> None:
    slow = x.need(Role.SLOW)
    sent = x.sent("tools/call", {"name": slow.name, "arguments": slow.arguments}, declares=PLAIN)
    async with x.transport.listening(sent) as listening:
        await anyio.sleep(x.patience.quiet / 2)
        if listening.exchange.answer is not None:
            raise NotExercised(f"needs a call that takes long without tasks, and one of {slow.name} does not")
        await _transport(x).cancel(sent.request_id)
        demand(await _silence(listening, x.patience.quiet), "a cancelled request was answered", listening.exchange)


async def _silence(listening: object, seconds: float) -> bool:
    from mcp_tasks_trio.doctor.over_stdio import StdioListening

    assert isinstance(listening, StdioListening)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        message = await listening.next(left)
        if isinstance(message, dict) and "method" not in message:
            return False
    return True


@STDIO.check(
    "wrong-cancellations-are-ignored",
    "I2",
    SHOULD,
    "cancellation, Error Handling",
    "cancellations of unknown or finished requests, and malformed ones, change nothing and get no answer",
    only="stdio",
)
async def _(x: Examination) -> None:
    done = await x.ask("server/discover")
    wrong: tuple[JSONObject, ...] = (
        {"requestId": "mcp-tasks-doctor"},
        {"requestId": done.sent.request_id},
        {},
        {"requestId": [1]},
    )
    for params in wrong:
        exchange = await x.notify("notifications/cancelled", params)
        demand(exchange.answer is None, "a cancellation was answered", exchange)
    demand_result(await x.ask("server/discover"), "a request after cancellations of no request")


@STDIO_END.check(
    "stdout-has-messages-alone",
    "I1",
    MUST,
    "stdio, introduction",
    "every line of stdout is a message in JSON and UTF-8",
    only="stdio",
)
async def _(x: Examination) -> None:
    junk = _transport(x).junk
    demand(not junk, f"stdout has {len(junk)} lines that are no messages, such as {junk[:1]!r}")


@STDIO_END.check(
    "nothing-comes-unasked",
    "B3",
    MUST,
    "stdio, Receiving Messages",
    "every response belongs to a request, and progress to one that is open",
    only="stdio",
)
async def _(x: Examination) -> None:
    unasked = [m for m in _transport(x).unasked if m.get("method") in (None, "notifications/progress")]
    demand(not unasked, f"{len(unasked)} messages belong to no open request, such as {unasked[:1]!r}")


@STDIO_END.check(
    "ends-when-stdin-ends",
    "I3",
    SHOULD,
    "stdio, Shutdown",
    "the server exits promptly when its stdin is closed, a task at work or not",
    only="stdio",
)
async def _(x: Examination) -> None:
    await x.cancel_unfinished()
    slow = x.tools.with_role(Role.SLOW)
    at_work = "" if slow is None else f", while a task of {slow.name} is at work"
    shown = [] if slow is None else [(await x.create(slow)).created]
    status = await _transport(x).close_input()
    demand(status is not None, f"the server still runs 5 s after its stdin was closed{at_work}", *shown)
