"""The one codec between a task's record and the payload of its row. Versioned: stores outlive programs."""

from __future__ import annotations

import json
from typing import Any, Final

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import Revision
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import InputEntry, TaskRecord, TaskStatus

RECORD_VERSION: Final = 1

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class UnreadableRecord(Exception):
    """A row's payload is not a record, or one of a version that this program does not know."""


def encode_record(record: TaskRecord) -> bytes:
    """The record as the payload of a row.

    Raises:
        ValueError: it holds something that JSON cannot, such as NaN or a lone surrogate.
        TypeError: it holds a value that is not of JSON's types.
    """
    wire: dict[str, Any] = {
        "v": RECORD_VERSION,
        "id": record.task_id,
        "owner": [record.owner.tenant, record.owner.subject],
        "status": record.status.value,
        "created": record.created_at_ms,
        "updated": record.last_updated_at_ms,
        "ttl": record.ttl_ms,
        "method": record.method,
        "request": record.request,
        "capabilities": record.capabilities.raw,
        "poll": record.poll_interval_ms,
        "message": record.status_message,
        "inputs": [[k, e.request, e.answer, e.withdrawn] for k, e in record.inputs.items()],
        "cancel": record.cancel_requested_at_ms,
        "executor": record.executor,
        "attempts": record.attempts,
        "restarts": record.restarts,
        "answered": [[k, e.request, e.answer] for k, e in record.answered.items()],
        "result": record.result,
        "error": None if record.error is None else record.error.to_wire(),
        "expired": record.expired,
    }
    return _encode(wire).encode("utf-8")


def decode_record(payload: bytes) -> TaskRecord:
    """The record in a row's payload.

    Raises:
        UnreadableRecord: it holds none that this program can read.
    """
    try:
        wire = json.loads(payload)
        if wire["v"] != RECORD_VERSION:
            raise UnreadableRecord(f"a record of version {wire['v']!r}; this program reads version {RECORD_VERSION}")
        error = wire["error"]
        return TaskRecord(
            task_id=wire["id"],
            owner=Owner(*wire["owner"]),
            status=TaskStatus(wire["status"]),
            created_at_ms=wire["created"],
            last_updated_at_ms=wire["updated"],
            ttl_ms=wire["ttl"],
            method=wire["method"],
            request=wire["request"],
            capabilities=ClientCapabilities(wire["capabilities"]),
            poll_interval_ms=wire["poll"],
            status_message=wire["message"],
            inputs={k: InputEntry(request=q, answer=a, withdrawn=w) for k, q, a, w in wire["inputs"]},
            cancel_requested_at_ms=wire["cancel"],
            executor=wire["executor"],
            attempts=wire["attempts"],
            restarts=wire["restarts"],
            answered={k: InputEntry(request=q, answer=a) for k, q, a in wire["answered"]},
            result=wire["result"],
            error=None if error is None else ErrorObject(error["code"], error["message"], error.get("data")),
            expired=wire["expired"],
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, LocalProtocolError) as problem:
        raise UnreadableRecord(f"a payload that is no record: {problem!r}") from problem


def row_of(record: TaskRecord, revision: Revision, limits: Limits) -> StoredTask:
    """The row that holds this record at this revision.

    Raises:
        ValueError, TypeError: as ``encode_record``.
    """
    return StoredTask(
        task_id=record.task_id,
        owner=(record.owner.tenant, record.owner.subject),
        status=record.status.value,
        revision=revision,
        due_at_ms=due_at_ms(record, limits),
        executor=None if record.is_terminal else record.executor,
        payload=encode_record(record),
    )


def due_at_ms(record: TaskRecord, limits: Limits) -> int | None:
    """When something is to be done about a task that nobody touches (DECISIONS D9, D10).

    At its TTL unfinished work fails; a grace later what is left becomes a tombstone; later the tombstone goes.
    """
    if record.ttl_ms is None:
        return None
    ends_at_ms = record.created_at_ms + record.ttl_ms
    if not record.is_terminal:
        return ends_at_ms
    if not record.expired:
        return ends_at_ms + limits.expiry_grace_ms
    return ends_at_ms + limits.expiry_grace_ms + limits.tombstone_ms
