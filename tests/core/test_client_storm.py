"""Long seeded runs of everything at once: whatever a server does, the client keeps its promises."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mcp_tasks_core.client.config import ClientConfig, ClientLimits, TransportKind
from mcp_tasks_core.client.effects import AskInput, OperationEnded, StateObserved
from mcp_tasks_core.client.events import (
    CallId,
    CancelRequested,
    ClientEvent,
    ConnectionLost,
    DetachRequested,
    DiscoverStarted,
    InputAnswered,
    InputUnanswerable,
    MessageReceived,
    MessageRefused,
    ObservationStarted,
    OnTimeout,
    OperationId,
    RequestSubmitted,
    StreamEnded,
    ToolCallStarted,
    ToolsListStarted,
)
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.testing.client import ClientBench, wire_task

STATUSES = ["working", "input_required", "completed", "failed", "cancelled", "paused", 5]
ODD: list[Any] = [None, True, 0, -1, 1.5, 1e300, 10**30, "", "x", "\u2028", [], {}, [{}], {"a": {"b": []}}]

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
QUESTION = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": SCHEMA}}


class Storm:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        transport = self.random.choice(list(TransportKind))
        limits = ClientLimits(operations_max=12, abandoned_max=6, junk_messages_max=10**6, stuck_polls_max=5)
        config = ClientConfig(
            capabilities={"elicitation": {}},
            transport=transport,
            client_limits=limits,
            lenient=self.random.random() < 0.3,
            cancel_unasked_tasks=self.random.random() < 0.5,
        )
        self.bench = ClientBench(config)
        self.started: list[OperationId] = []
        self.updates = 0

    def question(self) -> dict[str, Any]:
        if self.random.random() < 0.1:
            return {"method": self.random.choice(["roots/list", "tools/call", 5]), "params": {}}
        return QUESTION

    def state(self) -> dict[str, Any]:
        choose = self.random.choice
        members: dict[str, Any] = {"updated_s": self.random.randrange(30), "status": choose(STATUSES)}
        members["taskId"] = choose(["t-1", "t-1", "t-1", "t-2"])
        if self.random.random() < 0.7:
            members["inputRequests"] = {choose("abc"): self.question() for _ in range(self.random.randrange(3))}
            members["result"] = choose([{"content": []}, {"content": []}, {}, 5])
            members["error"] = choose([{"code": -32603, "message": "m"}, {"code": "x"}])
        if self.random.random() < 0.3:
            members[choose(["pollIntervalMs", "ttlMs", "statusMessage", "createdAt"])] = choose([*ODD, 200, 5_000])
        return wire_task(**members)

    def result(self) -> dict[str, Any]:
        state = self.state()
        kind = self.random.choice(["complete", "complete", "task", "task", "input_required", "odd", None])
        result: dict[str, Any] = self.random.choice(
            [state, state, {"content": []}, {"tools": [], "nextCursor": self.random.choice(["", "n", 5])}, {}]
        )
        result = dict(result)
        if kind is not None:
            result["resultType"] = kind
        if kind == "input_required":
            result["requestState"] = self.random.choice(["s", "", 5])
            result["inputRequests"] = self.random.choice([{"a": self.question()}, {}, None, []])
        return result

    def sound_result(self, method: str) -> dict[str, Any]:
        """What a good server might answer to this method."""
        choose = self.random.choice
        questions = dict.fromkeys(self.random.sample("abcdef", self.random.randrange(1, 3)), QUESTION)
        if method == "tools/call":
            asking = {"resultType": "input_required", "inputRequests": questions}
            handle = {
                "resultType": "task",
                **wire_task(pollIntervalMs=choose([100, 700]), ttlMs=choose([None, 60_000])),
            }
            return choose([handle, handle, handle, asking, {"content": []}])
        if method == "tasks/get":
            self.updates += 1
            status = choose(["working", "input_required", "input_required", "working", "working", "completed"])
            payload = {"completed": {"result": {"content": []}}, "input_required": {"inputRequests": questions}}
            return wire_task(status, updated_s=self.updates, pollIntervalMs=200, **payload.get(status, {}))
        return {"tools": [], "supportedVersions": ["2026-07-28"], "capabilities": {}}

    def message(self) -> dict[str, Any]:
        """What a server might say: mostly about requests that were sent, and mostly sound."""
        choose = self.random.choice
        requests = [message for message in self.bench.sent[-6:] if "id" in message]
        if requests and self.random.random() < 0.7:
            request = choose(requests)
            result = {"resultType": "complete", **self.sound_result(request["method"])}
            return {"jsonrpc": "2.0", "id": request["id"], "result": result}
        sent = [message["id"] for message in self.bench.sent[-12:] if "id" in message]
        wire_id = choose([*sent, *sent, 10**9, str(sent[-1]) if sent else "x", None])
        if self.random.random() < 0.15:
            method = choose(
                ["notifications/progress", "notifications/message", "notifications/cancelled", "sampling/x"]
            )
            params = {"progressToken": wire_id, "progress": choose(ODD), "level": choose(["info", 5]), "data": 1}
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
            return message | ({"id": 1} if method == "sampling/x" else {})
        if self.random.random() < 0.2:
            code = choose([-32602, -32603, -32022, -32021, -32601, 7])
            data = choose([None, {"supported": ["2026-07-28"], "requested": "x"}, 5])
            return {"jsonrpc": "2.0", "id": wire_id, "error": {"code": code, "message": "m", "data": data}}
        return {"jsonrpc": "2.0", "id": wire_id, "result": self.result()}

    def peer_event(self) -> ClientEvent:
        streams = self.bench.config.transport is TransportKind.PER_REQUEST
        sent = [message["id"] for message in self.bench.sent[-8:] if "id" in message]
        stream = CallId(self.random.choice(sent)) if streams and sent else None
        draw = self.random.random()
        if draw < 0.06 and stream is not None:
            return StreamEnded(stream, "ended")
        if draw < 0.09:
            return MessageRefused("too long", None, '{"jsonrpc":"2.0","id":3,"result":')
        text = json.dumps(self.message())
        if draw < 0.2:
            cut = self.random.randrange(len(text))
            text = text[:cut] + self.random.choice(["", "\x00", "{", "NaN", "9" * 1500]) + text[cut + 1 :]
        return MessageReceived(text.encode(), stream)

    def caller_event(self) -> ClientEvent:
        choose = self.random.choice
        old = choose(self.started) if self.started else OperationId(0)
        key = InputKey(choose("abc"))
        kind = self.random.randrange(16)
        if kind == 0 and self.random.random() < 0.5:
            return CancelRequested(operation_id=old, wait_for_end=choose([True, False]))
        if kind == 1 and self.random.random() < 0.2:
            return DetachRequested(old)
        if kind == 2 and self.random.random() < 0.2:
            return InputUnanswerable(old, key)
        if kind < 11:
            answer = choose([{"action": "accept", "content": {"q": "x"}}, {"action": "decline"}, 5])
            asked = self.bench.seen(AskInput)[-4:]
            if asked and self.random.random() < 0.8:
                ask = choose(asked)
                return InputAnswered(ask.operation_id, ask.key, answer)
            return InputAnswered(old, key, answer)
        operation = self.bench.next_operation()
        timeout_ms = choose([None, 500, 30_000])
        call = ToolCallStarted(
            operation_id=operation,
            name="t",
            timeout_ms=timeout_ms,
            tasks=self.random.random() < 0.8,
            progress=True,
            log_level="info",
            on_timeout=choose(list(OnTimeout)),
        )
        return choose(
            [
                call,
                call,
                call,
                RequestSubmitted(operation_id=operation, method=choose(["prompts/list", "tasks/x", "resources/list"])),
                ObservationStarted(operation_id=operation, task_id=TaskId("t-1"), timeout_ms=timeout_ms),
                ToolsListStarted(operation_id=operation, timeout_ms=timeout_ms),
                DiscoverStarted(operation_id=operation),
            ]
        )

    def step(self) -> None:
        draw = self.random.random()
        if draw < 0.2:
            self.bench.pass_time(self.random.choice([1, 50, 200, 700, 1_000, 11_000]))
        elif draw < 0.4:
            event = self.caller_event()
            try:
                self.bench.feed(event)
            except LocalProtocolError:
                return
            if hasattr(event, "operation_id") and event.operation_id not in self.started:
                self.started.append(event.operation_id)
        else:
            self.bench.feed(self.peer_event())


def check_promises(storm: Storm) -> None:
    bench = storm.bench
    ids = [message["id"] for message in bench.sent if "id" in message]
    assert len(ids) == len(set(ids))
    assert ids == sorted(ids)
    for operation in storm.started:
        bench.outcome(operation)
        seen = [state.task for state in bench.seen(StateObserved) if state.operation_id == operation]
        assert not any(task.is_terminal for task in seen[:-1])
        effects = [effect for effect in bench.effects if getattr(effect, "operation_id", None) == operation]
        ends = [number for number, effect in enumerate(effects) if isinstance(effect, OperationEnded)]
        assert ends in ([], [len(effects) - 1])
        asked = [ask.key for ask in effects if isinstance(ask, AskInput) and ask.task_id is not None]
        assert len(asked) == len(set(asked))
    for message in bench.sent:
        if message["method"].startswith("tasks/"):
            capabilities = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert "io.modelcontextprotocol/tasks" in capabilities["extensions"]


@pytest.mark.spec("P3", "P10", "B3")
@pytest.mark.parametrize("seed", range(40))
def test_no_server_makes_the_client_raise_or_break_a_promise(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(400):
        storm.step()
    check_promises(storm)
    # Calm: every operation ends by itself or with the connection, and nothing is waited for after that.
    storm.bench.feed(ConnectionLost(reason="calm"))
    assert all(storm.bench.outcome(operation) is not None for operation in storm.started)
    assert storm.bench.protocol.deadline is None
    assert storm.bench.protocol.open_operations == {}
    check_promises(storm)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        storm = Storm(7)
        for _ in range(200):
            storm.step()
        runs.append(storm.bench.effects)
    assert runs[0] == runs[1]
