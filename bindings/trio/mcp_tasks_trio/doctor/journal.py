"""Everything that was said, for what has to hold of every message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from mcp_tasks_trio.doctor.exchanges import Exchange

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
STATUSES: Final = TERMINAL | {"working", "input_required"}


@attrs.define
class Journal:
    """All exchanges in the order in which they began."""

    exchanges: list[Exchange] = attrs.field(factory=list)

    def messages(self) -> Iterator[tuple[Exchange, Any]]:
        """Every message that the server sent."""
        for exchange in self.exchanges:
            for message in exchange.messages:
                yield exchange, message

    def results(self, *methods: str) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every result, or every result of these methods."""
        for exchange in self.exchanges:
            if exchange.result is not None and (not methods or exchange.sent.method in methods):
                yield exchange, exchange.result

    def errors(self, *codes: int) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every error, or every error with one of these codes."""
        for exchange in self.exchanges:
            if exchange.error is not None and (not codes or exchange.code in codes):
                yield exchange, exchange.error

    def handles(self) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every result that says it is a new task."""
        for exchange, result in self.results("tools/call"):
            if result.get("resultType") == "task":
                yield exchange, result

    def sightings(self) -> Iterator[tuple[Exchange, dict[str, Any]]]:
        """Every state of a task that was seen: in handles, in answers to tasks/get, and in notifications."""
        for exchange in self.exchanges:
            for message in exchange.notifications:
                params = message.get("params")
                if message.get("method") == "notifications/tasks" and isinstance(params, dict):
                    yield exchange, params
            result = exchange.result
            if result is None:
                continue
            created = exchange.sent.method == "tools/call" and result.get("resultType") == "task"
            if created or exchange.sent.method == "tasks/get":
                yield exchange, result
