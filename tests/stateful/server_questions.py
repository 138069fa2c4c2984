"""What the tools of a storm ask, what clients answer, and what applications return."""

from __future__ import annotations

from typing import Any, Final

from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.server.events import Asked, Outcome, Raised, Returned, WorkOutcome, WorkStopped

TASKS: Final[dict[str, Any]] = {"io.modelcontextprotocol/tasks": {}}

CAPABILITIES: Final[tuple[Any, ...]] = (
    {"extensions": TASKS, "elicitation": {}, "sampling": {}, "roots": {}},
    {"extensions": TASKS},
    {"extensions": TASKS, "elicitation": {"url": {}}},
    {"elicitation": {}},
    {"tasks": {"requests": {"tools": {"call": {}}}}},
    {},
    {"extensions": []},
    [],
)
"""What requests declare; the last two are malformed."""


def _form(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}
    return {"method": "elicitation/create", "params": {"message": f"Which {name}?", "requestedSchema": schema}}


QUESTIONS: Final[tuple[dict[str, Any], ...]] = (
    _form("quarter"),
    _form("region"),
    {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign", "url": "https://sign.example/1"}},
    {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
    },
    {"method": "roots/list", "params": {}},
)

BAD_QUESTIONS: Final[tuple[Any, ...]] = (
    None,
    {},
    {"method": "tools/call", "params": {}},
    {"method": "roots/list", "params": 1},
)

ANSWERS: Final[tuple[Any, ...]] = (
    {"action": "accept", "content": {"quarter": "Q1"}},
    {"action": "decline"},
    {"action": "accept", "content": {"region": "north"}},
    {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
    {"roots": [{"uri": "file:///a"}]},
    {"action": "accept", "content": {}},
    "no",
    None,
)

KEYS: Final = ("first", "second", "third", "fourth", "fifth")

COMPLETE: Final = {"content": [{"type": "text", "text": "done"}]}

OUTCOMES: Final[tuple[tuple[Outcome, int | None], ...]] = (
    (Returned(COMPLETE), None),
    (Returned({"content": [], "isError": True, "_meta": {"a": 1}}), None),
    (Returned({"resultType": "task", "taskId": "x"}), -32603),
    (Returned({"content": "text"}), -32603),
    (Returned({"content": [], "structuredContent": float("nan")}), -32603),
    (Returned([]), -32603),  # type: ignore[arg-type]
    (Raised(ErrorObject(7, "Own code")), 7),
    (Raised(ErrorObject(-32602, "Bad topic", {"topic": None})), -32602),
    (Raised(ErrorObject(-32042, "A code of the past")), -32603),
    (Raised(ErrorObject(-32002, "Not ours to send")), -32603),
    (Raised(ErrorObject(8, "Bad data", float("inf"))), -32603),
    (Asked({}), None),
)
"""How calls end, and the error code that the caller is to see; ``Asked({})`` asks with a state alone."""

ENDS: Final[tuple[tuple[WorkOutcome, str, Any], ...]] = (
    (Returned(COMPLETE), "completed", {**COMPLETE, "resultType": "complete"}),
    (
        Returned({"content": [], "isError": True}),
        "completed",
        {"content": [], "isError": True, "resultType": "complete"},
    ),
    (WorkStopped("as told"), "cancelled", None),
    (Raised(ErrorObject(7, "Own code")), "failed", 7),
    (Raised(ErrorObject(-32000, "Not ours to send")), "failed", -32603),
    (Raised(ErrorObject(9, "Bad data", float("nan"))), "failed", -32603),
    (Returned({"resultType": "input_required"}), "failed", -32603),
    (Returned({"content": [{"type": "text", "text": "\ud800"}]}), "failed", -32603),
)
"""How work ends, and what the task then holds: its status with its result or its error's code."""


def fits(question: dict[str, Any], answer: Any) -> bool:
    return check_answer(question, answer) is None


def missing_kind(question: dict[str, Any], capabilities: dict[str, Any]) -> bool:
    """Whether a client with these capabilities must not be asked this."""
    if question["method"] == "sampling/createMessage":
        return "sampling" not in capabilities
    if question["method"] == "roots/list":
        return "roots" not in capabilities
    declared = capabilities.get("elicitation")
    mode = question["params"].get("mode", "form")
    if declared is None:
        return True
    return mode not in declared and not (mode == "form" and not declared)
