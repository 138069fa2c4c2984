"""Versions, capabilities, discovery: what each request says of itself, and what the server says of itself."""

from __future__ import annotations

from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error, demand_result
from mcp_tasks_trio.doctor.examination import (
    EXTENSION,
    LEGACY,
    META_CAPABILITIES,
    META_VERSION,
    PLAIN,
    UNKNOWN_TASK,
    VERSION,
    Examination,
)
from mcp_tasks_trio.doctor.exchanges import Sent, encode

NEGOTIATION = Subject("Negotiation")
_BAD_VERSION = "1900-01-01"
_FAMILIES = {"prompts/list": "prompts", "resources/list": "resources", "tools/list": "tools"}


@NEGOTIATION.check(
    "meta-is-required", "N1", MUST, "basic, Per-request protocol fields", "a request without _meta gets -32602"
)
async def _(x: Examination) -> None:
    own_id = x.next_id()
    message = {"jsonrpc": "2.0", "id": own_id, "method": "server/discover", "params": {}}
    head = x.head("server/discover", {}, {})
    sent = Sent(body=encode(message), method="server/discover", request_id=own_id, headers=head)
    demand_error(await x.send(sent), -32602, what="a request without _meta")


@NEGOTIATION.check(
    "meta-fields-are-required",
    "N1",
    MUST,
    "basic, Per-request protocol fields",
    "a request without protocolVersion or clientCapabilities, or with one of a wrong type, gets -32602",
)
async def _(x: Examination) -> None:
    # Over HTTP a version that is no text differs from its header, too, and which is looked at first is not laid down.
    either = (-32602, -32020) if x.transport.name == "http" else (-32602,)
    for what, meta, codes in (
        ("without protocolVersion", {META_VERSION: None}, (-32602,)),
        ("without clientCapabilities", {META_CAPABILITIES: None}, (-32602,)),
        ("whose protocolVersion is a number", {META_VERSION: 7}, either),
        ("whose clientCapabilities are an array", {META_CAPABILITIES: []}, (-32602,)),
    ):
        demand_error(await x.ask("server/discover", meta=meta), *codes, what=f"a request {what}")


@NEGOTIATION.check(
    "client-info-is-optional",
    "N1",
    MUST,
    "basic, Per-request protocol fields",
    "a request without clientInfo is served",
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", meta={"io.modelcontextprotocol/clientInfo": None})
    demand_result(exchange, "a request without clientInfo")


@NEGOTIATION.check(
    "unsupported-version-names-others",
    "N2",
    MUST,
    "versioning, Protocol Version Negotiation",
    "an unsupported version gets -32022, with data.supported and data.requested",
)
async def _(x: Examination) -> None:
    headers = {"MCP-Protocol-Version": _BAD_VERSION} if x.transport.name == "http" else None
    exchange = await x.ask("server/discover", meta={META_VERSION: _BAD_VERSION}, headers=headers)
    demand_error(exchange, -32022, what=f"a request of the version {_BAD_VERSION}")
    data = (exchange.error or {}).get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    demand(
        isinstance(supported, list) and supported and all(isinstance(v, str) for v in supported),
        f"data.supported is {supported!r}, not a list of versions",
        exchange,
    )
    requested = data.get("requested") if isinstance(data, dict) else None
    demand(requested == _BAD_VERSION, f"data.requested is {requested!r}, not {_BAD_VERSION!r}", exchange)


@NEGOTIATION.check(
    "discovery-is-served",
    "N3",
    MUST,
    "discover, Response",
    "server/discover tells the supported versions and the capabilities",
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover")
    result = demand_result(exchange, "server/discover")
    versions = result.get("supportedVersions")
    demand(isinstance(versions, list) and VERSION in versions, f"supportedVersions is {versions!r}", exchange)
    demand(isinstance(result.get("capabilities"), dict), "capabilities is no object", exchange)


@NEGOTIATION.check(
    "tasks-are-advertised",
    "N3",
    MUST,
    "tasks, Capability Negotiation",
    "a server whose calls become tasks advertises the extension, as an object",
)
async def _(x: Examination) -> None:
    if not x.tools.task_tools():
        raise NotExercised("needs a tool that becomes a task (--task-tool NAME)")
    exchange = await x.ask("server/discover")
    extensions = (exchange.result or {}).get("capabilities", {}).get("extensions")
    settings = extensions.get(EXTENSION) if isinstance(extensions, dict) else None
    demand(isinstance(settings, dict), f"calls become tasks, but extensions is {extensions!r}", exchange)


@NEGOTIATION.check(
    "no-legacy-capability",
    "N3",
    MUST,
    "tasks, Capability Negotiation",
    "the capability tasks of 2025-11-25 is not advertised at this revision",
    suite=("migrate-from-legacy-capabilities",),
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover")
    capabilities = demand_result(exchange, "server/discover").get("capabilities")
    demand(
        not isinstance(capabilities, dict) or "tasks" not in capabilities,
        "capabilities has the member tasks, which is that of 2025-11-25",
        exchange,
    )


@NEGOTIATION.check(
    "families-are-advertised",
    "N3",
    MUST,
    "tools, Capabilities",
    "a server that serves tools, prompts or resources declares that capability, and the one that declares it serves it",
)
async def _(x: Examination) -> None:
    for method, family in _FAMILIES.items():
        exchange = await x.ask(method)
        declared = family in x.capabilities
        if declared:
            demand_result(exchange, f"{method}, although {family} is declared,")
        else:
            demand(exchange.result is None, f"{method} is served, but {family} is not declared", exchange)


@NEGOTIATION.check(
    "list-does-not-vary-by-connection",
    "N10",
    MUST,
    "tools, Capabilities",
    "the tools are the same on every connection, and whatever was asked before",
)
async def _(x: Examination) -> None:
    await _lists(x, sort=True)


@NEGOTIATION.check(
    "list-order-is-stable", "N10", SHOULD, "tools, Capabilities", "the tools come in the same order each time"
)
async def _(x: Examination) -> None:
    await _lists(x, sort=False)


async def _lists(x: Examination, *, sort: bool) -> None:
    if "tools" not in x.capabilities:
        raise NotExercised("needs a server that declares tools")
    first, second = await x.ask("tools/list"), await x.ask("tools/list", declares=PLAIN)
    names = []
    for exchange in (first, second):
        tools = demand_result(exchange, "tools/list").get("tools")
        listed = tools if isinstance(tools, list) else []
        names.append([str(tool.get("name")) for tool in listed if isinstance(tool, dict)])
    # Which tools there are is one thing, and the order of those that are there each time another.
    one, two = (sorted(n) if sort else [m for m in n if m in names[0] and m in names[1]] for n in names)
    demand(one == two, f"tools/list gave {one} and then {two}", first, second)


@NEGOTIATION.check(
    "bad-cursor-is-refused", "N10", SHOULD, "pagination, Error Handling", "a cursor that was never given gets -32602"
)
async def _(x: Examination) -> None:
    if "tools" not in x.capabilities:
        raise NotExercised("needs a server that declares tools")
    exchange = await x.ask("tools/list", {"cursor": "mcp-tasks-doctor-was-given-no-such-cursor"})
    demand_error(exchange, -32602, what="tools/list with a cursor that was never given")


@NEGOTIATION.check(
    "declarations-are-not-remembered",
    "N4",
    MUST,
    "basic, Statelessness",
    "what one request declares grants nothing to the next, nor takes anything from it",
)
async def _(x: Examination) -> None:
    tool = x.any_task_tool()
    task = await x.create(tool)
    without = await x.ask("tasks/get", {"taskId": task.task_id}, declares=PLAIN)
    demand_error(without, what="tasks/get without the extension, right after a request that declared it,")
    demand_result(await x.ask("tasks/get", {"taskId": task.task_id}), "tasks/get after one that did not declare it")


@NEGOTIATION.check(
    "legacy-capability-is-no-declaration",
    "N5",
    MUST,
    "tasks, Capability Negotiation",
    "a client that declares only the tasks capability of 2025-11-25 has not declared the extension",
    suite=("legacy-capability-treated-as-non-declaring",),
)
async def _(x: Examination) -> None:
    exchange = await x.ask("tasks/get", {"taskId": UNKNOWN_TASK}, declares=LEGACY)
    demand_error(exchange, -32021, what="tasks/get with the legacy capability alone")
    for tool in x.tools.task_tools()[:2]:
        called = await x.call(tool, declares=LEGACY, wait=x.patience.probe)
        kind = (called.result or {}).get("resultType")
        demand(kind != "task", f"{tool.name} became a task for a client with the legacy capability alone", called)


@NEGOTIATION.check(
    "initialize-is-told-the-versions",
    "N6",
    SHOULD,
    "versioning, Backward Compatibility",
    "an error to initialize names the versions that are supported",
)
async def _(x: Examination) -> None:
    exchange = await x.initialize("2025-11-25")
    if exchange.result is not None:
        raise NotExercised("needs a server of this revision alone, and this one serves initialize")
    demand(exchange.error is not None, "initialize got no JSON-RPC answer", exchange)
    demand(VERSION in encode(exchange.error).decode(), "the error to initialize does not name 2026-07-28", exchange)
