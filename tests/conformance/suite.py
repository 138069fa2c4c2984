"""Runs the official suite against a server, and against our client."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.conformance.judging import Verdict, judge, read_results
from tests.conformance.official import Official
from tests.conformance.scenarios import ALONE, CLIENT, REQUIRED, REVISION, Scenario
from tests.conformance.serving import ROOT

_RUN_SECONDS: Final = 240  # for all required scenarios together; they take about ten
ALL_REQUIRED: Final = f"all that {REVISION} requires"
CLIENT_COMMAND: Final = f"{sys.executable} -m tests.conformance.client"


class Suite:
    """The suite, with a folder for what it finds.

    Args:
        folder: exists; each run writes to a folder of its own below it.
    """

    def __init__(self, official: Official, folder: Path) -> None:
        self._official = official
        self._folder = folder
        self._runs = 0

    def judge_server(self, url: str) -> Iterator[Verdict]:
        """Everything that gates a server, one verdict for each scenario."""
        alone = {scenario.name for scenario in ALONE}
        yield from (verdict for verdict in self.run_of_all(url) if verdict.name not in alone)
        for scenario in ALONE:
            yield self.server_scenario(scenario, url)

    def run_of_all(self, url: str) -> Iterator[Verdict]:
        """All that concerns a server of this revision, in one run; and last the suite's own verdict on it."""
        folder, status = self._run("server", "--url", url, "--requirements", REVISION)
        found = read_results(folder)
        for scenario in (*REQUIRED, *ALONE):
            yield judge(scenario, found.get(scenario.name))
        faults = (f"the suite ended with {status}",) if status else ()
        yield Verdict(name=ALL_REQUIRED, counts=Counter(), faults=faults)

    def server_scenario(self, scenario: Scenario, url: str) -> Verdict:
        """One scenario on its own, for only then the suite's exit status says anything about it."""
        folder, status = self._run("server", "--url", url, "--scenario", scenario.name, *scenario.options)
        return judge(scenario, read_results(folder).get(scenario.name), exit_status=status)

    def judge_client(self) -> Iterator[Verdict]:
        """Everything that gates our client."""
        for scenario in CLIENT:
            yield self.client_scenario(scenario)

    def client_scenario(self, scenario: Scenario, command: str = CLIENT_COMMAND) -> Verdict:
        """One scenario, for which the suite serves and starts a client.

        Args:
            command: split at its spaces; the URL comes last.
        """
        arguments = ("client", "--command", command, "--scenario", scenario.name, *scenario.options)
        folder, status = self._run(*arguments)
        verdict = judge(scenario, read_results(folder).get(scenario.name), exit_status=status)
        if verdict.passed:
            return verdict
        written = [path.read_text(encoding="utf-8", errors="replace") for path in folder.rglob("stderr.txt")]
        return attrs.evolve(
            verdict, faults=(*verdict.faults, *(f"the client wrote:\n{text}" for text in written if text))
        )

    def _run(self, *arguments: str) -> tuple[Path, int]:
        """Where the results are, and the suite's exit status."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs:02}"
        folder.mkdir()
        with (folder / "printed.txt").open("w", encoding="utf-8") as printed:
            done = subprocess.run(
                [*self._official.suite, *arguments, "-o", str(folder)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                timeout=_RUN_SECONDS,
                check=False,
            )
        return folder, done.returncode
