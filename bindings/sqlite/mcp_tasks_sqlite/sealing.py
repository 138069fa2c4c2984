"""Encryption at rest: a store around any store, that seals what it hands in and opens what it gets back.

Payloads and request-state secrets are sealed with AES-256-GCM. The few fields by which a store finds and counts
tasks (id, owner, status, revision, due time, executor) stay readable: they hold nothing that was said or answered.

A sealed payload is bound to its task's id, owner and revision and to the key's id. So nobody who can write to the
file can hand one owner another's payload, put a payload under another id, or put an earlier state of a task under its
present revision. To set a whole row back, revision and all, remains possible to them, as with any copy of the file.

Every write draws a nonce of 96 random bits. Two equal ones under one key would break it, so no key is to seal more
than 2**32 payloads (NIST SP 800-38D, section 8.3): 50 days at 1,000 writes a second. Put a new key first before that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.store import SharedTaskStore, StoreBusy, StoredTask, StoreError, TaskStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MAGIC: Final = b"MCTS\x01"  # and the version of the form: magic, length of the key id, key id, nonce, ciphertext
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_KEY_ID_BYTES_MAX: Final = 255


class KeyMissing(StoreError):
    """What was sealed needs a key that this process was not given; ``key_id`` names it."""

    def __init__(self, text: str, key_id: str = "") -> None:
        super().__init__(text)
        self.key_id = key_id


class SealBroken(StoreError):
    """What is stored was not sealed for this place with this key: a wrong secret, or somebody altered or moved it."""


def _check_key_id(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value.isascii() or not 1 <= len(value) <= _KEY_ID_BYTES_MAX:
        raise LocalProtocolError(f"key_id is 1 to {_KEY_ID_BYTES_MAX} ASCII characters, not {value!r}")


def _check_secret(instance: object, attribute: attrs.Attribute[bytes], value: bytes) -> None:
    if not isinstance(value, bytes) or len(value) != _SECRET_BYTES:
        raise LocalProtocolError(f"secret is {_SECRET_BYTES} random bytes")


@attrs.frozen
class SealingKey:
    """A key that seals payloads; all processes of a store have the same ones.

    Args:
        key_id: stands beside what was sealed, readable; never used again for another secret.
        secret: 32 random bytes, as ``os.urandom(32)`` gives them; not a password.

    Raises:
        LocalProtocolError: either is not of that form.
    """

    key_id: str = attrs.field(validator=_check_key_id)
    secret: bytes = attrs.field(validator=_check_secret, repr=False)


@runtime_checkable
class _ReplacesSecrets(Protocol):
    def replace_request_state_secret(self, key_id: str, held: bytes, replacement: bytes) -> bool: ...


class SealedLocalTaskStore:
    """A store of one process alone, whose payloads only those who have the keys can read.

    Args:
        store: keeps what was sealed; closed by whom it was opened.
        keys: the first seals, all open. To change the key, put a new one first; the old one may go when no task that
            it sealed is left.

    Raises:
        LocalProtocolError: there is no key, two have one id, or ``cryptography`` is not installed.
    """

    def __init__(self, store: TaskStore, keys: Sequence[SealingKey]) -> None:
        if not keys:
            raise LocalProtocolError("keys is empty: a sealed store needs a SealingKey")
        self._ciphers = {key.key_id: _cipher(key) for key in keys}
        if len(self._ciphers) != len(keys):
            raise LocalProtocolError("two sealing keys have the same key_id")
        self._sealing = keys[0].key_id
        self._store = store

    @property
    def blocks(self) -> bool:
        return self._store.blocks

    def create(self, row: StoredTask) -> bool:
        return self._store.create(self._seal_row(row))

    def load(self, task_id: TaskId) -> StoredTask | None:
        row = self._store.load(task_id)
        return None if row is None else self.open_row(row)

    def swap(self, row: StoredTask) -> bool:
        return self._store.swap(self._seal_row(row))

    def list_due(self, until_ms: int, limit: int) -> list[StoredTask]:
        return self._open_rows(self._store.list_due(until_ms, limit))

    def delete(self, task_id: TaskId, revision: Revision) -> bool:
        return self._store.delete(task_id, revision)

    def open_row(self, row: StoredTask) -> StoredTask:
        """The row as it was before it was sealed, for rows that came from the store itself.

        Raises:
            KeyMissing: it was sealed with a key that is not here.
            SealBroken: it was not sealed, or not for this row and with these keys.
        """
        return attrs.evolve(row, payload=self._open(row.payload, _bound_to(row), f"task {row.task_id}"))

    def _open_rows(self, rows: list[StoredTask]) -> list[StoredTask]:
        """Rows of a list. One that cannot be opened stays sealed and keeps nobody from the others.

        Its payload is no record, and to load it raises: whoever deals with the row is told.
        """
        opened = []
        for row in rows:
            try:
                opened.append(self.open_row(row))
            except (KeyMissing, SealBroken):
                opened.append(row)
        return opened

    def _seal_row(self, row: StoredTask) -> StoredTask:
        return attrs.evolve(row, payload=self._seal(row.payload, _bound_to(row)))

    def _seal(self, plain: bytes, bound: bytes) -> bytes:
        key_id = self._sealing.encode("ascii")
        head = _MAGIC + bytes([len(key_id)]) + key_id
        nonce = os.urandom(_NONCE_BYTES)
        return head + nonce + self._ciphers[self._sealing].encrypt(nonce, plain, head + bound)

    def _open(self, sealed: bytes, bound: bytes, subject: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        key_id = sealing_key_id(sealed)
        if key_id is None:
            raise SealBroken(f"{subject} is not sealed, and this store takes sealed payloads alone")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            given = ", ".join(repr(name) for name in self._ciphers)
            raise KeyMissing(
                f"{subject} was sealed with the key {key_id!r}, which is not among those given: {given}", key_id
            )
        head_bytes = len(_MAGIC) + 1 + len(key_id)
        nonce = sealed[head_bytes : head_bytes + _NONCE_BYTES]
        try:
            return cipher.decrypt(nonce, sealed[head_bytes + _NONCE_BYTES :], sealed[:head_bytes] + bound)
        except InvalidTag:
            raise SealBroken(
                f"{subject} cannot be opened with the key {key_id!r}: its secret is another one, "
                "or what is stored was altered or moved"
            ) from None


class SealedTaskStore(SealedLocalTaskStore):
    """A store that several processes share, whose payloads and secrets only those who have the keys can read.

    Args:
        store: keeps what was sealed; closed by whom it was opened.
        keys: as ``SealedLocalTaskStore``.

    Raises:
        LocalProtocolError: as ``SealedLocalTaskStore``.
    """

    def __init__(self, store: SharedTaskStore, keys: Sequence[SealingKey]) -> None:
        super().__init__(store, keys)
        self._shared = store

    def hold_lease(self, executor: str, until_ms: int) -> None:
        self._shared.hold_lease(executor, until_ms)

    def end_lease(self, executor: str) -> None:
        self._shared.end_lease(executor)

    def list_orphans(self, now_ms: int, limit: int) -> list[StoredTask]:
        return self._open_rows(self._shared.list_orphans(now_ms, limit))

    def list_changes(self, after: int, limit: int) -> tuple[int, list[TaskId]]:
        return self._shared.list_changes(after, limit)

    def request_state_secrets(self, fresh: bytes) -> list[tuple[str, bytes]]:
        subject, bound = "a request-state secret", _parts("request-state secret")
        sealed = self._shared.request_state_secrets(self._seal(fresh, bound))
        secrets = [(key_id, held, self._open(held, bound, subject)) for key_id, held in sealed]
        for key_id, held, secret in secrets:
            # Secrets have no end of their own: sealed anew, they do not keep an old key in use for ever.
            if sealing_key_id(held) != self._sealing and isinstance(self._shared, _ReplacesSecrets):
                # One that cannot be written now is read all the same, and sealed anew by a later start.
                with suppress(StoreBusy):
                    self._shared.replace_request_state_secret(key_id, held, self._seal(secret, bound))
        return [(key_id, secret) for key_id, _, secret in secrets]


def _cipher(key: SealingKey) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise LocalProtocolError(
            "a sealed store needs the package cryptography: pip install 'mcp-tasks-sqlite[encryption]'"
        ) from error
    return AESGCM(key.secret)


def _bound_to(row: StoredTask) -> bytes:
    return _parts("task", row.task_id, *row.owner, str(row.revision))


def _parts(*parts: str) -> bytes:
    """Texts as bytes of which no two lists are the same: each with its length before it."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def sealing_key_id(sealed: bytes) -> str | None:
    """The id of the key that sealed this payload; ``None`` when it was not sealed. Needs no key."""
    start = len(_MAGIC) + 1
    if len(sealed) < start or not sealed.startswith(_MAGIC):
        return None
    end = start + sealed[start - 1]
    key_id = sealed[start:end]
    if len(sealed) < end + _NONCE_BYTES + _TAG_BYTES or not key_id.isascii():
        return None
    return key_id.decode("ascii")


if TYPE_CHECKING:
    _: type[SharedTaskStore] = SealedTaskStore
