"""A storm among processes on one store that die and come back while it fails; then calm, and everything has ended."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from mcp_tasks_core.identifiers import Revision, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.server.effects import (
    DeliverInput,
    HoldLease,
    ListOrphans,
    LoadTask,
    OrphanLeft,
    ResumeWork,
    StartWork,
    StopWork,
    StoreTask,
)
from mcp_tasks_core.server.events import WorkReleased
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TERMINAL, TaskStatus
from mcp_tasks_core.testing.faults import StoreFault
from mcp_tasks_core.testing.harness import Defer, ServerHarness
from mcp_tasks_core.testing.messages import accepted, form_question, text_result
from mcp_tasks_core.testing.processes import Processes
from mcp_tasks_core.testing.shared_memory import SharedMemoryTaskStore
from stateful.effort import times

LIMITS = Limits(work_attempts_max=6)
_ENDED = {status.value for status in TERMINAL}
_STEPS = 120
_RUNS = 60
_FAULTS = [StoreFault.FAIL, StoreFault.UNCERTAIN_MADE, StoreFault.UNCERTAIN_LOST, StoreFault.SLOW, StoreFault.LATE]


class JudgingStore(SharedMemoryTaskStore):
    """Refuses a second end of any task, and an answer that goes away."""

    def swap(self, row: StoredTask) -> bool:
        old = self.load(row.task_id)
        done = super().swap(row)
        if done and old is not None:
            was, now = json.loads(old.payload), json.loads(row.payload)
            assert old.status not in _ENDED or now["expired"], f"T1: {old.status} became {row.status}"
            if not now["expired"]:
                answers = {key: answer for key, _, answer, _ in now["inputs"]}
                for key, _, answer, _ in was["inputs"]:
                    assert answer is None or answers[key] == answer, f"U6: the answer to {key!r} changed"
        return done


class Storm:
    """Two or three processes, and everything that can happen to them."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.recovery = random.choice(list(Recovery))
        self.processes = Processes(
            tools={"slow": lambda call: Defer(ttl_ms=None)},
            recovery=self.recovery,
            store=JudgingStore(),
            limits=LIMITS,
        )
        self.started = 0
        self.dead: list[ServerHarness] = []
        self.tasks: list[str] = []
        self.answered: dict[str, dict[str, Any]] = {}
        self.seen: dict[ServerHarness, int] = {}
        self.works: dict[ServerHarness, set[str]] = {}
        for _ in range(random.choice((2, 3))):
            self.start()

    @property
    def alive(self) -> list[ServerHarness]:
        return list(self.processes.running.values())

    def start(self) -> None:
        self.started += 1
        server = self.processes.start(f"p{self.started}")
        self.seen[server], self.works[server] = 0, set()

    # --- steps

    def step(self) -> None:
        steps = [
            self.call,
            self.call,
            self.ask,
            self.answer,
            self.finish,
            self.cancel,
            self.crash,
            self.stop,
            self.wake,
        ]
        self.random.choice([*steps, self.trouble, self.release_answer, self.time, self.time, self.jump])()
        for server in self.alive:
            self.look(server)

    def call(self) -> None:
        server = self.random.choice(self.alive)
        request_id = server.begin("tools/call", name="slow", arguments={})
        self.tasks += [a["result"]["taskId"] for a in server.answers_to(request_id) if "result" in a]

    def working(self) -> tuple[ServerHarness, str] | None:
        some = [(server, task_id) for server in self.alive for task_id in sorted(self.works[server])]
        return self.random.choice(some) if some else None

    def ask(self) -> None:
        if found := self.working():
            server, task_id = found
            server.ask(task_id, self.random.choice("ab"), form_question())

    def answer(self) -> None:
        """Whatever a client is told was taken is durable from then on."""
        server = self.random.choice(self.alive)
        asking = [task_id for task_id in self.tasks if server.record(task_id).outstanding]
        if asking:
            task_id, word = self.random.choice(asking), accepted(value=str(self.random.random()))
            before = server.record(task_id).outstanding
            key = self.random.choice(sorted(before))
            request_id = server.begin("tasks/update", taskId=task_id, inputResponses={key: word})
            for answered in server.answers_to(request_id):
                if "result" in answered and key in before:
                    self.answered.setdefault(task_id, {})[key] = word

    def finish(self) -> None:
        if found := self.working():
            server, task_id = found
            self.works[server].discard(task_id)
            if self.recovery is Recovery.LEAVE and self.random.random() < 0.2:
                server.feed(WorkReleased(TaskId(task_id)))
            elif self.random.random() < 0.5:
                server.complete(task_id, text_result(f"by {server.config.executor}"))
            else:
                server.fail(task_id, 7, "as it should")

    def cancel(self) -> None:
        if self.tasks and self.random.random() < 0.3:
            self.random.choice(self.alive).begin("tasks/cancel", taskId=self.random.choice(self.tasks))

    def crash(self) -> None:
        """A process dies, with what it waited for, and another one takes its place sooner or later."""
        self.processes.kill(self.random.choice(self.alive))
        if not self.alive or self.random.random() < 0.7:
            self.start()

    def stop(self) -> None:
        if len(self.alive) > 1:
            stopped = self.random.choice(self.alive)
            self.processes.kill(stopped)
            self.dead.append(stopped)

    def wake(self) -> None:
        if self.dead:
            self.processes.wake(self.dead.pop(self.random.randrange(len(self.dead))))

    def trouble(self) -> None:
        server = self.random.choice(self.alive)
        kind = self.random.choice([LoadTask, StoreTask, StoreTask, HoldLease, ListOrphans])
        server.script(kind, *self.random.choices([None, *_FAULTS], k=self.random.randint(1, 6)))

    def release_answer(self) -> None:
        for server in self.alive:
            while server.held and self.random.random() < 0.8:
                server.release()

    def time(self) -> None:
        self.processes.live(self.random.choice((10, 300, 1_000, 5_000, 20_000, 60_000)))

    def jump(self) -> None:
        if self.random.random() < 0.3:
            self.processes.jump(self.random.choice((1_000, 20_000, 3_600_000)))

    # --- what must hold

    def look(self, server: ServerHarness) -> None:
        """What the process was told to do since the last look."""
        for effect in server.effects[self.seen[server] :]:
            match effect:
                case StartWork(task_id=task_id) | ResumeWork(task_id=task_id) | OrphanLeft(task_id=task_id):
                    assert task_id not in self.works[server], f"{task_id} was begun twice in one process"
                    self.works[server].add(task_id)
                case StopWork(task_id=task_id):
                    self.works[server].discard(task_id)
                case DeliverInput(task_id=task_id, key=key, answer=answer):
                    assert server.record(task_id).inputs[key].answer == answer, "U1"
                case _:
                    pass
        self.seen[server] = len(server.effects)

    def calm(self) -> None:
        """No more faults and no more deaths: everything ends, or is worked on by exactly one living process."""
        for server in self.alive:
            server._faults.clear()
            while server.held:
                server.release()
        self.processes.live(3 * (LIMITS.lease_ms + LIMITS.lease_renewal_ms) + LIMITS.answer_wait_ms)
        self.processes.live(2 * LIMITS.sweep_interval_ms)
        for server in self.alive:
            self.look(server)
        store = self.processes.store
        assert isinstance(store, SharedMemoryTaskStore)
        for row in store.rows():
            record = self.alive[0].record(row.task_id)
            if record.is_terminal:
                continue
            workers = [server.config.executor for server in self.alive if row.task_id in self.works[server]]
            released = self.recovery is Recovery.LEAVE and record.executor is None
            assert workers == ([] if released else [record.executor]), f"{row.task_id} of {record.executor}: {workers}"

    def end(self) -> None:
        """All work comes to its end, and nothing is left unfinished but what the application left."""
        for server in self.alive:
            for task_id in sorted(self.works[server]):
                server.complete(task_id, text_result())
        for task_id in self.tasks:
            record = self.alive[0].record(task_id)
            left = self.recovery is Recovery.LEAVE and record.executor is None
            assert record.is_terminal or left, f"{task_id} never ends"
            for key, answer in self.answered.get(task_id, {}).items():
                kept = record.inputs[key].answer  # type: ignore[index]
                assert kept is not None, f"U1: the answer {answer} to {key!r} was acknowledged and is lost"
            if record.status is TaskStatus.FAILED and record.error is not None:
                assert record.error.code in (7, -32603)


def storm(seed: int) -> Storm:
    made = Storm(seed)
    for _ in range(_STEPS):
        made.step()
    made.calm()
    made.end()
    return made


@pytest.mark.spec("T1", "U1", "U6", "D29", "D31")
@pytest.mark.parametrize("seed", range(times(_RUNS)))
def test_after_a_storm_among_processes_every_task_has_one_end_and_no_answer_is_lost(seed: int) -> None:
    storm(seed)


def test_storms_are_worth_their_name() -> None:
    made = [storm(seed) for seed in range(20)]
    assert sum(len(one.tasks) for one in made) > 100
    assert sum(len(one.answered) for one in made) > 10
    taken = [r for one in made for r in one.processes.store.rows() if one.alive[0].record(r.task_id).attempts > 1]  # type: ignore[attr-defined]
    assert len(taken) > 10


def test_the_same_seed_gives_the_same_storm() -> None:
    def trace(made: Storm) -> list[tuple[str, str, Revision]]:
        store = made.processes.store
        assert isinstance(store, SharedMemoryTaskStore)
        return [(row.task_id, row.status, row.revision) for row in store.rows()]

    assert trace(storm(3)) == trace(storm(3))
