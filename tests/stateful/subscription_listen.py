"""One subscription of a storm: every message is held against what its tasks really went through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcp_tasks_core.access import AccessRule, Owner
from mcp_tasks_core.identifiers import RequestId, StreamId
from mcp_tasks_core.testing.listening import BrokenSubscription, Listening
from stateful.proving import prove
from stateful.subscription_tasks import PREFIX, SHOWN_TO, Moment

if TYPE_CHECKING:
    from stateful.subscription_server import Server

LISTS: Final = ("tools", "prompts", "resources")
_BLOCKABLE: Final = ("notifications/tasks", "notifications/resources/updated", "list_changed")


@attrs.define(eq=False)
class Stream:
    """Where messages go. ``told_ms``: since when the core holds back what its reader does not take."""

    id: StreamId
    owner: Owner
    own: bool
    blocked: bool = False
    told_ms: int | None = None
    closed: bool = False
    over: bool = False


class Listen:
    """A ``subscriptions/listen`` request, from its sending on.

    Args:
        expected: the code of the error that answers it at once, ``None`` where it is served.
    """

    def __init__(
        self, server: Server, stream: Stream, request_id: RequestId, asked: dict[str, Any], expected: int | None
    ) -> None:
        self.server = server
        self.world = server.world
        self.stream = stream
        self.expected = expected
        self.judge = Listening(request_id, stream.id, asked)
        self.opened = self.world.timelines.count
        self.opened_ms = self.world.now_ms
        self.acked = self.acked_ms = 0
        self.left = False
        self.ending = False  # its transport or its server is about to end
        self.last: dict[str, int] = {}
        self.due: set[str] = set()
        self.undecided: set[str] = set()

    @property
    def key(self) -> tuple[int, str]:
        return (self.stream.id, json.dumps(self.judge.request_id))

    @property
    def open(self) -> bool:
        return not self.left and not self.judge.ended

    @property
    def task_ids(self) -> list[str]:
        return list(dict.fromkeys(self.judge.asked.get("taskIds") or ()))

    @property
    def agreed_ids(self) -> list[str]:
        ids: list[str] = (self.judge.agreed or {}).get("taskIds", [])
        return ids

    @property
    def has_base(self) -> bool:
        agreed = self.judge.agreed or {}
        return any(agreed.get(f"{kind}ListChanged") for kind in LISTS) or bool(agreed.get("resourceSubscriptions"))

    def _moments(self, task_id: str) -> list[Moment]:
        return self.world.timelines.of.get(task_id, [])

    # --- what comes

    def take(self, wire: dict[str, Any], final: bool) -> None:
        prove(not self.left, "S6", f"{wire} after the client has ended the subscription")
        try:
            self.judge.take(wire)
        except BrokenSubscription as problem:
            raise AssertionError(f"S1, S5, S8: {problem}, in {wire}") from problem
        prove(final == ("method" not in wire), "S5", f"{wire} says final={final}")
        method = wire.get("method", "")
        if method == "notifications/subscriptions/acknowledged":
            self._judge_agreed(self.judge.agreed or {})
        elif method == "notifications/tasks":
            self._judge_state({name: value for name, value in wire["params"].items() if name != "_meta"})
        elif method == "notifications/cancelled":
            self._judge_cancelled()
        elif method:
            self._judge_news(wire)
        elif "error" in wire:
            self._judge_error(wire["error"])
        else:
            self._judge_end()
        if method.endswith(_BLOCKABLE):
            prove(self.stream.told_ms is None, "D44", f"{method} on a stream whose reader takes nothing")

    def take_cut(self) -> None:
        prove(self.stream.own, "D22", "a stream that others share was cut")
        prove(not self.left, "S6", "a stream was cut that the client had ended")
        self.judge.take_cut()
        self._judge_abnormal()

    def _judge_agreed(self, agreed: dict[str, Any]) -> None:
        asked = self.judge.asked
        self.acked, self.acked_ms = self.world.timelines.count, self.world.now_ms
        for kind in LISTS:
            prove((agreed.get(f"{kind}ListChanged") is True) == (asked.get(f"{kind}ListChanged") is True), "S9", kind)
        for name in ("resourceSubscriptions", "taskIds"):
            prove((name in agreed) == (asked.get(name) is not None), "S9", f"{name} in {agreed} for {asked}")
        uris = list(dict.fromkeys(asked.get("resourceSubscriptions") or ()))
        prove(agreed.get("resourceSubscriptions", []) == uris, "S9", f"{agreed} for {uris}")
        ids = self.agreed_ids
        prove(ids == [task_id for task_id in self.task_ids if task_id in ids], "S7", f"the order of {ids}")
        for task_id in self.task_ids:
            self._judge_agreed_task(task_id, task_id in ids)

    def _judge_agreed_task(self, task_id: str, agreed: bool) -> None:
        rights, owner = self.world.rights, self.stream.owner
        since = [m for m in self._moments(task_id) if m.until is None or m.until > self.opened]
        seen = [m.state is not None and rights.might_ever(owner, m.owner) for m in since]
        if agreed:
            taken = owner in rights.taken_ms and not rights.changed_since(owner, self.opened)
            prove(any(seen) and not taken, "S7", f"{owner} is to be told of {task_id}, which it may not see")
            return
        constant = bool(seen) and all(seen) and since[0].count <= self.opened and rights.allows(owner, since[0].owner)
        prove(not constant or rights.changed_since(owner, self.opened), "S7", f"{owner} is not told of its {task_id}")

    def _judge_state(self, state: dict[str, Any]) -> None:
        task_id, owner = state["taskId"], self.stream.owner
        shown_to = state.pop(SHOWN_TO, None)
        wanted = owner.subject if task_id.startswith(PREFIX) else None
        prove(shown_to == wanted, "A1", f"{owner} sees what is shown to {shown_to}: {state}")
        moments, after = self._moments(task_id), self.last.get(task_id, -1)
        later = range(after + 1, len(moments))
        index = next((i for i in later if moments[i].state == state), None)
        prove(index is not None, "S4", f"{state} was no state of the task after {moments[after:]}")
        assert index is not None
        moment = moments[index]
        if after >= 0:
            whole = all(m.state is not None for m in moments[after:index])
            prove(whole, "S8", f"a state of a later task with the same id: {state}")
        else:
            fresh = moment.until is None or moment.until > self.opened
            prove(fresh, "D21", f"the first state is older than the listen: {state}")
        self.last[task_id] = index
        prove(self.world.rights.might_ever(owner, moment.owner), "A1", f"{owner} sees {state}")
        taken_ms = self.world.rights.taken_ms.get(owner)
        if taken_ms is not None and not moment.ended:
            prove(not self._repaired(taken_ms, strictly=True), "A1", f"{owner} sees {state} long after it might")
        told_late = moment.ended and moments[index + 1 : index + 2]  # it is gone, and was known before
        if moment.until_ms is not None and not told_late:
            prove(not self._repaired(moment.until_ms, strictly=True), "S8", f"{state} was over at {moment.until_ms}")

    def _judge_news(self, wire: dict[str, Any]) -> None:
        subject = wire["params"].get("uri") or wire["method"]
        prove(subject in self.due, "S1", f"{wire} though nothing changed for {self.stream.owner}")
        self.due.discard(subject)

    def _judge_error(self, error: dict[str, Any]) -> None:
        if self.expected is None:
            trouble = error["code"] == -32603 and not self.server.is_quiet
            prove(trouble, "S11", f"{error} for {self.judge.asked}, which can be served")

    def _judge_end(self) -> None:
        if self.ending or self.server.shutting_down or self._age_ms >= self.world.limits.subscription_duration_ms:
            prove(not self.due, "S5", f"the end came before {self.due}")
            for task_id in self.agreed_ids:
                told = task_id in self.last or self._over_since(task_id) is not None
                prove(told, "S5", f"the end came before the first state of {task_id}")
            return
        prove(not self.has_base, "S5", f"{self.judge.agreed} was ended, and nothing was the matter")
        self._judge_missed()
        for task_id in self.agreed_ids:
            prove(self._over_since(task_id) is not None, "S5", f"the end came before that of {task_id}")

    def _judge_cancelled(self) -> None:
        prove(not self.stream.own, "D22", "a cancellation on a stream that ends by itself")
        prove(self.judge.error is None, "S5", "a cancellation after an error")
        if self.judge.result is None:
            self._judge_abnormal()

    def _judge_abnormal(self) -> None:
        stream, world = self.stream, self.world
        slow = stream.told_ms is not None and world.now_ms - stream.told_ms >= world.limits.slow_reader_ms
        owners = [moments[-1].owner for task_id in self.agreed_ids if (moments := self._moments(task_id))]
        taken_anew = any(not world.rights.might_ever(stream.owner, owner) for owner in owners)
        undecided = world.rights.rule is AccessRule.ASK and not self.server.is_quiet and bool(owners)
        forbidden = taken_anew or undecided or world.rights.ever_changed(stream.owner)
        prove(slow or forbidden, "S5", "a subscription was dropped, and nothing was the matter")
        prove(self.judge.agreed is not None or stream.own, "S1", "a cancellation before the acknowledgement")
        world.counts["dropped as slow" if slow else "dropped as forbidden"] += 1

    # --- what must have come by now

    @property
    def _age_ms(self) -> int:
        return self.world.now_ms - self.opened_ms

    def _repaired(self, since_ms: int, *, strictly: bool = False) -> bool:
        """Whether what happened then must have been noticed, though nobody gave a hint."""
        quiet_ms = self.server.quiet_ms
        return quiet_ms is not None and (
            max(since_ms, quiet_ms) + self.world.limits.reconcile_interval_ms + strictly <= self.world.now_ms
        )

    def _over_since(self, task_id: str) -> int | None:
        """Since when nothing more can come of a task, ``None`` while something can."""
        moments, last = self._moments(task_id), self.last.get(task_id, -1)
        if last >= 0 and moments[last].ended:
            return moments[last].at_ms
        for index in range(last + 1, len(moments)):
            gone = moments[index]
            if gone.state is None and gone.count > (self.opened if last < 0 else 0):
                return gone.at_ms
        return None

    def _judge_missed(self) -> None:
        """A task that is gone had told its end before, where this server knew of it."""
        for task_id in self.agreed_ids:
            moments, last = self._moments(task_id), self.last.get(task_id, -1)
            gone = next((i for i in range(last + 1, len(moments)) if moments[i].state is None), last + 1)
            taken_anew = any(m.state is not None for m in moments[gone:])
            if gone > last + 1 and not taken_anew and not (last >= 0 and moments[last].ended):
                end = moments[gone - 1]
                known = end.ended and end.known_to == self.server.name and end.count > self.acked
                known = known and not self.server.doubts(self.stream.owner, task_id)
                prove(not known, "S8", f"the end of {task_id} was known, and not told: {end.state}")

    def check(self) -> None:
        """After everything that a prompt server has to do was done."""
        if not self.open:
            return
        world, limits, now_ms = self.world, self.world.limits, self.world.now_ms
        if self.judge.agreed is None:
            prove(not self.server.is_quiet, "S1", f"{self.judge.asked} was never acknowledged")
            return
        watching = [task_id for task_id in self.agreed_ids if self._over_since(task_id) is None]
        if self.stream.told_ms is not None:
            since_ms = max(self.stream.told_ms, self.acked_ms)
            prove(now_ms < since_ms + limits.slow_reader_ms, "S11", "a slow reader is waited for too long")
        elif not self.stream.blocked and not self.server.paces(self.stream):
            self._check_told(watching)
        lost = self.server.is_quiet and self.undecided & {t for t in watching if not self._newest_ended(t)}
        prove(not lost, "A1", f"{self.stream.owner} still listens to {lost}, and nobody said that it may")
        taken_ms = world.rights.taken_ms.get(self.stream.owner)
        if taken_ms is not None and watching and not all(self._newest_ended(task_id) for task_id in watching):
            prove(not self._repaired(taken_ms, strictly=True), "A1", f"{self.stream.owner} still listens to {watching}")

    def _newest_ended(self, task_id: str) -> bool:
        newest = self.world.timelines.newest(task_id)
        return newest is not None and newest.ended

    def _check_told(self, watching: list[str]) -> None:
        prove(not self.due, "S8", f"nobody told of {self.due}")
        self._judge_missed()
        about_to_end = self.ending or self.server.shutting_down
        prove(not about_to_end, "S5", "open though the stream or the server is about to end")
        prove(self._age_ms < self.world.limits.subscription_duration_ms, "S11", "it has lasted too long")
        for task_id in watching:
            moments, last = self._moments(task_id), self.last.get(task_id, -1)
            doubted = self.server.doubts(self.stream.owner, task_id)
            prove(last >= 0 or doubted, "D21", f"{task_id} has no first state")
            if last < len(moments) - 1:
                newest = moments[-1]
                own = newest.known_to == self.server.name
                late = self._repaired(moments[last].until_ms or 0)
                hinted = self.server.is_quiet and self.server.hinted.get(task_id, 0) >= (moments[last].until or 0)
                must = (own or late or hinted) and not doubted
                prove(not must, "S8", f"{task_id} is {newest.state}, and nobody told")
        if not watching and not self.has_base:
            over_ms = max((self._over_since(task_id) or 0 for task_id in self.agreed_ids), default=0)
            prove(not self._repaired(over_ms), "D20", f"{self.judge.agreed}: nothing is left, and no end")
