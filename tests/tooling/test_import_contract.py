"""The import rules can fail: a copy with a violation is refused, by the contract that forbids it."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "mcp_tasks_core"
SQLITE = ROOT / "bindings" / "sqlite" / "mcp_tasks_sqlite"
STDIO = ROOT / "bindings" / "stdio" / "mcp_tasks_stdio"
TRIO = ROOT / "bindings" / "trio" / "mcp_tasks_trio"
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (CORE, SQLITE, STDIO, TRIO):
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def lint_imports(checkout: Path, contract: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "lint-imports", "--no-cache", "--contract", contract],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def add_line(path: Path, line: str) -> None:
    path.write_text(path.read_text() + f"\n{line}\n")


@pytest.mark.parametrize(
    ("contract", "module", "line", "complaint"),
    [
        ("sans-io", "mcp_tasks_core/tasks.py", "import socket", "mcp_tasks_core.tasks -> socket"),
        ("sans-io", "mcp_tasks_core/lifecycle.py", "from time import monotonic", "mcp_tasks_core.lifecycle -> time"),
        ("sans-io", "mcp_tasks_stdio/lines.py", "import trio", "mcp_tasks_stdio.lines -> trio"),
        ("sqlite-alone", "mcp_tasks_sqlite/store.py", "import anyio", "mcp_tasks_sqlite.store -> anyio"),
        ("sqlite-alone", "mcp_tasks_sqlite/store.py", "import cryptography", "mcp_tasks_sqlite.store -> cryptography"),
        ("rings", "mcp_tasks_sqlite/store.py", "import mcp_tasks_stdio", "mcp_tasks_sqlite.store -> mcp_tasks_stdio"),
        ("rings", "mcp_tasks_core/limits.py", "import mcp_tasks_stdio", "mcp_tasks_core.limits -> mcp_tasks_stdio"),
        ("rings", "mcp_tasks_stdio/lines.py", "import mcp_tasks_trio", "mcp_tasks_stdio.lines -> mcp_tasks_trio"),
        (
            "core-layers",
            "mcp_tasks_core/errors.py",
            "import mcp_tasks_core.tasks",
            "core.errors -> mcp_tasks_core.tasks",
        ),
        ("core-layers", "mcp_tasks_core/server/events.py", "import mcp_tasks_core.client", "-> mcp_tasks_core.client"),
        (
            "core-layers",
            "mcp_tasks_core/client/__init__.py",
            "import mcp_tasks_core.server",
            "-> mcp_tasks_core.server",
        ),
    ],
)
def test_a_violation_is_refused_by_its_contract(checkout, contract, module, line, complaint):
    add_line(checkout / module, line)
    done = lint_imports(checkout, contract)
    assert done.returncode == 1, done.stdout
    assert complaint in done.stdout


def imported_packages(folder: Path) -> set[str]:
    """The top-level names of everything that the modules of a folder import, at whatever place in a module."""
    names: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports are not used here"
                names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        (CORE, {"attr", "attrs", "cattrs", "mcp_tasks_core"}),
        (SQLITE, {"attrs", "cryptography", "mcp_tasks_core", "mcp_tasks_sqlite"}),
        (STDIO, {"attrs", "mcp_tasks_core", "mcp_tasks_stdio"}),
    ],
)
def test_no_third_party_but_the_declared_ones_is_imported(folder, allowed):
    assert imported_packages(folder) - sys.stdlib_module_names <= allowed


@pytest.mark.parametrize("module", ["mcp_tasks_core/tasks.py", "bindings/stdio/mcp_tasks_stdio/lines.py"])
@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("import time\n\ntime.time()\n", "the core has no clock"),
        ("from os import urandom\n\nurandom(1)\n", "let the runner hand the value in"),
        ("from datetime import UTC, datetime\n\ndatetime.now(UTC)\n", "the core has no clock"),
        ("import secrets\n\nsecrets.token_bytes()\n", "the core has no entropy"),
        ("import logging\n\nlogging.getLogger()\n", "the core does not log"),
        ("import threading\n\nthreading.Lock()\n", "the core has no threads"),
    ],
)
def test_the_linter_bans_clocks_entropy_and_io_and_says_what_to_do_instead(module, code, advice):
    done = ruff(module, code)
    assert done.returncode == 1
    assert "TID251" in done.stdout
    assert advice in done.stdout


@pytest.mark.parametrize("module", ["bindings/trio/mcp_tasks_trio/x.py", "tests/core/test_x.py", "examples/x.py"])
def test_the_ban_ends_where_the_runners_begin(module):
    assert ruff(module, "import time\n\ntime.time()\n").returncode == 0


def ruff(module: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "ruff", "check", "--output-format", "concise", "--stdin-filename", module, "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
