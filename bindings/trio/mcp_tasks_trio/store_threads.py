"""The threads in which a blocking store is asked, and the one way back into the event loop for all answers.

What the store is asked for is a function call in a thread that waits for work already, and answers that come at the
same time are handed over together: a task costs the store five calls, and their ways there and back are most of it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from mcp_tasks_core.server.events import ServerEvent
from mcp_tasks_trio.store_answers import StoreEffect
from mcp_tasks_trio.threads import Handover


class StoreThreads:
    """Daemon threads, started as they are needed, each of which asks the store for one thing at a time.

    Args:
        limit: threads at the most, 1 or more; what is asked for beyond that waits for its turn.
        answer: asks the store, in a thread; raises nothing.
        take: takes the answers, in the event loop.
    """

    def __init__(
        self,
        limit: int,
        answer: Callable[[StoreEffect], ServerEvent],
        take: Callable[[Sequence[ServerEvent]], None],
    ) -> None:
        self._limit = limit
        self._answer = answer
        self._answers: Handover[ServerEvent] = Handover(take, "The server")
        self._asked: queue.SimpleQueue[StoreEffect | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unanswered = 0

    def ask(self, effect: StoreEffect) -> None:
        """Have the store asked for this, soon. Belongs to the thread of the event loop."""
        with self._lock:
            self._unanswered += 1
            starts = self._threads < min(self._unanswered, self._limit)
            self._threads += starts
        self._asked.put(effect)
        if starts:
            threading.Thread(target=self._work, name="mcp-tasks store", daemon=True).start()

    def end(self) -> None:
        """Take no answers any longer, and let the threads go once they have done what they are at."""
        self._answers.end()
        with self._lock:
            threads = self._threads
        for _ in range(threads):
            self._asked.put(None)

    def _work(self) -> None:
        while True:
            effect = self._asked.get()
            if effect is None:
                return
            if self._answers.ended:
                continue  # nobody would take the answer, and nobody was told that it would be done
            event = self._answer(effect)
            with self._lock:
                self._unanswered -= 1
            self._answers.give(event)
