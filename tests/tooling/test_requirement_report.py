"""The requirement report and the rule for skips, tried on a small project of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = (
    "| id | | rule |\n|---|---|---|\n| B1 | M | one |\n| B2 | M | two |\n| P1 | S | three |\n| P2 | M | four |\n"
)
BOTH_PROVED = """
import pytest

@pytest.mark.spec("B1", "D1")
def test_one(): pass

@pytest.mark.spec("B2", "P1")
def test_two(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    spec, checkout = tmp_path / "shared" / "spec", tmp_path / "checkout"
    spec.mkdir(parents=True)
    (spec / "REQUIREMENTS.md").write_text(REQUIREMENTS)
    (spec / "DECISIONS.md").write_text("| id | question |\n|---|---|\n| D1 | ? |\n")
    (checkout / "tests").mkdir(parents=True)
    for name in ("conftest.py", "pyproject.toml", "tests/requirement_report.py"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "tests" / "schema_frames.py").write_text("")
    return checkout


def run(project: Path, test_code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (project / "tests" / "test_it.py").write_text(test_code)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MCP_", "PYTEST_"))}
    kept["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=project, env={**kept, **environment}, capture_output=True, text=True, check=False, timeout=60
    )


def test_ids_are_counted_when_a_marked_test_passed_and_the_rest_is_listed(project):
    done = run(project, BOTH_PROVED)
    assert done.returncode == 0
    assert "missing: none" in done.stdout
    assert "expected later, with checkpoints that outlive the client's process: P2" in done.stdout
    assert "3 of 4 ids have a test that passed" in done.stdout


@pytest.mark.parametrize("body", ["pytest.skip('not today')", "pytest.xfail('not yet')"])
def test_a_marked_test_that_did_not_pass_proves_nothing(project, body):
    done = run(project, BOTH_PROVED.replace("test_two(): pass", f"test_two(): {body}"))
    assert done.returncode == 0
    assert "missing: B2\nmissing: P1\n" in done.stdout


def test_a_missing_id_fails_the_run_only_where_coverage_is_required(project):
    code = BOTH_PROVED.replace('"B2", ', "")
    assert run(project, code).returncode == 0
    done = run(project, code, "--require-spec-coverage")
    assert done.returncode == 1
    assert "missing: B2" in done.stdout
    assert "FAILED: --require-spec-coverage" in done.stdout


def test_full_coverage_passes_where_it_is_required(project):
    assert run(project, BOTH_PROVED, "--require-spec-coverage").returncode == 0


@pytest.mark.parametrize("options", [["tests/test_it.py"], ["-k", "two"]])
def test_a_run_of_a_part_is_not_counted(project, options):
    done = run(project, BOTH_PROVED, *options)
    assert "not counted: only a part of the tests was run" in done.stdout


def test_an_id_that_does_not_exist_is_an_error_at_collection(project):
    done = run(project, BOTH_PROVED.replace('"B2"', '"B99"'))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "test_two: no row 'B99' in REQUIREMENTS.md or DECISIONS.md" in done.stderr


def test_coverage_cannot_be_required_without_the_requirements(project, tmp_path):
    done = run(project, BOTH_PROVED, "--require-spec-coverage", MCP_SPEC_DIR=str(tmp_path / "nowhere"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "needs REQUIREMENTS.md" in done.stderr


def test_without_the_requirements_tests_run_and_nothing_is_counted(project, tmp_path):
    done = run(project, BOTH_PROVED, MCP_SPEC_DIR=str(tmp_path / "nowhere"))
    assert done.returncode == 0
    assert "not counted: the specification folder is not here" in done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import pytest\ndef test_it(): pytest.skip('needs Node')",
        "import pytest\npytest.skip('needs Node', allow_module_level=True)",
        "import pytest\n@pytest.mark.skipif(True, reason='needs Node')\ndef test_it(): pass",
    ],
)
def test_a_skip_for_want_of_something_fails_only_where_everything_is_said_to_be_here(project, code):
    assert run(project, code).returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    done = run(project, code, MCP_TASKS_CI="1")
    assert done.returncode in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "skipped, which MCP_TASKS_CI=1 forbids: needs Node" in done.stdout


def test_a_skip_for_another_reason_stays_a_skip(project):
    done = run(project, "import pytest\ndef test_it(): pytest.skip('on Windows only')", MCP_TASKS_CI="1")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
