"""Sealed stores: what lies on the disk, who can open it, and what is said to those who cannot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import attrs
import pytest

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.records import UnreadableRecord, decode_record
from mcp_tasks_core.store import MemoryTaskStore, StoreError
from mcp_tasks_core.testing.store_contract import row
from mcp_tasks_sqlite import KeyMissing, SealBroken, SealedLocalTaskStore, SealedTaskStore, SealingKey, sealing_key_id

OLD, NEW = SealingKey("2025", b"o" * 32), SealingKey("2026", b"n" * 32)
FRESH = os.urandom(32)


def sealed(store: MemoryTaskStore, *keys: SealingKey) -> SealedLocalTaskStore:
    return SealedLocalTaskStore(store, keys or (NEW,))


def test_nothing_that_was_said_is_readable_in_the_files(path, open_store, record_row):
    store = SealedTaskStore(open_store(), [NEW])
    assert store.create(record_row("a"))
    store.request_state_secrets(FRESH)
    loaded = store.load(TaskId("a"))
    assert loaded is not None
    assert decode_record(loaded.payload).request["arguments"] == {"topic": "a secret topic"}
    on_disk = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"secret topic" not in on_disk
    assert FRESH not in on_disk
    assert b"2026" in on_disk  # the key's id tells which key is wanted


def test_a_payload_costs_its_head_and_tag_and_is_never_sealed_twice_alike():
    inner = MemoryTaskStore()
    store = sealed(inner)
    payloads = []
    for name in ("a", "b"):
        assert store.create(row(name, payload=b"x" * 1000))
        payloads.append(inner.load(TaskId(name)).payload)
    assert {len(payload) for payload in payloads} == {1000 + 5 + 1 + 4 + 12 + 16}
    assert payloads[0] != payloads[1]
    assert payloads[0][10:22] != payloads[1][10:22]


def test_the_first_key_seals_and_every_key_opens():
    inner = MemoryTaskStore()
    assert sealed(inner, OLD).create(row("a", payload=b"first"))
    both = sealed(inner, NEW, OLD)
    assert both.load(TaskId("a")) == row("a", payload=b"first")
    assert both.swap(row("a", 2, payload=b"second"))
    assert sealed(inner, NEW).load(TaskId("a")) == row("a", 2, payload=b"second")
    with pytest.raises(
        KeyMissing, match="task a was sealed with the key '2026', which is not among those given: '2025'"
    ):
        sealed(inner, OLD).load(TaskId("a"))


def test_a_missing_key_is_named_in_the_error():
    inner = MemoryTaskStore()
    assert sealed(inner, OLD).create(row("a"))
    with pytest.raises(KeyMissing) as said:
        sealed(inner, NEW).load(TaskId("a"))
    assert said.value.key_id == "2025"
    assert isinstance(said.value, StoreError)


def test_a_wrong_secret_under_the_right_id_is_named():
    inner = MemoryTaskStore()
    assert sealed(inner, NEW).create(row("a"))
    with pytest.raises(SealBroken, match="task a cannot be opened with the key '2026': its secret is another one"):
        sealed(inner, SealingKey("2026", b"w" * 32)).load(TaskId("a"))


@pytest.mark.parametrize("payload", [b"", b'{"v":1}', b"MCTS\x01", b"MCTS\x01\x04202", b"MCTS\x01\x042026" + b"x" * 27])
def test_a_payload_that_is_not_sealed_is_refused(payload):
    inner = MemoryTaskStore()
    assert inner.create(row("a", payload=payload))
    with pytest.raises(SealBroken, match="task a is not sealed"):
        sealed(inner).load(TaskId("a"))


def test_every_altered_bit_is_noticed():
    inner = MemoryTaskStore()
    assert sealed(inner).create(row("a", payload=b"0123456789"))
    held = inner.load(TaskId("a"))
    for position in range(len(held.payload)):
        altered = bytearray(held.payload)
        altered[position] ^= 1
        changed = MemoryTaskStore()
        assert changed.create(attrs.evolve(held, payload=bytes(altered)))
        with pytest.raises((SealBroken, KeyMissing)):
            sealed(changed).load(TaskId("a"))
    for cut in range(len(held.payload)):
        with pytest.raises((SealBroken, KeyMissing)):
            sealed(inner).open_row(attrs.evolve(held, payload=held.payload[:cut]))


@pytest.mark.parametrize(
    "moved",
    [
        {"task_id": TaskId("b")},
        {"owner": ("t", "mallory")},
        {"owner": ("tenantsub", "ject")},
        {"owner": ("other", "subject")},
        {"revision": Revision(3)},
    ],
    ids=str,
)
def test_a_payload_that_was_moved_to_another_place_is_refused(moved):
    inner = MemoryTaskStore()
    store = sealed(inner)
    assert store.create(row("a"))
    assert store.swap(row("a", 2))
    held = inner.load(TaskId("a"))
    assert store.open_row(held) == row("a", 2)
    with pytest.raises(SealBroken, match="altered or moved"):
        store.open_row(attrs.evolve(held, **moved))


def test_an_earlier_payload_under_the_present_revision_is_refused():
    inner = MemoryTaskStore()
    store = sealed(inner)
    assert store.create(row("a", payload=b"one answer is there"))
    earlier = inner.load(TaskId("a"))
    assert store.swap(row("a", 2, payload=b"two answers are there"))
    assert inner.swap(attrs.evolve(earlier, revision=Revision(3)))
    with pytest.raises(SealBroken):
        store.load(TaskId("a"))


def test_a_row_that_cannot_be_opened_hides_no_other_from_a_list_and_is_no_record(open_store):
    inner = open_store()
    for name, key in (("a", OLD), ("b", NEW)):
        assert SealedTaskStore(inner, [key]).create(row(name, due_at_ms=1, executor="dead"))
    store = SealedTaskStore(inner, [NEW])
    for listed in (store.list_due(1, 10), store.list_orphans(1, 10)):
        unopened, opened = sorted(listed, key=lambda found: found.task_id)
        assert opened == row("b", due_at_ms=1, executor="dead")
        assert unopened.task_id == "a"
        with pytest.raises(UnreadableRecord):
            decode_record(unopened.payload)
    with pytest.raises(KeyMissing):
        store.load(TaskId("a"))


def test_secrets_of_request_states_are_sealed_and_follow_a_change_of_the_key(open_store):
    inner = open_store()
    [(key_id, secret)] = SealedTaskStore(inner, [OLD]).request_state_secrets(FRESH)
    assert secret == FRESH
    [(_, held)] = inner.request_state_secrets(os.urandom(32))
    assert FRESH not in held
    with pytest.raises(KeyMissing, match="a request-state secret was sealed with the key '2025'"):
        SealedTaskStore(inner, [NEW]).request_state_secrets(os.urandom(32))
    assert SealedTaskStore(inner, [NEW, OLD]).request_state_secrets(os.urandom(32)) == [(key_id, FRESH)]
    assert SealedTaskStore(inner, [NEW]).request_state_secrets(os.urandom(32)) == [(key_id, FRESH)]


def test_a_secret_that_another_process_sealed_anew_meanwhile_is_left_as_it_is(open_store):
    inner = open_store()
    [(key_id, _)] = inner.request_state_secrets(FRESH)
    assert inner.replace_request_state_secret(key_id, b"not this one", b"x" * 32) is False
    assert inner.request_state_secrets(FRESH) == [(key_id, FRESH)]


def test_a_secret_is_read_while_it_cannot_be_sealed_anew_and_a_later_start_does_it(path, open_store):
    [(key_id, _)] = SealedTaskStore(open_store(), [OLD]).request_state_secrets(FRESH)
    inner = open_store(busy_wait_ms=0)
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        assert SealedTaskStore(inner, [NEW, OLD]).request_state_secrets(FRESH) == [(key_id, FRESH)]
    [(_, held)] = inner.request_state_secrets(FRESH)
    assert sealing_key_id(held) == OLD.key_id
    assert SealedTaskStore(inner, [NEW, OLD]).request_state_secrets(FRESH) == [(key_id, FRESH)]
    assert SealedTaskStore(inner, [NEW]).request_state_secrets(FRESH) == [(key_id, FRESH)]


def test_a_sealed_store_can_be_checked_with_its_keys_alone(open_store, record_row):
    inner = open_store()
    store = SealedTaskStore(inner, [NEW])
    assert store.create(record_row("a"))
    assert inner.check(open_row=store.open_row) == []
    [problem] = inner.check(open_row=SealedTaskStore(inner, [OLD]).open_row)
    assert "was sealed with the key '2026'" in problem
    [problem] = inner.check()
    assert "task a: a payload that is no record" in problem


@pytest.mark.parametrize(
    ("key_id", "secret", "complaint"),
    [
        ("", b"x" * 32, "key_id is 1 to 255 ASCII"),
        ("k" * 256, b"x" * 32, "key_id is 1 to 255 ASCII"),
        ("schlüssel", b"x" * 32, "key_id is 1 to 255 ASCII"),
        ("k", b"x" * 31, "secret is 32 random bytes"),
        ("k", "x" * 32, "secret is 32 random bytes"),
    ],
)
def test_what_is_no_key_is_refused(key_id, secret, complaint):
    with pytest.raises(LocalProtocolError, match=complaint):
        SealingKey(key_id, secret)


def test_a_key_never_shows_its_secret():
    assert "ooo" not in repr(OLD)
    assert "2025" in repr(OLD)


def test_no_keys_and_two_keys_of_one_id_are_refused():
    with pytest.raises(LocalProtocolError, match="keys is empty"):
        SealedLocalTaskStore(MemoryTaskStore(), [])
    with pytest.raises(LocalProtocolError, match="the same key_id"):
        SealedLocalTaskStore(MemoryTaskStore(), [OLD, SealingKey("2025", b"x" * 32)])


WITHOUT_CRYPTOGRAPHY = """
import sys
sys.modules["cryptography"] = None
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.store import MemoryTaskStore
from mcp_tasks_sqlite import SealedLocalTaskStore, SealingKey, SqliteTaskStore
SqliteTaskStore(sys.argv[1]).close()
try:
    SealedLocalTaskStore(MemoryTaskStore(), [SealingKey("k", bytes(32))])
except LocalProtocolError as error:
    print(error)
"""


def test_without_cryptography_the_plain_store_works_and_the_sealed_one_says_what_to_install(path):
    command = [sys.executable, "-c", WITHOUT_CRYPTOGRAPHY, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'mcp-tasks-sqlite[encryption]'" in done.stdout
