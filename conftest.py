"""Shared by all tests: the requirement report, the check of every emitted frame, and what a skip may be."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from importlib.util import find_spec

import pytest

# Everything that a test could want is said to be here: to do without any of it is a failure.
EVERYTHING_IS_HERE = os.environ.get("MCP_TASKS_CI") == "1"

# Found through pytest's `pythonpath` setting. The frame check needs jsonschema, which tests/core does without.
pytest_plugins = ["requirement_report"]
if EVERYTHING_IS_HERE or find_spec("jsonschema") is not None:
    pytest_plugins.append("schema_frames")

# How the reason of a skip begins when something that the test needs is not there: the specification folder, Node.
SKIP_FOR_WANT = "needs "


_OWN_FOLDERS = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """What a served application keeps by default goes to a folder of this run's, not to that of whoever runs it."""
    folder = config.stash[_OWN_FOLDERS] = tempfile.TemporaryDirectory(prefix="mcp-tasks-tests-")
    os.environ["XDG_STATE_HOME"] = folder.name


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_OWN_FOLDERS, None)
    if folder is not None:  # another plugin may have refused the configuration before
        folder.cleanup()


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a module was skipped; empty when it was not, or when it is an expected failure."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return ""
    return report.longrepr[2].removeprefix("Skipped: ")


def _fail_if_skipped_for_want(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = _skip_reason(report)
    if EVERYTHING_IS_HERE and reason.startswith(SKIP_FOR_WANT):
        report.outcome = "failed"
        report.longrepr = f"skipped, which MCP_TASKS_CI=1 forbids: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped_for_want(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped_for_want(report)
    return report
