"""Multi round-trip requests: asking, the retry, and every way in which a retry may not count."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import ErrorObject
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import InvokeTool, Report, StoreTask
from mcp_tasks_core.server.events import Asked, Raised
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import (
    accepted,
    form_question,
    roots_question,
    sampling_question,
    text_result,
    url_question,
)

KEYS = (RequestStateKey("k1", b"1" * 32), RequestStateKey("k0", b"0" * 32))
NONCE = bytes(range(16))
OWNER = Owner("a", "s")


def asks(*names: str, state: Any = None, single_use: bool = False) -> Callable[[Any], Any]:
    """A tool that asks for the first of these answers that it lacks, and ends with all of them."""

    def tool(call: InvokeTool) -> Any:
        missing = [name for name in names if name not in call.context.answers]
        if missing:
            questions = {missing[0]: form_question(missing[0])}
            return Asked(questions, state, single_use, NONCE if single_use else b"")
        return {"content": [], "structuredContent": {"answers": call.context.answers, "state": call.context.state}}

    return tool


def bench(tool: Callable[[Any], Any] | None = None, **config: Any) -> ServerHarness:
    tools = {"ask": tool or asks("q", state={"step": 1}), "other": asks("q")}
    entries = [ToolEntry(definition={"name": name, "inputSchema": {"type": "object"}}) for name in tools]
    config = {"request_state_keys": KEYS, "methods": frozenset({"prompts/get", "resources/read"}), **config}
    methods = {"prompts/get": asks("q"), "resources/read": asks("q")}
    return ServerHarness(ServerConfig(tools=entries, **config), tools=tools, methods=methods)


def call(server: ServerHarness, **members: Any) -> JSONObject:
    given = {"name": "ask", "arguments": {"a": 1}, "owner": OWNER, **members}
    return server.request("tools/call", **given)


def asked(server: ServerHarness, **members: Any) -> str:
    """The requestState of a first round."""
    result = call(server, **members)["result"]
    assert result["resultType"] == "input_required"
    state: str = result["requestState"]
    return state


# --- one round


@pytest.mark.spec("R1", "B4", "P8")
def test_a_call_that_needs_input_asks_and_its_retry_has_the_answers_and_the_state() -> None:
    server = bench()
    first = call(server)["result"]
    assert set(first) == {"resultType", "inputRequests", "requestState"}
    assert (first["resultType"], first["inputRequests"]) == ("input_required", {"q": form_question("q")})
    answers = {"q": accepted(value="x")}
    second = call(server, inputResponses=answers, requestState=first["requestState"])["result"]
    assert second["structuredContent"] == {"answers": answers, "state": {"step": 1}}


@pytest.mark.spec("R1")
@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_the_two_other_methods_that_may_ask_do_so_in_the_same_way(method: str) -> None:
    server = bench()
    params: JSONObject = {"name": "p", "uri": "x:y"}
    state = server.request(method, params)["result"]["requestState"]
    server.methods[method] = lambda call: Raised(ErrorObject(7, "seen", dict(call.context.answers)))
    retry = {**params, "inputResponses": {"q": accepted(value="x")}, "requestState": state}
    assert server.request(method, retry)["error"]["data"] == {"q": accepted(value="x")}


@pytest.mark.spec("C6")
def test_a_tool_may_ask_first_and_become_a_task_then_and_no_task_exists_before() -> None:
    server = bench(lambda call: Defer() if call.context.answers else Asked({"q": form_question()}))
    state = asked(server)
    assert not server.effects_of(StoreTask)
    handle = call(server, inputResponses={"q": accepted(value="x")}, requestState=state)["result"]
    assert handle["resultType"] == "task"
    assert len(server.effects_of(StoreTask)) == 1


@pytest.mark.spec("R1")
def test_a_result_that_is_written_as_input_required_is_the_same_as_asking() -> None:
    raw = {"resultType": "input_required", "inputRequests": {"q": form_question()}, "requestState": "mine"}
    seen: list[Any] = []

    def tool(call: InvokeTool) -> Any:
        seen.append(call.context.state)
        return raw if len(seen) == 1 else text_result()

    server = bench(tool)
    state = asked(server)
    assert state != "mine"
    call(server, inputResponses={"q": accepted(value="x")}, requestState=state)
    assert seen == [None, "mine"]


@pytest.mark.spec("R1", "C9")
@pytest.mark.parametrize(
    "raw",
    [
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": []},
        {"resultType": "input_required", "inputRequests": {"q": form_question()}, "requestState": 5},
        {"resultType": "input_required", "inputRequests": {"q": {}}},
        {"resultType": "input_required", "inputRequests": {"q": {"method": "tools/call", "params": {}}}},
        {"resultType": "input_required", "inputRequests": {"": form_question()}},
        {"resultType": "input_required", "inputRequests": {"x" * 257: form_question()}},
        Asked({5: form_question()}),  # type: ignore[dict-item]
        Asked({"q": {"method": "elicitation/create"}}),  # type: ignore[dict-item]
        Asked({"q": form_question()}, float("nan")),  # type: ignore[dict-item]
        Asked({"q": form_question()}, {"x": {1}}),  # type: ignore[dict-item]
        Asked({"q": form_question()}, None, True, b""),  # type: ignore[dict-item]
        Asked({"q": form_question()}, None, True, bytes(15)),  # type: ignore[dict-item]
    ],
)
def test_a_question_that_makes_no_sense_is_an_internal_error_and_a_line_in_the_log(raw: Any) -> None:
    # With a key, a state for the retry would make something of an answer that asks nothing.
    asks_nothing = isinstance(raw, dict) and not raw.get("inputRequests")
    server = bench(lambda call: raw, request_state_keys=() if asks_nothing else KEYS)
    assert call(server)["error"] == {"code": -32603, "message": "Internal error"}
    assert len(server.effects_of(Report)) == 1


def test_a_key_may_have_just_as_many_characters_as_allowed() -> None:
    server = bench(lambda call: Asked({"x" * 256: form_question()}))  # type: ignore[dict-item]
    assert call(server)["result"]["inputRequests"].keys() == {"x" * 256}


@pytest.mark.spec("R1")
def test_a_state_without_questions_is_an_answer_too() -> None:
    server = bench(lambda call: text_result() if call.context.state else Asked({}, "later"))
    result = call(server)["result"]
    assert set(result) == {"resultType", "requestState"}
    assert "content" in call(server, requestState=result["requestState"])["result"]


# --- kinds that were not declared


@pytest.mark.spec("R4", "U7", "D27", "N7")
@pytest.mark.parametrize(
    ("declared", "question", "missing"),
    [
        ({}, form_question(), {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, form_question(), {"elicitation": {"form": {}}}),
        ({"elicitation": {}}, url_question(), {"elicitation": {"url": {}}}),
        ({}, sampling_question(), {"sampling": {}}),
        ({"sampling": {}}, sampling_question(tools=[]), {"sampling": {"tools": {}}}),
        ({}, roots_question(), {"roots": {}}),
    ],
)
def test_a_kind_that_the_request_did_not_declare_is_not_asked(
    declared: JSONObject, question: JSONObject, missing: JSONObject
) -> None:
    server = bench(lambda call: Asked({"q": question}))  # type: ignore[dict-item]
    error = call(server, capabilities=declared)["error"]
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": missing})


@pytest.mark.spec("R4", "N4")
def test_what_the_first_round_declared_does_not_count_for_the_second() -> None:
    server = bench(asks("one", "two"))
    state = asked(server)
    retry = {"inputResponses": {"one": accepted(value="x")}, "requestState": state}
    assert call(server, capabilities={}, **retry)["error"]["code"] == -32021


# --- answers of a retry


@pytest.mark.spec("R3")
def test_a_retry_without_the_answer_is_asked_again() -> None:
    server = bench()
    state = asked(server)
    for responses in ({}, {"inputResponses": {}}, {"inputResponses": {"other": accepted(value="x")}}):
        assert call(server, requestState=state, **responses)["result"]["inputRequests"] == {"q": form_question("q")}


@pytest.mark.spec("R3")
def test_answers_that_nobody_asked_for_are_ignored_whatever_they_are() -> None:
    server = bench()
    responses = {"q": accepted(value="x"), "extra": 5, "": None, "old": accepted(value="y")}
    result = call(server, requestState=asked(server), inputResponses=responses)["result"]
    assert result["structuredContent"]["answers"] == {"q": accepted(value="x")}


@pytest.mark.spec("U5", "D7", "R3")
@pytest.mark.parametrize("answer", [None, 5, {}, {"action": "accept"}, accepted(value=5), accepted(other="x")])
def test_an_answer_that_does_not_fit_its_question_is_bad_params_and_reaches_no_tool(answer: Any) -> None:
    server = bench()
    state = asked(server)
    server.calls.clear()
    error = call(server, requestState=state, inputResponses={"q": answer})["error"]
    assert (error["code"], "params.inputResponses.q" in error["message"]) == (-32602, True)
    assert not server.calls
    assert "content" in call(server, requestState=state, inputResponses={"q": accepted(value="x")})["result"]


@pytest.mark.spec("D7")
def test_a_person_who_declines_is_heard() -> None:
    server = bench()
    result = call(server, requestState=asked(server), inputResponses={"q": {"action": "decline"}})["result"]
    assert result["structuredContent"]["answers"] == {"q": {"action": "decline"}}


@pytest.mark.spec("R3", "R5")
def test_the_answers_of_three_rounds_are_carried_over() -> None:
    server = bench(asks("one", "two", "three"))
    state, answers = asked(server), {}
    for name in ("one", "two", "three"):
        answers[name] = accepted(value=name)
        result = call(server, requestState=state, inputResponses={name: answers[name]})["result"]
        state = result.get("requestState", "")
    assert result["structuredContent"]["answers"] == answers


@pytest.mark.spec("R5", "U2")
def test_an_answer_of_an_earlier_round_is_not_changed_by_a_later_one() -> None:
    server = bench(asks("one", "two"))
    first = call(server, requestState=asked(server), inputResponses={"one": accepted(value="first")})["result"]
    responses = {"one": accepted(value="changed"), "two": accepted(value="2")}
    result = call(server, requestState=first["requestState"], inputResponses=responses)["result"]
    assert result["structuredContent"]["answers"]["one"] == accepted(value="first")


@pytest.mark.spec("R6")
def test_without_keys_there_is_no_state_and_answers_count_all_the_same() -> None:
    server = bench(asks("q"), request_state_keys=())
    first = call(server)["result"]
    assert "requestState" not in first
    result = call(server, inputResponses={"q": accepted(value="x")})["result"]
    assert result["structuredContent"]["answers"] == {"q": accepted(value="x")}


@pytest.mark.spec("R6", "P8")
@pytest.mark.parametrize("absent", [{}, {"requestState": None}])
def test_answers_that_come_without_a_state_reach_the_tool(absent: JSONObject) -> None:
    server = bench()
    result = call(server, inputResponses={"q": accepted(value="x")}, **absent)["result"]
    assert result["structuredContent"] == {"answers": {"q": accepted(value="x")}, "state": None}


def test_a_state_of_the_applications_own_needs_a_key_and_says_so_in_the_log() -> None:
    for tool in (asks("q", state=1), asks("one", "two")):
        server = bench(tool, request_state_keys=())
        answer = call(server, inputResponses={"one": accepted(value="x")})
        assert answer["error"]["code"] == -32603
        assert "configure a key" in server.effects_of(Report)[0].message


# --- states that do not count


def _flip(state: str, index: int) -> str:
    return state[:index] + ("A" if state[index] != "A" else "B") + state[index + 1 :]


def _re_encoded(state: str) -> str:
    head, payload, seal = state.split(".")
    content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    again = base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    return f"{head}.{again}.{seal}"


FORGERIES: dict[str, Callable[[str], Any]] = {
    **{f"character {n} of 64 changed": lambda s, n=n: _flip(s, len(s) * n // 64) for n in range(64)},  # type: ignore[misc]
    "the last character changed": lambda s: _flip(s, len(s) - 1),
    "the first character changed": lambda s: _flip(s, 0),
    "truncated by one": lambda s: s[:-1],
    "truncated by half": lambda s: s[: len(s) // 2],
    "without its seal": lambda s: s.rpartition(".")[0],
    "extended": lambda s: s + "A",
    "padded": lambda s: s + "=",
    "with a line end": lambda s: s + "\n",
    "with a blank before it": lambda s: " " + s,
    "doubled": lambda s: s + s,
    "upper case": str.upper,
    "with standard base64": lambda s: s.replace("-", "+").replace("_", "/") + "/",
    "re-encoded": _re_encoded,
    "an unknown key": lambda s: "k9" + s[2:],
    "the retired key": lambda s: "k0" + s[2:],
    "empty": lambda s: "",
    "dots": lambda s: "..",
    "not ASCII": lambda s: s + "é",
    "a null character": lambda s: s + "\x00",
    "huge": lambda s: s + "A" * 100_000,
    "JSON": lambda s: "{}",
}


@pytest.mark.spec("R2", "B7")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_state_is_bad_params_and_reaches_no_tool(name: str) -> None:
    server = bench()
    state = asked(server)
    server.calls.clear()
    error = call(server, requestState=FORGERIES[name](state), inputResponses={"q": accepted(value="x")})["error"]
    assert error["code"] == -32602
    assert error["message"].startswith("requestState is not valid")
    assert not server.calls


@pytest.mark.spec("R2")
@pytest.mark.parametrize("state", [5, True, [], {}, 1.5])
def test_a_state_that_is_no_string_is_bad_params(state: Any) -> None:
    assert "params.requestState: a string" in call(bench(), requestState=state)["error"]["message"]


@pytest.mark.spec("R2")
def test_a_state_that_is_null_counts_as_absent_and_the_person_is_asked() -> None:
    server = bench()
    first, second = (call(server, **members)["result"] for members in ({}, {"requestState": None}))
    assert second["inputRequests"] == first["inputRequests"]


@pytest.mark.spec("R2", "R5", "A2")
@pytest.mark.parametrize(
    "moved",
    [
        {"name": "other"},
        {"arguments": {"a": 2}},
        {"arguments": {}},
        {"arguments": {"a": 1, "b": 2}},
        {"owner": Owner("a", "other")},
        {"owner": Owner("other", "s")},
        {"extra": 1},
    ],
)
def test_a_state_counts_for_no_other_request(moved: JSONObject) -> None:
    server = bench()
    error = call(server, **{"requestState": asked(server), "inputResponses": {"q": accepted(value="x")}, **moved})
    assert (error["error"]["code"], len(server.calls)) == (-32602, 1)


@pytest.mark.spec("R2", "R5")
def test_a_state_of_one_method_does_not_count_for_another() -> None:
    server = bench()
    state = server.request("prompts/get", name="p")["result"]["requestState"]
    assert server.request("resources/read", name="p", requestState=state)["error"]["code"] == -32602


@pytest.mark.spec("R2")
def test_every_refused_state_gets_one_and_the_same_answer() -> None:
    server = bench()
    state = asked(server)
    texts = {json.dumps(call(server, id=1, requestState=forge(state))["error"]) for forge in FORGERIES.values()}
    server.advance(Limits().request_state_ttl_ms)
    texts.add(json.dumps(call(server, id=1, requestState=state)["error"]))
    texts.add(json.dumps(call(server, id=1, requestState=state, name="other")["error"]))
    assert len(texts) == 1


@pytest.mark.spec("R2")
def test_a_person_may_think_for_a_quarter_of_an_hour_and_no_longer() -> None:
    server = bench()
    state = asked(server)
    retry = {"requestState": state, "inputResponses": {"q": accepted(value="x")}}
    server.advance(15 * 60_000 - 1)
    assert "result" in call(server, **retry)
    server.advance(1)
    assert call(server, **retry)["error"]["code"] == -32602


@pytest.mark.spec("R2")
def test_a_state_that_a_retired_key_sealed_still_counts_in_another_process() -> None:
    before = bench(request_state_keys=KEYS[1:])
    state = asked(before)
    retry = {"requestState": state, "inputResponses": {"q": accepted(value="x")}}
    assert "result" in call(bench(request_state_keys=KEYS), **retry)
    assert call(bench(request_state_keys=KEYS[:1]), **retry)["error"]["code"] == -32602
    assert call(bench(request_state_keys=()), **retry)["error"]["code"] == -32602


def test_a_state_of_the_application_that_is_too_large_is_its_mistake() -> None:
    server = bench(asks("q", state="x" * 70_000))
    assert call(server)["error"]["code"] == -32603
    assert "the limit is 65536" in server.effects_of(Report)[0].message


# --- states that count once only


@pytest.mark.spec("R5")
def test_a_single_use_state_counts_once_and_another_may_count_again() -> None:
    for single_use in (True, False):
        server = bench(asks("q", single_use=single_use))
        retry = {"requestState": asked(server), "inputResponses": {"q": accepted(value="x")}}
        assert "result" in call(server, **retry)
        assert ("error" in call(server, **retry)) is single_use


@pytest.mark.spec("R5", "D7")
def test_a_single_use_state_is_not_spent_on_a_retry_that_is_refused() -> None:
    server = bench(asks("q", single_use=True))
    state = asked(server)
    for bad in ({"inputResponses": {"q": 5}}, {"arguments": {}}, {"inputResponses": []}):
        assert call(server, **{"requestState": state, **bad})["error"]["code"] == -32602
    assert "result" in call(server, requestState=state, inputResponses={"q": accepted(value="x")})


@pytest.mark.spec("R5")
def test_only_so_many_spent_states_are_remembered_and_expired_ones_make_room() -> None:
    counter = iter(range(1_000))

    def tool(call: InvokeTool) -> Any:
        if call.context.answers:
            return text_result()
        return Asked({"q": form_question()}, None, True, next(counter).to_bytes(16, "big"))  # type: ignore[dict-item]

    server = bench(tool, limits=Limits(spent_states_max=3))
    answers = {"q": accepted(value="x")}
    for _ in range(3):
        assert "result" in call(server, requestState=asked(server), inputResponses=answers)
    fourth = asked(server)
    assert call(server, requestState=fourth, inputResponses=answers)["error"]["data"]["reason"] == "busy"
    server.advance(Limits().request_state_ttl_ms)
    assert "result" in call(server, requestState=asked(server), inputResponses=answers)
