"""What holds of every message that the server sent during the examination; looked at last."""

from __future__ import annotations

from typing import Any

from mcp_tasks_trio.doctor.checks import MUST, SHOULD, Failed, NotExercised, Subject, demand
from mcp_tasks_trio.doctor.examination import EXTENSION, Examination

EVERY_MESSAGE = Subject("Every message")
_OWN_CODES = (-32020, -32021, -32022)
_OLD_CODES = (-32002, -32042)
_CACHED = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


@EVERY_MESSAGE.check(
    "messages-are-json-rpc",
    "B1",
    MUST,
    "basic, Messages",
    "every message is one JSON object with jsonrpc 2.0, and has a method, or a result, or an error",
)
async def _(x: Examination) -> None:
    for exchange in x.journal.exchanges:
        demand(not exchange.faults, "; ".join(exchange.faults), exchange)
    for exchange, message in x.journal.messages():
        demand(isinstance(message, dict), "a message is no object", exchange)
        demand(message.get("jsonrpc") == "2.0", f"jsonrpc is {message.get('jsonrpc')!r}", exchange)
        kinds = [name for name in ("method", "result", "error") if name in message]
        demand(len(kinds) == 1, f"a message has {' and '.join(kinds) or 'no method, result or error'}", exchange)


@EVERY_MESSAGE.check(
    "responses-have-the-id-of-their-request",
    "B3",
    MUST,
    "basic, Responses",
    "a response to a request that could be read repeats its id",
)
async def _(x: Examination) -> None:
    for exchange in x.journal.exchanges:
        if exchange.sent.hostile or exchange.answer is None:
            continue
        given, own = exchange.answer.get("id"), exchange.sent.request_id
        same = type(given) is type(own) and given == own
        demand(same, f"the answer to the request {own!r} has the id {given!r}", exchange)


@EVERY_MESSAGE.check(
    "results-have-a-type", "B4", MUST, "basic, Result Responses", "every result is an object with a resultType"
)
async def _(x: Examination) -> None:
    for exchange, message in x.journal.messages():
        if isinstance(message, dict) and "result" in message:
            result = message["result"]
            kind = result.get("resultType") if isinstance(result, dict) else None
            method = exchange.sent.method
            demand(isinstance(kind, str), f"the result of {method} has the resultType {kind!r}", exchange)


def _needs_errors(x: Examination) -> None:
    if not any(True for _ in x.journal.errors()):
        raise NotExercised("needs a request that is refused")


@EVERY_MESSAGE.check(
    "error-codes-are-defined",
    "B5",
    MUST,
    "basic, Error Codes",
    "error codes are integers, none of -32020 to -32099 that this revision does not define, none that it retired",
)
async def _(x: Examination) -> None:
    _needs_errors(x)
    for exchange, error in x.journal.errors():
        code = error.get("code")
        demand(isinstance(code, int) and not isinstance(code, bool), f"an error has the code {code!r}", exchange)
        assert isinstance(code, int)
        demand(code in _OWN_CODES or not -32099 <= code <= -32020, f"the code {code} is not defined", exchange)
        demand(code not in _OLD_CODES, f"the code {code} was retired", exchange)


@EVERY_MESSAGE.check(
    "error-codes-are-not-legacy", "B5", SHOULD, "basic, Error Codes", "no error code is one of -32000 to -32019"
)
async def _(x: Examination) -> None:
    _needs_errors(x)
    for exchange, error in x.journal.errors():
        code = error.get("code")
        legacy = isinstance(code, int) and -32019 <= code <= -32000 and code not in _OLD_CODES
        demand(not legacy, f"the code {code} is one of the legacy range", exchange)


@EVERY_MESSAGE.check("errors-have-messages", "B5", MUST, "basic, Error Responses", "every error has a message, a text")
async def _(x: Examination) -> None:
    _needs_errors(x)
    for exchange, error in x.journal.errors():
        demand(isinstance(error.get("message"), str), f"an error's message is {error.get('message')!r}", exchange)


@EVERY_MESSAGE.check(
    "missing-capability-is-named",
    "N7",
    MUST,
    "basic, Per-request protocol fields",
    "every -32021 has data.requiredCapabilities, an object",
)
async def _(x: Examination) -> None:
    looked = False
    for exchange, error in x.journal.errors(-32021):
        looked = True
        data = error.get("data")
        required = data.get("requiredCapabilities") if isinstance(data, dict) else None
        demand(isinstance(required, dict), f"requiredCapabilities of -32021 is {required!r}", exchange)
    if not looked:
        raise NotExercised("needs a request that is refused with -32021")


@EVERY_MESSAGE.check(
    "server-sends-no-requests", "B8", MUST, "stdio and streamable-http, Receiving Messages", "no message is a request"
)
async def _(x: Examination) -> None:
    for exchange, message in x.journal.messages():
        is_request = isinstance(message, dict) and "method" in message and "id" in message
        demand(not is_request, "the server sent a request", exchange)


@EVERY_MESSAGE.check(
    "results-name-the-server",
    "B11",
    SHOULD,
    "basic, Per-response protocol fields",
    "every result's _meta has serverInfo, unless the server is configured not to tell",
)
async def _(x: Examination) -> None:
    for exchange, result in x.journal.results():
        meta = result.get("_meta")
        info = meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
        demand(isinstance(info, dict), f"the result of {exchange.sent.method} does not name the server", exchange)


@EVERY_MESSAGE.check(
    "lists-say-how-long-they-hold",
    "N9",
    MUST,
    "caching, Cacheable Results",
    "discovery, lists and resources that are complete have ttlMs, an integer from 0 on, and a cacheScope",
)
async def _(x: Examination) -> None:
    for exchange, result in x.journal.results(*_CACHED):
        if result.get("resultType") == "input_required":
            continue
        ttl, scope, method = result.get("ttlMs"), result.get("cacheScope"), exchange.sent.method
        whole = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0
        demand(whole, f"the result of {method} has the ttlMs {ttl!r}", exchange)
        demand(scope in ("public", "private"), f"the result of {method} has the cacheScope {scope!r}", exchange)


@EVERY_MESSAGE.check(
    "only-calls-become-tasks",
    "C9",
    MUST,
    "tasks, Polymorphic Results",
    "the resultType task stands on handles alone, which answer calls that declared the extension",
    suite=("no-task-result-type-on-others",),
)
async def _(x: Examination) -> None:
    for exchange, result in x.journal.results():
        method = exchange.sent.method
        if result.get("resultType") != "task" or method.startswith("tasks/"):
            continue
        demand(method == "tools/call", f"{method} was answered with the resultType task", exchange)
    for exchange, state in x.journal.results("tasks/get"):
        inner = state.get("result")
        if isinstance(inner, dict):
            demand(inner.get("resultType") != "task", "the result in a task has the resultType task", exchange)


@EVERY_MESSAGE.check(
    "result-types-are-known",
    "B4",
    MUST,
    "basic, ResultType",
    "no resultType but complete, input_required, and task where the extension is advertised",
)
async def _(x: Examination) -> None:
    extensions = x.capabilities.get("extensions")
    advertised = isinstance(extensions, dict) and EXTENSION in extensions
    for exchange, result in x.journal.results():
        kind = result.get("resultType", "complete")
        known = kind in ("complete", "input_required", "task")
        demand(known or not advertised, f"the resultType {kind!r} is unknown", exchange)


@EVERY_MESSAGE.check(
    "progress-has-a-token-of-its-request",
    "L1",
    MUST,
    "progress, Behavior Requirements",
    "progress comes for requests that asked for it, under their token, and not after their answer",
)
async def _(x: Examination) -> None:
    looked = False
    for exchange in x.journal.exchanges:
        meta = exchange.sent.params.get("_meta")
        own = meta.get("progressToken") if isinstance(meta, dict) else None
        answered = False
        for message in exchange.messages:
            answered = answered or message is exchange.answer
            if not _is_progress(message):
                continue
            looked = True
            params = message.get("params")
            token = params.get("progressToken") if isinstance(params, dict) else None
            demand(own is not None, "progress was sent for a request that did not ask for it", exchange)
            demand(token == own, f"progress has the token {token!r}, not {own!r}", exchange)
            demand(not answered, "progress was sent after the answer", exchange)
    if not looked:
        raise NotExercised("needs a tool that reports progress while its call waits (--progress-tool NAME)")


def _is_progress(message: Any) -> bool:
    return isinstance(message, dict) and message.get("method") == "notifications/progress"


@EVERY_MESSAGE.check(
    "progress-increases", "L1", MUST, "progress, Progress Flow", "progress increases with each notification"
)
async def _(x: Examination) -> None:
    looked = False
    for exchange in x.journal.exchanges:
        meta = exchange.sent.params.get("_meta")
        own = meta.get("progressToken") if isinstance(meta, dict) else None
        last: float | None = None
        for message in exchange.messages:
            params = message.get("params") if _is_progress(message) else None
            if not isinstance(params, dict) or params.get("progressToken") != own:
                continue
            looked, value = True, params.get("progress")
            if not isinstance(value, int | float):
                raise Failed(f"progress is {value!r}, not a number", exchange)
            demand(last is None or value > last, f"progress {value} follows {last}", exchange)
            last = value
    if not looked:
        raise NotExercised("needs a tool that reports progress while its call waits (--progress-tool NAME)")


@EVERY_MESSAGE.check(
    "no-log-without-a-level",
    "L2",
    MUST,
    "logging, Per-request log level",
    "no notifications/message for a request that set no log level",
)
async def _(x: Examination) -> None:
    for exchange, message in x.journal.messages():
        logged = isinstance(message, dict) and message.get("method") == "notifications/message"
        meta = exchange.sent.params.get("_meta")
        asked = isinstance(meta, dict) and "io.modelcontextprotocol/logLevel" in meta
        # On a shared channel it may be another request's, and none sets a level before this is looked at.
        demand(not logged or asked, "a log message was sent to a request that set no level", exchange)


@EVERY_MESSAGE.check(
    "bad-log-level-is-refused", "L2", SHOULD, "logging, Error Handling", "a log level that is none gets -32602"
)
async def _(x: Examination) -> None:
    exchange = await x.ask("server/discover", meta={"io.modelcontextprotocol/logLevel": "mcp-tasks-doctor"})
    demand(exchange.code == -32602, f"a log level that is none got {exchange.code or 'a result'}", exchange)
