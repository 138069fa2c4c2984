"""Multi round-trip requests: what a retry brings back, and what a question sends out.

Source: mrtr, Basic Workflow; mrtr, Error Handling.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue
from mcp_tasks_core.request_state import RequestState, RequestStateSealer, StateRefused, binding_of
from mcp_tasks_core.server import faults
from mcp_tasks_core.server.events import Asked
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.server.machine import Machine
from mcp_tasks_core.server.results import UnfitResult
from mcp_tasks_core.server.storing import Refusal, Storing
from mcp_tasks_core.wire.methods import check_input_request


@attrs.frozen
class Brought:
    """What came with a request: the answers of all rounds so far, and the application's own state."""

    answers: Mapping[InputKey, JSONObject] = attrs.field(factory=dict)
    state: JSONValue = None


class Rounds:
    """Opens and seals the states of multi round-trip requests, and remembers which were spent."""

    def __init__(self, machine: Machine, storing: Storing) -> None:
        limits = machine.limits
        self._machine = machine
        self._storing = storing
        self._sealer = RequestStateSealer(
            machine.config.request_state_keys,
            ttl_ms=limits.request_state_ttl_ms,
            bytes_max=limits.request_state_bytes_max,
        )
        self._spent: dict[str, int] = {}

    def open(self, exchange: Exchange, params: JSONObject) -> Brought:
        """What the request brings back from earlier rounds.

        Raises:
            Refusal: a requestState that does not count, or answers of the wrong shape (-32602).
        """
        responses = params.get("inputResponses", {})
        if type(responses) is not dict:
            raise Refusal(faults.invalid_params("params.inputResponses: an object of answers by their keys"))
        sealed = params.get("requestState")
        if sealed is None:
            return Brought(self._taken_as_given(responses))
        if type(sealed) is not str:
            raise Refusal(faults.invalid_params("params.requestState: a string, exactly as it was received"))
        state = self._open_sealed(exchange, params, sealed)
        answers = dict(state.answers)
        for key, answer in responses.items():
            if key in state.asked:
                self._storing.check_answer(key, state.asked[InputKey(key)], answer)
                answers[InputKey(key)] = answer
        if state.nonce:
            # Last: a state is not spent on a request that is refused for something else.
            self._spend(state.nonce, state.expires_at_ms, self._machine.now.wall_ms)
        return Brought(answers, state.state)

    def _open_sealed(self, exchange: Exchange, params: JSONObject, sealed: str) -> RequestState:
        now_ms = self._machine.now.wall_ms
        binding = binding_of(exchange.owner, exchange.method, params)
        try:
            return self._sealer.open(sealed, binding=binding, now_ms=now_ms)
        except StateRefused:
            raise Refusal(faults.STATE_REFUSED) from None

    def _spend(self, nonce: str, expires_at_ms: int, now_ms: int) -> None:
        """Let a state that counts once only count now, and never again."""
        if nonce in self._spent:
            raise Refusal(faults.STATE_REFUSED)
        if len(self._spent) >= self._machine.limits.spent_states_max:
            self._spent = {kept: until_ms for kept, until_ms in self._spent.items() if until_ms > now_ms}
        if len(self._spent) >= self._machine.limits.spent_states_max:
            raise Refusal(faults.TOO_MANY_REQUESTS)
        self._spent[nonce] = expires_at_ms

    def _taken_as_given(self, responses: JSONObject) -> Mapping[InputKey, JSONObject]:
        """Answers without a state: they count (REQUIREMENTS R6), and are checked when their question is asked."""
        for key, answer in responses.items():
            if type(answer) is not dict:
                raise Refusal(
                    faults.invalid_params(f"params.inputResponses.{key}: an object, the answer to a question")
                )
        return {InputKey(key): answer for key, answer in responses.items()}

    def ask(self, exchange: Exchange, params: JSONObject, brought: Brought, asked: Asked) -> JSONObject:
        """The ``InputRequiredResult`` that asks.

        Raises:
            Refusal: the client did not declare a kind of question (-32021).
            UnfitResult: the questions are malformed, or their state cannot be sealed.
        """
        for key, request in asked.requests.items():
            self._check_question(exchange, key, request)
        result: JSONObject = {"resultType": "input_required"}
        if asked.requests:
            result["inputRequests"] = dict(asked.requests)
        if self._sealer.can_seal or asked.state is not None or brought.answers or asked.single_use:
            result["requestState"] = self._seal(exchange, params, brought, asked)
        if "inputRequests" not in result and "requestState" not in result:
            raise UnfitResult(f"{exchange.method} asks nothing and has no state for the retry")
        return result

    def _check_question(self, exchange: Exchange, key: object, request: JSONObject) -> None:
        if not isinstance(key, str) or not 1 <= len(key) <= self._machine.limits.input_key_chars_max:
            limit = self._machine.limits.input_key_chars_max
            raise UnfitResult(f"a question's key is a string of 1 to {limit} characters, not {key!r}")
        problem = check_input_request(request)
        if problem is not None:
            raise UnfitResult(f"the question {key!r}: {problem}")
        missing = exchange.meta.capabilities.missing_for(request)
        if missing is not None:
            raise Refusal(faults.capability_missing(missing))

    def _seal(self, exchange: Exchange, params: JSONObject, brought: Brought, asked: Asked) -> str:
        if asked.single_use and len(asked.nonce) < 16:
            raise UnfitResult("a state that counts once only needs a nonce of 16 random bytes or more")
        try:
            return self._sealer.seal(
                binding=binding_of(exchange.owner, exchange.method, params),
                now_ms=self._machine.now.wall_ms,
                asked=asked.requests,
                answers=brought.answers,
                state=asked.state,
                nonce=asked.nonce if asked.single_use else b"",
            )
        except (LocalProtocolError, ValueError, TypeError) as problem:
            raise UnfitResult(f"the state of {exchange.method} cannot be sealed: {problem}") from problem
