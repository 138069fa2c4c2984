"""Parts of which breaches are made."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from doctor.between import CAPABILITIES, Breach, Call, Message, Reply

DISCOVERY: Message = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "between", "version": "1.0"}},
}


VERSION = "io.modelcontextprotocol/protocolVersion"


ACK = {"resultType": "complete", "_meta": DISCOVERY["_meta"]}


TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")


NEVER_KNOWN = "mcp-tasks-doctor-knows-no-such-task"


QUESTION: Message = {
    "method": "elicitation/create",
    "params": {"message": "Why?", "requestedSchema": {"type": "object", "properties": {"why": {"type": "string"}}}},
}


Back = Callable[[Call, Reply], None]


def finds(*names: str, **how: Any) -> Breach:
    return Breach(finds=frozenset(names), **how)


def on(method: str, change: Callable[[Message], Any]) -> Back:
    """Changes every result of a method."""

    def back(call: Call, reply: Reply) -> None:
        if call.method == method and reply.result:
            change(reply.result)

    return back


def on_state(status: str, change: Callable[[Message], Any]) -> Back:
    """Changes every answer to tasks/get that has this status."""

    def back(call: Call, reply: Reply) -> None:
        if call.method == "tasks/get" and reply.result.get("status") == status:
            change(reply.result)

    return back


def on_handle(change: Callable[[Message], Any]) -> Back:
    def back(call: Call, reply: Reply) -> None:
        if call.method == "tools/call" and reply.result.get("resultType") == "task":
            change(reply.result)

    return back


def serves(code: int, when: Callable[[Call], bool], result: Message = DISCOVERY) -> Back:
    """Answers what was refused with this code as if it were right."""

    def back(call: Call, reply: Reply) -> None:
        if reply.code == code and when(call):
            reply.serve(result, call)

    return back


def refuses(when: Callable[[Call], bool], code: int = -32602, status: int = 400) -> Back:
    def back(call: Call, reply: Reply) -> None:
        if when(call):
            reply.refuse(code, call, status)

    return back


def recode(code: int, other: int, when: Callable[[Call], bool] = lambda _: True) -> Back:
    """Refuses with another code."""

    def back(call: Call, reply: Reply) -> None:
        if reply.code == code and when(call):
            reply.response["error"]["code"] = other

    return back


def restatus(codes: tuple[int, ...], status: int, prefix: str = "") -> Back:
    def back(call: Call, reply: Reply) -> None:
        if reply.code in codes and call.method.startswith(prefix):
            reply.status = status

    return back


def is_tool(name: str) -> Callable[[Call], bool]:
    return lambda call: call.method == "tools/call" and call.params.get("name") == name


def is_unknown(method: str) -> Callable[[Call], bool]:
    return lambda call: call.method == method and call.params.get("taskId") == NEVER_KNOWN


def declares(when: Callable[[Call], bool]) -> Callable[[Call], None]:
    """Takes a request for one that declared the extension."""

    def there(call: Call) -> None:
        if when(call) and CAPABILITIES in call.meta:
            call.declare()

    return there


def rename(*methods: str, only_if: Callable[[Call], bool]) -> Callable[[Call], None]:
    """Accepts a wrong or missing Mcp-Name by putting the right one in its place."""

    def there(call: Call) -> None:
        name = call.params.get("taskId", call.params.get("name"))
        if call.method in methods and isinstance(name, str) and only_if(call):
            call.set_header("Mcp-Name", name)

    return there


def has_no_name(call: Call) -> bool:
    return call.header("Mcp-Name") is None


def has_wrong_name(call: Call) -> bool:
    return call.header("Mcp-Name") not in (None, call.params.get("taskId"))


now = itertools.count()


def no_meta(call: Call) -> bool:
    return call.method == "server/discover" and not call.meta


def asks_for_lunch(call: Call, reply: Reply) -> None:
    for request in reply.result.get("inputRequests", {}).values():
        request["method"] = "lunch/order"
