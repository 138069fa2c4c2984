"""A storm of subscriptions: everything that can happen to listeners, to their tasks and to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mcp_tasks_core.access import AccessRule
from mcp_tasks_core.identifiers import InputKey, RequestId, TaskId
from mcp_tasks_core.lifecycle import Advance, Answer, Cancel, Complete, RequestCancel, Retime, TaskInput
from mcp_tasks_core.records import decode_record
from mcp_tasks_core.server.effects import AskSource, Authorize, LoadTask
from mcp_tasks_core.server.events import (
    InputNeeded,
    ListChanged,
    ListKind,
    ResourceUpdated,
    TaskChanged,
    Ticked,
    WorkCompleted,
    WorkProgressed,
)
from stateful.picking import Pick
from stateful.proving import prove
from stateful.server_peer import AUDITOR, OWNERS
from stateful.server_questions import ANSWERS, ENDS, QUESTIONS, fits
from stateful.subscription_asking import URIS, compose_listen
from stateful.subscription_setting import SubscriptionSetting
from stateful.subscription_tasks import PREFIX

ALICE, BOB = OWNERS[0], OWNERS[1]


class SubscriptionWorld(SubscriptionSetting):
    """Each step does one thing that can happen."""

    # --- what happens to tasks

    def birth(self, pick: Pick) -> None:
        """A call becomes a task, or the engine begins one."""
        server = pick.of(self.servers)
        owner = pick.of([ALICE, ALICE, BOB])
        self.live(1)  # no two tasks with one id are of the same moment
        if len(self.timelines.live()) > 7:
            return
        if pick.number(0, 3) == 0:
            self.engine.begin(owner)
            return
        self.promptly(server, lambda: self.call(server, owner, pick))

    def work(self, pick: Pick) -> None:
        """The work behind a task goes on."""
        server = pick.of(self.servers)
        if not server.live:
            return
        task_id = pick.of(server.live)
        whim = pick.number(0, 3)
        if whim == 0:
            server.feed(WorkProgressed(task_id=task_id, message=f"step {pick.number(0, 9)}"))
        elif whim < 3:
            key = InputKey(pick.of(["first", "second", "third"]))
            server.feed(InputNeeded(task_id, key, pick.of(QUESTIONS[:2])))
        else:
            self.finish(pick)

    def finish(self, pick: Pick) -> None:
        """The work behind a task ends."""
        server = pick.of(self.servers)
        if server.live:
            task_id = pick.of(server.live)
            server.live.remove(task_id)
            server.feed(WorkCompleted(task_id, pick.of(ENDS)[0]))

    def owner(self, pick: Pick) -> None:
        """The owner of a task answers its questions, or cancels it."""
        server = pick.of(self.servers)
        task_id = self.a_live_task(pick, PREFIX)
        now = None if task_id is None else self.timelines.newest(task_id)
        if now is None or now.state is None or task_id is None:
            return
        asked = now.state.get("inputRequests")
        if asked and pick.number(0, 2):
            answers = {key: pick.of([x for x in ANSWERS if fits(asked[key], x)]) for key in asked}
            server.request(now.owner, "tasks/update", taskId=task_id, inputResponses=answers)
        else:
            server.request(now.owner, "tasks/cancel", taskId=task_id)

    def elsewhere(self, pick: Pick) -> None:
        """A process that is not under test changes a task; whether there is a hint is another matter."""
        task_id = self.a_live_task(pick, PREFIX)
        if task_id is None:
            return
        row = self.ledger.load(TaskId(task_id))
        assert row is not None
        record = decode_record(row.payload)
        self.ledger.loses_hints = pick.of([True, False])
        inputs: list[TaskInput] = [
            Advance(f"elsewhere {pick.number(0, 9)}"),
            Answer({k: pick.of([x for x in ANSWERS if fits(e.request, x)]) for k, e in record.outstanding.items()}),
            Complete({"content": [], "resultType": "complete"}),
            Cancel("elsewhere"),
            RequestCancel(),
            Retime(pick.of([3_000, 20_000]), 50),
        ]
        self.change(task_id, pick.of(inputs))
        self.ledger.loses_hints = False

    def engine_goes_on(self, pick: Pick) -> None:
        """Something happens to a task of the engine; it may tell."""
        live = [task_id for task_id in self.timelines.live() if task_id.startswith(PREFIX)]
        if live:
            task_id = pick.of(live)
            self.engine.step(task_id, pick)
            if pick.number(0, 2):
                pick.of(self.servers).feed(TaskChanged(TaskId(task_id)))

    def overtake(self, pick: Pick) -> None:
        """While the answer of a look is on its way, the task changes: here, or elsewhere with one more hint."""
        server = pick.of(self.servers)
        watched = {task_id for listen in server.open_listens for task_id in listen.agreed_ids}
        live = [task_id for task_id in self.timelines.live() if task_id in watched and not task_id.startswith(PREFIX)]
        if not live:
            return
        task_id, prompt = TaskId(pick.of(live)), server.prompt
        server.become(prompt=False)
        server.feed(TaskChanged(task_id))
        for pending in server.pending.values():
            server.do(pending)
        self.now_ms += 1
        if task_id in server.live and pick.number(0, 1):
            question = InputNeeded(task_id, InputKey(f"at {self.now_ms}"), QUESTIONS[0])
            self.promptly(server, lambda: server.feed(question))
        else:
            self.change(task_id, Advance(f"overtaken {self.now_ms}"))
            server.feed(TaskChanged(task_id))
        server.become(prompt=prompt)

    def purge(self, pick: Pick) -> None:
        """An operator deletes a row by hand; another task may take its id."""
        rows = [life.last.row.task_id for life in self.ledger.all_current()]
        claimed = TaskId("claim-1") in rows
        if claimed and pick.number(0, 1):
            self.ledger.purge(TaskId("claim-1"))
            self.live(1)
            server, owner = pick.of(self.servers), pick.of([ALICE, BOB])
            self.promptly(server, lambda: self.call(server, owner, pick, claims=True))
        elif rows and pick.number(0, 1):
            self.ledger.purge(pick.of(rows))

    def bustle(self, pick: Pick) -> None:
        """A task changes all the time, and every server is told; one who listens may not see it any more."""
        listens = [x for server in self.servers for x in server.open_listens if x.agreed_ids]
        if not listens:
            return
        listen = pick.of(listens)
        task_id, caller = pick.of(listen.agreed_ids), listen.stream.owner
        if self.rights.rule is AccessRule.ASK and caller not in self.rights.taken_ms:
            self.rights.turn(caller)
        for _ in range(pick.number(3, 8)):
            if task_id not in self.timelines.live() or task_id.startswith(PREFIX):
                return
            self.live(pick.of([400, 900]))
            self.change(task_id, Advance(f"bustle {self.now_ms}"))
            for server in self.servers:
                server.feed(TaskChanged(TaskId(task_id)))
            self.settle()

    def hint(self, pick: Pick) -> None:
        """A hint comes: true or not, once more, late, or about nothing. Then a prompt server has told the newest."""
        server = pick.of(self.servers)
        task_id = pick.of([*self.published[-6:], *list(self.timelines.of)[-6:], "unknown"])
        for _ in range(pick.number(1, 2)):
            server.feed(TaskChanged(TaskId(task_id)))
        if server.is_quiet and server.prompt:
            for listen in server.open_listens:
                self.compare(server, listen, task_id)

    # --- what clients do

    def listen(self, pick: Pick) -> None:
        """A client begins to listen."""
        server = pick.of(self.servers)
        shared = [s for s in server.streams.values() if not s.own and not s.closed]
        whim = pick.number(0, 3)
        if whim == 0 or (whim == 1 and not shared):
            stream = server.stream(pick.of([ALICE, ALICE, BOB, AUDITOR]), own=True)
        elif whim == 1 or len(shared) > 2:
            stream = pick.of(shared)
        else:
            stream = server.stream(pick.of([ALICE, ALICE, BOB, AUDITOR]), own=False)
        self._ids += 1
        ids: list[RequestId] = [self._ids, f"id {self._ids}", str(self._ids - 1), self._ids - 1]
        request_id = pick.of(ids)
        params, expected, declares = compose_listen(pick, server, stream)
        listen = server.listen(stream, request_id, params, expected, declares)
        self.counts[f"answered with {expected}" if expected else "opened"] += 1
        if expected is None and server.prompt and server.is_quiet and listen.judge.agreed is not None:
            may = {t for t in listen.task_ids if self.sees(stream.owner, t)}
            wanted = [t for t in listen.task_ids if t in may]
            prove(listen.agreed_ids == wanted, "S7", f"{listen.agreed_ids} in place of {wanted}")
            self.counts["left out"] += len(listen.task_ids) - len(wanted)
            for task_id in listen.agreed_ids:
                self.compare(server, listen, task_id)

    def leave(self, pick: Pick) -> None:
        """A client cancels its listen, or something that looks like it, or closes the stream."""
        server = pick.of(self.servers)
        streams = [stream for stream in server.streams.values() if server.listens_on(stream)]
        if not streams:
            return
        stream = pick.of(streams)
        whim = pick.number(0, 3)
        if whim == 0:
            server.close(stream)
        else:
            request_id = pick.of(server.listens_on(stream)).judge.request_id
            other = str(request_id) if type(request_id) is int else 0
            server.cancel(stream, request_id if whim == 1 else pick.of([other, None, 1.5, [request_id]]))

    def reader(self, pick: Pick) -> None:
        """A reader takes nothing more, or takes everything again."""
        server = pick.of(self.servers)
        streams = [s for s in server.streams.values() if server.listens_on(s) or (s.blocked and not s.closed)]
        if streams:
            stream = pick.of(streams)
            (server.unblock if stream.blocked else server.block)(stream)

    # --- what the application does

    def news(self, pick: Pick) -> None:
        """A list changed, or a resource, for everybody or for one owner."""
        owner = pick.of([None, None, ALICE, BOB])
        kind: ListChanged | ResourceUpdated = ListChanged(pick.of(list(ListKind)), owner)
        if pick.number(0, 1):
            kind = ResourceUpdated(pick.of(URIS), owner)
        pick.of(self.servers).announce(kind)

    def right(self, pick: Pick) -> None:
        """A right is taken, or given back."""
        if self.rights.rule is AccessRule.ASK and pick.number(0, 1):
            self.rights.turn(pick.of([AUDITOR, AUDITOR, ALICE]))
        elif self.rights.rule is AccessRule.ASK:
            self._silence(pick)

    def _silence(self, pick: Pick) -> None:
        """Nobody says whether a listener may still see its task."""
        server = pick.of(self.servers)
        prompt = server.prompt
        server.become(prompt=False)
        self.live(self.limits.reconcile_interval_ms)
        for ticket in [t for t, p in server.pending.items() if isinstance(p.effect, LoadTask | AskSource)]:
            server.answer(ticket)
        asked = [ticket for ticket, p in server.pending.items() if isinstance(p.effect, Authorize)]
        if asked:
            server.fail(pick.of(asked), pick)
        server.become(prompt=prompt)

    def shutdown(self, pick: Pick) -> None:
        """A stream is about to end, or now and then a whole server."""
        server = pick.of(self.servers)
        streams = [stream for stream in server.streams.values() if server.listens_on(stream)]
        if pick.number(0, 29) == 0:
            server.shut_down()
        elif streams and pick.number(0, 1):
            server.end_stream(pick.of(streams))

    # --- the store and the clock

    def mood(self, pick: Pick) -> None:
        """A store that answers at once begins to take its time, or the other way round."""
        server = pick.of(self.servers)
        if server.prompt:
            server.become(prompt=False)
        elif pick.number(0, 2):
            server.become(prompt=True)

    def store(self, pick: Pick) -> None:
        """A slow store does something, answers something, fails, or never says."""
        for server in self.servers:
            if server.pending:
                ticket = pick.of(list(server.pending))
                whim = pick.number(0, 9)
                if whim < 5:
                    server.answer(ticket)
                elif whim < 8:
                    server.do(server.pending[ticket])
                else:
                    server.fail(ticket, pick)

    def time(self, pick: Pick) -> None:
        """Time passes, and prompt servers are told of every moment that they wait for."""
        self.live(pick.of([1, 50, 100, 500, 999, 1_000, 2_000, 500, 50, 3_999, 4_000, 7_000]))

    def late(self, pick: Pick) -> None:
        """A machine was busy: time has passed, and nobody was told."""
        self.now_ms += pick.of([10, 100, 1_500, 100, 1_500, 5_000, 20_000])
        for server in self.servers:
            server.quiet_ms = None if server.quiet_ms is None else max(server.quiet_ms, self.now_ms + 1)
            server.feed(Ticked())

    # --- in the end


STEPS: Final[dict[str, Callable[[SubscriptionWorld, Pick], None]]] = {
    "birth": SubscriptionWorld.birth,
    "listen": SubscriptionWorld.listen,
    "work": SubscriptionWorld.work,
    "finish": SubscriptionWorld.finish,
    "owner": SubscriptionWorld.owner,
    "elsewhere": SubscriptionWorld.elsewhere,
    "engine": SubscriptionWorld.engine_goes_on,
    "hint": SubscriptionWorld.hint,
    "reader": SubscriptionWorld.reader,
    "news": SubscriptionWorld.news,
    "time": SubscriptionWorld.time,
    "mood": SubscriptionWorld.mood,
    "store": SubscriptionWorld.store,
    "leave": SubscriptionWorld.leave,
    "right": SubscriptionWorld.right,
    "late": SubscriptionWorld.late,
    "bustle": SubscriptionWorld.bustle,
    "overtake": SubscriptionWorld.overtake,
    "purge": SubscriptionWorld.purge,
    "shutdown": SubscriptionWorld.shutdown,
}
