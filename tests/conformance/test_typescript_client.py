"""The official TypeScript clients, the SDK's and the one of the tasks extension, talk to our server over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conformance.official import Official

PROGRAM: Final = Path(__file__).with_name("typescript_client.mjs")


@pytest.fixture(scope="module")
def story(official: Official, fixture_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each step of the program gave. Node looks for packages beside the program, so both are put together."""
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copy(PROGRAM, folder)
    (folder / "node_modules").symlink_to(official.folder / "node_modules")
    command = [str(official.node), str(folder / PROGRAM.name), fixture_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_the_sdk_client_calls_reads_gets_and_answers_an_inline_question(story: dict[str, Any]) -> None:
    assert story["ordinary"] == {
        "era": "modern",
        "first": "test_simple_text",
        "image": "image/png",
        "greeted": "Hello, Ada!",
        "prompt": "Prompt with arguments: arg1='a', arg2='b'",
        "read": '{"id": "123"}',
        "progress": [0, 50, 100],
    }


def test_a_call_becomes_a_task_that_is_polled_to_its_result(story: dict[str, Any]) -> None:
    text = "sum is done after 0.5 seconds."
    assert story["finished"] == {"kind": "task", "statuses": ["working", "completed"], "text": text}
    assert story["polls"] >= 5
    assert story["statuses"] == [200, 400]  # the latter for the task that never was


def test_a_call_that_is_no_task_is_answered_at_once(story: dict[str, Any]) -> None:
    assert story["immediate"] == {"kind": "immediate", "text": "Hello, Ada!"}


def test_a_task_gets_its_answer_by_an_update(story: dict[str, Any]) -> None:
    assert story["answered"] == {
        "kind": "task",
        "statuses": ["working", "input_required", "completed"],
        "text": "a.txt was deleted.",
        "asked": [{"scope": "task", "delivery": "task-update", "message": "Delete a.txt?"}],
    }


def test_two_questions_at_once_are_both_answered(story: dict[str, Any]) -> None:
    told = {"text": "The two are Ada and Ada.", "asked": ["Who is the first?", "Who is the second?"]}
    assert story["answeredTogether"] == told


def test_a_question_may_come_before_the_task_is_made(story: dict[str, Any]) -> None:
    asked = [{"scope": "request", "delivery": "request-retry", "message": "What is your name?"}]
    assert story["answeredBefore"] == {"kind": "task", "text": "Hello, Ada!", "asked": asked}


def test_a_task_is_cancelled_and_says_so(story: dict[str, Any]) -> None:
    assert story["cancelled"] == {"outcome": "cancelled", "status": "cancelled"}


def test_a_tool_that_fails_completes_and_a_request_that_fails_does_not(story: dict[str, Any]) -> None:
    assert story["failed"] == {
        "tool": {"status": "completed", "isError": True},
        "request": {"status": "failed", "code": -32603},
    }


def test_a_task_is_handed_over_to_another_client(story: dict[str, Any]) -> None:
    assert story["resumed"] == {"generation": "v2", "text": "later is done after 0.5 seconds."}


def test_a_task_that_never_was_is_refused(story: dict[str, Any]) -> None:
    assert story["unknown"] == {"code": -32602}
