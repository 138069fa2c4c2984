"""One thing that a caller waits for: first a script of requests, then, for a task, a watch; or a subscription."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_tasks_core.client.calls import CallSettings
from mcp_tasks_core.client.events import OnTimeout, OperationId
from mcp_tasks_core.client.listening import Listening
from mcp_tasks_core.client.scripts import DISCOVER, Answers, Script
from mcp_tasks_core.client.watching import TaskWatch
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId


@attrs.define(kw_only=True)
class Operation:
    """The state of one operation.

    Args:
        method: what it is about, for outcomes that name a request.
        settings: of the requests that its script sends.
        script: ``None`` once a task is watched.
        watch: ``None`` before.
        listening: of a subscription, which has neither script nor watch.
        deadline_ms: the caller's own, for the whole operation.
        asked: the questions of the present round, with ``gathered`` answers, while the script waits for them.
        settled: the questions of former rounds.
    """

    operation_id: OperationId
    method: str
    settings: CallSettings
    script: Script | None = None
    watch: TaskWatch | None = None
    listening: Listening | None = None
    deadline_ms: int | None = None
    on_timeout: OnTimeout = OnTimeout.CANCEL
    asked: dict[InputKey, JSONObject] = attrs.field(factory=dict)
    gathered: Answers = attrs.field(factory=dict)
    settled: set[InputKey] = attrs.field(factory=set)

    @property
    def task_id(self) -> TaskId | None:
        return None if self.watch is None else self.watch.task_id

    @property
    def answered(self) -> frozenset[InputKey]:
        return frozenset() if self.watch is None else self.watch.answered_keys

    @property
    def probes(self) -> bool:
        """Whether it asks what the server is, so that silence and death tell something about it."""
        return self.method == DISCOVER

    @property
    def open_requests(self) -> dict[InputKey, JSONObject]:
        """The questions of the present round that have no answer yet."""
        return {key: request for key, request in self.asked.items() if key not in self.gathered}

    def is_asking(self, key: InputKey) -> bool | None:
        """Whether an answer to this question is awaited; ``None`` if it was never asked."""
        if self.watch is not None:
            return self.watch.is_asking(key)
        if key in self.asked:
            return key not in self.gathered
        return False if key in self.settled else None

    def ask(self, requests: Mapping[InputKey, JSONObject]) -> None:
        """Begin a round of questions."""
        self.asked, self.gathered = dict(requests), {}

    def take_answers(self) -> Answers | None:
        """The answers of the round once there is one to every question; the round is over with that."""
        if not self.asked or len(self.gathered) < len(self.asked):
            return None
        answers = {key: self.gathered[key] for key in self.asked}
        self.settled.update(self.asked)
        self.asked, self.gathered = {}, {}
        return answers

    def request(self, key: InputKey) -> JSONObject | None:
        return self.watch.request(key) if self.watch is not None else self.asked.get(key)
