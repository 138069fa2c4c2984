"""This process's lease on a shared store: whether it is held, and whether those of others can be believed."""

from __future__ import annotations

from mcp_tasks_core.server.effects import HoldLease
from mcp_tasks_core.server.events import LeaseHeld, StoreFailed
from mcp_tasks_core.server.machine import Machine, Need
from mcp_tasks_core.server.storing import Step, Storing


class Lease:
    """What the store was told last of this process's life. There is none where ``executor`` is not configured.

    Leases are moments of the wall clock, which all processes of one machine share. When that clock is set forward,
    or the machine slept, every lease looks as if it had run out, and most of their holders are about to renew them.
    """

    def __init__(self, machine: Machine, storing: Storing) -> None:
        self._machine = machine
        self._storing = storing
        self._until_ms: int | None = None
        self._wall_ahead_ms: int | None = None
        self._believes_from_ms = 0

    @property
    def executor(self) -> str | None:
        """The name that the lease is held on."""
        return self._machine.config.executor if self._machine.config.tasks else None

    @property
    def believes_others(self) -> bool:
        """Whether a process whose lease has run out is to be taken for dead.

        For the length of a lease it is not, after this process overslept its own lease or saw the clock jump.
        """
        return self._machine.now.monotonic_ms >= self._believes_from_ms

    def ensure(self) -> Step[None]:
        """Hold the lease unless it still runs: no work is begun under a name that others take for dead.

        Raises:
            Refusal: the store does not answer.
        """
        if self.executor is not None and not (
            self._until_ms is not None and self._machine.now.wall_ms < self._until_ms
        ):
            yield from self.hold()

    def hold(self) -> Step[None]:
        """Hold the lease from now on, for its whole length.

        Raises:
            Refusal: the store does not answer.
        """
        executor, limits = self.executor, self._machine.limits
        assert executor is not None
        until_ms = self._machine.now.wall_ms + limits.lease_ms
        answer = yield Need(
            lambda ticket: HoldLease(ticket, executor, until_ms), (LeaseHeld, StoreFailed), limits.answer_wait_ms
        )
        if not isinstance(answer, LeaseHeld):
            raise self._storing.trouble("holding the lease of this process", answer)
        self._look_at_the_clocks()
        self._until_ms = until_ms

    def _look_at_the_clocks(self) -> None:
        now, limits = self._machine.now, self._machine.limits
        overslept = self._until_ms is not None and now.wall_ms >= self._until_ms
        wall_ahead_ms = now.wall_ms - now.monotonic_ms
        # A jump shorter than a renewal makes no lease run out that is renewed on time.
        jumped = self._wall_ahead_ms is not None and wall_ahead_ms - self._wall_ahead_ms > limits.lease_renewal_ms
        if overslept or jumped:
            self._believes_from_ms = now.monotonic_ms + limits.lease_ms
        self._wall_ahead_ms = wall_ahead_ms
