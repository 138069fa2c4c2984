"""Breaches of what holds for messages: negotiation, the envelope, questions of a call, and every message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doctor.between import CAPABILITIES, Breach, Call, Message, Reply
from doctor.breach_parts import (
    ACK,
    DISCOVERY,
    QUESTION,
    VERSION,
    Back,
    asks_for_lunch,
    finds,
    is_tool,
    is_unknown,
    no_meta,
    on,
    recode,
    refuses,
    serves,
)


class _Remembers:
    """A client that declared once has declared for good."""

    def __init__(self) -> None:
        self._declared = False

    def there(self, call: Call) -> None:
        if self._declared and call.method == "tasks/get" and CAPABILITIES in call.meta:
            call.declare()
        self._declared = self._declared or call.declares_tasks


def _some_meta(call: Call) -> bool:
    return call.method == "server/discover" and bool(call.meta) and CAPABILITIES not in call.meta


def _without_info(call: Call) -> bool:
    return VERSION in call.meta and "io.modelcontextprotocol/clientInfo" not in call.meta


def _no_declaration(call: Call) -> bool:
    return call.method == "tools/list" and not call.declares_tasks


def _drop_tool(call: Call, reply: Reply) -> None:
    if _no_declaration(call) and reply.result:
        reply.result["tools"].pop()


def _reverse_tools(call: Call, reply: Reply) -> None:
    if _no_declaration(call) and reply.result:
        reply.result["tools"].reverse()


def _drop_cursor(call: Call) -> None:
    if call.method == "tools/list" and "cursor" in call.params:
        call.change(lambda m: m["params"].pop("cursor"))


def _asks_in_call(call: Call, reply: Reply) -> None:
    if is_tool("ask_inline")(call) and not call.capabilities:
        reply.serve({**ACK, "resultType": "input_required", "inputRequests": {"why": QUESTION}}, call)


def _asks_for_nothing_in_call(call: Call, reply: Reply) -> None:
    if is_tool("ask_inline")(call) and reply.result.get("resultType") == "input_required":
        reply.result.pop("inputRequests")
        reply.result.pop("requestState", None)


def _is_retry(call: Call) -> bool:
    return is_tool("ask_inline")(call) and "inputResponses" in call.params


def _ask_in_list(result: Message) -> None:
    result["resultType"] = "input_required"
    result["requestState"] = "x"


def _extra_answers_refused(call: Call, reply: Reply) -> None:
    if _is_retry(call) and "mcp_tasks_doctor_never_asked" in call.params["inputResponses"]:
        reply.refuse(-32602, call)


def _any_retry_completes(call: Call, reply: Reply) -> None:
    if "requestState" in call.params and reply.code is not None:
        reply.serve({**ACK, "content": []}, call)


def _missing_answers_refused(call: Call, reply: Reply) -> None:
    if _is_retry(call) and call.params["inputResponses"] == {}:
        reply.refuse(-32602, call)


def _bad_answers_served(call: Call, reply: Reply) -> None:
    if _is_retry(call) and isinstance(call.params["inputResponses"], list):
        reply.serve({**ACK, "content": []}, call)


def _answers_notifications(call: Call, reply: Reply) -> None:
    if call.method.startswith("notifications/"):
        reply.serve({"resultType": "complete"}, call)


def _batch_served(call: Call, reply: Reply) -> None:
    if call.body.startswith(b"["):
        reply.serve(DISCOVERY, call)


def _id_is(kind: Callable[[Any], bool]) -> Back:
    def back(call: Call, reply: Reply) -> None:
        if call.method == "server/discover" and "id" in call.message and kind(call.message["id"]):
            reply.serve(DISCOVERY, call)

    return back


def _id_as_text(call: Call, reply: Reply) -> None:
    if isinstance(reply.response, dict) and reply.response.get("id") == -1:
        reply.response["id"] = "-1"


def _every_id_as_text(call: Call, reply: Reply) -> None:
    if call.method == "tools/list" and isinstance(reply.response, dict):
        reply.response["id"] = str(reply.response.get("id"))


def _nonsense_kills() -> Back:
    dead: list[bool] = []

    def back(call: Call, reply: Reply) -> None:
        if call.body == b"null":
            dead.append(True)
        if dead:
            reply.refuse(-32603, call, 500)

    return back


def _old_jsonrpc(call: Call, reply: Reply) -> None:
    if call.message.get("jsonrpc") == "1.0":
        reply.serve(DISCOVERY, call)


def _params_as_array(call: Call, reply: Reply) -> None:
    if isinstance(call.message.get("params"), list):
        reply.serve(DISCOVERY, call)


def _without(member: str, method: str = "tools/list") -> Back:
    def back(call: Call, reply: Reply) -> None:
        if call.method == method and isinstance(reply.response, dict):
            reply.response.pop(member, None)

    return back


def _progress(*values: float, token: Any = None, late: bool = False) -> Back:
    """Has the tool report progress like this."""

    def back(call: Call, reply: Reply) -> None:
        if call.method != "tools/call" or not is_tool("report")(call) or not reply.result:
            return
        own = call.meta.get("progressToken") if token is None else token
        sent = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": own, "progress": value}}
            for value in values
        ]
        response = reply.response
        reply.messages = [response, *sent] if late else [*sent, response]
        reply.as_events = True

    return back


def _says(method: str, **more: Any) -> Back:
    """Sends this message before the answer of a tool."""

    def back(call: Call, reply: Reply) -> None:
        if is_tool("greet")(call) and reply.result:
            reply.messages.insert(0, {"jsonrpc": "2.0", "method": method, "params": {}, **more})
            reply.as_events = True

    return back


OF_MESSAGES: dict[str, Breach] = {
    # negotiation
    "no _meta gets another code": finds("meta-is-required", back=recode(-32602, -32600, no_meta)),
    "half a _meta is served": finds("meta-fields-are-required", back=serves(-32602, _some_meta)),
    "clientInfo is demanded": finds("client-info-is-optional", back=refuses(_without_info)),
    "a bad version is not repeated": finds(
        "unsupported-version-names-others",
        back=lambda call, reply: reply.response["error"]["data"].pop("requested") if reply.code == -32022 else None,
    ),
    "discovery names no version": finds(
        "discovery-is-served", back=on("server/discover", lambda r: r.update(supportedVersions=[]))
    ),
    "tasks are not advertised": finds(
        "tasks-are-advertised", back=on("server/discover", lambda r: r["capabilities"].pop("extensions"))
    ),
    "the capability of 2025-11-25 is advertised": finds(
        "no-legacy-capability", back=on("server/discover", lambda r: r["capabilities"].update(tasks={}))
    ),
    "prompts are declared and not served": finds(
        "families-are-advertised", back=on("server/discover", lambda r: r["capabilities"].update(prompts={}))
    ),
    "tools depend on what is declared": finds("list-does-not-vary-by-connection", back=_drop_tool),
    "the order of tools varies": finds("list-order-is-stable", back=_reverse_tools),
    "any cursor is the beginning": finds("bad-cursor-is-refused", there=_drop_cursor),
    "a declaration is remembered": finds("declarations-are-not-remembered", there=_Remembers().there),
    "initialize is refused in silence": finds(
        "initialize-is-told-the-versions", back=refuses(lambda call: call.method == "initialize", -32601, 404)
    ),
    # rounds
    "a list asks": finds("only-three-methods-ask", back=on("tools/list", _ask_in_list)),
    "a call asks for nothing": finds("question-asks-for-something", back=_asks_for_nothing_in_call),
    "a call asks for lunch": finds("question-asks-for-something", back=asks_for_lunch),
    "a retry is refused": finds("retry-goes-on", back=refuses(_is_retry)),
    "an answer too many is refused": finds("extra-answers-are-ignored", back=_extra_answers_refused),
    "missing answers are refused": finds("missing-answers-are-asked-again", back=_missing_answers_refused),
    "any state will do": finds("changed-state-is-refused", "state-belongs-to-its-request", back=_any_retry_completes),
    "a call asks for undeclared kinds": finds("call-asks-for-declared-kinds-alone", back=_asks_in_call),
    "answers that are no object will do": finds("bad-responses-are-refused", back=_bad_answers_served),
    # the envelope
    "a batch is served": finds("batch-is-refused", back=_batch_served),
    "the id null is served": finds("null-id-is-refused", back=_id_is(lambda i: i is None)),
    "the id 1.5 is served": finds("ids-of-wrong-types-are-refused", back=_id_is(lambda i: isinstance(i, float))),
    "numbers come back as texts": finds("id-comes-back-as-it-was", back=_id_as_text),
    "a notification is answered": finds("notification-is-not-answered", back=_answers_notifications),
    "half a message gets another code": finds("bad-json-is-a-parse-error", back=recode(-32700, -32600)),
    "JSON-RPC 1.0 is served": finds("no-request-object-is-refused", back=_old_jsonrpc),
    "an array of params is served": finds("array-of-params-is-refused", back=_params_as_array),
    "an unknown method gets another code": finds("unknown-method-is-not-found", back=recode(-32601, -32603)),
    "an unknown tool is a tool's error": finds(
        "unknown-tool-is-refused",
        back=serves(-32602, is_tool("mcp-tasks-doctor-unknown"), {**ACK, "content": [], "isError": True}),
    ),
    "nonsense is the end": finds("lives-after-bad-input", back=_nonsense_kills()),
    # every message
    "jsonrpc is missing": finds("messages-are-json-rpc", back=_without("jsonrpc")),
    "a response has a text for its id": finds("responses-have-the-id-of-their-request", back=_every_id_as_text),
    "a result has no type": finds("results-have-a-type", back=on("tools/list", lambda r: r.pop("resultType"))),
    "a code that is not defined": finds(
        "error-codes-are-defined", "update-of-unknown-task", back=recode(-32602, -32050, is_unknown("tasks/update"))
    ),
    "a code that was retired": finds(
        "error-codes-are-defined", "update-of-unknown-task", back=recode(-32602, -32002, is_unknown("tasks/update"))
    ),
    "a code of the legacy range": finds(
        "error-codes-are-not-legacy", "update-of-unknown-task", back=recode(-32602, -32001, is_unknown("tasks/update"))
    ),
    "an error without a message": finds(
        "errors-have-messages",
        back=lambda call, reply: reply.response["error"].pop("message") if reply.code == -32602 else None,
        among=("get-of-unknown-task",),
    ),
    "-32021 names nothing": finds(
        "missing-capability-is-named",
        back=lambda call, reply: reply.response["error"].pop("data") if reply.code == -32021 else None,
    ),
    "the server asks": finds("server-sends-no-requests", back=_says("elicitation/create", id=1)),
    "the server does not say who it is": finds(
        "results-name-the-server", back=on("tools/list", lambda r: r.pop("_meta"))
    ),
    "a list without ttlMs": finds("lists-say-how-long-they-hold", back=on("tools/list", lambda r: r.pop("ttlMs"))),
    "a list says task": finds("only-calls-become-tasks", back=on("tools/list", lambda r: r.update(resultType="task"))),
    "a resultType of its own": finds(
        "result-types-are-known", back=on("tools/list", lambda r: r.update(resultType="partial"))
    ),
    "progress has another token": finds("progress-has-a-token-of-its-request", back=_progress(1, 2, token="another")),
    "progress comes after the answer": finds("progress-has-a-token-of-its-request", back=_progress(1, 2, late=True)),
    "progress stands still": finds("progress-increases", back=_progress(1, 1)),
    "log messages come unasked": finds("no-log-without-a-level", back=_says("notifications/message")),
    "any log level will do": finds(
        "bad-log-level-is-refused", back=serves(-32602, lambda c: "io.modelcontextprotocol/logLevel" in c.meta)
    ),
}
