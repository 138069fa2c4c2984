"""Pytest plugin: which rows of REQUIREMENTS.md has no passing test named?

A test names rows with ``@pytest.mark.spec("C5", "C7")``. Ids of DECISIONS.md may be named too, but are not counted.
Only tests that ran and passed count. After a run of all tests the rest is listed; ``--require-spec-coverage``
makes the run fail when a row is missing that no later part is to prove.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

# Rows that belong to parts which are not built yet, and the part. A row that has a test is not listed, here or not.
EXPECTED_LATER = {
    "P2": "checkpoints that outlive the client's process",
    "P3": "checkpoints that outlive the client's process",
}

_ROW = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
_ID = re.compile(r"([A-Z])(\d+)")


class RequirementReport:
    """Collects, over one run, what was marked and what passed."""

    def __init__(self, requirements: frozenset[str], decisions: frozenset[str], required: bool) -> None:
        self._requirements = requirements
        self._decisions = decisions
        self._required = required
        self._marked: dict[str, tuple[str, ...]] = {}
        self._proved: set[str] = set()
        self._whole_run = False
        self._tests_to_run = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        wrong = []
        for item in items:
            ids = tuple(spec_id for mark in item.iter_markers("spec") for spec_id in _ids_of(mark))
            if ids:
                self._marked[item.nodeid] = ids
            unknown = [spec_id for spec_id in ids if not self._exists(spec_id)]
            wrong += [f"{item.nodeid}: no row {spec_id!r} in REQUIREMENTS.md or DECISIONS.md" for spec_id in unknown]
        if wrong:
            raise pytest.UsageError("\n".join(wrong))
        self._whole_run = _names_no_part(session.config)
        self._tests_to_run = len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests_to_run -= report.when == "setup"
        if report.when == "call" and report.passed:
            self._proved.update(self._marked.get(report.nodeid, ()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self._required and self._missing():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("requirement ids without a test")
        if not self._requirements:
            terminalreporter.write_line("not counted: the specification folder is not here (MCP_SPEC_DIR)")
        elif self._tests_to_run or not (self._whole_run or self._required):
            terminalreporter.write_line("not counted: only a part of the tests was run")
        else:
            for line in self._lines():
                terminalreporter.write_line(line)

    def _exists(self, spec_id: str) -> bool:
        if not self._requirements:
            return _ID.fullmatch(spec_id) is not None
        return spec_id in self._requirements or spec_id in self._decisions

    def _missing(self) -> set[str]:
        return {spec_id for spec_id in self._requirements - self._proved if spec_id not in EXPECTED_LATER}

    def _lines(self) -> Iterator[str]:
        missing = self._missing()
        later = {spec_id: part for spec_id, part in EXPECTED_LATER.items() if spec_id in self._requirements}
        open_parts = {part: [i for i in later if later[i] == part and i not in self._proved] for part in later.values()}
        yield from _by_area("missing", missing)
        for part, ids in open_parts.items():
            yield from _by_area(f"expected later, with {part}", ids)
        counted = len(self._requirements)
        yield f"{counted - len(self._requirements - self._proved)} of {counted} ids have a test that passed"
        if missing and self._required:
            yield "FAILED: --require-spec-coverage allows no missing id"


def _by_area(title: str, ids: Iterable[str]) -> Iterator[str]:
    """One line for each area: ``missing: B3 B7``. One line that says none where there is none to list."""
    areas: dict[str, list[str]] = {}
    for spec_id in sorted(ids, key=lambda spec_id: (spec_id[0], int(spec_id[1:]))):
        areas.setdefault(spec_id[0], []).append(spec_id)
    if not areas:
        yield f"{title}: none"
    for listed in areas.values():
        yield f"{title}: {' '.join(listed)}"


def _ids_of(mark: pytest.Mark) -> tuple[str, ...]:
    if mark.kwargs or not mark.args or not all(isinstance(spec_id, str) for spec_id in mark.args):
        raise pytest.UsageError(f"a spec mark names one or more ids as strings, not {mark.args!r} {mark.kwargs!r}")
    return mark.args


def _names_no_part(config: pytest.Config) -> bool:
    """Whether the command line asks for all tests: names no file, test, keyword or mark."""
    options = config.option
    narrowed = options.keyword or options.markexpr or options.deselect or options.ignore or options.ignore_glob
    narrowed = narrowed or getattr(options, "lf", False)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not narrowed


def _spec_folder(root: Path) -> Path:
    given = os.environ.get("MCP_SPEC_DIR")
    return Path(given) if given else root.parent / "shared" / "spec"


def _rows(path: Path) -> frozenset[str]:
    return frozenset(_ROW.findall(path.read_text(encoding="utf-8"))) if path.is_file() else frozenset()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "fail when a row of REQUIREMENTS.md has no test that passed, but for those that a later part is to prove"
    parser.getgroup("requirements").addoption("--require-spec-coverage", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    folder = _spec_folder(config.rootpath)
    requirements = _rows(folder / "REQUIREMENTS.md")
    required = config.getoption("--require-spec-coverage")
    if required and not requirements:
        raise pytest.UsageError(f"--require-spec-coverage needs REQUIREMENTS.md, and {folder} has none")
    report = RequirementReport(requirements, _rows(folder / "DECISIONS.md"), required)
    config.pluginmanager.register(report, "requirement-report-of-this-run")
