"""Random inputs on one record, held against a model that knows nothing but four facts of a task's life."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mcp_tasks_core.access import LOCAL_OWNER
from mcp_tasks_core.capabilities import NO_CAPABILITIES
from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.lifecycle import (
    Adopt,
    Advance,
    Answer,
    Ask,
    Bury,
    Cancel,
    Complete,
    Fail,
    ForbiddenTransition,
    RequestCancel,
    Retime,
    TaskInput,
    Withdraw,
    apply,
)
from mcp_tasks_core.tasks import TaskRecord, TaskStatus, state_to_wire
from stateful.effort import effort

KEYS = st.sampled_from([InputKey("a"), InputKey("b"), InputKey("c")])
QUESTIONS = st.sampled_from([{"method": "roots/list"}, {"method": "roots/list", "params": {}}])
ANSWERS = st.sampled_from([{"roots": []}, {"roots": [{"uri": "file:///a"}]}])
MESSAGES = st.sampled_from([None, "one", "two"])

INPUTS = st.one_of(
    st.builds(Advance, MESSAGES),
    st.builds(Ask, KEYS, QUESTIONS),
    st.builds(Ask, KEYS, QUESTIONS),
    st.builds(Withdraw, KEYS),
    st.builds(Answer, st.dictionaries(KEYS, ANSWERS)),
    st.builds(Answer, st.dictionaries(KEYS, ANSWERS)),
    st.just(RequestCancel()),
    st.builds(Retime, st.sampled_from([None, 1, 1000]), st.sampled_from([None, 5])),
    st.builds(Adopt, st.sampled_from([None, "p 2"])),
)
ENDS = st.one_of(
    st.builds(Complete, st.just({"content": []}), MESSAGES),
    st.builds(Fail, st.just(ErrorObject(7, "no")), MESSAGES),
    st.builds(Cancel, MESSAGES),
    st.just(Bury()),
)


class LifecycleMachine(RuleBasedStateMachine):
    """One task; every input is admitted, ignored or refused exactly as the model says."""

    def __init__(self) -> None:
        super().__init__()
        self.record = TaskRecord(
            task_id=TaskId("t"),
            owner=LOCAL_OWNER,
            status=TaskStatus.WORKING,
            created_at_ms=1_000,
            last_updated_at_ms=1_000,
            ttl_ms=1_000,
            capabilities=NO_CAPABILITIES,
        )
        self.questions: dict[str, Any] = {}
        self.settled: dict[str, Any] = {}
        self.end: TaskStatus | None = None
        self.buried = False
        self.wants_cancel = False

    @rule(task_input=INPUTS, wall_ms=st.integers(0, 2_000))
    def something_happens(self, task_input: TaskInput, wall_ms: int) -> None:
        self._apply(task_input, wall_ms)

    @rule(task_input=ENDS, wall_ms=st.integers(0, 2_000), late=st.integers(0, 3))
    def something_ends(self, task_input: TaskInput, wall_ms: int, late: int) -> None:
        if late == 0 or self.end is not None:
            self._apply(task_input, wall_ms)

    def _apply(self, task_input: TaskInput, wall_ms: int) -> None:
        before = self.record
        refused = self._refusal(task_input)
        if refused is not None:
            with pytest.raises(refused):
                apply(before, task_input, wall_ms)
            return
        self._remember(task_input)
        after = self.record = apply(before, task_input, wall_ms)
        if before.expired:
            assert after == before, "T5: nothing changes a tombstone"
            return
        if isinstance(task_input, Bury):
            assert after.last_updated_at_ms == before.last_updated_at_ms, "T3: a burial is nothing that a client sees"
            return
        seen = {**state_to_wire(before), "lastUpdatedAt": ""} != {**state_to_wire(after), "lastUpdatedAt": ""}
        moved = after.last_updated_at_ms - before.last_updated_at_ms
        assert (moved > 0) == seen, f"T3: lastUpdatedAt moved by {moved} ms, seen: {seen}"
        if not seen and not isinstance(task_input, Adopt):
            assert after is before, "T3: a change that changes nothing is no change"

    def _refusal(self, task_input: TaskInput) -> type[LocalProtocolError] | None:
        if self.end is not None:
            return None if isinstance(task_input, Answer | RequestCancel | Bury) else ForbiddenTransition
        match task_input:
            case Bury():
                return ForbiddenTransition
            case Ask(key, request) if key in self.questions:
                withdrawn = key in self.settled and self.settled[key] is None
                return LocalProtocolError if withdrawn or self.questions[key] != request else None
            case Withdraw(key) if key not in self.questions:
                return LocalProtocolError
        return None

    def _remember(self, task_input: TaskInput) -> None:
        match task_input:
            case Ask(key, request):
                self.questions.setdefault(key, request)
            case Withdraw(key):
                self.settled.setdefault(key, None)
            case Answer(answers) if self.end is None:
                for key, answer in answers.items():
                    if key in self.questions:
                        self.settled.setdefault(key, answer)
            case RequestCancel() if self.end is None:
                self.wants_cancel = True
            case Complete():
                self.end = TaskStatus.COMPLETED
            case Fail():
                self.end = TaskStatus.FAILED
            case Cancel():
                self.end = TaskStatus.CANCELLED
            case Bury():
                self.buried = True

    @invariant()
    def the_record_is_as_the_model_says(self) -> None:
        record = self.record
        open_keys = [key for key in self.questions if key not in self.settled]
        if self.end is not None:
            assert record.status is self.end, "T1: a terminal status never changes"
            assert not record.outstanding, "G2: nothing is asked of a task that has ended"
            assert record.expired == self.buried, "T5: only a burial makes a tombstone"
        else:
            status = TaskStatus.INPUT_REQUIRED if open_keys else TaskStatus.WORKING
            assert record.status is status, f"G2: {record.status} with the questions {open_keys}"
            assert list(record.outstanding) == open_keys, "G2: all outstanding questions, and no others"
        if not self.buried:
            asked = {key: entry.request for key, entry in record.inputs.items()}
            assert asked == self.questions, "U2: a key has one meaning for the task's whole life"
            answered = {key: entry.answer for key, entry in record.inputs.items() if entry.answer is not None}
            wanted = {key: answer for key, answer in self.settled.items() if answer is not None}
            assert answered == wanted, "U6: the first answer stays"
        assert (record.cancel_requested_at_ms is not None) == self.wants_cancel, "X2: intent is recorded once"
        assert record.last_updated_at_ms >= record.created_at_ms, "T3: never updated before it was created"
        attrs.validate(record)


@pytest.mark.spec("T1", "T3", "T5", "G2", "U2", "U6", "X2")
def test_a_task_lives_as_the_table_says_whatever_happens_to_it() -> None:
    run_state_machine_as_test(LifecycleMachine, settings=effort(examples=120, steps=40))
