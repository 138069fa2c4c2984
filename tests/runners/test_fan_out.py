"""When frames for many streams leave: those of one event as they are made, those of several events in one write."""

from __future__ import annotations

import json

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.server.effects import Acknowledge, CutStream, Frame
from mcp_tasks_core.server.events import ListChanged, ListKind, MessageReceived, StreamBlocked
from mcp_tasks_trio import ServerEngine
from runners.listening import library
from runners.served import CAPABILITIES, both_loops, message, run

STREAMS = 100


class Listener:
    """A stream that listens to tools and prompts, and notes in a log of all streams what is done with it."""

    def __init__(self, engine: ServerEngine, log: list[tuple[str, Listener]]) -> None:
        self._engine = engine
        self._log = log
        self.blocks = False
        self.stream_id = engine.open_stream(self)
        filters = {"toolsListChanged": True, "promptsListChanged": True}
        listen = {**message("subscriptions/listen", {"notifications": filters}, CAPABILITIES), "id": 1}
        engine.feed(MessageReceived(self.stream_id, json.dumps(listen).encode(), LOCAL_OWNER, own_stream=True))

    def send(self, frame: Frame) -> None:
        self._log.append(("send", self))

    def flush(self) -> None:
        self._log.append(("flush", self))
        if self.blocks:
            self._engine.feed(StreamBlocked(self.stream_id))

    def acknowledge(self, effect: Acknowledge) -> None:
        raise AssertionError("a request is not acknowledged")

    def cut(self, effect: CutStream) -> None:
        raise AssertionError("nobody is cut off")


def steps(log: list[tuple[str, Listener]], listener: Listener) -> list[str]:
    return [step for step, of in log if of is listener]


@both_loops
def test_frames_of_one_event_leave_while_those_for_other_streams_are_made(backend: str) -> None:
    async def scenario() -> None:
        async with ServerEngine(library()).running() as engine:
            log: list[tuple[str, Listener]] = []
            listeners = [Listener(engine, log) for _ in range(STREAMS)]
            log.clear()
            engine.feed(ListChanged(ListKind.TOOLS))
            assert all(steps(log, listener) == ["send", "flush"] for listener in listeners)
            kinds = [step for step, _ in log]
            assert kinds.index("flush") < STREAMS, "all was made before anything left"

    run(backend, scenario)


@both_loops
def test_frames_of_several_events_for_one_stream_leave_together(backend: str) -> None:
    async def scenario() -> None:
        async with ServerEngine(library()).running() as engine:
            log: list[tuple[str, Listener]] = []
            listeners = [Listener(engine, log) for _ in range(STREAMS)]
            log.clear()
            engine.feed_all([ListChanged(ListKind.TOOLS), ListChanged(ListKind.PROMPTS)])
            assert all(steps(log, listener) == ["send", "send", "flush"] for listener in listeners)

    run(backend, scenario)


@both_loops
def test_streams_that_turn_out_to_be_blocked_meanwhile_get_nothing_more_of_the_next_event(backend: str) -> None:
    async def scenario() -> None:
        async with ServerEngine(library()).running() as engine:
            log: list[tuple[str, Listener]] = []
            listeners = [Listener(engine, log) for _ in range(STREAMS)]
            for listener in listeners[::2]:
                listener.blocks = True
            engine.feed(ListChanged(ListKind.TOOLS))
            log.clear()
            engine.feed(ListChanged(ListKind.TOOLS))
            for number, listener in enumerate(listeners):
                assert steps(log, listener) == ([] if number % 2 == 0 else ["send", "flush"])

    run(backend, scenario)
