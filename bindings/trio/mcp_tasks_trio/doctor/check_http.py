"""What HTTP adds: header fields that repeat the body, status codes, origins, forms of responses."""

from __future__ import annotations

import base64

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.headers import PARAM_HEADER_PREFIX
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error, demand_result
from mcp_tasks_trio.doctor.examination import META_VERSION, PLAIN, Examination, Headers
from mcp_tasks_trio.doctor.exchanges import Exchange, Sent, encode
from mcp_tasks_trio.doctor.tools import Role, Tool

HTTP = Subject("HTTP")
_VALIDATION = "streamable-http, Server Validation"
_TASK_HEADERS = "tasks, Streamable HTTP: Routing Headers"
_MISMATCH = -32020


def _encoded(value: str) -> str:
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@HTTP.check("version-header-is-required", "H5", MUST, _VALIDATION, "without MCP-Protocol-Version: -32020", only="http")
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", headers={"MCP-Protocol-Version": None})
    if exchange.code != _MISMATCH and await x.serves_earlier_revisions():
        raise NotExercised("needs a server without revisions before 2025-06-18, which had no such header")
    demand_error(exchange, _MISMATCH, what="a request without MCP-Protocol-Version")


@HTTP.check(
    "version-header-is-compared",
    "H5",
    MUST,
    "streamable-http, Protocol Version Header",
    "MCP-Protocol-Version other than the body's: -32020",
    only="http",
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", headers={"MCP-Protocol-Version": "2025-11-25"})
    demand_error(exchange, _MISMATCH, what="a request whose MCP-Protocol-Version is not that of its body")
    exchange = await x.ask(
        "server/discover", meta={META_VERSION: "1900-01-01"}, headers={"Mcp-Method": "server/discover"}
    )
    demand_error(exchange, _MISMATCH, what="a request whose body has another version than its header")


@HTTP.check("method-header-is-required", "H5", MUST, _VALIDATION, "without Mcp-Method: -32020", only="http")
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", headers={"Mcp-Method": None})
    demand_error(exchange, _MISMATCH, what="a request without Mcp-Method")


@HTTP.check(
    "method-header-is-compared", "H5", MUST, _VALIDATION, "Mcp-Method other than the body's: -32020", only="http"
)
async def _(x: Examination) -> None:
    for value in ("tools/list", "SERVER/DISCOVER"):
        exchange = await x.ask("server/discover", headers={"Mcp-Method": value})
        demand_error(exchange, _MISMATCH, what=f"server/discover with Mcp-Method: {value}")


@HTTP.check(
    "header-names-have-no-case",
    "H5",
    MUST,
    "streamable-http, Case Sensitivity",
    "header names in upper or lower case are the same",
    only="http",
)
async def _(x: Examination) -> None:
    for name in ("mcp-method", "MCP-METHOD"):
        exchange = await x.ask("server/discover", headers={name: "server/discover"})
        demand_result(exchange, f"a request with {name} for Mcp-Method")


def _callable_tool(x: Examination) -> Tool:
    tool = x.tools.with_role(Role.PLAIN)
    if tool is None and not x.tools.tools:
        raise NotExercised("needs a tool that can be called (--plain-tool NAME)")
    return x.tools.tools[0] if tool is None else tool


async def _called(x: Examination, headers: Headers) -> Exchange:
    return await x.call(_callable_tool(x), headers=headers, declares=PLAIN, wait=x.patience.probe)


@HTTP.check(
    "name-header-is-required-of-calls", "H5", MUST, _VALIDATION, "tools/call without Mcp-Name: -32020", only="http"
)
async def _(x: Examination) -> None:
    demand_error(await _called(x, {"Mcp-Name": None}), _MISMATCH, what="tools/call without Mcp-Name")


@HTTP.check(
    "name-header-of-calls-is-compared", "H5", MUST, _VALIDATION, "tools/call with another Mcp-Name: -32020", only="http"
)
async def _(x: Examination) -> None:
    exchange = await _called(x, {"Mcp-Name": "mcp-tasks-doctor-other"})
    demand_error(exchange, _MISMATCH, what="tools/call with another tool's Mcp-Name")


@HTTP.check(
    "encoded-name-is-decoded",
    "H6",
    MUST,
    "streamable-http, Value Encoding",
    "an Mcp-Name in Base64 stands for what it encodes: the right name is taken, another refused",
    only="http",
)
async def _(x: Examination) -> None:
    name = _callable_tool(x).name
    exchange = await _called(x, {"Mcp-Name": _encoded(name)})
    demand(exchange.code != _MISMATCH, f"Mcp-Name: {_encoded(name)}, which is {name}, was refused", exchange)
    other = await _called(x, {"Mcp-Name": _encoded("mcp-tasks-doctor-other")})
    demand_error(other, _MISMATCH, what="an Mcp-Name whose Base64 is another name")


@HTTP.check(
    "broken-base64-is-refused",
    "H6",
    MUST,
    "streamable-http, Value Encoding",
    "an Mcp-Name whose Base64 or UTF-8 is broken: -32020",
    only="http",
)
async def _(x: Examination) -> None:
    for value in ("=?base64?%%%%?=", "=?base64?/w==?="):
        demand_error(await _called(x, {"Mcp-Name": value}), _MISMATCH, what=f"Mcp-Name: {value}")


@HTTP.check(
    "control-characters-are-refused",
    "H5",
    MUST,
    _VALIDATION,
    "a header value with control characters is refused with 400",
    only="http",
)
async def _(x: Examination) -> None:
    exchange = await _called(x, {"Mcp-Name": f"{_callable_tool(x).name}\x01"})
    refused = exchange.status == 400 or (exchange.status is None and exchange.answer is None)
    demand(refused, f"a header value with a control character got HTTP {exchange.status}", exchange)


_TASK_PARAMS: dict[str, JSONObject] = {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}


def _register_task_header_checks() -> None:
    """The same two checks for each of the three methods."""
    for method, more in _TASK_PARAMS.items():
        word = method.partition("/")[2]

        async def without(x: Examination, method: str = method, more: JSONObject = more) -> None:
            await _with_name(x, method, more, None, f"{method} without Mcp-Name")

        async def other(x: Examination, method: str = method, more: JSONObject = more) -> None:
            await _with_name(x, method, more, "mcp-tasks-doctor-other", f"{method} with another task's Mcp-Name")

        claim = f"{method} without Mcp-Name: -32020, since it is a required standard header"
        HTTP.check(f"name-header-is-required-of-{word}", "H5", MUST, _TASK_HEADERS, claim, only="http")(without)
        claim = f"{method} whose Mcp-Name is not its taskId: -32020"
        HTTP.check(f"name-header-of-{word}-is-compared", "H5", MUST, _TASK_HEADERS, claim, only="http")(other)


async def _with_name(x: Examination, method: str, more: JSONObject, name: str | None, what: str) -> None:
    task = await x.create(x.any_task_tool(Role.SLOW, Role.TASK))
    exchange = await x.ask(method, {"taskId": task.task_id, **more}, headers={"Mcp-Name": name})
    demand_error(exchange, _MISMATCH, what=what)


_register_task_header_checks()


@HTTP.check(
    "encoded-task-id-is-decoded",
    "H6",
    MUST,
    "streamable-http, Value Encoding",
    "an Mcp-Name in Base64 is decoded on tasks/get, too",
    only="http",
)
async def _(x: Examination) -> None:
    task = await x.create(x.any_task_tool(Role.TASK))
    headers = {"Mcp-Name": _encoded(task.task_id)}
    exchange = await x.ask("tasks/get", {"taskId": task.task_id}, headers=headers)
    demand_result(exchange, "tasks/get with its taskId in Base64 as Mcp-Name")


def _header_tool(x: Examination) -> tuple[Tool, str, str]:
    """A tool with a header for a string parameter; that header's name, and the value that the arguments have."""
    tool = x.need(Role.HEADER)
    for parameter in tool.parameters:
        value = parameter.value_in(tool.arguments)
        if parameter.type == "string" and isinstance(value, str):
            return tool, PARAM_HEADER_PREFIX + parameter.name, value
    raise NotExercised(f"needs arguments of {tool.name} with its header's parameter (--header-tool NAME=JSON)")


@HTTP.check(
    "parameter-header-is-compared",
    "H10",
    MUST,
    "streamable-http, Server Behavior for Custom Headers",
    "a parameter's header that is missing, different or broken: -32020",
    only="http",
)
async def _(x: Examination) -> None:
    tool, header, _value = _header_tool(x)
    for value in (None, "mcp-tasks-doctor-other", "=?base64?%%%%?="):
        exchange = await x.call(tool, headers={header: value}, declares=PLAIN, wait=x.patience.probe)
        demand_error(exchange, _MISMATCH, what=f"{tool.name} with {header} {'left out' if value is None else value}")


@HTTP.check(
    "parameter-header-is-decoded",
    "H10",
    MUST,
    "streamable-http, Server Behavior for Custom Headers",
    "a parameter's header in Base64 stands for what it encodes",
    only="http",
)
async def _(x: Examination) -> None:
    tool, header, value = _header_tool(x)
    exchange = await x.call(tool, headers={header: _encoded(value)}, declares=PLAIN, wait=x.patience.probe)
    demand(exchange.code != _MISMATCH, f"{header}: {_encoded(value)}, which is {value!r}, was refused", exchange)


@HTTP.check(
    "refusals-have-status-400",
    "H7",
    MUST,
    "streamable-http, Server Validation; basic, Per-request protocol fields",
    "errors -32020, -32021 and -32022 come with HTTP status 400",
    only="http",
)
async def _(x: Examination) -> None:
    for exchange, error in x.journal.errors(-32020, -32021, -32022):
        demand(exchange.status == 400, f"{error.get('code')} came with HTTP status {exchange.status}", exchange)


@HTTP.check(
    "missing-meta-has-status-400",
    "H7",
    MUST,
    "basic, Per-request protocol fields",
    "a request without _meta comes back with HTTP status 400",
    only="http",
)
async def _(x: Examination) -> None:
    message = {"jsonrpc": "2.0", "id": x.next_id(), "method": "server/discover", "params": {}}
    head = x.head("server/discover", {}, {})
    sent = Sent(body=encode(message), method="server/discover", request_id=message["id"], headers=head)
    exchange = await x.send(sent)
    demand(exchange.status == 400, f"a request without _meta got HTTP status {exchange.status}", exchange)


@HTTP.check(
    "unknown-method-has-status-404",
    "H7",
    MUST,
    "streamable-http, Protocol Version Header",
    "-32601 comes with HTTP status 404",
    only="http",
)
async def _(x: Examination) -> None:
    await x.ask("mcp-tasks-doctor/unknown")
    for exchange, _error in x.journal.errors(-32601):
        if exchange.sent.hostile:
            continue
        demand(exchange.status == 404, f"-32601 came with HTTP status {exchange.status}", exchange)


@HTTP.check(
    "answers-are-json-or-events",
    "H3",
    MUST,
    "streamable-http, Sending Messages",
    "a request is answered as application/json or text/event-stream",
    only="http",
)
async def _(x: Examination) -> None:
    for exchange, _result in x.journal.results():
        media = (exchange.field("content-type") or "").partition(";")[0].strip().lower()
        allowed = media in ("application/json", "text/event-stream")
        demand(allowed, f"an answer has the content type {media!r}", exchange)


@HTTP.check(
    "event-streams-are-not-buffered",
    "H3",
    SHOULD,
    "streamable-http, Receiving Messages",
    "event streams have X-Accel-Buffering: no",
    only="http",
)
async def _(x: Examination) -> None:
    streams = [e for e in x.journal.exchanges if (e.field("content-type") or "").startswith("text/event-stream")]
    if not streams:
        raise NotExercised("needs a server that answers with an event stream (--progress-tool NAME)")
    for exchange in streams:
        value = exchange.field("x-accel-buffering")
        demand(value == "no", f"an event stream has X-Accel-Buffering {value!r}", exchange)


@HTTP.check(
    "answer-ends-its-stream",
    "H3",
    SHOULD,
    "streamable-http, Receiving Messages",
    "the answer ends the event stream",
    only="http",
)
async def _(x: Examination) -> None:
    streams = [e for e in x.journal.exchanges if (e.field("content-type") or "").startswith("text/event-stream")]
    if not streams:
        raise NotExercised("needs a server that answers with an event stream (--progress-tool NAME)")
    for exchange in streams:
        demand(exchange.ended or exchange.answer is None, "an event stream stays open after its answer", exchange)


@HTTP.check(
    "notification-has-no-body",
    "H4",
    MUST,
    "streamable-http, Sending Messages",
    "a notification gets 202 without a body, or an error status",
    only="http",
)
async def _(x: Examination) -> None:
    exchange = await x.notify("notifications/mcp-tasks-doctor", {"_meta": x.meta()})
    status = exchange.status or 0
    demand(status == 202 or 400 <= status < 600, f"a notification got HTTP status {status}", exchange)
    demand(status != 202 or not exchange.body, "202 for a notification came with a body", exchange)


@HTTP.check(
    "get-and-delete-are-not-allowed",
    "H1",
    SHOULD,
    "streamable-http, Earlier Streamable HTTP Revisions",
    "GET and DELETE get 405 from a server of this revision alone",
    only="http",
)
async def _(x: Examination) -> None:
    if await x.serves_earlier_revisions():
        raise NotExercised("needs a server of this revision alone: earlier ones have GET and DELETE")
    for verb in ("GET", "DELETE"):
        head = [("Accept", "application/json, text/event-stream"), ("MCP-Protocol-Version", "2026-07-28"), *x.headers]
        exchange = await x.send(Sent(body=b"", headers=head, verb=verb, hostile=True), x.patience.probe)
        demand(exchange.status == 405, f"{verb} got HTTP status {exchange.status}", exchange)


@HTTP.check(
    "no-session-is-minted",
    "H1",
    SHOULD,
    "streamable-http, Earlier Streamable HTTP Revisions",
    "a session id on a request is ignored, and none is given out",
    only="http",
)
async def _(x: Examination) -> None:
    if await x.serves_earlier_revisions():
        raise NotExercised("needs a server of this revision alone: earlier ones have sessions")
    headers = {"Mcp-Session-Id": "mcp-tasks-doctor", "Last-Event-ID": "7"}
    demand_result(await x.ask("server/discover", headers=headers), "a request with Mcp-Session-Id and Last-Event-ID")
    for exchange in x.journal.exchanges:
        if exchange.sent.method != "initialize":
            demand(exchange.field("mcp-session-id") is None, "an answer has an Mcp-Session-Id", exchange)


@HTTP.check(
    "foreign-origin-is-refused",
    "H2",
    MUST,
    "streamable-http, Security & Endpoint",
    "an Origin that is not the server's own gets 403",
    only="http",
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", headers={"Origin": "http://evil.example"})
    demand(exchange.status == 403, f"Origin: http://evil.example got HTTP status {exchange.status}", exchange)


@HTTP.check(
    "unauthenticated-is-challenged",
    "H11",
    SHOULD,
    "authorization, Protected Resource Metadata Discovery",
    "401 comes with WWW-Authenticate that says where the metadata is",
    only="http",
)
async def _(x: Examination) -> None:
    if not any(name.lower() == "authorization" for name, _ in x.headers):
        raise NotExercised("needs credentials (--header 'Authorization: ...')")
    exchange = await x.ask("server/discover", headers={"Authorization": None})
    if exchange.status != 401:
        raise NotExercised(f"needs a server that asks for credentials: without them it answers {exchange.status}")
    challenge = exchange.field("www-authenticate") or ""
    demand("resource_metadata" in challenge, f"401 has the WWW-Authenticate {challenge!r}", exchange)
