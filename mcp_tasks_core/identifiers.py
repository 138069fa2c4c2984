"""Names for the things the protocol refers to, and the moment an event happened."""

from __future__ import annotations

from typing import Any, NewType, TypeAlias

import attrs

JSONValue: TypeAlias = "None | bool | int | float | str | list[Any] | dict[str, Any]"
"""What one JSON text holds. Lists and objects are raw: checked where a rule needs it, never rebuilt."""

JSONObject: TypeAlias = dict[str, Any]
"""A JSON object whose members have not been given types."""

RequestId: TypeAlias = "str | int"
"""A JSON-RPC request id. ``1`` and ``"1"`` are two ids. Source: basic, Requests."""

ProgressToken: TypeAlias = "str | int"
"""What a client asks to see on progress notifications. Source: progress."""

TaskId = NewType("TaskId", str)
"""The server's name for a task, opaque to clients. Source: tasks, Tasks."""

StreamId = NewType("StreamId", int)
"""Where a request's answers go: a whole pipe on stdio, one POST on HTTP. Given by the runner, never reused."""

InputKey = NewType("InputKey", str)
"""Names one question of a task for the task's whole life. Source: tasks, Task Update Requests."""

Revision = NewType("Revision", int)
"""Counts the stored states of one task: 1 when it is created, one more with each swap."""

Ticket = NewType("Ticket", int)
"""Pairs an effect that wants an answer with the event that brings it."""


@attrs.frozen(kw_only=True, slots=True)
class Instant:
    """The moment at which the runner handed an event in.

    Args:
        wall_ms: milliseconds since the Unix epoch, UTC: for what people and peers read.
        monotonic_ms: milliseconds of a clock that never goes back: for every duration.
    """

    wall_ms: int
    monotonic_ms: int


def key_of_request_id(request_id: RequestId) -> tuple[bool, RequestId]:
    """What tells two ids apart in a table: the JSON type counts, so ``1`` and ``"1"`` are different keys."""
    return (type(request_id) is str, request_id)
