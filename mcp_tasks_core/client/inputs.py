"""The questions of one task: each is asked once and answered once in the task's life.

Source: tasks, Task Update Requests.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.identifiers import InputKey, JSONObject
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.wire.inputs import check_input_request


class InputStage(enum.Enum):
    """How far a question has come; it only ever moves down this list."""

    ASKED = "asked"
    ANSWERED = "answered"
    SENT = "sent"
    UNCERTAIN = "uncertain"
    SETTLED = "settled"


@attrs.define
class _Entry:
    stage: InputStage
    request: JSONObject | None = None
    answer: JSONObject | None = None
    sightings: int = 0


def problem_with_requests(raw: object, capabilities: ClientCapabilities | None, limits: Limits) -> str | None:
    """What is wrong with an inputRequests object; ``None`` when every question is one that we declared.

    Args:
        capabilities: ``None`` where questions of any kind are taken.

    Source: mrtr, InputRequests and Server Requirements.
    """
    if type(raw) is not dict:
        return "inputRequests is an object"
    if len(raw) > limits.inputs_outstanding_max:
        return f"inputRequests holds {len(raw)} questions; at most {limits.inputs_outstanding_max} are taken"
    for key, request in raw.items():
        problem = _problem_with_request(key, request, capabilities, limits)
        if problem is not None:
            return problem
    return None


def _problem_with_request(
    key: str, request: Any, capabilities: ClientCapabilities | None, limits: Limits
) -> str | None:
    if len(key) > limits.input_key_chars_max:
        return f"a key of inputRequests has {len(key)} characters; at most {limits.input_key_chars_max} are taken"
    problem = check_input_request(request)
    if problem is not None:
        return f"inputRequests[{key!r}]: {problem}"
    missing = None if capabilities is None else capabilities.missing_for(request)
    if missing is not None:
        return f"inputRequests[{key!r}] is of a kind that was not declared: it needs {missing!r}"
    return None


class InputLedger:
    """What was asked, answered, sent and accepted, by key, for one task.

    Args:
        answered: keys that were answered before this observation.
    """

    def __init__(self, answered: Collection[InputKey], limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[InputKey, _Entry] = {key: _Entry(InputStage.SETTLED) for key in answered}

    @property
    def answered(self) -> frozenset[InputKey]:
        """Keys that nobody may answer again."""
        return frozenset(key for key, entry in self._entries.items() if entry.stage is not InputStage.ASKED)

    @property
    def open_requests(self) -> dict[InputKey, JSONObject]:
        """Questions that were asked and have no answer yet."""
        return {
            key: entry.request
            for key, entry in self._entries.items()
            if entry.stage is InputStage.ASKED and entry.request is not None
        }

    @property
    def is_full(self) -> bool:
        return len(self._entries) > self._limits.inputs_per_task_max

    def stage(self, key: InputKey) -> InputStage | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.stage

    def request(self, key: InputKey) -> JSONObject | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.request

    def add_new(self, requests: Mapping[InputKey, JSONObject]) -> dict[InputKey, JSONObject]:
        """Enter the questions that were never seen; those alone are to be asked."""
        new = {key: request for key, request in requests.items() if key not in self._entries}
        for key, request in new.items():
            self._entries[key] = _Entry(InputStage.ASKED, request)
        return new

    def changed(self, requests: Mapping[InputKey, JSONObject]) -> list[InputKey]:
        """Keys that the server gave a second meaning."""
        return [
            key
            for key, request in requests.items()
            if key in self._entries and self._entries[key].request not in (None, request)
        ]

    def withdraw_missing(self, requests: Mapping[InputKey, JSONObject]) -> list[InputKey]:
        """Settle the questions that a newer state no longer holds; returns those that somebody is still asked."""
        withdrawn = []
        for key, entry in self._entries.items():
            if key in requests or entry.stage in (InputStage.SENT, InputStage.SETTLED):
                continue
            if entry.stage is InputStage.ASKED:
                withdrawn.append(key)
            entry.stage = InputStage.SETTLED
        return withdrawn

    def answer(self, key: InputKey, answer: JSONObject) -> None:
        entry = self._entries[key]
        entry.answer, entry.stage = answer, InputStage.ANSWERED

    def take_answers(self) -> dict[InputKey, JSONObject]:
        """Every answer that waits to be sent; from now on it counts as sent and is never given out again."""
        ready: dict[InputKey, JSONObject] = {}
        for key, entry in self._entries.items():
            if entry.stage is InputStage.ANSWERED and entry.answer is not None:
                ready[key] = entry.answer
                entry.stage, entry.answer = InputStage.SENT, None
        return ready

    def settle(self, keys: Collection[InputKey]) -> None:
        """The server acknowledged these answers."""
        for key in keys:
            self._entries[key].stage = InputStage.SETTLED

    def doubt(self, keys: Collection[InputKey]) -> None:
        """Nothing says whether the server accepted these answers."""
        for key in keys:
            self._entries[key].stage = InputStage.UNCERTAIN

    def still_doubtful(self, requests: Mapping[InputKey, JSONObject], sightings_max: int) -> tuple[InputKey, ...]:
        """Count a sighting of every doubtful question; returns those that were seen too often to hope on."""
        lost = []
        for key, entry in self._entries.items():
            if entry.stage is InputStage.UNCERTAIN and key in requests:
                entry.sightings += 1
                if entry.sightings >= sightings_max:
                    lost.append(key)
        return tuple(lost)
