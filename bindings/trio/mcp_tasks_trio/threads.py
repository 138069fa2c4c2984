"""Worker threads that never keep a process alive, and the way back from them into the event loop.

The threads are daemons: a tool that sleeps in one cannot hold up a server that was told to end.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

import anyio
import sniffio
from anyio.abc import TaskGroup

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

_log = logging.getLogger("mcp_tasks_trio")

_IDLE_SECONDS: Final = 10.0  # a thread that found no work for so long ends


def in_trio() -> bool:
    """Whether trio runs the caller. Does not import trio, which servers on asyncio never need."""
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def context_for_callbacks() -> contextvars.Context:
    """A context in which callbacks of asyncio may use AnyIO, which otherwise looks for a current task."""
    context = contextvars.copy_context()
    context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


class LoopPortal:
    """Lets worker threads call into the event loop that it was made in."""

    def __init__(self) -> None:
        if in_trio():
            import trio

            self._call_soon: Callable[..., Any] = trio.lowlevel.current_trio_token().run_sync_soon
        else:
            call_soon = asyncio.get_running_loop().call_soon_threadsafe
            self._call_soon = functools.partial(call_soon, context=context_for_callbacks())

    def call_soon(self, function: Callable[..., object], *args: object) -> bool:
        """Run the function in the loop, soon. ``False`` when the loop has ended."""
        try:
            self._call_soon(function, *args)
        except RuntimeError:  # asyncio: the loop is closed; trio: RunFinishedError
            return False
        return True


class Handover(Generic[T]):
    """The one way of values from threads into the event loop that it was made in: in order, and many together.

    Args:
        take: takes them, in the event loop; what it raises is logged, as there is nobody to raise it to.
        what: takes them, for the log.
    """

    def __init__(self, take: Callable[[Sequence[T]], None], what: str) -> None:
        self._take = take
        self._what = what
        self._portal = LoopPortal()
        self._lock = threading.Lock()
        self._given: deque[T] = deque()
        self._told = False
        self._ended = False

    @property
    def ended(self) -> bool:
        return self._ended

    def give(self, value: T) -> None:
        """Have the value taken soon. In any thread, the loop's own included; after the end it is dropped."""
        with self._lock:
            if self._ended:
                return
            self._given.append(value)
            tells, self._told = not self._told, True
        if tells:
            self._portal.call_soon(self._hand_over)

    def end(self) -> None:
        """Take nothing any longer, not even what was given before."""
        with self._lock:
            self._ended = True
            self._given.clear()

    def _hand_over(self) -> None:
        with self._lock:
            self._told = False
            values = list(self._given)
            self._given.clear()
        if not values:
            return  # the end has come meanwhile
        try:
            self._take(values)
        except Exception:
            _log.exception("%s failed on what came out of a thread", self._what)


class JoiningHandover(Handover[H]):
    """A ``Handover`` to which a value means nothing that is equal to one that has not been taken yet."""

    def __init__(self, take: Callable[[Sequence[H]], None], what: str) -> None:
        super().__init__(self._take_joined, what)
        self._take_each_once = take
        self._waiting: set[H] = set()

    def give(self, value: H) -> None:
        with self._lock:
            if value in self._waiting or self._ended:
                return
            self._waiting.add(value)
        super().give(value)

    def end(self) -> None:
        super().end()
        with self._lock:
            self._waiting.clear()

    def _take_joined(self, values: Sequence[H]) -> None:
        # First of all: what is given from now on may be news to whoever takes these.
        with self._lock:
            self._waiting.difference_update(values)
        self._take_each_once(values)


class _Worker:
    """One thread, and the jobs that are handed to it one by one."""

    def __init__(self, pool: WorkerThreads) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._pool = pool
        threading.Thread(target=self._run, name="mcp-tasks worker", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._pool.forget(self):
                    return
                continue  # a job was handed over at the last moment
            job()
            del job
            self._pool.rest(self)


class WorkerThreads:
    """Runs blocking functions of one event loop in daemon threads, so many at a time.

    Args:
        limit: threads at work at the same time, 1 or more; further calls wait for their turn.
    """

    def __init__(self, limit: int) -> None:
        self._portal = LoopPortal()
        self._limiter = anyio.CapacityLimiter(limit)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []

    async def run(self, function: Callable[[], T]) -> T:
        """The function's result. When the caller is cancelled, the thread is left to itself and its result lost.

        A thread that was left to itself keeps its place until it ends, so that their number stays bounded.
        """
        done = anyio.Event()
        outcome: Future[T] = Future()
        context = contextvars.copy_context()
        await self._limiter.acquire_on_behalf_of(done)

        def finish() -> None:
            self._limiter.release_on_behalf_of(done)
            done.set()

        def job() -> None:
            try:
                outcome.set_result(context.run(function))
            except BaseException as error:
                outcome.set_exception(error)
            self._portal.call_soon(finish)

        self._take().jobs.put(job)
        await done.wait()
        return outcome.result()

    async def call(self, function: Callable[..., Any], is_async: bool, /, *args: Any, **kwargs: Any) -> Any:
        """What a function gives: an asynchronous one runs in the loop, any other in a thread."""
        if is_async:
            return await function(*args, **kwargs)
        return await self.run(lambda: function(*args, **kwargs))

    def _take(self) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Worker(self)

    def rest(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def forget(self, worker: _Worker) -> bool:
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class LoopCalls:
    """What a function in a worker thread uses to have something done in the event loop, and to wait for it."""

    def __init__(self, task_group: TaskGroup) -> None:
        self._portal = LoopPortal()
        self._task_group = task_group

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run a synchronous function in the loop, without waiting for it."""

        def call() -> None:
            try:
                function(*args)
            except Exception:  # there is nobody to raise it to: the thread went on
                _log.exception("A call out of a worker thread failed")

        self._portal.call_soon(call)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an asynchronous function in the loop, and wait for its result."""
        outcome: Future[T] = Future()

        async def call() -> None:
            try:
                outcome.set_result(await function())
            except anyio.get_cancelled_exc_class():
                outcome.cancel()
                raise
            except BaseException as error:
                outcome.set_exception(error)

        def start() -> None:
            try:
                self._task_group.start_soon(call)
            except BaseException as error:  # the group has ended
                outcome.set_exception(error)

        if not self._portal.call_soon(start):
            raise RuntimeError("the event loop has ended")
        return outcome.result()
