"""Questions of a task: how they are listed, answered, and told apart."""

from __future__ import annotations

from functools import partial

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.doctor.checks import MUST, SHOULD, NotExercised, Subject, demand, demand_error, demand_result
from mcp_tasks_trio.doctor.dummies import answer_to
from mcp_tasks_trio.doctor.examination import TASKS_ALONE, Examination, Task
from mcp_tasks_trio.doctor.journal import TERMINAL
from mcp_tasks_trio.doctor.tools import Role

INPUTS = Subject("Questions of a task")
_UPDATES = "tasks, Task Update Requests"
_ROUNDS_MAX = 20
_NONSENSE: JSONObject = {"ignored": True}


@INPUTS.check(
    "questions-stay-until-answered",
    "G2",
    MUST,
    "tasks, Task Polling",
    "every poll lists all outstanding requests, under the same keys with the same content",
)
async def _(x: Examination) -> None:
    task = await x.asking()
    first, shown = task.requests, task.last
    for _round in range(2):
        await x.look(task)
        if task.status != "input_required":
            raise NotExercised(f"needs a task that waits for its answers, and this one became {task.status}")
        gone = sorted(key for key in first if task.requests.get(key) != first[key])
        demand(not gone, f"{', '.join(gone)}, which nobody answered, is gone or has changed", shown, task.last)


@INPUTS.check(
    "answers-are-taken-up", "U1", MUST, _UPDATES, "an answered request is no longer listed, and the task goes on"
)
async def _(x: Examination) -> None:
    task = await x.asking()
    keys, shown = set(task.requests), task.last
    await x.answer(task)
    gone = await x.follow(task, lambda state: not keys & set(_requests(state)))
    left = f"{', '.join(sorted(keys & set(task.requests)))} is still listed after {x.patience.settle:g} s"
    demand(gone, f"{left}, although its answer was acknowledged", shown, task.last)


@INPUTS.check(
    "unknown-keys-are-ignored",
    "U3",
    SHOULD,
    _UPDATES,
    "answers to keys that were never given out are acknowledged and change nothing, whatever they look like",
    suite=("update-ignore-unknown-keys",),
)
async def _(x: Examination) -> None:
    task = await x.asking()
    for nonsense in ({"action": "accept", "content": {}}, _NONSENSE, 7):
        exchange = await x.update(task, {"mcp-tasks-doctor-never-given": nonsense})
        demand_result(exchange, "tasks/update with a key that was never given out")
    await x.unchanged(task, "tasks/update with a key that was never given out")


@INPUTS.check(
    "answered-keys-are-ignored",
    "U3",
    SHOULD,
    _UPDATES,
    "a second answer to a key that was answered is acknowledged",
    suite=("update-ignore-unknown-keys",),
)
async def _(x: Examination) -> None:
    task = await x.asking()
    asked, keys = task.requests, set(task.requests)
    await x.answer(task)
    if not await x.follow(task, lambda state: not keys & set(_requests(state))):
        raise NotExercised("needs a server that takes up answers")
    exchange = await x.update(task, {key: answer_to(request) for key, request in asked.items()})
    demand_result(exchange, "tasks/update with keys that were answered before")


@INPUTS.check(
    "known-key-counts-beside-unknown",
    "U3",
    SHOULD,
    _UPDATES,
    "an answer counts, although an unknown key comes with it",
    suite=("update-ignore-unknown-keys",),
)
async def _(x: Examination) -> None:
    task = await x.asking()
    responses = {key: answer_to(request) for key, request in task.requests.items()}
    keys = set(responses)
    exchange = await x.update(task, {**responses, "mcp-tasks-doctor-never-given": _NONSENSE})
    demand_result(exchange, "tasks/update with an unknown key beside known ones")
    gone = await x.follow(task, lambda state: not keys & set(_requests(state)))
    demand(gone, "the known keys are still listed", exchange, task.last)


@INPUTS.check(
    "partial-answers-leave-the-rest",
    "U3",
    MUST,
    _UPDATES,
    "where one of several answers is taken, the others remain outstanding",
)
async def _(x: Examination) -> None:
    task = await x.asking()
    await x.follow(task, lambda state: len(_requests(state)) > 1, x.patience.quiet)
    if len(task.requests) < 2:
        raise NotExercised("needs a task that asks two questions at once (--ask-tool NAME)")
    first, *others = task.requests
    exchange = await x.update(task, {first: answer_to(task.requests[first])})
    if exchange.result is None:
        raise NotExercised("needs a server that takes a part of the answers, which is its choice")
    await x.look(task)
    missing = [key for key in others if key not in task.requests]
    demand(not missing, f"{', '.join(missing)} is gone, although nobody answered it", exchange, task.last)
    taken = await x.follow(task, lambda state: first not in _requests(state))
    demand(taken, f"{first} is still listed, although its answer was acknowledged", exchange, task.last)
    demand(task.status == "input_required", f"with an open question the task is {task.status}", task.last)


@INPUTS.check(
    "keys-are-never-used-again",
    "U2",
    MUST,
    _UPDATES,
    "a key that was answered does not come back, and no key stands for two requests",
    suite=("input-request-key-unique-per-task", "no-key-reuse-after-response"),
)
async def _(x: Examination) -> None:
    task = await x.asking()
    asked: JSONObject = {}
    answered: set[str] = set()
    rounds = 0
    while task.status == "input_required" and rounds < _ROUNDS_MAX:
        rounds += 1
        again = sorted(answered & set(task.requests))
        demand(not again, f"{', '.join(again)} is asked again, although it was answered", task.last)
        for key, request in task.requests.items():
            demand(asked.setdefault(key, request) == request, f"{key} stands for two requests", task.last)
        keys = set(task.requests)
        await x.answer(task)
        # Acknowledged answers may show late. A key that was gone once, or under which something else is asked, is back.
        await x.follow(task, partial(_moved_on, asked=asked, keys=keys))
        answered |= keys
        _demand_same_meaning(task, asked)
        if not keys & set(task.requests):
            await x.follow(task, lambda state: state.get("status") in {"input_required", *TERMINAL})
    if rounds < 2:
        raise NotExercised("needs a task that asks again after an answer (--ask-tool NAME)")


def _moved_on(state: JSONObject, asked: JSONObject, keys: set[str]) -> bool:
    requests = _requests(state)
    return not keys & set(requests) or any(asked.get(key, request) != request for key, request in requests.items())


def _demand_same_meaning(task: Task, asked: JSONObject) -> None:
    for key, request in task.requests.items():
        same = asked.get(key, request) == request
        demand(same, f"{key} was answered, and then stands for another request", task.last)


@INPUTS.check(
    "undeclared-kinds-are-not-asked",
    "U7",
    MUST,
    "mrtr, Server Requirements",
    "a task whose creator declared no elicitation, sampling or roots asks for none of them",
)
async def _(x: Examination) -> None:
    tool = x.need(Role.ASK)
    exchange = await x.call(tool, declares=TASKS_ALONE)
    result = exchange.result or {}
    if result.get("resultType") == "input_required":
        demand(not result.get("inputRequests"), "the call asks for what was not declared", exchange)
    if result.get("resultType") != "task":
        return
    task = x.task_of(tool, exchange)
    # Neither who created it nor who asks for its state has declared anything of the kind.
    task.declares = TASKS_ALONE
    await x.follow(task, lambda state: state.get("status") in {"input_required", *TERMINAL}, x.patience.probe)
    kinds = sorted({str(r.get("method")) for r in task.requests.values() if isinstance(r, dict)})
    demand(not kinds, f"the task asks for {', '.join(kinds)}, which nobody declared", exchange, task.last)


@INPUTS.check(
    "responses-are-required",
    "U5",
    MUST,
    "tasks, Task Update Requests",
    "tasks/update without inputResponses, or with an array of them, gets -32602",
)
async def _(x: Examination) -> None:
    task = await x.create(x.any_task_tool(Role.ASK, Role.SLOW))
    without = await x.ask("tasks/update", {"taskId": task.task_id})
    demand_error(without, -32602, what="tasks/update without inputResponses")
    demand_error(await x.update(task, []), -32602, what="tasks/update whose inputResponses are an array")


def _requests(state: JSONObject) -> JSONObject:
    found = state.get("inputRequests")
    return found if isinstance(found, dict) else {}
