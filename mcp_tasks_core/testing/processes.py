"""Several processes on one shared store and one clock: each is a core of its own, and any of them may die.

::

    machine = Processes(tools={"slow": lambda call: Defer()}, recovery=Recovery.RESUME)
    first, second = machine.start("first"), machine.start("second")
    task_id = first.request("tools/call", name="slow", arguments={})["result"]["taskId"]
    machine.kill(first)
    machine.live(20_000)
    assert second.effects_of(ResumeWork)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_tasks_core.identifiers import Instant
from mcp_tasks_core.server.config import Recovery, ServerConfig, ToolEntry
from mcp_tasks_core.server.events import Ticked
from mcp_tasks_core.store import SharedTaskStore
from mcp_tasks_core.testing.harness import START, Script, ServerHarness
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore

_TICKS_MAX = 100_000


class Processes:
    """The processes of one machine, by name.

    Args:
        tools: what each tool does when it is called, in every process.
        recovery: of every tool.
        store: what they share; an empty ``SharedMemoryTaskStore`` where ``None``.
        config: more of every process's ``ServerConfig``.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, Script],
        recovery: Recovery = Recovery.FAIL,
        store: SharedTaskStore | None = None,
        **config: Any,
    ) -> None:
        self.store: SharedTaskStore = SharedMemoryTaskStore() if store is None else store
        self.now = START
        self.running: dict[str, ServerHarness] = {}
        self._tools = dict(tools)
        self._recovery = recovery
        self._config = config

    def start(self, name: str, *, tools: Mapping[str, Script] | None = None, **config: Any) -> ServerHarness:
        """A process under a name that no other process had; what it does first is done.

        Args:
            tools: others than the ``tools`` of all.
            config: more of its ``ServerConfig``.
        """
        assert name not in self.running, f"two processes are named {name}"
        scripts = self._tools if tools is None else dict(tools)
        entries = [
            ToolEntry(definition={"name": tool, "inputSchema": {"type": "object"}}, recovery=self._recovery)
            for tool in scripts
        ]
        told = ServerConfig(**{"tools": entries, "executor": name, **self._config, **config})
        process = self.running[name] = ServerHarness(told, tools=scripts, store=self.store, now=self.now, seed=name)
        process.advance(0)
        return process

    def kill(self, *processes: ServerHarness) -> None:
        """These processes do nothing more, and say nothing before that. ``wake`` takes one up again."""
        for process in processes:
            self.running = {name: other for name, other in self.running.items() if other is not process}

    def end(self, process: ServerHarness) -> None:
        """This process ends as it should: its lease goes with it."""
        assert process.config.executor is not None
        self.store.end_lease(process.config.executor)
        self.kill(process)

    def wake(self, process: ServerHarness) -> None:
        """A process that was thought dead was only stopped: it finds the clocks where they are now."""
        assert process.config.executor is not None
        self.running[process.config.executor] = process
        process.now = self.now

    def live(self, span_ms: int) -> None:
        """Let this time pass for all, each thing in its turn."""
        until_ms = self.now.monotonic_ms + span_ms
        for _ in range(_TICKS_MAX):
            deadlines = [process.protocol.deadline for process in self.running.values()]
            due_ms = min([deadline for deadline in deadlines if deadline is not None], default=until_ms + 1)
            self._set_clocks(max(self.now.monotonic_ms, min(due_ms, until_ms)))
            if due_ms > until_ms:
                return
            for process in list(self.running.values()):
                deadline = process.protocol.deadline
                if deadline is not None and deadline <= self.now.monotonic_ms:
                    process.feed(Ticked())
        raise AssertionError(f"{_TICKS_MAX} ticks within {span_ms} ms")

    def jump(self, wall_ms: int) -> None:
        """The wall clock is set, or the machine slept: monotonic clocks did not see that time pass."""
        self.now = Instant(wall_ms=self.now.wall_ms + wall_ms, monotonic_ms=self.now.monotonic_ms)
        for process in self.running.values():
            process.now = self.now

    def _set_clocks(self, monotonic_ms: int) -> None:
        wall_ms = self.now.wall_ms + monotonic_ms - self.now.monotonic_ms
        self.now = Instant(wall_ms=wall_ms, monotonic_ms=monotonic_ms)
        for process in self.running.values():
            process.now = self.now
