"""The envelope: JSON-RPC, ids, and what is no right request."""

from __future__ import annotations

from typing import Any

from mcp_tasks_trio.doctor.checks import MUST, Failed, NotExercised, Subject, demand, demand_error, demand_result
from mcp_tasks_trio.doctor.examination import Examination
from mcp_tasks_trio.doctor.exchanges import Exchange, encode, same_id

ENVELOPE = Subject("The envelope")


def _discovery(x: Examination, **changes: Any) -> dict[str, Any]:
    """A right request for a discovery, but for these members; ``None`` leaves one out."""
    whole = {"jsonrpc": "2.0", "id": x.next_id(), "method": "server/discover", "params": {"_meta": x.meta()}, **changes}
    return {name: value for name, value in whole.items() if value is not ...}


def _demand_not_served(exchange: Exchange, what: str) -> None:
    served = any(isinstance(m, dict) and "result" in m for m in exchange.messages)
    demand(not served, f"{what} was served", exchange)


@ENVELOPE.check(
    "batch-is-refused", "B1", MUST, "basic, Messages", "an array of requests is no message: nothing in it is served"
)
async def _(x: Examination) -> None:
    one, two = _discovery(x), _discovery(x)
    exchange = await x.raw(encode([one, two]), wait=x.patience.quiet * 3)
    demand(
        not any("result" in str(message) for message in exchange.messages if not _is_error(message)),
        "an array of two requests was served",
        exchange,
    )


def _is_error(message: Any) -> bool:
    return isinstance(message, dict) and "error" in message and "result" not in message


@ENVELOPE.check("null-id-is-refused", "B2", MUST, "basic, Requests", "a request whose id is null is not served")
async def _(x: Examination) -> None:
    _demand_not_served(await x.bare(_discovery(x, id=None), wait=x.patience.quiet * 3), "a request with the id null")


@ENVELOPE.check(
    "ids-of-wrong-types-are-refused", "B2", MUST, "basic, Requests", "an id that is no string and no integer is refused"
)
async def _(x: Examination) -> None:
    wrong_ids: tuple[Any, ...] = (1.5, True, {}, [7])
    for wrong in wrong_ids:
        exchange = await x.bare(_discovery(x, id=wrong), wait=x.patience.quiet * 3)
        _demand_not_served(exchange, f"a request with the id {wrong!r}")


@ENVELOPE.check(
    "id-comes-back-as-it-was",
    "B3",
    MUST,
    "basic, Responses",
    "a response has the request's id with its JSON type, whatever string or integer it is",
)
async def _(x: Examination) -> None:
    for own_id in ("seven", "7", "", 0, -1, 2**53 - 1):
        exchange = await x.ask("server/discover", request_id=own_id)
        given = None if exchange.answer is None else exchange.answer.get("id")
        demand(exchange.answer is not None, f"a request with the id {own_id!r} got no answer", exchange)
        demand(same_id(own_id, given), f"the answer to the request {own_id!r} has the id {given!r}", exchange)


@ENVELOPE.check("notification-is-not-answered", "B6", MUST, "basic, Notifications", "a notification gets no response")
async def _(x: Examination) -> None:
    exchange = await x.notify("notifications/mcp-tasks-doctor", {})
    if x.transport.name == "stdio":
        demand(exchange.answer is None, "a notification was answered", exchange)
    else:
        served = any(isinstance(m, dict) and "result" in m for m in exchange.messages)
        demand(not served, "a notification got a result", exchange)


@ENVELOPE.check("bad-json-is-a-parse-error", "B7", MUST, "JSON-RPC 2.0, Error object", "what is no JSON gets -32700")
async def _(x: Examination) -> None:
    exchange = await x.raw(b'{"jsonrpc":"2.0","id":')
    demand_error(exchange, -32700, what="half a message")


@ENVELOPE.check(
    "no-request-object-is-refused",
    "B7",
    MUST,
    "JSON-RPC 2.0, Error object",
    "without a right jsonrpc and method it is no request: -32600",
)
async def _(x: Examination) -> None:
    # Over HTTP a method that is no text differs from its header, too, and which is looked at first is not laid down.
    others = (-32600, -32020) if x.transport.name == "http" else (-32600,)
    for what, changes, codes in (
        ("a request whose jsonrpc is 1.0", {"jsonrpc": "1.0"}, (-32600,)),
        ("a request without jsonrpc", {"jsonrpc": ...}, (-32600,)),
        ("a request whose method is a number", {"method": 7}, others),
    ):
        exchange = await x.bare(_discovery(x, **changes), wait=x.patience.quiet * 4)
        demand_error(exchange, *codes, what=what)


@ENVELOPE.check(
    "array-of-params-is-refused",
    "B7",
    MUST,
    "basic, Requests",
    "params are an object: an array of them gets -32602 or -32600",
)
async def _(x: Examination) -> None:
    demand_error(await x.bare(_discovery(x, params=["a"])), -32602, -32600, what="a request whose params are an array")


@ENVELOPE.check(
    "unknown-method-is-not-found", "B7", MUST, "JSON-RPC 2.0, Error object", "an unknown method gets -32601"
)
async def _(x: Examination) -> None:
    demand_error(await x.ask("mcp-tasks-doctor/unknown"), -32601, what="an unknown method")


@ENVELOPE.check(
    "unknown-tool-is-refused", "C11", MUST, "tools, Error Handling", "a call of an unknown tool gets -32602"
)
async def _(x: Examination) -> None:
    if not x.tools.listed and "tools" not in x.capabilities:
        raise NotExercised("needs a server that has tools")
    exchange = await x.ask("tools/call", {"name": "mcp-tasks-doctor-unknown", "arguments": {}})
    demand_error(exchange, -32602, what="a call of a tool that does not exist")


@ENVELOPE.check(
    "lives-after-bad-input",
    "B7",
    MUST,
    "basic, Messages",
    "a server that was sent nonsense still answers the next request",
)
async def _(x: Examination) -> None:
    for nonsense in (b"", b"null", b"7", b'"text"', b"{}", b"\xff\xfe{}", b'{"jsonrpc":"2.0"}'):
        await x.raw(nonsense, wait=x.patience.quiet / 2)
    exchange = await x.ask("server/discover")
    try:
        demand_result(exchange, "server/discover after nonsense")
    except Failed as failure:
        raise Failed(f"{failure.reason}, which came after messages that are none", exchange) from None
