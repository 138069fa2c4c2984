"""Several processes on one file, each of which creates, answers, cancels and reads the tasks of all."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import attrs

from tests.races.server_child import ServerChild, server_children

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
_AT_ONCE: Final = 12  # tasks of one process that are raced for at the same time
_POLL_SECONDS: Final = 0.02


@attrs.define
class Tally:
    """What was seen, and what should not have been."""

    tasks: int = 0
    requests: int = 0
    statuses: Counter[str] = attrs.field(factory=Counter)
    ends: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    faults: list[str] = attrs.field(factory=list)


class Race:
    """One task: made by one process, and raced for by two others."""

    def __init__(self, tally: Tally, children: list[ServerChild], random: Random, number: int) -> None:
        self._tally = tally
        self._children = children
        self._random = random
        self._number = number
        self._words: set[str] = set()
        self._cancelled = False

    async def run(self, creator: ServerChild) -> None:
        asks = self._random.random() < 0.85
        handle = await self._ask(
            creator, "tools/call", name="decide" if asks else "quick", arguments={"number": self._number}
        )
        if handle is None:
            return
        self._tally.tasks += 1
        task_id = handle["taskId"]
        first, second = self._random.sample(self._children, 2)
        async with anyio.create_task_group() as group:
            if asks:
                for child in (first, second)[: self._random.choice((1, 2, 2))]:
                    group.start_soon(self._answer, child, task_id)
            if self._random.random() < 0.35:
                self._cancelled = True
                group.start_soon(self._cancel, self._random.choice(self._children), task_id)
        for child in self._children:
            await self._follow(child, task_id)

    async def _answer(self, child: ServerChild, task_id: str) -> None:
        """Answer as soon as this process shows the question."""
        word = f"{child.name}-{self._random.randrange(10**6)}"
        while True:
            state = await self._read(child, task_id)
            if state is None or state["status"] in TERMINAL:
                return
            if state["status"] == "input_required":
                break
            await anyio.sleep(_POLL_SECONDS)
        self._words.add(word)
        answer = {"action": "accept", "content": {"word": word}}
        await self._ask(child, "tasks/update", taskId=task_id, inputResponses={"word": answer})

    async def _cancel(self, child: ServerChild, task_id: str) -> None:
        await anyio.sleep(self._random.random() * 0.03)
        await self._ask(child, "tasks/cancel", taskId=task_id)

    async def _follow(self, child: ServerChild, task_id: str) -> None:
        """Read until the task has ended, and judge how."""
        while True:
            state = await self._read(child, task_id)
            if state is None:
                return
            if state["status"] in TERMINAL:
                break
            await anyio.sleep(_POLL_SECONDS)
        if child is self._children[0]:
            self._tally.statuses[state["status"]] += 1
        expected = {f"{self._number} {word}" for word in self._words} or {f"{self._number} quick"}
        if state["status"] == "completed":
            text = state["result"]["content"][0]["text"]
            if text not in expected:
                self._fault(f"{task_id} has the result {text!r}, and was told {sorted(self._words)}")
        elif not (state["status"] == "cancelled" and self._cancelled):
            self._fault(f"{task_id} ended as {state['status']}, and nobody wanted that: {state}")

    async def _read(self, child: ServerChild, task_id: str) -> dict[str, Any] | None:
        state = await self._ask(child, "tasks/get", taskId=task_id)
        if state is not None and state["status"] in TERMINAL:
            ends = self._tally.ends[task_id]
            ends.add(json.dumps(state, sort_keys=True))
            if len(ends) > 1:
                self._fault(f"{task_id} has had {len(ends)} ends: {sorted(ends)}")
        return state

    async def _ask(self, child: ServerChild, method: str, **params: Any) -> dict[str, Any] | None:
        self._tally.requests += 1
        answer = await child.request(method, **params)
        if "error" in answer:
            self._fault(f"{child.name} answered {method} with {answer['error']}")
            return None
        result: dict[str, Any] = answer["result"]
        return result

    def _fault(self, text: str) -> None:
        self._tally.faults.append(text)


async def race(file: Path, *, processes: int, tasks: int, seed: int, seconds: float, backend: str) -> Tally:
    """Race for so many tasks of each process; a run that takes longer than this is taken for a deadlock."""
    tally = Tally()
    random = Random(seed)

    async def one(children: list[ServerChild], child: ServerChild, number: int, places: anyio.Semaphore) -> None:
        async with places:
            await Race(tally, children, Random(random.random()), number).run(child)

    try:
        with anyio.fail_after(seconds):
            async with (
                server_children(file, processes, backend=backend) as children,
                anyio.create_task_group() as group,
            ):
                for child in children:
                    places = anyio.Semaphore(_AT_ONCE)
                    for number in range(tasks):
                        group.start_soon(one, children, child, number, places)
    except TimeoutError:
        tally.faults.append(f"not everything had ended after {seconds:.0f} s")
    if tally.tasks != processes * tasks:
        tally.faults.append(f"{processes * tasks} tasks were asked for, and {tally.tasks} made")
    return tally
