"""The requestState of a multi round-trip request: sealed, so that nothing in it can be altered or moved.

A sealed state is ``KEYID.PAYLOAD.SEAL``: base64url JSON and an HMAC-SHA256 over everything before it. It is
bound to the owner, the method and the request's salient params, and it expires. It is authentic, not secret:
the client can read what the application puts into it.

Source: mrtr, Server Requirements; mrtr, Security Considerations.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, JSONObject, JSONValue

_SECRET_BYTES_MIN: Final = 32  # as long as the hash: RFC 2104, section 3
_TOKEN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_NOT_SALIENT: Final = frozenset({"_meta", "inputResponses", "requestState"})


def _check_key_id(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 64 or not _TOKEN.issuperset(value):
        raise LocalProtocolError(f"key_id is 1 to 64 letters, digits, '_' or '-', not {value!r}")


def _check_secret(instance: object, attribute: attrs.Attribute[bytes], value: bytes) -> None:
    if not isinstance(value, bytes) or len(value) < _SECRET_BYTES_MIN:
        raise LocalProtocolError(f"secret is {_SECRET_BYTES_MIN} random bytes or more")


@attrs.frozen
class RequestStateKey:
    """A key that seals request states; all processes that serve one application share it.

    Args:
        key_id: travels in the state and tells which key sealed it.
        secret: 32 random bytes or more.

    Raises:
        LocalProtocolError: either is not of that form.
    """

    key_id: str = attrs.field(validator=_check_key_id)
    secret: bytes = attrs.field(validator=_check_secret, repr=False)


class StateRefused(Exception):
    """A requestState that does not count, whatever the reason: one and the same answer for all of them."""


@attrs.frozen(kw_only=True)
class RequestState:
    """What a sealed state carries from one round of a request to the next.

    Args:
        asked: the questions of the last round, by key.
        answers: the answers of all rounds before it, by key.
        state: what the application put in.
        nonce: hexadecimal; names this state where it may count once only, else empty.
        expires_at_ms: wall-clock milliseconds.
    """

    asked: Mapping[InputKey, JSONObject]
    answers: Mapping[InputKey, JSONObject]
    state: JSONValue
    nonce: str
    expires_at_ms: int


def binding_of(owner: Owner, method: str, params: JSONObject) -> str:
    """A digest of who asks for what: every round of one request has the same, and no other request does."""
    salient = {name: value for name, value in params.items() if name not in _NOT_SALIENT}
    text = json.dumps([owner.tenant, owner.subject, method, salient], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


class RequestStateSealer:
    """Seals states with the first key, and opens what any of the keys has sealed.

    Args:
        keys: the sealing key first, then those that are being retired. None: nothing can be sealed or opened.
        ttl_ms: how long a state counts.
        bytes_max: the longest sealed state.

    Raises:
        LocalProtocolError: two keys have one id.
    """

    def __init__(self, keys: Sequence[RequestStateKey], *, ttl_ms: int, bytes_max: int) -> None:
        self._keys = {key.key_id: key for key in keys}
        if len(self._keys) != len(keys):
            raise LocalProtocolError("two request_state_keys have the same key_id")
        self._sealing = keys[0] if keys else None
        self._ttl_ms = ttl_ms
        self._bytes_max = bytes_max

    @property
    def can_seal(self) -> bool:
        return self._sealing is not None

    def seal(
        self,
        *,
        binding: str,
        now_ms: int,
        asked: Mapping[InputKey, JSONObject],
        answers: Mapping[InputKey, JSONObject],
        state: JSONValue,
        nonce: bytes = b"",
    ) -> str:
        """The sealed state for a retry of the request with this binding.

        Raises:
            LocalProtocolError: there is no key, or the sealed state would be too long.
        """
        if self._sealing is None:
            raise LocalProtocolError("request_state_keys is empty, so no state can be sealed; configure a key")
        payload = {
            "b": binding,
            "e": now_ms + self._ttl_ms,
            "q": dict(asked),
            "a": dict(answers),
            "s": state,
            "n": nonce.hex(),
        }
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
        head = f"{self._sealing.key_id}.{_to_base64url(text.encode())}"
        sealed = f"{head}.{self._seal_of(self._sealing, head)}"
        if len(sealed) > self._bytes_max:
            raise LocalProtocolError(f"a requestState of {len(sealed)} bytes; the limit is {self._bytes_max}")
        return sealed

    def open(self, sealed: str, *, binding: str, now_ms: int) -> RequestState:
        """What the state carries, for a request with this binding.

        Raises:
            StateRefused: forged, altered, expired, sealed with an unknown key, or of another request or owner.
        """
        head, _, seal = sealed.rpartition(".")
        key = self._keys.get(head.partition(".")[0])
        if key is None or len(sealed) > self._bytes_max or not sealed.isascii():
            raise StateRefused
        # The seal is compared as text: base64 has several spellings of the same bytes, and only ours counts.
        if not hmac.compare_digest(seal, self._seal_of(key, head)):
            raise StateRefused
        try:
            encoded = head.partition(".")[2]
            payload = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        except (ValueError, binascii.Error):  # pragma: no cover - a seal of ours stands on it
            raise StateRefused from None
        if payload["b"] != binding or now_ms >= payload["e"]:
            raise StateRefused
        return RequestState(
            asked=payload["q"],
            answers=payload["a"],
            state=payload["s"],
            nonce=payload["n"],
            expires_at_ms=payload["e"],
        )

    @staticmethod
    def _seal_of(key: RequestStateKey, head: str) -> str:
        return _to_base64url(hmac.digest(key.secret, head.encode(), "sha256"))
