"""Long seeded runs of subscriptions whose streams break in every way: no state goes back, and no end is missed."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from mcp_tasks_core.capabilities import META_SUBSCRIPTION_ID
from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.client.effects import CloseStream, OperationEnded, StateObserved
from mcp_tasks_core.client.events import CallId, ListenStarted, MessageReceived, OperationId, StreamEnded
from mcp_tasks_core.client.outcomes import InvalidResponse, ListenEnded, Outcome
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.testing.client import ClientBench, wire_task

NAMES = ["t-0", "t-1", "t-2", "t-3"]
ODD: list[Any] = [None, True, 0, -1, 1.5, 10**30, "", "x", [], {}, [{}], {"a": []}]


class World:
    """A client, and a server that keeps the truth and loses everything else."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = ClientBench(ClientConfig(transport=self.random.choice(list(TransportKind))))
        self.truth: dict[str, JSONObject] = {name: wire_task(taskId=name) for name in NAMES}
        self.moment_s = 0
        self.read = 0  # how much of what was sent the server has looked at
        self.listens: dict[int, list[str]] = {}  # acknowledged ones, by id
        self.waiting: list[
            tuple[int, JSONObject]
        ] = []  # requests that have no answer yet, with the state at their time
        self.operations: list[OperationId] = []

    # --- the server

    def take_in(self) -> None:
        for message in self.bench.sent[self.read :]:
            if message["method"] == "notifications/cancelled":
                self.forget(message["params"]["requestId"])
            else:
                self.waiting.append((message["id"], message))
        for effect in self.bench.seen(CloseStream):
            self.forget(effect.call_id)
        self.read = len(self.bench.sent)

    def forget(self, listen_id: int) -> None:
        self.listens.pop(listen_id, None)
        self.waiting = [entry for entry in self.waiting if entry[0] != listen_id]

    def say(self, stream: int, message: JSONObject) -> None:
        shared = self.bench.config.transport is TransportKind.SHARED
        payload = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.bench.feed(MessageReceived(payload, None if shared else CallId(stream)))
        self.take_in()

    def tell(self, listen_id: int, method: str, params: JSONObject) -> None:
        self.say(listen_id, {"method": method, "params": {"_meta": {META_SUBSCRIPTION_ID: listen_id}, **params}})

    def tell_state(self, listen_id: int, name: str) -> None:
        if name in self.listens.get(listen_id, ()):
            self.tell(listen_id, "notifications/tasks", self.truth[name])

    def answer(self) -> None:
        """One request that waits, whichever."""
        self.take_in()
        if not self.waiting:
            return
        call_id, message = self.waiting.pop(self.random.randrange(len(self.waiting)))
        if message["method"] == "tasks/get":
            # What the server read, possibly long before the answer arrives.
            state = message.get("read", self.truth.get(message["params"]["taskId"]))
            error = {"code": -32602, "message": "Task not found"}
            body = {"error": error} if state is None else {"result": {"resultType": "complete", **state}}
            self.say(call_id, {"id": call_id, **body})
            return
        names = [name for name in message["params"]["notifications"]["taskIds"] if name in self.truth]
        self.listens[call_id] = names
        agreed = {"notifications": {"taskIds": names}}
        self.tell(call_id, "notifications/subscriptions/acknowledged", agreed)
        for name in names:
            # Some servers tell nothing before something changes.
            if self.random.random() < 0.6:
                self.tell_state(call_id, name)

    def read_early(self) -> None:
        """Look the tasks of waiting reads up now, and answer later."""
        self.take_in()
        for _, message in self.waiting:
            if message["method"] == "tasks/get":
                message.setdefault("read", self.truth.get(message["params"]["taskId"]))

    def change(self, *, ends: bool) -> None:
        name = self.random.choice(NAMES)
        if self.truth[name]["status"] not in ("working", "input_required"):
            return
        self.moment_s += 1
        status = self.random.choice(["completed", "failed", "cancelled"] if ends else ["working", "input_required"])
        payload: JSONObject = {
            "completed": {"result": {"content": []}},
            "failed": {"error": {"code": 7, "message": "m"}},
            "input_required": {"inputRequests": {}},
        }.get(status, {})
        self.truth[name] = wire_task(status, taskId=name, updated_s=self.moment_s, **payload)
        for listen_id in list(self.listens):
            if name in self.listens.get(listen_id, ()) and self.random.random() < 0.6:
                self.tell_state(listen_id, name)

    def break_one(self) -> None:
        """End a subscription, in any way."""
        if not self.listens:
            return
        listen_id = self.random.choice(list(self.listens))
        del self.listens[listen_id]
        how = self.random.randrange(4)
        if how in (0, 1):
            result = {"resultType": "complete", "_meta": {META_SUBSCRIPTION_ID: listen_id}}
            self.say(listen_id, {"id": listen_id, "result": result})
        if how in (1, 2) and self.bench.config.transport is TransportKind.SHARED:
            self.tell(listen_id, "notifications/cancelled", {"requestId": listen_id})
        if how == 3 or self.bench.config.transport is TransportKind.PER_REQUEST:
            self.end_stream(listen_id)

    def end_stream(self, stream: int) -> None:
        if self.bench.config.transport is TransportKind.PER_REQUEST:
            self.bench.feed(StreamEnded(CallId(stream), "cut"))
        else:
            self.tell(stream, "notifications/cancelled", {"requestId": stream})

    def refuse(self) -> None:
        self.take_in()
        for entry in self.waiting:
            if entry[1]["method"] == "subscriptions/listen":
                self.waiting.remove(entry)
                error = {"code": -32603, "message": "busy", "data": {"retryable": True}}
                self.say(entry[0], {"id": entry[0], "error": error})
                return

    # --- the caller

    def listen(self) -> None:
        operation = self.bench.next_operation()
        names = self.random.sample([*NAMES, "gone"], self.random.randrange(1, 4))
        self.operations.append(operation)
        self.bench.feed(ListenStarted(operation_id=operation, task_ids=tuple(map(TaskId, names))))

    def step(self) -> None:
        kind = self.random.randrange(20)
        if kind == 0 and len(self.operations) < 6:
            self.listen()
        elif kind < 8:
            self.answer()
        elif kind < 12:
            self.change(ends=self.random.random() < 0.1)
        elif kind == 12:
            self.break_one()
        elif kind == 13:
            self.refuse()
        elif kind == 14:
            self.read_early()
        elif kind == 15 and self.listens:
            # Late and repeated hints: whatever is the truth now.
            self.tell_state(self.random.choice(list(self.listens)), self.random.choice(NAMES[:1]))
        else:
            self.bench.pass_time(self.random.choice([1, 100, 500, 2_000]))

    def calm_down(self) -> None:
        """From now on everything is answered, and every task ends."""
        while any(state["status"] in ("working", "input_required") for state in self.truth.values()):
            self.change(ends=True)
        for listen_id in list(self.listens):
            for name in self.listens.get(listen_id, ()):
                self.tell_state(listen_id, name)
        for _ in range(400):
            self.answer()
            self.bench.pass_time(500)


def outcomes(world: World) -> list[Outcome | None]:
    return [world.bench.outcome(operation) for operation in world.operations]


def check_order(world: World) -> None:
    """No state is older than one before it, none comes twice, none follows an end, nothing follows the last effect."""
    for operation in world.operations:
        effects = [effect for effect in world.bench.effects if getattr(effect, "operation_id", None) == operation]
        ends = [number for number, effect in enumerate(effects) if isinstance(effect, OperationEnded)]
        assert ends in ([], [len(effects) - 1])
        for name in NAMES:
            shown = [e.task for e in effects if isinstance(e, StateObserved) and e.task.task_id == name]
            moments = [task.last_updated_at for task in shown]
            assert moments == sorted(moments)
            assert all(earlier != later for earlier, later in itertools.pairwise(shown))
            assert not any(task.is_terminal for task in shown[:-1])


@pytest.mark.spec("P6", "P7", "D22", "D44")
@pytest.mark.parametrize("seed", range(60))
def test_whatever_breaks_every_end_is_told_once_and_no_state_goes_back(seed: int) -> None:
    world = World(seed)
    world.listen()
    for _ in range(300):
        world.step()
    check_order(world)
    world.calm_down()
    check_order(world)
    ended = outcomes(world)
    assert all(outcome is not None for outcome in ended)
    assert not any(isinstance(outcome, InvalidResponse) for outcome in ended)
    for outcome in ended:
        if isinstance(outcome, ListenEnded):
            for task in outcome.tasks:
                assert task.status.value == world.truth[task.task_id]["status"]
    assert world.bench.protocol.open_operations == {}


def test_most_subscriptions_live_through_their_storm() -> None:
    ended: list[Outcome | None] = []
    for seed in range(60):
        world = World(seed)
        world.listen()
        for _ in range(300):
            world.step()
        world.calm_down()
        ended += outcomes(world)
    alive = sum(isinstance(outcome, ListenEnded) for outcome in ended)
    assert alive > 0.8 * len(ended)


@pytest.mark.spec("P6", "S9", "B3")
@pytest.mark.parametrize("seed", range(40))
def test_no_message_makes_a_listening_client_raise_or_show_what_was_not_agreed_to(seed: int) -> None:
    world = World(seed)
    chance = random.Random(seed)
    methods = [
        "notifications/subscriptions/acknowledged",
        "notifications/tasks",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
        "notifications/cancelled",
        "notifications/x",
    ]
    world.listen()
    for _ in range(300):
        world.step()
        sent = [message["id"] for message in world.bench.sent if "id" in message]
        found: Any = chance.choice([*sent[-3:], *ODD])
        params: JSONObject = chance.choice([wire_task(taskId=chance.choice(NAMES)), {"notifications": {}}, {"uri": 1}])
        if chance.random() < 0.5:
            params = {**params, chance.choice(["status", "notifications", "taskId", "requestId"]): chance.choice(ODD)}
        meta = chance.choice([{META_SUBSCRIPTION_ID: found}, {META_SUBSCRIPTION_ID: found}, 5, {}])
        message: JSONObject = {"method": chance.choice(methods), "params": {**params, "_meta": meta}}
        if chance.random() < 0.2:
            message = {"id": found, "result": {"resultType": chance.choice(["complete", "task", 5]), "_meta": meta}}
        if chance.random() < 0.3:
            world.say(chance.choice(sent), message)
    check_order(world)
