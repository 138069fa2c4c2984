"""Calls that ask: input_required on the call itself, and what the retry brings back."""

from __future__ import annotations

from typing import Any

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error
from mcp_tasks_trio.doctor.dummies import answer_to
from mcp_tasks_trio.doctor.examination import NOTHING, Examination
from mcp_tasks_trio.doctor.exchanges import Exchange
from mcp_tasks_trio.doctor.tools import Role

ROUNDS = Subject("Questions of a call")
_MAY_ASK = ("tools/call", "prompts/get", "resources/read")


async def _asked(x: Examination) -> Exchange:
    exchange = await x.call(x.need(Role.ROUND))
    if (exchange.result or {}).get("resultType") != "input_required":
        raise NotExercised("needs a call that asks, and this one did not this time")
    return exchange


def _answers(asked: Exchange, **more: Any) -> JSONObject:
    """The params of a retry: answers to what was asked, and the state as it was given."""
    result = asked.result or {}
    requests = result.get("inputRequests")
    responses = {k: answer_to(r) for k, r in requests.items()} if isinstance(requests, dict) else {}
    params: JSONObject = {"inputResponses": {**responses, **more}}
    if "requestState" in result:
        params["requestState"] = result["requestState"]
    return params


@ROUNDS.check(
    "only-three-methods-ask", "R1", MUST, "mrtr, Supported Requests", "no method but three answers input_required"
)
async def _(x: Examination) -> None:
    for exchange, result in x.journal.results():
        if result.get("resultType") == "input_required":
            method = exchange.sent.method
            demand(method in _MAY_ASK, f"{method} was answered with input_required", exchange)


@ROUNDS.check(
    "question-asks-for-something",
    "R1",
    MUST,
    "mrtr, Server Requirements",
    "an input_required answer has inputRequests or requestState, and each request is of a known method",
)
async def _(x: Examination) -> None:
    exchange = await _asked(x)
    result = exchange.result or {}
    requests = result.get("inputRequests")
    demand(requests is not None or "requestState" in result, "input_required asks for nothing", exchange)
    for key, request in requests.items() if isinstance(requests, dict) else ():
        method = request.get("method") if isinstance(request, dict) else None
        known = method in ("elicitation/create", "sampling/createMessage", "roots/list")
        demand(known, f"the request {key!r} has the method {method!r}", exchange)


@ROUNDS.check("retry-goes-on", "R6", MUST, "mrtr, Basic Workflow", "a retry with the answers is not refused")
async def _(x: Examination) -> None:
    asked = await _asked(x)
    retried = await x.call(x.need(Role.ROUND), _answers(asked))
    demand(retried.result is not None, "a retry with right answers and state was refused", asked, retried)


@ROUNDS.check(
    "extra-answers-are-ignored", "R3", SHOULD, "mrtr, Error Handling", "answers that were not asked for do no harm"
)
async def _(x: Examination) -> None:
    asked = await _asked(x)
    retried = await x.call(x.need(Role.ROUND), _answers(asked, mcp_tasks_doctor_never_asked={"action": "cancel"}))
    demand(retried.result is not None, "a retry with an answer too many was refused", asked, retried)


@ROUNDS.check(
    "missing-answers-are-asked-again",
    "R3",
    SHOULD,
    "mrtr, Error Handling",
    "a retry without the answers is asked again",
)
async def _(x: Examination) -> None:
    asked = await _asked(x)
    if not (asked.result or {}).get("inputRequests"):
        raise NotExercised("needs a call that asks for input")
    retried = await x.call(x.need(Role.ROUND), {**_answers(asked), "inputResponses": {}})
    kind = (retried.result or {}).get("resultType")
    demand(kind == "input_required", "a retry without the answers was not asked again", asked, retried)


@ROUNDS.check(
    "changed-state-is-refused",
    "R2",
    MUST,
    "mrtr, Server Requirements",
    "a requestState that was changed on the way does not lead to a result",
)
async def _(x: Examination) -> None:
    asked = await _asked(x)
    state = (asked.result or {}).get("requestState")
    if not isinstance(state, str):
        raise NotExercised("needs a call that asks with a requestState")
    for changed in (f"{state}-CHANGED", _flipped(state)):
        retried = await x.call(x.need(Role.ROUND), {**_answers(asked), "requestState": changed})
        kind = (retried.result or {}).get("resultType")
        demand(kind not in ("complete", "task"), "a changed requestState led to a result", asked, retried)


def _flipped(state: str) -> str:
    """The same length and alphabet, another content."""
    middle = len(state) // 2
    other = "A" if state[middle : middle + 1] != "A" else "B"
    return state[:middle] + other + state[middle + 1 :]


@ROUNDS.check(
    "call-asks-for-declared-kinds-alone",
    "R4",
    MUST,
    "mrtr, Server Requirements",
    "a call whose client declared no elicitation, sampling or roots is asked for none of them",
)
async def _(x: Examination) -> None:
    exchange = await x.call(x.need(Role.ROUND), declares=NOTHING)
    requests = (exchange.result or {}).get("inputRequests")
    demand(not requests, "the call asks for what was not declared", exchange)


@ROUNDS.check(
    "state-belongs-to-its-request",
    "R5",
    SHOULD,
    "mrtr, Server Requirements",
    "a requestState does not count for a request with other arguments or of another tool",
)
async def _(x: Examination) -> None:
    asked = await _asked(x)
    if not isinstance((asked.result or {}).get("requestState"), str):
        raise NotExercised("needs a call that asks with a requestState")
    own = x.need(Role.ROUND)
    other = next((tool for tool in x.tools.tools if Role.ROUND in tool.roles and tool.name != own.name), None)
    if other is None:
        raise NotExercised("needs two tools that ask on the call with a requestState")
    retried = await x.call(other, _answers(asked))
    kind = (retried.result or {}).get("resultType")
    demand(kind not in ("complete", "task"), f"the state of {own.name} led to a result of {other.name}", asked, retried)


@ROUNDS.check(
    "bad-responses-are-refused",
    "R3",
    SHOULD,
    "mrtr, Error Handling",
    "inputResponses that are no object do not lead to a result",
)
async def _(x: Examination) -> None:
    asked = await _asked(x)
    retried = await x.call(x.need(Role.ROUND), {**_answers(asked), "inputResponses": ["no", "object"]})
    if retried.result is not None and retried.result.get("resultType") == "input_required":
        return
    demand_error(retried, what="a retry whose inputResponses are an array")
