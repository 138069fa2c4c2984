"""Breaches of what holds for tasks: how they are made, their methods, questions and states."""

from __future__ import annotations

from collections.abc import Callable

from doctor.between import Breach, Call, Message, Reply
from doctor.breach_parts import (
    ACK,
    QUESTION,
    Back,
    asks_for_lunch,
    declares,
    finds,
    is_tool,
    is_unknown,
    now,
    on,
    on_handle,
    on_state,
    recode,
    refuses,
    serves,
)


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
    state["createdAt"] = f"2020-01-01T00:00:{next(now) % 60:02}Z"


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


def _asks_whatever_was_declared(call: Call, reply: Reply) -> None:
    only_tasks = set(call.capabilities) == {"extensions"}
    if only_tasks and call.method == "tasks/get" and reply.result and reply.result.get("status") != "input_required":
        reply.result.update(status="input_required", inputRequests={"why": QUESTION})
        reply.result.pop("result", None)
        reply.result.pop("error", None)


OF_TASKS: dict[str, Breach] = {
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
    "tasks/* without the extension get the code of an old draft": finds(
        "undeclared-methods-are-refused",
        "error-codes-are-not-legacy",
        back=recode(-32021, -32003, lambda call: call.method.startswith("tasks/")),
    ),
    "tasks/get of an unknown id gets another code": finds(
        "get-of-unknown-task", back=recode(-32602, -32603, is_unknown("tasks/get"))
    ),
    "tasks/get without taskId gets another code": finds(
        "task-id-is-required",
        back=recode(-32602, -32603, lambda call: call.method == "tasks/get" and "taskId" not in call.params),
    ),
    "tasks/list is there": finds(
        "removed-methods-are-gone", back=serves(-32601, lambda call: call.method == "tasks/list", {**ACK, "tasks": []})
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
        back=serves(-32602, lambda c: c.method == "tasks/update" and "inputResponses" not in c.params, ACK),
    ),
    # states
    "the state is of another task": finds("state-is-whole", back=on("tasks/get", _gives_other_task)),
    "an empty list of questions": finds(
        "input-required-asks-for-something", back=on_state("input_required", lambda s: s.update(inputRequests={}))
    ),
    "a task asks for lunch": finds("input-required-asks-for-something", back=asks_for_lunch),
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
}
