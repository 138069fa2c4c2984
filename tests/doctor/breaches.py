"""Every way to break a rule that the doctor has to find, over HTTP."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from typing import Any

from doctor.between import CAPABILITIES, SUBSCRIPTION, Breach, Call, Message, Reply

_DISCOVERY: Message = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "between", "version": "1.0"}},
}
_VERSION = "io.modelcontextprotocol/protocolVersion"
_ACK = {"resultType": "complete", "_meta": _DISCOVERY["_meta"]}
_TASK_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
_NEVER_KNOWN = "mcp-tasks-doctor-knows-no-such-task"
_QUESTION: Message = {
    "method": "elicitation/create",
    "params": {"message": "Why?", "requestedSchema": {"type": "object", "properties": {"why": {"type": "string"}}}},
}

Back = Callable[[Call, Reply], None]


def finds(*names: str, **how: Any) -> Breach:
    return Breach(finds=frozenset(names), **how)


# --- parts


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


def serves(code: int, when: Callable[[Call], bool], result: Message = _DISCOVERY) -> Back:
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
    return lambda call: call.method == method and call.params.get("taskId") == _NEVER_KNOWN


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


def _has_no_name(call: Call) -> bool:
    return call.header("Mcp-Name") is None


def _has_wrong_name(call: Call) -> bool:
    return call.header("Mcp-Name") not in (None, call.params.get("taskId"))


# --- what the official suite did not notice

_now = itertools.count()


def _updated_now(state: Message) -> None:
    state["lastUpdatedAt"] = f"2030-01-01T00:{next(_now) // 60 % 60:02}:{next(_now) % 60:02}Z"


class _Numbered:
    """Task ids 1, 2, 3 on the doctor's side."""

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}

    def there(self, call: Call) -> None:
        own = call.params.get("taskId")
        if own not in self._theirs:
            return
        call.change(lambda m: m["params"].update(taskId=self._theirs[own]))
        encoded = f"=?base64?{base64.b64encode(str(own).encode()).decode()}?="
        if call.header("Mcp-Name") in (own, encoded):
            call.set_header("Mcp-Name", self._theirs[own])

    def back(self, _call: Call, reply: Reply) -> None:
        theirs = reply.result.get("taskId")
        if theirs is not None:
            own = self._ours.setdefault(theirs, str(len(self._ours) + 1))
            self._theirs[own] = theirs
            reply.result["taskId"] = own


def _asks_for_nothing(state: Message) -> None:
    state["status"] = "input_required"


_numbered = _Numbered()
UNNOTICED: dict[str, Breach] = {
    "a failed task's state says resultType task": finds(
        "state-says-complete", back=on_state("failed", lambda s: s.update(resultType="task"))
    ),
    "lastUpdatedAt is now on every poll": finds(
        "last-update-moves-with-changes-alone", back=on("tasks/get", _updated_now)
    ),
    "a failed task has no statusMessage": finds(
        "failed-task-says-why", back=on_state("failed", lambda s: s.pop("statusMessage"))
    ),
    "createdAt is no timestamp": finds(
        "times-are-iso-8601", back=on("tasks/get", lambda s: s.update(createdAt="2026-01-01T00:00:00 not-a-zone"))
    ),
    "a working task is reported as input_required": finds(
        "payload-fits-the-status", back=on_state("working", _asks_for_nothing)
    ),
    "a cancelled task carries result and error": finds(
        "payload-fits-the-status",
        back=on_state("cancelled", lambda s: s.update(result={"content": []}, error={"code": 1, "message": "no"})),
    ),
    "tasks/get is without ttlMs and createdAt": finds(
        "state-is-whole", back=on("tasks/get", lambda s: (s.pop("ttlMs"), s.pop("createdAt")))
    ),
    "task ids are 1, 2, 3": finds("ids-cannot-be-guessed", there=_numbered.there, back=_numbered.back),
    "the update's acknowledgement has more fields": finds(
        "update-is-acknowledged-empty", back=on("tasks/update", lambda r: r.update(accepted=1, task={"taskId": "x"}))
    ),
    "tasks/update of an unknown id is acknowledged": finds(
        "update-of-unknown-task", back=serves(-32602, is_unknown("tasks/update"), _ACK)
    ),
    "tasks/cancel of an unknown id is acknowledged": finds(
        "cancel-of-unknown-task", back=serves(-32602, is_unknown("tasks/cancel"), _ACK)
    ),
    "errors of tasks come with HTTP status 200": finds(
        "refusals-have-status-400", back=restatus((-32020, -32021, -32602), 200, "tasks/")
    ),
    "a missing Mcp-Name is accepted on tasks/*": finds(
        "name-header-is-required-of-get",
        "name-header-is-required-of-update",
        "name-header-is-required-of-cancel",
        there=rename(*_TASK_METHODS, only_if=_has_no_name),
    ),
    "a wrong Mcp-Name is accepted on tasks/update and tasks/cancel": finds(
        "name-header-of-update-is-compared",
        "name-header-of-cancel-is-compared",
        there=rename("tasks/update", "tasks/cancel", only_if=_has_wrong_name),
    ),
    "the legacy tasks capability counts as declared": finds(
        "legacy-capability-is-no-declaration", there=declares(lambda call: "tasks" in call.capabilities)
    ),
    "some tools become tasks for clients that did not declare": finds(
        "no-task-without-the-extension", there=declares(is_tool("fail_as_tool"))
    ),
}


# --- one breach, or more, for every other check


class _Forgetful:
    """Finds no task when it is first asked for."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def back(self, call: Call, reply: Reply) -> None:
        task_id = call.params.get("taskId")
        if call.method == "tasks/get" and isinstance(task_id, str) and task_id not in self._seen:
            self._seen.add(task_id)
            reply.refuse(-32602, call)


class _Undead:
    """A task that was cancelled after its end is shown as cancelled."""

    def __init__(self) -> None:
        self._cancelled: set[str] = set()

    def back(self, call: Call, reply: Reply) -> None:
        task_id = call.params.get("taskId")
        if call.method == "tasks/cancel" and reply.result:
            self._cancelled.add(str(task_id))
        if call.method == "tasks/get" and task_id in self._cancelled and reply.result.get("status") == "completed":
            reply.result["status"] = "cancelled"
            reply.result.pop("result", None)


class _Repeats:
    """Gives the third question the key of the first one."""

    def there(self, call: Call) -> None:
        answers = call.params.get("inputResponses")
        if call.method == "tasks/update" and isinstance(answers, dict) and set(answers) == {"first"}:
            call.change(lambda m: m["params"].update(inputResponses={"third": answers["first"]}))

    def back(self, call: Call, reply: Reply) -> None:
        asked = reply.result.get("inputRequests")
        if call.method == "tasks/get" and isinstance(asked, dict) and "third" in asked:
            reply.result["inputRequests"] = {"first": asked["third"]}


class _DropsAnswers:
    """Acknowledges answers that never arrive."""

    def __init__(self, when: Callable[[Message], bool]) -> None:
        self._when = when

    def there(self, call: Call) -> None:
        answers = call.params.get("inputResponses")
        if call.method == "tasks/update" and isinstance(answers, dict) and self._when(answers):
            call.change(lambda m: m["params"].update(inputResponses={}))


class _EndsEarly:
    """A partial set of answers takes the other questions away."""

    def __init__(self) -> None:
        self._partial: set[str] = set()

    def back(self, call: Call, reply: Reply) -> None:
        task_id, answers = call.params.get("taskId"), call.params.get("inputResponses")
        if call.method == "tasks/update" and isinstance(answers, dict) and len(answers) == 1:
            self._partial.add(str(task_id))
        if call.method == "tasks/get" and task_id in self._partial:
            reply.result.pop("inputRequests", None)
            reply.result["status"] = "working"


class _Shrinks:
    """Lists only one of several questions from the third poll on."""

    def __init__(self) -> None:
        self._polls: dict[str, int] = {}

    def back(self, call: Call, reply: Reply) -> None:
        asked = reply.result.get("inputRequests")
        if call.method == "tasks/get" and isinstance(asked, dict) and len(asked) > 1:
            task_id = str(call.params.get("taskId"))
            self._polls[task_id] = self._polls.get(task_id, 0) + 1
            if self._polls[task_id] > 3:
                reply.result["inputRequests"] = dict([next(iter(asked.items()))])


class _ExpiresEarly:
    """A task that ended is gone after it was read once."""

    def __init__(self) -> None:
        self._read: set[str] = set()

    def back(self, call: Call, reply: Reply) -> None:
        task_id = str(call.params.get("taskId"))
        if call.method == "tasks/get" and task_id in self._read:
            reply.refuse(-32602, call)
        elif call.method == "tasks/get" and reply.result.get("status") == "completed":
            self._read.add(task_id)


class _Remembers:
    """A client that declared once has declared for good."""

    def __init__(self) -> None:
        self._declared = False

    def there(self, call: Call) -> None:
        if self._declared and call.method == "tasks/get" and CAPABILITIES in call.meta:
            call.declare()
        self._declared = self._declared or call.declares_tasks


class _CancelledByNotification:
    """notifications/cancelled for a task's call shows it as cancelled."""

    def __init__(self) -> None:
        self._happened = False

    def back(self, call: Call, reply: Reply) -> None:
        self._happened = self._happened or call.method == "notifications/cancelled"
        if self._happened and call.method == "tasks/get" and reply.result.get("status") == "working":
            reply.result["status"] = "cancelled"


class _EndsLater:
    """Another end at every second look at a completed task."""

    def __init__(self) -> None:
        self._looks = 0

    def back(self, call: Call, reply: Reply) -> None:
        if call.method == "tasks/get" and reply.result.get("status") == "completed":
            self._looks += 1
            if self._looks % 2 == 0:
                reply.result["status"] = "failed"
                reply.result["error"] = {"code": 1, "message": "no"}
                del reply.result["result"]


def _moves_creation(state: Message) -> None:
    state["createdAt"] = f"2020-01-01T00:00:{next(_now) % 60:02}Z"


def _second_answer_refused() -> Back:
    answered: set[str] = set()

    def back(call: Call, reply: Reply) -> None:
        keys = call.params.get("inputResponses")
        if call.method != "tasks/update" or not isinstance(keys, dict) or not reply.result:
            return
        for key in keys:
            name = f"{call.params.get('taskId')}/{key}"
            if name in answered:
                reply.refuse(-32602, call)
            answered.add(name)

    return back


def _no_meta(call: Call) -> bool:
    return call.method == "server/discover" and not call.meta


def _some_meta(call: Call) -> bool:
    return call.method == "server/discover" and bool(call.meta) and CAPABILITIES not in call.meta


def _without_info(call: Call) -> bool:
    return _VERSION in call.meta and "io.modelcontextprotocol/clientInfo" not in call.meta


def _is_foreign(call: Call) -> bool:
    return call.header("Authorization") == "Bearer other"


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


def _task_param_counts(call: Call) -> None:
    if "task" in call.params and is_tool("quick")(call):
        call.declare()


def _result_in_handle(handle: Message) -> None:
    handle["result"] = None


def _nested(handle: Message) -> None:
    handle["task"] = {"taskId": handle["taskId"]}


def _asks_with_handle(call: Call, reply: Reply) -> None:
    if reply.result.get("resultType") == "input_required":
        reply.result["taskId"] = "half-made"


def _accepts_no_arguments(call: Call, reply: Reply) -> None:
    if call.method == "tools/call" and call.params.get("arguments") == {} and reply.result.get("isError"):
        reply.result.pop("isError")


def _wrong_structure(call: Call, reply: Reply) -> None:
    if is_tool("add")(call) and "structuredContent" in reply.result:
        reply.result["structuredContent"] = {"sum": "three"}


def _is_error_is_lost(state: Message) -> None:
    state.get("result", {}).pop("isError", None)


def _gives_other_task(state: Message) -> None:
    state["taskId"] = "another"


def _fails_for_tool_errors(call: Call, reply: Reply) -> None:
    if call.method == "tasks/get" and reply.result.get("result", {}).get("isError"):
        reply.result.update(status="failed", error={"code": -32603, "message": "no paper left"})
        del reply.result["result"]


def _flat_error(state: Message) -> None:
    state["error"] = {"code": "7", "message": "no"}


def _no_content(state: Message) -> None:
    state["result"] = {"text": "done"}


def _asks_for_lunch(call: Call, reply: Reply) -> None:
    for request in reply.result.get("inputRequests", {}).values():
        request["method"] = "lunch/order"


def _asks_whatever_was_declared(call: Call, reply: Reply) -> None:
    only_tasks = set(call.capabilities) == {"extensions"}
    if only_tasks and call.method == "tasks/get" and reply.result and reply.result.get("status") != "input_required":
        reply.result.update(status="input_required", inputRequests={"why": _QUESTION})
        reply.result.pop("result", None)
        reply.result.pop("error", None)


def _asks_in_call(call: Call, reply: Reply) -> None:
    if is_tool("ask_inline")(call) and not call.capabilities:
        reply.serve({**_ACK, "resultType": "input_required", "inputRequests": {"why": _QUESTION}}, call)


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
        reply.serve({**_ACK, "content": []}, call)


def _missing_answers_refused(call: Call, reply: Reply) -> None:
    if _is_retry(call) and call.params["inputResponses"] == {}:
        reply.refuse(-32602, call)


def _bad_answers_served(call: Call, reply: Reply) -> None:
    if _is_retry(call) and isinstance(call.params["inputResponses"], list):
        reply.serve({**_ACK, "content": []}, call)


def _answers_notifications(call: Call, reply: Reply) -> None:
    if call.method.startswith("notifications/"):
        reply.serve({"resultType": "complete"}, call)


def _notifications_with_body(call: Call, reply: Reply) -> None:
    if call.method.startswith("notifications/"):
        reply.raw = b"accepted"


def _batch_served(call: Call, reply: Reply) -> None:
    if call.body.startswith(b"["):
        reply.serve(_DISCOVERY, call)


def _id_is(kind: Callable[[Any], bool]) -> Back:
    def back(call: Call, reply: Reply) -> None:
        if call.method == "server/discover" and "id" in call.message and kind(call.message["id"]):
            reply.serve(_DISCOVERY, call)

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
        reply.serve(_DISCOVERY, call)


def _params_as_array(call: Call, reply: Reply) -> None:
    if isinstance(call.message.get("params"), list):
        reply.serve(_DISCOVERY, call)


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
    if call.header("MCP-Protocol-Version") is not None and _VERSION in call.meta:
        version = str(call.meta[_VERSION])
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
        # Only the doctor's own polls come after a push; those that make up the subscription come before it.
        task_id = call.params.get("taskId")
        if task_id in self._pushed and call.message.get("id") != 1 and reply.result.get("status") == "working":
            reply.result["status"] = "cancelled"


OTHERS: dict[str, Breach] = {
    # negotiation
    "no _meta gets another code": finds("meta-is-required", back=recode(-32602, -32600, _no_meta)),
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
    # creation
    "-32021 names another capability": finds(
        "required-task-names-the-extension",
        back=lambda call, reply: (
            reply.response["error"]["data"].update(requiredCapabilities={"sampling": {}})
            if reply.code == -32021 and call.method == "tools/call"
            else None
        ),
    ),
    "a task member is refused": finds("legacy-task-param-is-ignored", back=refuses(lambda call: "task" in call.params)),
    "a task member makes a task": finds("legacy-task-param-is-ignored", there=_task_param_counts),
    "the handle is without ttlMs": finds("handle-is-whole", back=on_handle(lambda h: h.pop("ttlMs"))),
    "the handle has a null result": finds("handle-is-whole", back=on_handle(_result_in_handle)),
    "the handle is nested": finds("handle-is-whole", back=on_handle(_nested)),
    "the handle does not resolve at once": finds("handle-resolves-at-once", back=_Forgetful().back),
    "a question comes with a handle": finds("input-before-the-task-has-no-handle", back=_asks_with_handle),
    "missing arguments are accepted": finds("arguments-are-checked", back=_accepts_no_arguments),
    "the structured result does not conform": finds("structured-results-conform", back=_wrong_structure),
    # methods
    "tasks/cancel does not look at declarations": finds(
        "undeclared-methods-are-refused", there=declares(lambda call: call.method == "tasks/cancel")
    ),
    "tasks/get of an unknown id gets another code": finds(
        "get-of-unknown-task", back=recode(-32602, -32603, is_unknown("tasks/get"))
    ),
    "tasks/get without taskId gets another code": finds(
        "task-id-is-required",
        back=recode(-32602, -32603, lambda call: call.method == "tasks/get" and "taskId" not in call.params),
    ),
    "tasks/list is there": finds(
        "removed-methods-are-gone", back=serves(-32601, lambda call: call.method == "tasks/list", {**_ACK, "tasks": []})
    ),
    "the update's acknowledgement says task": finds(
        "update-says-complete", back=on("tasks/update", lambda r: r.update(resultType="task"))
    ),
    "the cancel's acknowledgement has a status": finds(
        "cancel-is-acknowledged-empty", back=on("tasks/cancel", lambda r: r.update(status="cancelled"))
    ),
    "the cancel's acknowledgement says task": finds(
        "cancel-says-complete", back=on("tasks/cancel", lambda r: r.update(resultType="task"))
    ),
    "no cancel is acknowledged": finds(
        "cancel-of-ended-task", back=refuses(lambda call: call.method == "tasks/cancel", -32602)
    ),
    "no unknown key is acknowledged": finds(
        "update-of-ended-task",
        "unknown-keys-are-ignored",
        "known-key-counts-beside-unknown",
        back=refuses(
            lambda call: (
                call.method == "tasks/update"
                and any("doctor" in key for key in dict(call.params.get("inputResponses") or {}))
            )
        ),
    ),
    "notifications/cancelled cancels the task": finds(
        "cancelled-notification-leaves-tasks-alone", back=_CancelledByNotification().back
    ),
    # inputs
    "questions go before they are answered": finds("questions-stay-until-answered", back=_Shrinks().back),
    "answers are dropped": finds("answers-are-taken-up", there=_DropsAnswers(bool).there),
    "answers beside unknown keys are dropped": finds(
        "known-key-counts-beside-unknown", there=_DropsAnswers(lambda a: len(a) > 2).there
    ),
    "a second answer is refused": finds("answered-keys-are-ignored", back=_second_answer_refused()),
    "one answer takes all questions away": finds("partial-answers-leave-the-rest", back=_EndsEarly().back),
    "a key is used again": finds("keys-are-never-used-again", there=_Repeats().there, back=_Repeats().back),
    "undeclared kinds are asked": finds("undeclared-kinds-are-not-asked", back=_asks_whatever_was_declared),
    "responses may be missing": finds(
        "responses-are-required",
        back=serves(-32602, lambda c: c.method == "tasks/update" and "inputResponses" not in c.params, _ACK),
    ),
    # rounds
    "a list asks": finds("only-three-methods-ask", back=on("tools/list", _ask_in_list)),
    "a call asks for nothing": finds("question-asks-for-something", back=_asks_for_nothing_in_call),
    "a call asks for lunch": finds("question-asks-for-something", back=_asks_for_lunch),
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
        back=serves(-32602, is_tool("mcp-tasks-doctor-unknown"), {**_ACK, "content": [], "isError": True}),
    ),
    "nonsense is the end": finds("lives-after-bad-input", back=_nonsense_kills()),
    # states
    "the state is of another task": finds("state-is-whole", back=on("tasks/get", _gives_other_task)),
    "an empty list of questions": finds(
        "input-required-asks-for-something", back=on_state("input_required", lambda s: s.update(inputRequests={}))
    ),
    "a task asks for lunch": finds("input-required-asks-for-something", back=_asks_for_lunch),
    "a completed task has no content": finds("task-completes-with-its-result", back=on_state("completed", _no_content)),
    "a tool's error fails the task": finds("tool-errors-complete", back=_fails_for_tool_errors),
    "a tool's error completes as a success": finds(
        "tool-errors-complete", back=on_state("completed", _is_error_is_lost)
    ),
    "the error's code is a text": finds("failed-task-has-its-error", back=on_state("failed", _flat_error)),
    "createdAt moves": finds("last-update-is-not-before-creation", back=on("tasks/get", _moves_creation)),
    "an ended task can be cancelled": finds("end-is-final", "no-state-after-the-end", back=_Undead().back),
    "an ended task has another end": finds(
        "no-state-after-the-end", back=_EndsLater().back, among=("last-update-moves-with-changes-alone",)
    ),
    "an ended task is gone at once": finds("ended-task-can-be-read", back=_ExpiresEarly().back),
    "a cancelled task fails": finds(
        "cancelled-shows-as-cancelled",
        back=on_state("cancelled", lambda s: s.update(status="failed", error={"code": -32603, "message": "no"})),
    ),
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
        "name-header-is-required-of-calls", there=rename("tools/call", only_if=_has_no_name)
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
        "name-header-of-get-is-compared", there=rename("tasks/get", only_if=_has_wrong_name)
    ),
    "parameters may differ from their headers": finds("parameter-header-is-compared", there=_right_region),
    "encoded parameters are refused": finds("parameter-header-is-decoded", back=_encoded_region_is_refused),
    "missing _meta comes with 200": finds(
        "missing-meta-has-status-400",
        back=lambda call, reply: setattr(reply, "status", 200) if _no_meta(call) else None,
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
        back=recode(-32602, -32603, lambda c: _is_foreign(c) and c.params.get("taskId") != _NEVER_KNOWN),
    ),
    "foreign tasks are pushed": finds("foreign-task-is-not-pushed", there=_caller_is_forgotten, listens=True),
    # subscriptions
    "listening needs no extension": finds(
        "undeclared-listen-is-refused", back=refuses(lambda c: c.method == "subscriptions/listen", -32602), listens=True
    ),
    "there is no acknowledgement": finds(
        "acknowledgement-comes-first",
        push=_kept_back("notifications/subscriptions/acknowledged"),
        listens=True,
    ),
    "more is agreed to than was asked for": finds("acknowledgement-comes-first", push=_agrees_to_more, listens=True),
    "the subscription's id is a text": finds(
        "messages-name-their-subscription", push=_id_of_subscription, listens=True
    ),
    "the notification has its old name": finds(
        "only-agreed-notifications-come",
        "notification-is-what-a-poll-gives",
        "questions-come-as-notifications",
        push=_renamed("notifications/tasks", "notifications/tasks/status"),
        listens=True,
    ),
    "states of another task come": finds("only-agreed-notifications-come", push=_unasked_state, listens=True),
    "the end is pushed without its result": finds("notification-is-what-a-poll-gives", push=_pushes_less, listens=True),
    "questions are not pushed": finds("questions-come-as-notifications", push=_asks_silently, listens=True),
    "a subscription ends with an error": finds("subscription-ends-with-a-result", push=_end_is_an_error, listens=True),
}
_cancels_on_close = _CancelsOnClose()
OTHERS["the end of a subscription cancels the task"] = finds(
    "ending-a-subscription-leaves-the-task",
    push=_cancels_on_close.push,
    back=_cancels_on_close.back,
    listens=True,
)
