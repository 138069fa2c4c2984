"""The beginning of an examination: is anybody there, what does it say of itself, and what are its tools good for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio

from mcp_tasks_trio.doctor.checks import Failed, NotExercised
from mcp_tasks_trio.doctor.examination import PLAIN, Examination, status_is
from mcp_tasks_trio.doctor.exchanges import ConnectionFailed
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.tools import NamedTool, Tool, entries, roles_of

_AT_ONCE: Final = 4
_PAGES_MAX: Final = 50
# How long a server may take to start. Some import for many seconds.
_START_SECONDS: Final = 60.0


async def reach(x: Examination) -> None:
    """Find out whether the server speaks at all, and what it says it can do.

    Raises:
        ConnectionFailed: nobody answers.
    """
    exchange = await x.ask("server/discover", wait=_START_SECONDS)
    if exchange.answer is None and exchange.status is None:
        raise ConnectionFailed(f"the server does not answer server/discover: {exchange.problem}")
    result = exchange.result or {}
    capabilities = result.get("capabilities")
    x.capabilities = capabilities if isinstance(capabilities, dict) else {}


async def list_tools(x: Examination) -> list[Any]:
    """All tools that the server lists, page by page."""
    found: list[Any] = []
    params: dict[str, Any] = {}
    for _ in range(_PAGES_MAX):
        result = (await x.ask("tools/list", params)).result or {}
        found += result["tools"] if isinstance(result.get("tools"), list) else []
        if not isinstance(result.get("nextCursor"), str):
            break
        params = {"cursor": result["nextCursor"]}
    return found


async def probe_tools(x: Examination, *, only_named: bool) -> Sequence[NamedTool]:
    """Call the tools, each once with and once without the tasks extension; gives the named ones that are not there."""
    x.tools.listed = await list_tools(x)
    x.tools.tools = entries(x.tools.listed, x.tools.named, only_named=only_named)
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def probe(tool: Tool) -> None:
        async with limiter:
            await _probe(x, tool)
        tool.roles = roles_of(tool)

    async with anyio.create_task_group() as task_group:
        for tool in x.tools.tools:
            task_group.start_soon(probe, tool)
    there = {tool.name for tool in x.tools.tools}
    return [named for named in x.tools.named if named.name not in there]


async def _probe(x: Examination, tool: Tool) -> None:
    """What a tool does is told by what its calls get; a call that takes too long is given up."""
    tool.declared = await x.call(tool, meta={"progressToken": f"probe-{tool.name}"}, wait=x.patience.probe)
    if not tool.becomes_a_task:
        return
    tool.undeclared = await x.call(tool, declares=PLAIN, wait=x.patience.probe)
    try:
        task = x.task_of(tool, tool.declared)
        await x.follow(task, status_is("input_required", *TERMINAL), x.patience.probe)
    except (Failed, NotExercised):
        return
    tool.states = task.states
