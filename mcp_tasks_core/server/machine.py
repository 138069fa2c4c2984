"""What runs a server's procedures: tickets out, answers in, and the effects of one turn.

A procedure is a generator that reads as the specification reads: it yields a ``Need``, and gets the event that
answers it. It holds the sequence of one exchange or of one change, never protocol state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import Instant, TaskId, Ticket
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.server.effects import Report, ServerEffect, Severity
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.server.states import TaskStates
from mcp_tasks_core.wire.json import JsonCodec, StrictJson


@attrs.frozen(slots=True)
class Need:
    """An effect that wants an answer.

    Args:
        effect: the effect, given its ticket.
        kinds: the events that may answer it.
        wait_ms: how long the answer may take, ``None`` for as long as it likes.
        late: what to do with an answer that comes after that time.
    """

    effect: Callable[[Ticket], ServerEffect]
    kinds: tuple[type, ...]
    wait_ms: int | None = None
    late: Callable[[Any], None] | None = None


Procedure: TypeAlias = Generator[Need, Any, None]


@attrs.frozen(slots=True)
class Expired:
    """What a procedure gets in place of an answer that did not come in time."""

    wait_ms: int


class _Waiting:
    """A ticket that is out: who waits for its answer, and which answers will do."""

    __slots__ = ("exchange", "need", "procedure")

    def __init__(self, procedure: Procedure, need: Need, exchange: Exchange | None) -> None:
        self.procedure = procedure
        self.need = need
        self.exchange = exchange


class Machine:
    """The tickets, the effects of the running turn, and what procedures share."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.limits: Limits = config.limits
        self.codec: JsonCodec = StrictJson(config.limits) if config.codec is None else config.codec
        self.states = TaskStates(config, self.codec)
        self.now = Instant(wall_ms=0, monotonic_ms=0)
        self.effects: list[ServerEffect] = []
        self._tickets_issued = 0
        self._open: dict[Ticket, _Waiting] = {}
        self._expires_ms: dict[Ticket, int] = {}
        self._late: dict[Ticket, Need] = {}
        self._queues: dict[TaskId, deque[tuple[Procedure, Exchange | None]]] = {}

    # --- the turn

    def begin(self, now: Instant) -> None:
        self.now = now
        self.effects = []

    def emit(self, effect: ServerEffect) -> None:
        self.effects.append(effect)

    def report(self, severity: Severity, message: str) -> None:
        self.effects.append(Report(severity, message))

    # --- procedures

    def run(self, procedure: Procedure, exchange: Exchange | None = None) -> None:
        """Start a procedure, on behalf of an exchange or of nobody."""
        self._advance(procedure, exchange, None)

    def _advance(self, procedure: Procedure, exchange: Exchange | None, answer: object) -> None:
        try:
            need = procedure.send(answer)
        except StopIteration:
            return
        self._tickets_issued += 1
        ticket = Ticket(self._tickets_issued)
        self._open[ticket] = _Waiting(procedure, need, exchange)
        if need.wait_ms is not None:
            self._expires_ms[ticket] = self.now.monotonic_ms + need.wait_ms
        if exchange is not None:
            exchange.ticket = ticket
        self.effects.append(need.effect(ticket))

    def hold(self, task_id: TaskId) -> bool:
        """Make changes to a task wait until ``release``; ``False`` when one is being made already."""
        if task_id in self._queues:
            return False
        self._queues[task_id] = deque()
        return True

    def release(self, task_id: TaskId) -> None:
        """End ``hold``, and start the change that waited longest."""
        queue = self._queues[task_id]
        if queue:
            procedure, exchange = queue.popleft()
            self.run(self._then_next(task_id, procedure), exchange)
        else:
            del self._queues[task_id]

    def in_order(self, task_id: TaskId, procedure: Procedure, exchange: Exchange | None = None) -> None:
        """Start a procedure that changes a task once those before it, for the same task, have ended."""
        if self.hold(task_id):
            self.run(self._then_next(task_id, procedure), exchange)
        else:
            self._queues[task_id].append((procedure, exchange))

    def _then_next(self, task_id: TaskId, procedure: Procedure) -> Procedure:
        try:
            yield from procedure
        finally:
            self.release(task_id)

    # --- answers

    def exchange_of(self, ticket: Ticket) -> Exchange | None:
        """The exchange that waits for this ticket; ``None`` when nobody does any longer.

        Raises:
            LocalProtocolError: the ticket was never issued.
        """
        waiting = self._open.get(ticket)
        if waiting is None:
            self._check_issued(ticket)
            return None
        return waiting.exchange

    def resume(self, event: Any) -> None:
        """Hand an answer to the procedure that waits for it.

        Raises:
            LocalProtocolError: the ticket was never issued, or the effect is not answered by such an event.
        """
        ticket: Ticket = event.ticket
        waiting = self._open.get(ticket)
        if waiting is None:
            self._check_issued(ticket)
            need = self._late.get(ticket)
            if need is not None and need.late is not None and type(event) in need.kinds:
                del self._late[ticket]
                need.late(event)
            return
        if type(event) not in waiting.need.kinds:
            wanted = " or ".join(kind.__name__ for kind in waiting.need.kinds)
            raise LocalProtocolError(f"ticket {ticket} is answered by {wanted}, not by {type(event).__name__}")
        del self._open[ticket]
        self._expires_ms.pop(ticket, None)
        exchange = waiting.exchange
        if exchange is not None:
            exchange.ticket = None
        self._advance(waiting.procedure, exchange, event)

    def _check_issued(self, ticket: Ticket) -> None:
        if type(ticket) is not int or not 1 <= ticket <= self._tickets_issued:
            raise LocalProtocolError(f"ticket {ticket!r} was never issued")

    def drop(self, ticket: Ticket) -> None:
        """Wait for this ticket no longer: its procedure ends here, and answers to it are ignored."""
        waiting = self._open.pop(ticket)
        self._expires_ms.pop(ticket, None)
        waiting.procedure.close()

    # --- time

    @property
    def next_expiry_ms(self) -> int | None:
        """Monotonic milliseconds at which the first open ticket has waited long enough."""
        return min(self._expires_ms.values()) if self._expires_ms else None

    def expire(self) -> None:
        """Give every procedure that has waited long enough an ``Expired`` in place of its answer."""
        overdue = [ticket for ticket, at_ms in self._expires_ms.items() if at_ms <= self.now.monotonic_ms]
        for ticket in overdue:
            waiting = self._open.pop(ticket, None)
            del self._expires_ms[ticket]
            if waiting is None:  # pragma: no cover - both tables lose a ticket together
                continue
            if waiting.need.late is not None:
                self._late[ticket] = waiting.need
            if waiting.exchange is not None:
                waiting.exchange.ticket = None
            self._advance(waiting.procedure, waiting.exchange, Expired(waiting.need.wait_ms or 0))

    def waits_for(self, ticket: Ticket) -> tuple[str, ...]:
        waiting = self._open.get(ticket)
        return () if waiting is None else tuple(kind.__name__ for kind in waiting.need.kinds)

    @property
    def open_tickets(self) -> int:
        return len(self._open)

    @property
    def busy_tasks(self) -> int:
        """Tasks that a change is being made to, or waits to be."""
        return len(self._queues)
