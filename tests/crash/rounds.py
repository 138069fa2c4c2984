"""Rounds of traffic that end in SIGKILL, on one file after the other."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import attrs

from mcp_tasks_core.store import StoredTask, StoreError
from mcp_tasks_sqlite import SealedTaskStore
from tests.crash.crash_app import LEASE_MS, open_store
from tests.crash.ledger import Handle, Known, Ledger
from tests.crash.server_child import Message, ServerChild, ServerEnded

ROUNDS_PER_FILE: Final = 25
_ROUND_SECONDS: Final = 30.0  # a round that is not over by then has failed
# From the death of a process to the end of its last task: the rest of its lease, and one look of another process.
# The rest is for a machine that has other things to do.
SETTLED_WITHIN_MS: Final = LEASE_MS + 100 + 4_600
_IN_FLIGHT_MAX: Final = 6
_TASKS_PER_ROUND_MAX: Final = 30
# What a server is asked next. Most of it is polling, as in life; much else would leave no task unfinished.
_CREATE, _ANSWER, _CANCEL = 0.04, 0.10, 0.105
_LOOK_AGAIN_SECONDS: Final = 0.02
_LOG_CHARS_SHOWN: Final = 4_000


@attrs.define
class Tally:
    """What a run amounts to."""

    rounds: int = 0
    kills: int = 0
    handles: int = 0
    answers: int = 0
    cancels: int = 0
    resolved: int = 0
    settled_ms: list[int] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)


class StoreLife:
    """One file, and the servers that live and die on it.

    Args:
        kind: of the store; see ``crash_app.open_store``.
        start: ``fork`` or ``exec``.
    """

    def __init__(self, folder: Path, random: Random, tally: Tally, *, backend: str, kind: str, start: str) -> None:
        self._folder = folder
        self._path = folder / "tasks.db"
        self._random = random
        self._tally = tally
        self._start = partial(
            ServerChild, self._path, backend=backend, kind=kind, start=start, log=folder / "stderr.txt"
        )
        # A store that forgets cannot be asked by anybody else what it promised.
        self._kind = "plain" if kind == "forgetful" else kind
        self._forks = start == "fork"
        self._servers: list[ServerChild] = []
        self._texts = 0
        self.ledger = Ledger()

    def run(self, rounds: int) -> None:
        """So many rounds, and a last look at the file."""
        for number in range(rounds):
            with self._named_faults(f"round {self._tally.rounds}"):
                _Round(self, self._random).run()
            self._tally.rounds += 1
            if number == rounds - 1 or self._random.random() < 0.5:
                # The other half leaves it to the next server to find the log as the dead one left it.
                self.look_into_the_file()
        self._tally.handles += self.ledger.handles_read
        self._tally.answers += self.ledger.answers
        self._tally.cancels += self.ledger.cancels
        log = self._folder / "stderr.txt"
        logged = log.read_text(errors="replace") if log.exists() else ""
        if logged:
            self._tally.faults.append(f"servers logged: {logged[:_LOG_CHARS_SHOWN]}")

    @contextmanager
    def _named_faults(self, name: str) -> Iterator[None]:
        try:
            yield
        except (ServerEnded, StoreError, TimeoutError) as error:
            self.ledger.fault(f"{type(error).__name__}: {error}")
        finally:
            for server in self._servers:
                server.close()
            self._servers.clear()
            for text in self.ledger.faults:
                print(f"{name}: {text}", file=sys.stderr, flush=True)
                self._tally.faults.append(f"{name}: {text}")
            self.ledger.faults.clear()

    # --- servers

    @property
    def living(self) -> list[ServerChild]:
        return [server for server in self._servers if server.alive]

    @property
    def alone(self) -> ServerChild | None:
        """The only server of this round."""
        return self._servers[0] if len(self._servers) == 1 else None

    def start_servers(self, number: int) -> None:
        self._servers = [self._start() for _ in range(number)]
        if not self._forks:
            # Half a second in which a new interpreter imports is no moment at which anything can be lost.
            self._wait_until_up()

    def _wait_until_up(self) -> None:
        for server in self.living:
            server.send(lambda frame: None, "server/discover")
        while any(server.in_flight for server in self.living):
            self.receive(1.0)

    def kill(self, server: ServerChild) -> None:
        server.kill()
        self._tally.kills += 1
        self.take_frames(server)

    def receive(self, seconds: float) -> None:
        """Take what the servers have written, waiting for it that long at the most."""
        by_fd = {server.stdout: server for server in self.living}
        ready, _, _ = select.select(list(by_fd), [], [], max(0.0, seconds))
        for fd in ready:
            self.take_frames(by_fd[fd])

    def take_frames(self, server: ServerChild) -> None:
        for purpose, frame in server.frames():
            purpose(frame)

    # --- what is asked of them

    def create(self, server: ServerChild) -> None:
        self._texts += 1
        tool, text = self._random.choice(("quick", "endless", "ask_once", "interview", "interview")), f"t{self._texts}"
        arguments: Message = {"text": text}
        if tool in ("quick", "interview"):
            arguments["pause_ms"] = self._random.choice((0, 0, 5, 40))
        purpose = partial(self.ledger.created, tool, text, server)
        server.send(purpose, "tools/call", name=tool, arguments=arguments)

    def get(self, server: ServerChild, handle: Handle, then: Callable[[], object] = lambda: None) -> None:
        known = Known.of(handle)

        def purpose(frame: Message) -> None:
            self.ledger.shown(handle, known, frame, alone=self.alone)
            self._tally.resolved += 1
            then()

        server.send(purpose, "tasks/get", taskId=handle.task_id)

    def answer(self, server: ServerChild, handle: Handle) -> None:
        keys = self._random.sample(handle.outstanding, self._random.randint(1, len(handle.outstanding)))

        def purpose(frame: Message) -> None:
            for key in keys:
                self.ledger.answered(handle, key, frame, alone=self.alone)

        answers = {key: handle.answer(key) for key in keys}
        server.send(purpose, "tasks/update", taskId=handle.task_id, inputResponses=answers)

    def cancel(self, server: ServerChild, handle: Handle) -> None:
        handle.cancel_sent = True
        purpose = partial(self.ledger.cancelled, handle, alone=self.alone)
        server.send(purpose, "tasks/cancel", taskId=handle.task_id)

    # --- the file itself

    def look_into_the_file(self) -> None:
        with self._named_faults(f"the file after round {self._tally.rounds}"):
            self.check_file()

    def check_file(self) -> None:
        """Whether the file is sound and holds what was told. Servers may work on it meanwhile."""
        file, store = open_store(str(self._path), self._kind)
        with closing(file):
            open_row = store.open_row if isinstance(store, SealedTaskStore) else None
            for problem in file.check(open_row=open_row):
                self.ledger.fault(f"the file is not sound: {problem}")
            rows: dict[str, StoredTask] = {row.task_id: row for row in file.rows()}
        self.ledger.compare({name: row if open_row is None else open_row(row) for name, row in rows.items()})

    def orphans(self) -> list[str]:
        """Ids of unfinished tasks of dead processes, also of tasks whose handles nobody has read."""
        file, _ = open_store(str(self._path), self._kind)
        with closing(file):
            return [row.task_id for row in file.list_orphans(time.time_ns() // 1_000_000, 1_000)]


class _Round:
    """Servers start on the file, are spoken to, and die."""

    def __init__(self, life: StoreLife, random: Random) -> None:
        self._life = life
        self._random = random
        self._created = 0
        self._unresolved = set(life.ledger.handles.values())
        self._asked: dict[Handle, float] = {}
        self._ends_at = time.monotonic() + _ROUND_SECONDS

    def run(self) -> None:
        life, random = self._life, self._random
        life.start_servers(random.choice((1, 1, 1, 2, 3)))
        started = time.monotonic()
        if random.random() < 0.3:
            # While they start, recover what others left, or have just begun to serve.
            self._serve_for(random.uniform(0, LEASE_MS / 1000 + 0.1))
        else:
            self._resolve_all()
            if random.random() < 0.3:
                life.check_file()
            self._serve_until_settled(since=started)
            self._serve_for(min(random.expovariate(1 / 0.06), 0.3))
            if len(life.living) > 1:
                life.kill(random.choice(life.living))
                self._serve_until_settled(since=time.monotonic())
                self._serve_for(random.uniform(0, 0.05))
        for server in life.living:
            life.kill(server)

    def _step(self, until: float) -> None:
        """Keep every server busy, and take what comes until that moment at the latest."""
        if time.monotonic() > self._ends_at:
            raise TimeoutError(f"the round was not over after {_ROUND_SECONDS:g} s")
        for server in self._life.living:
            while len(server.in_flight) < _IN_FLIGHT_MAX:
                self._ask_something(server)
        self._life.receive(min(until - time.monotonic(), _LOOK_AGAIN_SECONDS))

    def _serve_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._step(until)

    def _resolve_all(self) -> None:
        """Every handle ever read resolves, at any of the servers."""
        for handle in list(self._life.ledger.handles.values()):
            server = self._random.choice(self._life.living)
            self._life.get(server, handle, partial(self._unresolved.discard, handle))
            while len(server.in_flight) > 64:
                self._life.receive(1.0)
                self._check_time()
        while self._unresolved:
            self._life.receive(1.0)
            self._check_time()

    def _serve_until_settled(self, since: float) -> None:
        """Go on until every task that a dead process left has been settled; it has to be soon."""
        left = [handle for handle in self._life.ledger.handles.values() if handle.must_move]
        while True:
            unsettled = [h for h in left if h.must_move and h.task_id in self._life.ledger.handles]
            if not unsettled and not self._life.orphans():
                self._life._tally.settled_ms.append(int((time.monotonic() - since) * 1000))
                return
            if (time.monotonic() - since) * 1000 > SETTLED_WITHIN_MS:
                for handle in unsettled:
                    self._life.ledger.lost(handle, f"it is {handle.status} {SETTLED_WITHIN_MS} ms after a restart")
                orphans = self._life.orphans()
                self._life.ledger.fault(f"tasks of dead processes after {SETTLED_WITHIN_MS} ms: {orphans}")
                return
            for handle in unsettled:
                if time.monotonic() - self._asked.get(handle, 0) > _LOOK_AGAIN_SECONDS:
                    self._asked[handle] = time.monotonic()
                    self._life.get(self._random.choice(self._life.living), handle)
            self._step(time.monotonic() + _LOOK_AGAIN_SECONDS)

    def _check_time(self) -> None:
        if time.monotonic() > self._ends_at:
            raise TimeoutError(f"{len(self._unresolved)} handles were not resolved within {_ROUND_SECONDS:g} s")

    def _ask_something(self, server: ServerChild) -> None:
        life, random = self._life, self._random
        unfinished = [handle for handle in life.ledger.handles.values() if handle.terminal is None]
        asking = [handle for handle in unfinished if handle.outstanding]
        choice = random.random()
        if choice < _CREATE and self._created < _TASKS_PER_ROUND_MAX:
            self._created += 1
            life.create(server)
        elif _CREATE <= choice < _ANSWER and asking:
            life.answer(server, random.choice(asking))
        elif _ANSWER <= choice < _CANCEL and unfinished:
            life.cancel(server, random.choice(unfinished))
        elif unfinished:
            life.get(server, random.choice(unfinished))
        elif life.ledger.handles:
            life.get(server, random.choice(list(life.ledger.handles.values())))
        else:
            life.create(server)


def new_file(folder: Path, number: int) -> Path:
    """An empty folder for the next file."""
    made = folder / str(number)
    os.mkdir(made, 0o700)
    return made
