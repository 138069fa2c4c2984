"""Every input is thrown at every status; the table that is expected is written out here, apart from the code."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import attrs
import pytest

from mcp_tasks_core.access import Owner
from mcp_tasks_core.capabilities import ClientCapabilities
from mcp_tasks_core.errors import ErrorObject, LocalProtocolError
from mcp_tasks_core.identifiers import InputKey, TaskId
from mcp_tasks_core.lifecycle import (
    TRANSITIONS,
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
from mcp_tasks_core.tasks import TERMINAL, InputEntry, TaskRecord, TaskStatus, state_to_wire
from mcp_tasks_core.testing.messages import accepted, form_question, roots_question

T0 = 1_000_000
NOW = T0 + 5_000
Q = InputKey("open")
OLD = InputKey("answered")


def record(status: TaskStatus, **changes: Any) -> TaskRecord:
    """A task of that status that has asked before; in input_required one question stands open."""
    inputs = {OLD: InputEntry(request=form_question(), answer=accepted(value="x"))}
    if status is TaskStatus.INPUT_REQUIRED:
        inputs[Q] = InputEntry(request=form_question())
    members: dict[str, Any] = {
        "task_id": TaskId("t"),
        "owner": Owner("tenant", "subject"),
        "status": status,
        "created_at_ms": T0,
        "last_updated_at_ms": T0 + 10,
        "ttl_ms": 60_000,
        "request": {"name": "tool"},
        "capabilities": ClientCapabilities({}),
        "inputs": inputs,
        "result": {"content": []} if status is TaskStatus.COMPLETED else None,
        "error": ErrorObject(-32603, "no") if status is TaskStatus.FAILED else None,
    }
    return TaskRecord(**{**members, **changes})


INPUTS: dict[str, TaskInput] = {
    "Advance": Advance("half"),
    "Ask": Ask(InputKey("new"), form_question()),
    "Withdraw": Withdraw(Q),
    "Answer": Answer({Q: accepted(value="y")}),
    "RequestCancel": RequestCancel(),
    "Complete": Complete({"content": []}),
    "Fail": Fail(ErrorObject(-32603, "broken")),
    "Cancel": Cancel(),
    "Retime": Retime(90_000, 500),
    "Adopt": Adopt("p2"),
    "Bury": Bury(),
}

# What becomes of the status. "=": nothing changes. "!": forbidden. "?": a mistake of the caller, here a key never
# asked. "~": changed, but not so that a client could see it.
EXPECTED = """
                working           input_required    completed   failed   cancelled
Advance         working           input_required    !           !        !
Ask             input_required    input_required    !           !        !
Withdraw        ?                 working           !           !        !
Answer          =                 working           =           =        =
RequestCancel   working           input_required    =           =        =
Complete        completed         completed         !           !        !
Fail            failed            failed            !           !        !
Cancel          cancelled         cancelled         !           !        !
Retime          working           input_required    !           !        !
Adopt           ~                 ~                 !           !        !
Bury            !                 !                 ~           ~        ~
"""


def cases() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in EXPECTED.strip().splitlines()]
    return [(status, name, cell) for name, *cells in rows for status, cell in zip(head, cells, strict=True)]


def test_the_expected_table_holds_every_pair() -> None:
    names = {kind.__name__ for kind in get_args(TaskInput)}
    assert {(status, name) for status, name, _ in cases()} == set(itertools.product(map(str, TaskStatus), names))
    assert set(INPUTS) == names


@pytest.mark.spec("T1", "T3", "U4", "X2", "D4", "D15")
@pytest.mark.parametrize(("status", "name", "expected"), cases())
def test_every_input_does_to_every_status_what_the_table_says(status: str, name: str, expected: str) -> None:
    before, task_input = record(TaskStatus(status)), INPUTS[name]
    snapshot = attrs.asdict(before)
    if expected == "!":
        with pytest.raises(ForbiddenTransition, match=f"{status} does not admit {name}"):
            apply(before, task_input, NOW)
    elif expected == "?":
        with pytest.raises(LocalProtocolError, match="never asked") as caught:
            apply(before, task_input, NOW)
        assert not isinstance(caught.value, ForbiddenTransition)
    elif expected == "=":
        assert apply(before, task_input, NOW) is before
    else:
        after = apply(before, task_input, NOW)
        assert after != before
        assert after.status.value == (status if expected == "~" else expected)
        assert after.last_updated_at_ms == (before.last_updated_at_ms if expected == "~" else NOW)
    assert attrs.asdict(before) == snapshot


@pytest.mark.spec("T1")
def test_no_terminal_status_leads_anywhere() -> None:
    for status, task_input in itertools.product(TERMINAL, INPUTS.values()):
        if (status, type(task_input)) in TRANSITIONS:
            assert apply(record(status), task_input, NOW).status is status


@pytest.mark.spec("T3", "D15")
def test_last_updated_strictly_increases_even_where_the_clock_stands_or_goes_back() -> None:
    task = record(TaskStatus.WORKING, last_updated_at_ms=NOW)
    for moment in (NOW, NOW, NOW - 10_000, 0):
        moved = apply(task, Advance(f"at {moment} after {task.last_updated_at_ms}"), moment)
        assert moved.last_updated_at_ms == task.last_updated_at_ms + 1
        task = moved


@pytest.mark.spec("T3", "D15")
@pytest.mark.parametrize(
    ("before", "task_input"),
    [
        (record(TaskStatus.WORKING, status_message="same"), Advance("same")),
        (record(TaskStatus.WORKING), Advance(None)),
        (record(TaskStatus.WORKING, poll_interval_ms=5), Retime(60_000, 5)),
        (record(TaskStatus.INPUT_REQUIRED), Ask(Q, form_question())),
        (record(TaskStatus.INPUT_REQUIRED), Ask(OLD, form_question())),
        (record(TaskStatus.INPUT_REQUIRED), Answer({})),
        (record(TaskStatus.INPUT_REQUIRED), Answer({OLD: accepted(value="other")})),
        (record(TaskStatus.INPUT_REQUIRED), Answer({InputKey("never"): accepted(value="z")})),
        (record(TaskStatus.INPUT_REQUIRED), Withdraw(OLD)),
        (record(TaskStatus.WORKING, cancel_requested_at_ms=T0), RequestCancel()),
        (record(TaskStatus.WORKING, cancel_requested_at_ms=T0, status_message="stopping"), Advance("70 %")),
    ],
)
def test_what_changes_nothing_gives_the_very_same_record(before: TaskRecord, task_input: TaskInput) -> None:
    assert apply(before, task_input, NOW) is before


@pytest.mark.spec("T3", "D15")
@pytest.mark.parametrize("status", [TaskStatus.WORKING, TaskStatus.INPUT_REQUIRED])
@pytest.mark.parametrize("name", sorted(set(INPUTS) - {"Bury", "Adopt"}))
def test_last_updated_moves_exactly_when_a_client_could_see_a_change(status: TaskStatus, name: str) -> None:
    before = record(status)
    try:
        after = apply(before, INPUTS[name], NOW)
    except LocalProtocolError:
        return
    shown_before, shown_after = state_to_wire(before), state_to_wire(after)
    moved = shown_before.pop("lastUpdatedAt") != shown_after.pop("lastUpdatedAt")
    assert moved == (shown_before != shown_after)


# --- questions


@pytest.mark.spec("U2")
def test_a_key_never_names_a_second_question() -> None:
    task = record(TaskStatus.INPUT_REQUIRED)
    for key in (Q, OLD):
        with pytest.raises(LocalProtocolError, match="already names another question"):
            apply(task, Ask(key, roots_question()), NOW)


@pytest.mark.spec("U2")
def test_a_withdrawn_question_is_not_asked_again_under_its_key() -> None:
    task = apply(record(TaskStatus.INPUT_REQUIRED), Withdraw(Q), NOW)
    with pytest.raises(LocalProtocolError, match="was withdrawn; ask again under another key"):
        apply(task, Ask(Q, form_question()), NOW)


@pytest.mark.spec("U2", "U3")
def test_an_answer_to_a_withdrawn_question_counts_for_nothing() -> None:
    task = apply(record(TaskStatus.INPUT_REQUIRED), Withdraw(Q), NOW)
    assert apply(task, Answer({Q: accepted(value="late")}), NOW) is task
    assert task.inputs[Q].answer is None


@pytest.mark.spec("U2", "U6")
def test_the_first_answer_to_a_question_stays() -> None:
    once = apply(record(TaskStatus.INPUT_REQUIRED), Answer({Q: accepted(value="first")}), NOW)
    assert apply(once, Answer({Q: accepted(value="second")}), NOW) is once
    assert once.inputs[Q].answer == accepted(value="first")


@pytest.mark.spec("G2", "U3")
def test_a_task_waits_until_its_last_question_is_answered_or_withdrawn() -> None:
    task = record(TaskStatus.WORKING)
    for key in ("a", "b", "c"):
        task = apply(task, Ask(InputKey(key), form_question(key)), NOW)
    assert list(task.outstanding) == ["a", "b", "c"]
    task = apply(task, Answer({InputKey("b"): accepted(value="1")}), NOW)
    assert (task.status, list(task.outstanding)) == (TaskStatus.INPUT_REQUIRED, ["a", "c"])
    task = apply(task, Withdraw(InputKey("a")), NOW)
    assert (task.status, list(task.outstanding)) == (TaskStatus.INPUT_REQUIRED, ["c"])
    task = apply(task, Answer({InputKey("c"): accepted(value="2")}), NOW)
    assert (task.status, list(task.outstanding)) == (TaskStatus.WORKING, [])
    assert list(task.inputs) == [OLD, "a", "b", "c"]


@pytest.mark.spec("U3")
@pytest.mark.parametrize("end", [Complete({"content": []}), Fail(ErrorObject(1, "x")), Cancel()])
def test_an_end_leaves_no_question_open_and_keeps_every_answer(end: TaskInput) -> None:
    task = apply(record(TaskStatus.INPUT_REQUIRED), end, NOW)
    assert not task.outstanding
    assert task.inputs[Q].withdrawn
    assert task.inputs[OLD].answer == accepted(value="x")


# --- ends


@pytest.mark.spec("T2")
def test_a_failed_task_has_a_status_message() -> None:
    assert apply(record(TaskStatus.WORKING), Fail(ErrorObject(7, "why")), NOW).status_message == "why"
    assert apply(record(TaskStatus.WORKING), Fail(ErrorObject(7, "why"), "said"), NOW).status_message == "said"


@pytest.mark.spec("D28", "X1")
def test_a_cancel_is_intent_first_and_shows_in_the_message_alone() -> None:
    task = apply(record(TaskStatus.WORKING), RequestCancel(), NOW)
    assert (task.status, task.cancel_requested_at_ms) == (TaskStatus.WORKING, NOW)
    assert task.status_message == "Cancellation requested"


@pytest.mark.spec("X4")
@pytest.mark.parametrize(
    ("end", "status"),
    [
        (Complete({"content": []}), TaskStatus.COMPLETED),
        (Fail(ErrorObject(1, "x")), TaskStatus.FAILED),
        (Cancel(), TaskStatus.CANCELLED),
    ],
)
def test_work_may_end_in_any_way_after_a_cancel_was_accepted(end: TaskInput, status: TaskStatus) -> None:
    wanted = apply(record(TaskStatus.WORKING), RequestCancel(), NOW)
    assert apply(wanted, end, NOW).status is status


@pytest.mark.spec("T1", "D29")
@pytest.mark.parametrize("first", [Complete({"content": []}), Fail(ErrorObject(1, "x")), Cancel()])
@pytest.mark.parametrize("second", [Complete({"content": []}), Fail(ErrorObject(1, "x")), Cancel()])
def test_the_first_end_stays(first: TaskInput, second: TaskInput) -> None:
    ended = apply(record(TaskStatus.WORKING), first, NOW)
    with pytest.raises(ForbiddenTransition) as caught:
        apply(ended, second, NOW)
    assert (caught.value.status, caught.value.task_input) == (ended.status, second)


@pytest.mark.spec("D9")
@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_a_tombstone_keeps_whose_it_was_and_nothing_of_what_it_held(status: TaskStatus) -> None:
    buried = apply(record(status, status_message="secret"), Bury(), NOW)
    assert buried.expired
    assert (buried.task_id, buried.owner, buried.status) == ("t", Owner("tenant", "subject"), status)
    assert (buried.request, dict(buried.inputs), buried.result, buried.error, buried.status_message) == (
        {},
        {},
        None,
        None,
        None,
    )


def test_taking_work_over_counts_the_attempts_and_names_the_new_process() -> None:
    task = record(TaskStatus.WORKING, executor="p1")
    once = apply(task, Adopt("p2"), NOW)
    twice = apply(once, Adopt(None), NOW)
    assert [(t.executor, t.attempts - task.attempts) for t in (once, twice)] == [("p2", 1), (None, 2)]


@pytest.mark.spec("T1", "T3", "U2")
def test_no_sequence_of_three_inputs_breaks_a_rule_of_the_life_of_a_task() -> None:
    for sequence in itertools.product(INPUTS.values(), repeat=3):
        task = record(TaskStatus.INPUT_REQUIRED)
        for task_input in sequence:
            try:
                after = apply(task, task_input, NOW)
            except LocalProtocolError:
                continue
            if task.is_terminal:
                assert after.status is task.status
                assert after.last_updated_at_ms == task.last_updated_at_ms
            if not after.expired:
                assert set(task.inputs) <= set(after.inputs)
                assert all(after.inputs[key].request == entry.request for key, entry in task.inputs.items())
            assert (after.status is TaskStatus.INPUT_REQUIRED) == bool(after.outstanding)
            assert after.last_updated_at_ms >= task.last_updated_at_ms >= task.created_at_ms
            task = after
