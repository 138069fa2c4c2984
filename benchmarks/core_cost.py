"""What one tasks/get costs the core, as a multiple of the JSON work that nobody can avoid.

    python -m benchmarks.core_cost [--rounds 9] [--requests 20000]

In each round, in turn and on the same bytes: the floor, a bare ``json.loads(request)`` and ``json.dumps(response)``;
the core, from request bytes to response bytes through ``ServerProtocol`` and ``MemoryTaskStore``; and the core with a
state that changes before every poll, so that each answer is encoded anew. Prints medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.identifiers import Instant, StreamId, TaskId
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.effects import Frame, InvokeTool, LoadTask, StartWork, StoreTask
from mcp_tasks_core.server.events import (
    MessageReceived,
    Returned,
    ServerEvent,
    TaskLoaded,
    TaskStored,
    ToolDeferred,
    WorkCompleted,
)
from mcp_tasks_core.server.protocol import ServerProtocol
from mcp_tasks_core.store import MemoryTaskStore

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
NOW = Instant(wall_ms=1_790_000_000_000, monotonic_ms=1_000)


class Server:
    """The core on a memory store, every effect answered at once: the least that a runner does."""

    def __init__(self) -> None:
        tool = ToolEntry(definition={"name": "work", "inputSchema": {"type": "object"}})
        self.protocol = ServerProtocol(ServerConfig(server_info={"name": "bench", "version": "1"}, tools=[tool]))
        self.store = MemoryTaskStore()

    def feed(self, event: ServerEvent) -> list[object]:
        """Carry out what an event leads to; the effects that nothing answers here."""
        left: list[object] = []
        events: list[ServerEvent] = [event]
        while events:
            for effect in self.protocol.handle(events.pop(0), NOW):
                if isinstance(effect, LoadTask):
                    events.append(TaskLoaded(effect.ticket, self.store.load(effect.task_id)))
                elif isinstance(effect, StoreTask):
                    done = self.store.create(effect.row) if effect.row.revision == 1 else self.store.swap(effect.row)
                    assert done
                    events.append(TaskStored(effect.ticket))
                else:
                    left.append(effect)
        return left

    def task(self) -> TaskId:
        """A task that has completed with a result of the usual size."""
        (call,) = self.feed(received("tools/call", {"name": "work", "arguments": {"text": "hi"}}))
        assert isinstance(call, InvokeTool)
        made = self.feed(ToolDeferred(ticket=call.ticket, entropy=bytes(32), ttl_ms=900_000, poll_interval_ms=1000))
        (start,) = [effect for effect in made if isinstance(effect, StartWork)]
        result = {
            "content": [{"type": "text", "text": "ok: hi"}],
            "structuredContent": {"result": "ok: hi"},
            "isError": False,
        }
        self.feed(WorkCompleted(start.task_id, Returned(result)))
        return start.task_id

    def get(self, event: MessageReceived) -> bytes:
        """One poll, from the message to the bytes of its answer."""
        (load,) = self.protocol.handle(event, NOW)
        assert isinstance(load, LoadTask)
        (frame,) = self.protocol.handle(TaskLoaded(load.ticket, self.store.load(load.task_id)), NOW)
        assert isinstance(frame, Frame)
        return b"".join(frame.payload)


def received(method: str, params: dict[str, object]) -> MessageReceived:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    return MessageReceived(StreamId(1), json.dumps(message, separators=(",", ":")).encode(), LOCAL_OWNER)


def microseconds(times: int, turn: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    for _ in range(times):
        turn()
    return (time.perf_counter_ns() - began) / times / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    server = Server()
    poll = received("tasks/get", {"taskId": server.task()})
    response = json.loads(server.get(poll))
    assert response["result"]["status"] == "completed"
    states = server.protocol._machine.states  # its cache is emptied to measure what it saves

    def floor() -> None:
        json.loads(poll.payload)
        json.dumps(response)

    def anew() -> None:
        states.forget(response["result"]["taskId"])
        server.get(poll)

    rounds = [
        (
            microseconds(options.requests, floor),
            microseconds(options.requests, lambda: server.get(poll)),
            microseconds(options.requests // 4, anew),
        )
        for _ in range(options.rounds + 1)
    ][1:]  # the first one warms up
    sizes = f"request {len(poll.payload)} B, response {len(server.get(poll))} B"
    print(f"tasks/get, {sizes}, medians of {len(rounds)} rounds")
    print("| what | µs | times the floor, round by round: min / median / max |")
    print("|---|---|---|")
    for column, name in enumerate(("json.loads + json.dumps", "the core, bytes to bytes", "the core, state not kept")):
        ratios = sorted(each[column] / each[0] for each in rounds)
        spread = f"{ratios[0]:.2f} / {statistics.median(ratios):.2f} / {ratios[-1]:.2f}"
        print(f"| {name} | {statistics.median(each[column] for each in rounds):.1f} | {spread} |")


if __name__ == "__main__":
    main()
