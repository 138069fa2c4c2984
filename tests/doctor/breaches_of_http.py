"""Breaches of what HTTP adds, of callers kept apart, and of subscriptions."""

from __future__ import annotations

from collections.abc import Callable

from doctor.between import SUBSCRIPTION, Breach, Call, Message, Reply
from doctor.breach_parts import (
    NEVER_KNOWN,
    VERSION,
    Back,
    finds,
    has_no_name,
    has_wrong_name,
    is_tool,
    no_meta,
    recode,
    refuses,
    rename,
    restatus,
)


def _is_foreign(call: Call) -> bool:
    return call.header("Authorization") == "Bearer other"


def _notifications_with_body(call: Call, reply: Reply) -> None:
    if call.method.startswith("notifications/"):
        reply.raw = b"accepted"


def _with_header(name: str, value: str) -> Back:
    def back(_call: Call, reply: Reply) -> None:
        reply.headers.append((name, value))

    return back


def _without_header(name: str) -> Back:
    def back(_call: Call, reply: Reply) -> None:
        reply.headers = [(key, value) for key, value in reply.headers if key.lower() != name]

    return back


def _stays_open(_call: Call, reply: Reply) -> None:
    reply.stays_open = reply.as_events


def _right_header(name: str, value: Callable[[Call], str]) -> Callable[[Call], None]:
    """Accepts a wrong or missing header by putting the right one in its place."""

    def there(call: Call) -> None:
        if call.method in ("server/discover", "tools/call"):
            call.set_header(name, value(call))

    return there


def _only_lower_case(call: Call, reply: Reply) -> None:
    if any(name == "MCP-METHOD" or name == "mcp-method" for name, _ in call.headers):
        reply.refuse(-32020, call)


def _right_name_if(test: Callable[[str], bool]) -> Callable[[Call], None]:
    def there(call: Call) -> None:
        name = call.header("Mcp-Name") or ""
        if call.method == "tools/call" and test(name):
            call.set_header("Mcp-Name", str(call.params.get("name")))

    return there


def _encoded_is_refused(call: Call, reply: Reply) -> None:
    if (call.header("Mcp-Name") or "").startswith("=?base64?"):
        reply.refuse(-32020, call)


def _region(call: Call) -> str:
    return str(call.params.get("arguments", {}).get("region"))


def _right_region(call: Call) -> None:
    if is_tool("route")(call):
        call.set_header("Mcp-Param-Region", _region(call))


def _encoded_region_is_refused(call: Call, reply: Reply) -> None:
    if (call.header("Mcp-Param-Region") or "").startswith("=?base64?"):
        reply.refuse(-32020, call)


def _no_origin(call: Call) -> None:
    call.headers = [(name, value) for name, value in call.headers if name.lower() != "origin"]


def _verbs(call: Call, reply: Reply) -> None:
    if call.verb in ("GET", "DELETE"):
        reply.status = 200


def _without_version(call: Call) -> bool:
    return call.header("MCP-Protocol-Version") is None and call.method != "initialize"


def _version_of_body(call: Call) -> None:
    if call.header("MCP-Protocol-Version") is not None and VERSION in call.meta:
        version = str(call.meta[VERSION])
        if call.header("MCP-Protocol-Version") != version and call.method == "server/discover":
            call.set_header("MCP-Protocol-Version", version)


def _with_right_version(call: Call) -> None:
    if _without_version(call):
        call.set_header("MCP-Protocol-Version", "2026-07-28")


def _caller_is_forgotten(call: Call) -> None:
    if call.method.startswith("tasks/") or call.method == "subscriptions/listen":
        call.set_header("Authorization", "Bearer own")


def _unasked_state(message: Message) -> Message:
    if message.get("method") == "notifications/tasks":
        message["params"]["taskId"] = "another"
    return message


def _renamed(old: str, new: str) -> Callable[[Message], Message]:
    def push(message: Message) -> Message:
        return {**message, "method": new} if message.get("method") == old else message

    return push


def _kept_back(method: str | None) -> Callable[[Message], Message | None]:
    return lambda message: None if message.get("method") == method else message


def _id_of_subscription(message: Message) -> Message:
    carrier = message.get("params") or message.get("result") or {}
    carrier["_meta"][SUBSCRIPTION] = str(carrier["_meta"][SUBSCRIPTION])
    return message


def _agrees_to_more(message: Message) -> Message:
    if "acknowledged" in message.get("method", ""):
        message["params"]["notifications"]["taskIds"].append("another")
    return message


def _pushes_less(message: Message) -> Message:
    if message.get("method") == "notifications/tasks":
        message["params"].pop("result", None)
    return message


def _asks_silently(message: Message) -> Message | None:
    asks = message.get("method") == "notifications/tasks" and message["params"].get("status") == "input_required"
    return None if asks else message


def _end_is_an_error(message: Message) -> Message:
    if "result" in message:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": "over"}}
    return message


class _CancelsOnClose:
    def __init__(self) -> None:
        self._pushed: set[str] = set()

    def push(self, message: Message) -> Message:
        if message.get("method") == "notifications/tasks":
            self._pushed.add(message["params"]["taskId"])
        return message

    def back(self, call: Call, reply: Reply) -> None:
        if call.params.get("taskId") in self._pushed and reply.result.get("status") == "working":
            reply.result["status"] = "cancelled"


_cancels_on_close = _CancelsOnClose()
OF_HTTP: dict[str, Breach] = {
    # HTTP
    "the version header may be missing": finds("version-header-is-required", there=_with_right_version),
    "the version header may differ": finds("version-header-is-compared", there=_version_of_body),
    "the method header may be missing": finds(
        "method-header-is-required",
        there=lambda call: call.set_header("Mcp-Method", call.method) if call.header("Mcp-Method") is None else None,
    ),
    "the method header may differ": finds(
        "method-header-is-compared", there=_right_header("Mcp-Method", lambda call: call.method)
    ),
    "header names have case": finds("header-names-have-no-case", back=_only_lower_case),
    "calls may be without their name": finds(
        "name-header-is-required-of-calls", there=rename("tools/call", only_if=has_no_name)
    ),
    "calls may have another name": finds(
        "name-header-of-calls-is-compared", there=_right_name_if(lambda name: name == "mcp-tasks-doctor-other")
    ),
    "encoded names are refused": finds(
        "encoded-name-is-decoded", "encoded-task-id-is-decoded", back=_encoded_is_refused
    ),
    "broken Base64 will do": finds("broken-base64-is-refused", there=_right_name_if(lambda name: "%%" in name)),
    "control characters are overlooked": finds("control-characters-are-refused", cleans=True),
    "tasks/get may have another task's name": finds(
        "name-header-of-get-is-compared", there=rename("tasks/get", only_if=has_wrong_name)
    ),
    "parameters may differ from their headers": finds("parameter-header-is-compared", there=_right_region),
    "encoded parameters are refused": finds("parameter-header-is-decoded", back=_encoded_region_is_refused),
    "missing _meta comes with 200": finds(
        "missing-meta-has-status-400",
        back=lambda call, reply: setattr(reply, "status", 200) if no_meta(call) else None,
    ),
    "unknown methods come with 200": finds("unknown-method-has-status-404", back=restatus((-32601,), 200)),
    "answers are plain text": finds("answers-are-json-or-events", back=_with_header("Content-Type", "text/plain")),
    "event streams are buffered": finds("event-streams-are-not-buffered", back=_without_header("x-accel-buffering")),
    "event streams stay open": finds("answer-ends-its-stream", back=_stays_open),
    "202 has a body": finds("notification-has-no-body", back=_notifications_with_body),
    "GET is allowed": finds("get-and-delete-are-not-allowed", back=_verbs),
    "sessions are minted": finds("no-session-is-minted", back=_with_header("Mcp-Session-Id", "one")),
    "any origin will do": finds("foreign-origin-is-refused", there=_no_origin),
    "401 says nothing": finds("unauthenticated-is-challenged", back=_without_header("www-authenticate")),
    # callers
    "callers are not told apart": finds(
        "foreign-task-is-not-found", "foreign-task-gets-minus-32602", there=_caller_is_forgotten
    ),
    "a foreign task is told from an unknown one": finds(
        "foreign-task-gets-minus-32602",
        back=recode(-32602, -32603, lambda c: _is_foreign(c) and c.params.get("taskId") != NEVER_KNOWN),
    ),
    "foreign tasks are pushed": finds("foreign-task-is-not-pushed", there=_caller_is_forgotten),
    # subscriptions
    "listening needs no extension": finds(
        "undeclared-listen-is-refused", back=refuses(lambda c: c.method == "subscriptions/listen", -32602)
    ),
    "there is no acknowledgement": finds(
        "acknowledgement-comes-first",
        push=_kept_back("notifications/subscriptions/acknowledged"),
    ),
    "more is agreed to than was asked for": finds("acknowledgement-comes-first", push=_agrees_to_more),
    "the subscription's id is a text": finds("messages-name-their-subscription", push=_id_of_subscription),
    "the notification has its old name": finds(
        "only-agreed-notifications-come",
        "notification-is-what-a-poll-gives",
        "questions-come-as-notifications",
        push=_renamed("notifications/tasks", "notifications/tasks/status"),
    ),
    "states of another task come": finds("only-agreed-notifications-come", push=_unasked_state),
    "the end is pushed without its result": finds("notification-is-what-a-poll-gives", push=_pushes_less),
    "questions are not pushed": finds("questions-come-as-notifications", push=_asks_silently),
    "a subscription ends with an error": finds("subscription-ends-with-a-result", push=_end_is_an_error),
    "the end of a subscription cancels the task": finds(
        "ending-a-subscription-leaves-the-task",
        push=_cancels_on_close.push,
        back=_cancels_on_close.back,
    ),
}
