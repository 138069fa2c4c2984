"""How ``mcp-tasks serve`` begins and ends: what it is given, locales, and each way a client may go away."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

BACKENDS = ["asyncio", "trio"]
HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sample_app", "MODULE:NAME"),
        ("sample_app:", "MODULE:NAME"),
        (":app", "MODULE:NAME"),
        ("sample_app.py:app", "there is no module"),
        ("sample app:app", "MODULE:NAME"),
        ("../sample_app:app", "MODULE:NAME"),
        ("nowhere:app", "there is no module 'nowhere'"),
        ("sample_app.nowhere:app", "there is no module 'sample_app.nowhere'"),
        ("sample_app:nowhere", "use sample_app:app or sample_app:no_tasks"),
        ("sample_app:a_number", "of type int, not an Application; use sample_app:app"),
        ("sample_app:Application", "the class Application"),
        ("json:dumps", "no Application stands in 'json'"),
    ],
)
def test_spec_that_names_no_application_is_one_line_and_status_2(mcp_tasks: Any, spec: str, says: str) -> None:
    done = mcp_tasks("serve", spec)
    assert done.status == 2
    assert done.stdout == ""
    assert says in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("mcp-tasks: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import not_installed_anywhere", "imports 'not_installed_anywhere', which is not installed"),
        ("1 / 0", "failed to import: ZeroDivisionError"),
        ("def broken(:", "failed to import: SyntaxError"),
        ("import sys; sys.exit(0)", "failed to import: SystemExit"),
        ("from mcp_tasks_trio import Application\napp = Application('')", "failed to import: "),
    ],
)
def test_module_that_cannot_be_imported_says_where(mcp_tasks: Any, tmp_path: Path, source: str, says: str) -> None:
    (tmp_path / "faulty.py").write_text(f"print('on stdout')\n{source}\n", encoding="utf-8")
    done = mcp_tasks("serve", "faulty:app", cwd=tmp_path)
    assert done.status == 2
    assert done.stdout == ""
    assert says in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [["serve"], ["serve", "sample_app:app", "--backend", "curio"], ["serve", "sample_app:app", "--log-level", "loud"]],
)
def test_wrong_option_is_status_2(mcp_tasks: Any, arguments: list[str]) -> None:
    done = mcp_tasks(*arguments)
    assert (done.status, done.stdout) == (2, "")
    assert "Error: " in done.stderr


@pytest.mark.spec("I1")
def test_stdout_holds_messages_alone_whatever_a_tool_prints(start_server: Any) -> None:
    server = start_server()
    assert server.is_alive()
    server.close_input()
    assert server.wait() == 0
    assert server.rest() == []
    assert "a module that prints while it is imported" in server.stderr
    assert "a tool that prints while it runs" in server.stderr


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_empty_input_ends_it_with_status_0(mcp_tasks: Any, backend: str) -> None:
    done = mcp_tasks("serve", "sample_app:app", "--backend", backend)
    assert (done.status, done.stdout) == (0, "")


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tool", ["wait_for_ever", "sleep_in_a_thread", "work", "work_in_a_thread", "ask_two"])
def test_end_of_input_ends_it_promptly_whatever_runs(
    start_server: Any, make_request: Any, backend: str, tool: str
) -> None:
    server = start_server("sample_app:app", "--backend", backend)
    assert server.is_alive()
    server.send(make_request("tools/call", {"name": tool, "arguments": {}}, request_id="open"))
    if tool in ("work", "work_in_a_thread", "ask_two"):
        assert server.read()["result"]["resultType"] == "task"
    server.close_input()
    assert server.process.wait(5) == 0


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_can_be_answered_at_the_end_of_input_is_answered(
    start_server: Any, make_request: Any, backend: str
) -> None:
    server = start_server("sample_app:app", "--backend", backend)
    for number in range(100):
        server.send(make_request("tools/call", {"name": "check_mark", "arguments": {}}, request_id=number))
    server.close_input()
    assert server.wait() == 0
    assert sorted(frame["id"] for frame in server.rest()) == list(range(100))


@pytest.mark.spec("I3")
def test_message_that_the_end_of_input_cuts_is_not_run(start_server: Any) -> None:
    server = start_server()
    server.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"server/discover"')
    server.close_input()
    assert server.wait() == 0
    (answer,) = server.rest()
    assert answer["error"]["code"] == -32700


@pytest.mark.spec("I3")
@pytest.mark.parametrize("backend", BACKENDS)
def test_broken_stdout_ends_it_although_stdin_stays_open(make_request: Any, backend: str) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "mcp_tasks_trio", "serve", "sample_app:app", "--backend", backend]
    with subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=writing) as process:
        assert process.stdin is not None
        os.close(writing)
        process.stdin.write(json.dumps(make_request("server/discover")).encode() + b"\n")
        process.stdin.flush()
        assert os.read(reading, 1)
        os.close(reading)
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(make_request("server/discover")).encode() + b"\n")
            process.stdin.flush()
        assert process.wait(10) == 0


@pytest.mark.spec("I3")
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux tells when a process ends that is not a child")
@pytest.mark.parametrize("backend", BACKENDS)
def test_server_does_not_outlive_a_client_that_is_killed(backend: str) -> None:
    command = [sys.executable, "-m", "mcp_tasks_trio", "serve", "sample_app:app", "--backend", backend]
    client = (
        "import subprocess\n"
        f"server = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        "print(server.pid, flush=True)\n"
        "server.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", client], cwd=HERE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        server = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
    ready, _, _ = select.select([server], [], [], 10)
    os.close(server)
    assert ready


@pytest.mark.spec("I1")
@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "cp1252", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "utf-16"},
    ],
)
def test_bytes_are_utf8_whatever_the_locale(start_server: Any, env: dict[str, str]) -> None:
    server = start_server(env=env)
    assert server.tool("check_mark")["content"][0]["text"] == "✓ 🎉 é"
    assert server.tool("echo", {"text": "✓ 🎉 é"})["structuredContent"] == {"text": "✓ 🎉 é"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signal_ends_it_with_status_0(start_server: Any, backend: str, name: str) -> None:
    server = start_server("sample_app:app", "--backend", backend)
    assert server.is_alive()
    server.process.send_signal(getattr(signal, name))
    assert server.wait() == 0
