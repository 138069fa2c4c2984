"""Sealed request states: what opens, and that nothing else does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey
from mcp_tasks_core.request_state import RequestStateKey, RequestStateSealer, StateRefused, binding_of
from mcp_tasks_core.testing.messages import accepted, form_question

OWNER = Owner("tenant", "subject")
KEY = RequestStateKey("k1", b"1" * 32)
OTHER_KEY = RequestStateKey("k2", b"2" * 32)
PARAMS = {"name": "tool", "arguments": {"a": 1}, "_meta": {"x": 1}}
BINDING = binding_of(OWNER, "tools/call", PARAMS)
NOW = 1_000_000


def sealer(*keys: RequestStateKey, ttl_ms: int = 1_000, bytes_max: int = 10_000) -> RequestStateSealer:
    return RequestStateSealer(keys or (KEY,), ttl_ms=ttl_ms, bytes_max=bytes_max)


def sealed(by: RequestStateSealer | None = None) -> str:
    return (by or sealer()).seal(
        binding=BINDING,
        now_ms=NOW,
        asked={InputKey("q"): form_question()},
        answers={InputKey("old"): accepted(value="x")},
        state={"step": [1, None, "ω"]},
        nonce=b"\x01\xff",
    )


def test_a_state_opens_with_what_was_sealed() -> None:
    state = sealer().open(sealed(), binding=BINDING, now_ms=NOW)
    assert state.asked == {"q": form_question()}
    assert state.answers == {"old": accepted(value="x")}
    assert state.state == {"step": [1, None, "ω"]}
    assert (state.nonce, state.expires_at_ms) == ("01ff", NOW + 1_000)


@pytest.mark.spec("R2")
def test_a_state_counts_until_it_expires_and_no_longer() -> None:
    assert sealer().open(sealed(), binding=BINDING, now_ms=NOW + 999)
    for late in (NOW + 1_000, NOW + 1_001, NOW * 10):
        with pytest.raises(StateRefused):
            sealer().open(sealed(), binding=BINDING, now_ms=late)


def altered() -> Iterator[str]:
    """Every character changed for another one of the alphabet, and more that a forger would try."""
    state = sealed()
    for index, character in enumerate(state):
        yield state[:index] + ("B" if character != "B" else "C") + state[index + 1 :]
    yield from (state[:index] for index in range(len(state)))
    yield from (state + more for more in ("A", "=", "==", ".", " ", "\n", "\x00", "é"))
    yield from (" " + state, "\n" + state, "." + state, state + state, state.swapcase(), state.upper())
    head, payload, seal = state.split(".")
    yield from (f"{head}.{payload}", f"{head}.{payload}.", f"{head}..{seal}", f".{payload}.{seal}", "..", "")
    yield from (f"{head}.{seal}.{payload}", f"{payload}.{head}.{seal}", f"{head}.{payload}.{payload}.{seal}")
    yield from (f"{head}.{payload}={'='}.{seal}", f"{head}.{payload}.{seal}=", f"{head}.{payload}\n.{seal}")
    raw = base64.urlsafe_b64decode(seal + "==")
    yield f"{head}.{payload}.{raw.hex()}"
    yield f"{head}.{payload}.{base64.b64encode(raw).decode()}"
    yield f"k2.{payload}.{seal}"
    yield f"k1 .{payload}.{seal}"
    content = json.loads(base64.urlsafe_b64decode(payload + "=="))
    for change in ({"e": NOW * 100}, {"a": {"q": accepted(value="forged")}}, {"n": ""}, {"s": None}):
        forged = base64.urlsafe_b64encode(json.dumps({**content, **change}).encode()).decode().rstrip("=")
        yield f"{head}.{forged}.{seal}"
    # The last base64 character of 32 bytes carries two bits that decode to nothing: other spellings of one seal.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(seal[-1])
    for bits in range(1, 4):
        spelling = seal[:-1] + alphabet[last ^ bits]
        assert base64.urlsafe_b64decode(spelling + "==") == raw
        yield f"{head}.{payload}.{spelling}"


@pytest.mark.spec("R2")
def test_no_altered_state_opens() -> None:
    original, tried = sealed(), set()
    for state in altered():
        if state == original:
            continue
        with pytest.raises(StateRefused):
            sealer().open(state, binding=BINDING, now_ms=NOW)
        tried.add(state)
    assert len(tried) > 500


@pytest.mark.spec("R2", "R5", "A2")
@pytest.mark.parametrize(
    "binding",
    [
        binding_of(Owner("tenant", "other"), "tools/call", PARAMS),
        binding_of(Owner("other", "subject"), "tools/call", PARAMS),
        binding_of(Owner("subject", "tenant"), "tools/call", PARAMS),
        binding_of(OWNER, "prompts/get", PARAMS),
        binding_of(OWNER, "tools/call", {**PARAMS, "name": "other"}),
        binding_of(OWNER, "tools/call", {**PARAMS, "arguments": {"a": 2}}),
        binding_of(OWNER, "tools/call", {**PARAMS, "arguments": {"a": "1"}}),
        binding_of(OWNER, "tools/call", {**PARAMS, "arguments": {"a": True}}),
        binding_of(OWNER, "tools/call", {**PARAMS, "arguments": {"a": 1, "b": None}}),
        binding_of(OWNER, "tools/call", {**PARAMS, "extra": 1}),
        binding_of(OWNER, "tools/call", {"name": "tool"}),
        "",
    ],
)
def test_a_state_opens_for_no_other_request(binding: str) -> None:
    with pytest.raises(StateRefused):
        sealer().open(sealed(), binding=binding, now_ms=NOW)


@pytest.mark.spec("R2", "P8")
def test_the_members_of_a_round_and_the_order_of_members_do_not_change_what_a_request_is() -> None:
    retry = {"requestState": "x", "inputResponses": {"q": {}}, "_meta": {"other": 2}, "arguments": {"a": 1}}
    assert binding_of(OWNER, "tools/call", {**retry, "name": "tool"}) == BINDING


@pytest.mark.spec("A2")
def test_owner_method_and_params_cannot_be_shifted_into_each_other() -> None:
    bindings = {
        binding_of(Owner(tenant, subject), method, {"name": name})
        for tenant in ("a", "ab")
        for subject in ("b", "bb", '","')
        for method in ("m", 'm","')
        for name in ("n", '","n')
    }
    assert len(bindings) == 2 * 3 * 2 * 2


@pytest.mark.spec("R2")
def test_a_retired_key_still_opens_and_the_first_one_seals() -> None:
    before = sealed(sealer(KEY))
    rotated = sealer(OTHER_KEY, KEY)
    assert rotated.open(before, binding=BINDING, now_ms=NOW).nonce == "01ff"
    after = sealed(rotated)
    assert after.startswith("k2.")
    assert rotated.open(after, binding=BINDING, now_ms=NOW)
    with pytest.raises(StateRefused):
        sealer(KEY).open(after, binding=BINDING, now_ms=NOW)
    with pytest.raises(StateRefused):
        sealer(OTHER_KEY).open(before, binding=BINDING, now_ms=NOW)


@pytest.mark.spec("R2")
def test_a_key_of_the_same_name_and_another_secret_opens_nothing() -> None:
    with pytest.raises(StateRefused):
        sealer(RequestStateKey("k1", b"x" * 32)).open(sealed(), binding=BINDING, now_ms=NOW)


def test_without_keys_nothing_is_sealed_and_nothing_opens() -> None:
    none = RequestStateSealer((), ttl_ms=1, bytes_max=1_000)
    assert not none.can_seal
    with pytest.raises(LocalProtocolError, match="configure a key"):
        sealed(none)
    with pytest.raises(StateRefused):
        none.open(sealed(), binding=BINDING, now_ms=NOW)


def test_a_state_may_have_just_as_many_bytes_as_allowed() -> None:
    size = len(sealed())
    assert len(sealed(sealer(bytes_max=size))) == size
    assert sealer(bytes_max=size).open(sealed(), binding=BINDING, now_ms=NOW)
    with pytest.raises(LocalProtocolError, match=f"of {size} bytes; the limit is {size - 1}"):
        sealed(sealer(bytes_max=size - 1))
    with pytest.raises(StateRefused):
        sealer(bytes_max=size - 1).open(sealed(), binding=BINDING, now_ms=NOW)


@pytest.mark.parametrize("state", [float("nan"), {"x": {1}}, b"bytes"])
def test_a_state_that_is_not_json_cannot_be_sealed(state: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        sealer().seal(binding=BINDING, now_ms=NOW, asked={}, answers={}, state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize("key_id", ["", "a.b", "a b", "ä", "x" * 65, None, 5])
def test_a_key_id_that_could_not_travel_is_refused(key_id: object) -> None:
    with pytest.raises(LocalProtocolError, match="key_id is 1 to 64 letters"):
        RequestStateKey(key_id, b"1" * 32)  # type: ignore[arg-type]
    assert RequestStateKey("x" * 64, b"1" * 32)


@pytest.mark.parametrize("secret", [b"", b"1" * 31, "1" * 32, None])
def test_a_secret_shorter_than_the_hash_is_refused(secret: object) -> None:
    with pytest.raises(LocalProtocolError, match="32 random bytes"):
        RequestStateKey("k", secret)  # type: ignore[arg-type]


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="same key_id"):
        sealer(KEY, RequestStateKey("k1", b"9" * 32))


def test_a_secret_is_not_shown() -> None:
    assert "1111" not in repr(KEY)


def test_states_are_printable_and_need_no_escape() -> None:
    assert set(sealed()) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
