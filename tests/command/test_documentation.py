"""What README and docs show runs as it stands there, and what they claim in tables is so."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_tasks_trio.exit_codes import MEANINGS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]
# What the commands of the pages print on stdout, by the part of them before the divider.
OUTPUTS = {
    "call temperature": "20.5\n",
    "call water": "3 beds got 7 litres each.\n",
    "call --json water": '"text":"3 beds got 7 litres each."',
    "call countdown": "Lift-off!\n",
    "call find": '{"title":"Sans-I/O","year":2016}\n',
    "call lend": "A1 goes to Ada for a short time.\n",
    "call count": "12345\n",
    "call render": "3 frames, at attempt 1\n",
    "call deliver": "delivered\n",
    "call print_poster": "printed\n",
}
PROGRAMS = {
    "one_exchange.py": '"supportedVersions":["2026-07-28"]',
    "two_cores.py": "{'name': 'bare', 'version': '1.0'}\n",
    "water_all.py": "2 beds got 4 litres each.\n",
    "guarded.py": "called by ada\nrefused with 401\n",
    "subscriber.py": (
        "to be read anew: news://daily\nanother list of resources\nthe list of tools has changed\nrain\n"
    ),
    "listen.py": "unknown: no-such-task\n",
    "follow.py": "resumed: 12345\nrefused: 403 only the librarian closes the library\n",
}


def blocks(language: str) -> list[str]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        found += re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every Python block as a file, under the name in its first line."""
    directory = tmp_path_factory.mktemp("documentation")
    for block in blocks("python"):
        name = block.partition("\n")[0].removeprefix("# ")
        assert re.fullmatch(r"[a-z_]+\.py", name), f"a block begins with its file's name, not {name!r}"
        (directory / name).write_text(block, encoding="utf-8")
    return directory


def as_tested(command: str) -> list[str]:
    """The same command with this Python: uv may not be there."""
    words = shlex.split(command)
    while "uv" in words:
        at = words.index("uv")
        assert words[at : at + 3] == ["uv", "run", "mcp-tasks"], command
        words[at : at + 3] = MCP_TASKS
    return [sys.executable if word == "python" else word for word in words]


@pytest.mark.parametrize("command", commands())
def test_command_of_the_documentation_does_what_it_says(written: Path, command: str) -> None:
    done = subprocess.run(as_tested(command), cwd=written, capture_output=True, text=True, timeout=60, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    (expected,) = [OUTPUTS[what] for what in OUTPUTS if f"mcp-tasks {what} " in command]
    assert expected in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_of_the_documentation_does_what_it_says(written: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, program], cwd=written, capture_output=True, text=True, timeout=60, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert PROGRAMS[program] in done.stdout


def test_every_program_of_the_documentation_is_used(written: Path) -> None:
    served = {f"{word.partition(':')[0]}.py" for line in commands() for word in line.split() if ":app" in word}
    run = {word for line in commands() for word in line.split() if word.endswith(".py")}
    assert {path.name for path in written.glob("*.py")} == served | run | set(PROGRAMS)


def test_programs_of_the_documentation_have_the_right_types(written: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    files = sorted(str(path) for path in written.glob("*.py"))
    config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(written / ".mypy_cache")]
    done = subprocess.run([sys.executable, "-m", "mypy", *config, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_readme_lists_every_exit_status_with_its_meaning() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    plain = {int(code): meaning.replace("`", "") for code, meaning in rows}
    assert plain == {int(code): meaning for code, meaning in MEANINGS.items()}


def test_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("mcp-tasks demo", "pytest"):
        assert f"    python3 -m pip install uv && uv run {command}\n" in text


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_something(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), target


def test_limits_of_the_readme_are_the_real_ones() -> None:
    from mcp_tasks_core.limits import Limits

    text, limits = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split()), Limits()
    claims: dict[str, Any] = {
        "16 MiB a message": limits.frame_bytes_max == 16 * 1024 * 1024,
        "128 levels of nesting": limits.json_depth_max == 128,
        "1,024 open requests on one connection": limits.open_exchanges_per_stream_max == 1024,
        "256 questions in a task's life and 32 at once": (limits.inputs_per_task_max, limits.inputs_outstanding_max)
        == (256, 32),
        "1,000 characters of status message": limits.status_message_chars_max == 1000,
        "one stored progress message a second": limits.progress_interval_ms == 1000,
        "15 minutes for the answer to an inline question": limits.request_state_ttl_ms == 15 * 60_000,
    }
    assert {claim for claim, holds in claims.items() if not holds or claim not in text} == set()
