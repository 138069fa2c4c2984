"""What the driver was told, and what must therefore hold: in every answer from now on, and in the store's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from mcp_tasks_core.errors import INTERNAL_ERROR
from mcp_tasks_core.records import decode_record
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TERMINAL, TaskRecord
from tests.crash.crash_app import RESUMED
from tests.crash.server_child import Message, ServerChild

_TERMINAL_NAMES: Final = frozenset(status.value for status in TERMINAL)
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {"ask_once": ("only",), "interview": ("first", "second", "third")}
# What a get shows of the message rather than of the task.
_OF_THE_ANSWER: Final = frozenset({"resultType", "_meta"})


@attrs.define(eq=False)
class Handle:
    """A task whose handle was read.

    Args:
        creator: the process that was asked to run it.
        outstanding: the keys that the newest state asked for.
        acknowledged: the keys whose answer was acknowledged at a moment at which it had to count.
        cancel_sent: from here on, an answer may come too late.
        cancel_acknowledged: at a moment at which it had to count.
        terminal: the terminal state that was seen first.
    """

    task_id: str
    tool: str
    text: str
    creator: ServerChild
    status: str = "working"
    outstanding: tuple[str, ...] = ()
    acknowledged: set[str] = attrs.field(factory=set)
    cancel_sent: bool = False
    cancel_acknowledged: bool = False
    terminal: Message | None = None

    @property
    def resumes(self) -> bool:
        return self.tool in RESUMED

    @property
    def must_move(self) -> bool:
        """Whether the task may not stay as it is: nobody is asked, and no living process works on it."""
        if self.terminal is not None:
            return False
        if not self.resumes and not self.creator.alive:
            return True
        return self.status == "working" and self.tool != "endless"

    def answer(self, key: str) -> Message:
        """Always the same, so that it does not matter which of several attempts was the one that counted."""
        return {"action": "accept", "content": {"value": f"{key} of {self.text}"}}

    def may_count(self, *, alone: ServerChild | None) -> bool:
        """Whether what is acknowledged now cannot be too late.

        Another process may have given up a task that is not resumed, and whoever is acknowledged after that is told
        nothing of it. Nobody gives up a task that is resumed, or one whose process is alone on the file.

        Args:
            alone: the only server of this round.
        """
        return self.terminal is None and (self.resumes or alone is self.creator)


@attrs.frozen
class Known:
    """What was known of a task when its state was asked for: the answer may be as old as that, and no older."""

    acknowledged: frozenset[str]
    terminal: Message | None

    @classmethod
    def of(cls, handle: Handle) -> Known:
        return cls(frozenset(handle.acknowledged), handle.terminal)


class Ledger:
    """All handles of one file, and every fault that was found."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}
        self.handles_read = 0
        self.faults: list[str] = []
        self.answers = 0
        self.cancels = 0

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def lost(self, handle: Handle, text: str) -> None:
        """A broken promise about this task, which is left alone from now on: one fault is said once."""
        if self.handles.pop(handle.task_id, None) is not None:
            self.fault(f"task {handle.task_id} ({handle.tool}): {text}")

    # --- what a server says

    def created(self, tool: str, text: str, creator: ServerChild, frame: Message) -> None:
        result = frame.get("result", {})
        if result.get("resultType") != "task":
            self.fault(f"a call of {tool} was answered with {frame}")
            return
        handle = Handle(task_id=result["taskId"], tool=tool, text=text, creator=creator)
        if handle.task_id in self.handles:
            self.fault(f"the id {handle.task_id} was given to two tasks")
        self.handles[handle.task_id] = handle
        self.handles_read += 1
        if result["status"] in _TERMINAL_NAMES:
            self.lost(handle, f"its handle is {result['status']} already")

    def shown(self, handle: Handle, known: Known, frame: Message, *, alone: ServerChild | None) -> None:
        """The answer to tasks/get.

        Args:
            known: when it was asked for.
            alone: the only server of this round.
        """
        state = frame.get("result")
        if state is None:
            self.lost(handle, f"its handle does not resolve: {frame.get('error')}")
            return
        asked = tuple(state.get("inputRequests", ()))
        again = known.acknowledged.intersection(asked)
        if again:
            self.lost(handle, f"it asks for {sorted(again)} again, whose answers were acknowledged")
        shown = {name: value for name, value in state.items() if name not in _OF_THE_ANSWER}
        ended = shown["status"] in _TERMINAL_NAMES
        if handle.terminal is None:
            handle.status, handle.outstanding = shown["status"], asked
            if ended:
                handle.terminal = shown
                for problem in self._problems_of_end(handle, shown, alone):
                    self.lost(handle, problem)
        elif shown != handle.terminal and (ended or known.terminal is not None):
            self.lost(handle, f"it ended as {handle.terminal} and became {shown}")

    def _problems_of_end(self, handle: Handle, end: Message, alone: ServerChild | None) -> Iterator[str]:
        match end:
            case {"status": "completed", "result": {"content": [{"text": text}]}}:
                if text != _expected(handle):
                    yield f"its result is {text!r}, and not {_expected(handle)!r}"
            case {"status": "cancelled"}:
                if not handle.cancel_sent:
                    yield "it is cancelled, and nobody asked for that"
            case {"status": "failed", "error": {"code": code, "data": {"reason": "worker_lost"}}}:
                if code != INTERNAL_ERROR or handle.resumes or alone is handle.creator:
                    yield f"it was given up: {end['error']}"
                if handle.cancel_acknowledged:
                    yield "its cancel was acknowledged, and it ends as lost"
            case _:
                yield f"it ends as {end}"

    def answered(self, handle: Handle, key: str, frame: Message, *, alone: ServerChild | None) -> None:
        if "result" not in frame:
            self.lost(handle, f"the answer to {key!r} was refused: {frame.get('error')}")
            return
        self.answers += 1
        if not handle.cancel_sent and handle.may_count(alone=alone):
            handle.acknowledged.add(key)

    def cancelled(self, handle: Handle, frame: Message, *, alone: ServerChild | None) -> None:
        if "result" not in frame:
            self.lost(handle, f"its cancel was refused: {frame.get('error')}")
            return
        self.cancels += 1
        if handle.may_count(alone=alone):
            handle.cancel_acknowledged = True

    # --- what the file says

    def compare(self, rows: Mapping[str, StoredTask]) -> None:
        """Hold what was told against what is stored.

        Args:
            rows: every row of the store by its id, with a readable payload.
        """
        for handle in list(self.handles.values()):
            row = rows.get(handle.task_id)
            if row is None:
                self.lost(handle, "its row is not in the file")
                continue
            for problem in _problems_of_record(handle, decode_record(row.payload)):
                self.lost(handle, problem)


def _problems_of_record(handle: Handle, record: TaskRecord) -> Iterator[str]:
    for key in handle.acknowledged:
        entry: Any = record.inputs.get(key)  # type: ignore[call-overload]
        if entry is None or entry.answer != handle.answer(key):
            yield f"the answer to {key!r} was acknowledged, and its record holds {entry}"
    if handle.cancel_acknowledged and record.cancel_requested_at_ms is None and not record.is_terminal:
        yield "its cancel was acknowledged, and its record knows nothing of it"
    if handle.terminal is not None and record.status.value != handle.terminal["status"]:
        yield f"it ended as {handle.terminal['status']}, and its record is {record.status.value}"


def _expected(handle: Handle) -> str | None:
    if handle.tool == "endless":
        return None
    keys = _KEYS.get(handle.tool)
    return f"done: {handle.text}" if keys is None else "|".join(f"{key} of {handle.text}" for key in keys)
