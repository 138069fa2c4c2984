"""The application of a storm: its calls, its deferrals and its work, in any order, good and bad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_tasks_core.identifiers import InputKey, TaskId, Ticket
from mcp_tasks_core.server.effects import CallMethod, InvokeTool, LoadTask, StoreTask
from mcp_tasks_core.server.events import (
    UNCHANGED,
    Asked,
    CallLogged,
    CallProgressed,
    Deferral,
    InputNeeded,
    InputWithdrawn,
    MethodAnswered,
    Outcome,
    Returned,
    TaskLoaded,
    TaskStored,
    ToolAnswered,
    ToolDeferred,
    ToolsReplaced,
    WorkCompleted,
    WorkProgressed,
    WorkReleased,
    WorkRetimed,
)
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_core import Call, Core
from stateful.server_questions import BAD_QUESTIONS, ENDS, KEYS, OUTCOMES, QUESTIONS, missing_kind
from stateful.server_storage import repeated

if TYPE_CHECKING:
    from stateful.server_world import World

_ASKING = ("tools/call", "prompts/get")
_UNKNOWN = Ticket(10**9)


class Application:
    """Answers calls and runs work for all cores."""

    def __init__(self, world: World) -> None:
        self._world = world

    # --- calls

    def call(self, pick: Pick) -> None:
        core = pick.of(self._world.cores)
        waiting = [ticket for ticket, call in core.calls.items() if not call.answered]
        if not waiting:
            if core.used:
                effects = core.feed(repeated(core, pick.of(core.used[-8:]), pick))
                prove(not effects, "DESIGN 3", f"a repeated answer had the effects {effects}")
            return
        ticket = pick.of(waiting)
        call = core.calls[ticket]
        whim = pick.number(0, 9)
        if whim == 0:
            self._progress(core, ticket, call, pick)
        elif whim == 1:
            core.feed(
                CallLogged(ticket=ticket, level=pick.of(["debug", "info", "error"]), data={"n": pick.number(0, 9)})
            )
        elif whim < 7 and isinstance(call.effect, InvokeTool) and call.effect.context.may_defer:
            self._defer(core, ticket, call, pick)
        else:
            self._end(core, ticket, call, pick)

    def _progress(self, core: Core, ticket: Ticket, call: Call, pick: Pick) -> None:
        self._world.progressing = call.sent
        core.feed(CallProgressed(ticket=ticket, progress=pick.number(0, 5), total=pick.of([None, 9.5]), message="on"))

    def _end(self, core: Core, ticket: Ticket, call: Call, pick: Pick) -> None:
        outcome, code = pick.of(OUTCOMES) if pick.number(0, 1) else self._question(call, pick)
        if (
            isinstance(outcome, Asked)
            and call.effect.context.request_id is not None
            and self._method(call) not in _ASKING
        ):
            code = -32603
        if isinstance(outcome, Returned) and isinstance(call.effect, CallMethod) and isinstance(outcome.result, dict):
            code = None if outcome.result.get("content") == "text" else code
            outcome = Returned({**outcome.result, "messages": []})
        waited_for = call.sent.key in core.open and not call.cancelled
        core.world.progressing = None
        call.answered = True
        core.used.append(ticket)
        answered = ToolAnswered if isinstance(call.effect, InvokeTool) else MethodAnswered
        effects = core.feed(answered(ticket, outcome))
        if not waited_for:
            prove(not effects, "I2", f"the answer to a call that was cancelled had the effects {effects}")
            return
        prove(call.sent.answered, "B3", f"{call.sent} was not answered though its call was")
        frame, wire = core.frames[-1]
        prove(frame.code == code, "B5", f"{outcome} of {call.effect} gave {wire}, not {code}")
        if code is None and isinstance(outcome, Asked):
            result = wire["result"]
            prove(result["resultType"] == "input_required", "R1", f"{result} asks nothing")
            prove(result.get("inputRequests", {}) == outcome.requests, "R1", f"{result} for {outcome}")
            if call.sent.judged:
                core.register_state(call.sent, result["requestState"], outcome)

    @staticmethod
    def _method(call: Call) -> str:
        return call.effect.method if isinstance(call.effect, CallMethod) else "tools/call"

    def _question(self, call: Call, pick: Pick) -> tuple[Outcome, int | None]:
        requests: dict[InputKey, Any] = {}
        code: int | None = None
        for key in KEYS[: pick.number(1, 2)]:
            question = pick.of([*QUESTIONS, *QUESTIONS, BAD_QUESTIONS[-1]])
            requests[InputKey(key)] = question
            if code is None:
                code = self._code_for(question, call.effect.context.capabilities.raw)
        single_use, nonce = pick.of([(False, b""), (True, self._world.entropy()), (True, b"short")])
        if single_use and len(nonce) < 16 and code is None:
            code = -32603
        return Asked(requests, pick.of([None, {"page": 2}]), single_use, nonce), code

    @staticmethod
    def _code_for(question: Any, capabilities: Any) -> int | None:
        if question in BAD_QUESTIONS:
            return -32603
        return -32021 if missing_kind(question, capabilities) else None

    def promptly_defer(self, core: Core, pick: Pick) -> None:
        """Make a task of the newest call, if it waits."""
        ticket = max(core.calls, default=None)
        if ticket is not None and not core.calls[ticket].answered:
            self._defer(core, ticket, core.calls[ticket], pick)

    def _defer(self, core: Core, ticket: Ticket, call: Call, pick: Pick) -> None:
        deferral = pick.of([Deferral.START, Deferral.START, Deferral.PROMOTE, Deferral.CLAIM])
        claim = TaskId(f"claim-{pick.number(1, 2)}")
        event = ToolDeferred(
            ticket=ticket,
            deferral=deferral,
            entropy=b"" if deferral is Deferral.CLAIM else self._world.entropy()[:24],
            task_id=claim if deferral is Deferral.CLAIM else None,
            ttl_ms=pick.of([20_000, 20_000, 5_000, 1_000, 1, None]),
            poll_interval_ms=pick.of([None, 100]),
            status_message=pick.of([None, "queued"]),
            detach_on_disconnect=pick.number(0, 3) == 0,
        )
        call.answered = True
        core.used.append(ticket)
        if call.cancelled:
            effects = core.feed(event)
            prove(not effects, "I2", f"deferring a call that was cancelled had the effects {effects}")
            return
        call.deferred = event
        core.feed(event)

    # --- work

    def work(self, pick: Pick) -> None:
        core = pick.of(self._world.cores)
        task_id = self._task(core, pick)
        whim = pick.number(0, 9)
        if whim < 4:
            self.ask(core, task_id, pick)
        elif whim < 6:
            core.feed(WorkProgressed(task_id=task_id, progress=pick.number(0, 9), message=pick.of([None, "x" * 2000])))
        elif whim == 6:
            key = InputKey(pick.of(KEYS))
            core.waiting.pop((task_id, key), None)
            core.feed(InputWithdrawn(task_id, key))
        elif whim == 7:
            core.feed(WorkRetimed(task_id=task_id, ttl_ms=pick.of([20_000, 1_000, None, UNCHANGED])))
        elif whim == 8 and core.config.executor is not None and pick.number(0, 1):
            self._release(core, task_id)
        else:
            self.complete(core, task_id, pick)

    def _task(self, core: Core, pick: Pick) -> TaskId:
        live = list(core.live)
        known = list(self._world.ledger.lives)[-5:]
        return pick.of([*live, *live, *live, *known, TaskId("unknown")])

    def ask(self, core: Core, task_id: TaskId, pick: Pick) -> None:
        key = InputKey(pick.of(KEYS))
        core.waiting.setdefault((task_id, key), self._world.ledger.changes)
        self._world.asked.add((task_id, key))
        core.feed(InputNeeded(task_id, key, pick.of(QUESTIONS)))

    def complete(self, core: Core, task_id: TaskId, pick: Pick) -> None:
        outcome, status, payload = pick.of(ENDS)
        self._world.offers.setdefault(task_id, []).append((status, payload))
        core.live.pop(task_id, None)
        for waiting in [pair for pair in core.waiting if pair[0] == task_id]:
            del core.waiting[waiting]
        core.feed(WorkCompleted(task_id, outcome))

    def _release(self, core: Core, task_id: TaskId) -> None:
        """Leave a task as it is: nobody runs its work any longer."""
        self._world.left.add(task_id)
        core.live.pop(task_id, None)
        core.feed(WorkReleased(task_id))

    # --- mistakes

    def blunder(self, pick: Pick) -> None:
        """Something that the interface forbids, and that the core can tell."""
        core = pick.of(self._world.cores)
        task_id, key = TaskId("unknown"), InputKey("first")
        blunders: list[Any] = [
            TaskStored(_UNKNOWN),
            TaskLoaded(Ticket(0), None),
            ToolAnswered(_UNKNOWN, Returned({})),
            CallProgressed(ticket=_UNKNOWN, progress=1),
            CallLogged(ticket=_UNKNOWN, level="info", data=1),
            WorkProgressed(task_id=task_id, progress=float("inf")),
            WorkRetimed(task_id=task_id, ttl_ms=0, poll_interval_ms=None),
            WorkRetimed(task_id=task_id, ttl_ms=None, poll_interval_ms=1.5),  # type: ignore[arg-type]
            *(InputNeeded(task_id, key, question) for question in BAD_QUESTIONS),
            InputNeeded(task_id, InputKey(""), QUESTIONS[0]),
            InputNeeded(task_id, InputKey("k" * 300), QUESTIONS[0]),
            ToolsReplaced([*(core.config.tools or ())] * 2),
            "no event",
        ]
        blunders.extend(self._blunders_with_calls(core))
        blunders.extend(self._blunders_with_store(core))
        core.blunder(pick.of(blunders))

    def _blunders_with_calls(self, core: Core) -> list[Any]:
        found: list[Any] = []
        for ticket, call in core.calls.items():
            if call.answered or call.cancelled or call.sent.key not in core.open:
                continue
            found.append(TaskStored(ticket))
            if isinstance(call.effect, CallMethod):
                found.append(ToolAnswered(ticket, Returned({})))
            found.append(CallProgressed(ticket=ticket, progress=float("nan")))
            found.append(CallLogged(ticket=ticket, level="loud", data=1))
            if isinstance(call.effect, InvokeTool):
                short = b"" if call.effect.context.may_defer else b"x" * 24
                found.append(ToolDeferred(ticket=ticket, entropy=short, ttl_ms=1))
                found.append(ToolDeferred(ticket=ticket, deferral=Deferral.CLAIM, ttl_ms=1))
        return found

    def _blunders_with_store(self, core: Core) -> list[Any]:
        fresh = self._world.limits.answer_wait_ms
        young = [t for t, p in core.pending.items() if self._world.now_ms - p.issued_ms < fresh]
        effects = [(ticket, core.pending[ticket].effect) for ticket in young]
        loads = [TaskStored(ticket) for ticket, effect in effects if isinstance(effect, LoadTask)]
        return [*loads, *(TaskLoaded(ticket, None) for ticket, effect in effects if isinstance(effect, StoreTask))]
