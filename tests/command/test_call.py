"""``mcp-tasks call`` without a terminal: what it writes where, and its exit status."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
CALL = [sys.executable, "-m", "mcp_tasks_trio", "call"]


def test_result_is_one_json_object_on_stdout_and_everything_else_on_stderr(mcp_tasks: Any, root: Path) -> None:
    serve = [sys.executable, "-m", "mcp_tasks_trio", "serve", "examples.reports:app"]
    done = mcp_tasks("call", "--json", "greet", '{"name":"Ada"}', "--", *serve, cwd=root)
    assert done.status == 0
    assert done.stdout.count("\n") == 1
    result = json.loads(done.stdout)
    assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert result["resultType"] == "complete"
    assert "connected to reports 1.0" in done.stderr


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_task_is_followed_through_a_question_to_its_result(mcp_tasks: Any, recording: Any, backend: str) -> None:
    answers = ["--answer", 'first={"value": 2}', "--answer", 'second={"action": "accept", "content": {"value": 3}}']
    done = mcp_tasks("call", "--json", "--backend", backend, "ask_two", *answers, "--", *recording.command)
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["content"][0]["text"] == "2 and 3"
    for said in ("the call is task ", "working", "input_required", "is answered from the command line", "completed"):
        assert said in done.stderr
    assert recording.methods[:2] == ["server/discover", "tools/call"]
    assert set(recording.methods[2:]) == {"tasks/get", "tasks/update"}


def test_text_is_shown_where_no_json_is_asked_for(mcp_tasks: Any, sample_server: list[str]) -> None:
    done = mcp_tasks("call", "check_mark", "--", *sample_server, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert (done.status, done.stdout) == (0, "✓ 🎉 é\n")


def test_structured_content_is_kept_to_the_last_digit(mcp_tasks: Any, sample_server: list[str]) -> None:
    value = 2**64 + 1
    done = mcp_tasks("call", "--json", "echo", json.dumps({"value": value}), "--", *sample_server)
    assert json.loads(done.stdout)["structuredContent"] == {"value": value}


def test_arguments_may_be_left_out(mcp_tasks: Any, sample_server: list[str]) -> None:
    assert mcp_tasks("call", "check_mark", "--", *sample_server).status == 0


@pytest.mark.spec("C3")
def test_call_need_not_become_a_task(mcp_tasks: Any, recording: Any) -> None:
    done = mcp_tasks("call", "--no-tasks", "finish", "--", *recording.command)
    assert (done.status, done.stdout) == (0, "done\n")
    assert recording.methods == ["server/discover", "tools/call"]


@pytest.mark.spec("L1", "L2")
def test_progress_and_logs_are_shown(mcp_tasks: Any, sample_server: list[str]) -> None:
    done = mcp_tasks("call", "complain", "--log-level", "info", "--", *sample_server)
    assert "warning printer: the paper is low" in done.stderr
    assert "half way (1 of 2)" in done.stderr


def test_stderr_of_the_server_is_marked_and_cannot_steer_a_terminal(mcp_tasks: Any, sample_server: list[str]) -> None:
    done = mcp_tasks("call", "complain", "--", *sample_server)
    assert "server| \\x1b[31mfrom the depths" in done.stderr
    assert "\x1b" not in done.stderr


def test_quiet_hides_the_stderr_of_the_server_until_something_fails(mcp_tasks: Any, sample_server: list[str]) -> None:
    assert "from the depths" not in mcp_tasks("call", "-q", "complain", "--", *sample_server).stderr
    failed = mcp_tasks("call", "-q", "die", "--", *sample_server)
    assert "server| about to die" in failed.stderr


@pytest.mark.parametrize(
    ("tool", "options", "status", "says"),
    [
        ("refuse", [], 1, "the tool says that it failed"),
        ("fail_as_tool", [], 1, "the tool says that it failed"),
        ("fail", [], 1, "failed with error 7: the printer is on fire"),
        ("boom", [], 3, "error 7: the printer is on fire"),
        ("nobody", [], 3, "Unknown tool: nobody; its tools are greet, echo"),
        ("only_as_task", ["--no-tasks"], 3, "tasks are declared without --no-tasks"),
        ("ask_model", [], 1, "answered, with an --answer that has a role"),
        ("ask_roots", [], 1, "answered, with an --answer that has roots"),
        ("die", [], 3, "the server's process ended with status 3"),
        ("die", [], 3, "; the task may run on: mcp-tasks watch "),
        ("wait_for_ever", ["--timeout", "2"], 124, "no result in 2 s: the server was told"),
        ("work", ["--timeout", "2"], 124, "the server was told to cancel the task (tasks/cancel), and it is"),
    ],
)
def test_failure_has_its_status_and_one_line(
    mcp_tasks: Any, sample_server: list[str], tool: str, options: list[str], status: int, says: str
) -> None:
    done = mcp_tasks("call", *options, tool, "--", *sample_server)
    assert (done.status, says in done.stderr.splitlines()[-1]) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_tool_that_fails_still_gives_its_result(mcp_tasks: Any, sample_server: list[str]) -> None:
    done = mcp_tasks("call", "--json", "refuse", "--", *sample_server)
    assert done.status == 1
    assert json.loads(done.stdout)["isError"] is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["greet", "{"], "ARGUMENTS_JSON is no JSON"),
        (["greet", "[1]"], "ARGUMENTS_JSON is a JSON object"),
        (["greet", '{"a": 1, "a": 2}'], "ARGUMENTS_JSON is no JSON"),
        (["greet", '{"a": NaN}'], "ARGUMENTS_JSON is no JSON"),
        (["greet", "{}", "--answer", "x"], "--answer is KEY=JSON"),
        (["greet", "{}", "--answer", "=1"], "--answer is KEY=JSON"),
        (["greet", "{}", "--answer", "x=1"], "--answer x=... is a JSON object"),
        (["greet", "{}", "--answer", "x={}", "--answer", "x={}"], "is given twice"),
        (["greet", "{}", "--timeout", "0"], "Invalid value for '--timeout'"),
        (["greet", "{}", "--timeout", "soon"], "Invalid value for '--timeout'"),
        (["greet", "{}", "--log-level", "loud"], "Invalid value for '--log-level'"),
        (["greet", "{}", "extra"], "unexpected extra argument"),
        ([], "Missing argument 'TOOL'"),
    ],
)
def test_wrong_command_line_is_status_2_and_starts_nothing(
    mcp_tasks: Any, recording: Any, arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = mcp_tasks("call", *arguments, "--", *recording.command)
    assert (done.status, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["greet"], ["greet", "{}", "--"], ["--json", "greet", "--"]])
def test_missing_server_command_is_status_2(mcp_tasks: Any, arguments: list[str]) -> None:
    done = mcp_tasks("call", *arguments)
    assert done.status == 2
    assert "the server's command stands after '--'" in done.stderr


@pytest.mark.spec("U7")
def test_answer_that_does_not_fit_is_status_2_and_cancels_the_task(mcp_tasks: Any, recording: Any) -> None:
    done = mcp_tasks("call", "ask_two", "--answer", 'first={"value": 0}', "--", *recording.command)
    assert done.status == 2
    assert "content.value: at least 1, not 0" in done.stderr.splitlines()[-1]
    assert recording.methods.count("tasks/cancel") == 1
    assert "tasks/update" not in recording.methods


@pytest.mark.spec("P4")
def test_question_that_nobody_answers_is_status_4_and_leaves_no_task(mcp_tasks: Any, recording: Any) -> None:
    done = mcp_tasks("call", "ask_form", "--", *recording.command)
    assert (done.status, done.stdout) == (4, "")
    last = done.stderr.splitlines()[-1]
    assert "the server asks 'form' (Fill in, please)" in last
    assert """--answer 'form={"size": 1, "ratio": 1}'""" in last
    assert "no terminal" in last
    assert "The task was cancelled." in last
    assert recording.methods.count("tasks/cancel") == 1


def test_question_before_any_task_is_status_4_too(mcp_tasks: Any, recording: Any) -> None:
    done = mcp_tasks("call", "ask_inline", "--", *recording.command)
    assert done.status == 4
    assert "The call was given up." in done.stderr
    assert "tasks/cancel" not in recording.methods


@pytest.mark.parametrize(
    ("tool", "answer", "text"),
    [
        ("ask_inline", 'colour={"colour": "blue"}', "accept: {'colour': 'blue'}"),
        ("ask_inline", 'colour={"action": "decline"}', "decline: None"),
        ("ask_form", 'form={"action": "cancel"}', "cancel: None"),
        ("ask_to_visit", 'sign-in={"action": "accept"}', "accept"),
        ("ask_roots", 'roots={"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}', "file:///a file:///b"),
        (
            "ask_model",
            'summary={"role": "assistant", "model": "none", "content": {"type": "text", "text": "short"}}',
            "short",
        ),
    ],
)
def test_question_of_any_kind_can_be_answered_on_the_command_line(
    mcp_tasks: Any, sample_server: list[str], tool: str, answer: str, text: str
) -> None:
    done = mcp_tasks("call", tool, "--answer", answer, "--", *sample_server)
    assert (done.status, done.stdout) == (0, text + "\n"), done.stderr


def test_answer_that_nobody_asked_for_is_mentioned(mcp_tasks: Any, sample_server: list[str]) -> None:
    done = mcp_tasks("call", "check_mark", "--answer", 'x={"y": 1}', "--", *sample_server)
    assert done.status == 0
    assert "nobody asked 'x'" in done.stderr


@pytest.mark.spec("P11")
def test_only_what_can_be_answered_is_declared(mcp_tasks: Any, recording: Any) -> None:
    mcp_tasks("call", "check_mark", "--answer", 'x={"roots": []}', "--", *recording.command)
    for message in recording.sent:
        declared = message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert set(declared) - {"extensions"} == {"elicitation", "roots"}


@pytest.mark.spec("P5")
@pytest.mark.parametrize(
    ("tool", "method", "said", "backend"),
    [
        ("work", "tasks/cancel", "the call is task", "asyncio"),
        ("work", "tasks/cancel", "the call is task", "trio"),
        ("wait_for_ever", "notifications/cancelled", "calling wait_for_ever", "asyncio"),
        ("wait_for_ever", "notifications/cancelled", "calling wait_for_ever", "trio"),
        ("work_in_a_thread", "tasks/cancel", "the call is task", "asyncio"),
    ],
)
def test_interrupt_cancels_and_says_so(recording: Any, tool: str, method: str, said: str, backend: str) -> None:
    command = [*CALL, "--backend", backend, tool, "--", *recording.command]
    with subprocess.Popen(
        command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any(said in line for line in lines)
        while tool == "wait_for_ever" and "tools/call" not in recording.methods:
            pass  # the line is shown just before the request goes out
        process.send_signal(signal.SIGINT)
        rest = list(lines)
        assert process.wait(30) == 130
    assert "interrupted: the server was told" in rest[-1]
    assert method in rest[-1]
    assert recording.methods.count(method) == 1


def test_second_interrupt_waits_for_nothing_more(recording: Any) -> None:
    command = [*CALL, "work_in_a_thread", "--", *recording.command]
    with subprocess.Popen(
        command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("the call is task" in line for line in lines)
        process.send_signal(signal.SIGINT)
        assert any("Ctrl-C again leaves at once" in line for line in lines)
        process.send_signal(signal.SIGINT)
        assert list(lines)[-1] == "mcp-tasks: interrupted twice: nothing more was waited for\n"
        assert process.wait(30) == 130
    assert recording.methods.count("tasks/cancel") == 1


ANSWERS = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], **ANSWER}), flush=True)
"""
LEGACY = {"error": {"code": -32601, "message": "Method not found"}}
OTHER = {"error": {"code": -32022, "message": "no", "data": {"supported": ["2099-01-01"], "requested": "2026-07-28"}}}
BROKEN = {
    "ends at once": ("import sys; print('bye', file=sys.stderr); sys.exit(3)", "ended with status 3"),
    "is a legacy server": (ANSWERS.replace("ANSWER", repr(LEGACY)), "legacy revision"),
    "speaks another revision": (ANSWERS.replace("ANSWER", repr(OTHER)), "2099-01-01"),
    "answers nonsense": (ANSWERS.replace("ANSWER", repr({"result": 5})), "server/discover"),
    "chats": ("import sys\nfor _ in range(100_000): print('hello')\nsys.stdin.read()", "mcp-tasks: "),
}


@pytest.mark.spec("N8")
@pytest.mark.parametrize("what", BROKEN)
def test_program_that_is_no_server_of_this_revision_is_status_3(mcp_tasks: Any, what: str) -> None:
    source, says = BROKEN[what]
    done = mcp_tasks("call", "greet", "--", sys.executable, "-c", source)
    assert (done.status, done.stdout) == (3, ""), done.stderr
    assert says in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spec("N8")
def test_program_that_never_answers_is_given_up(mcp_tasks: Any) -> None:
    done = mcp_tasks("call", "greet", "--", "cat")
    assert done.status == 3
    assert "did not answer server/discover in time" in done.stderr.splitlines()[-1]


def test_command_that_is_not_there_is_status_3(mcp_tasks: Any) -> None:
    done = mcp_tasks("call", "greet", "--", "/nowhere/to be found")
    assert done.status == 3
    assert "'/nowhere/to be found' cannot be run" in done.stderr.splitlines()[-1]


@pytest.mark.spec("I2")
def test_banner_of_a_server_does_no_harm(mcp_tasks: Any, sample_server: list[str]) -> None:
    banner = r"echo 'Welcome!'; echo; printf '\033[31mred\033[0m\n'; echo 5; echo '{}'"
    script = f"{banner}; exec {shlex.join(sample_server)}"
    done = mcp_tasks("call", "check_mark", "--", "sh", "-c", script)
    assert (done.status, done.stdout) == (0, "✓ 🎉 é\n")
    assert "\x1b" not in done.stderr
