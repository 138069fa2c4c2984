"""Puts the example of this repository into the package, so that ``mcp-tasks demo`` works wherever it is installed.

There is one ``examples/reports.py``, at the root of the checkout; a source distribution carries a copy at its place
in the package, from where a wheel takes it like any other module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = "mcp_tasks_trio/examples/reports.py"


class BundleExample(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        example = Path(self.root).parents[1] / "examples" / "reports.py"
        # An editable install uses the checkout itself.
        if version != "editable" and example.is_file():
            build_data["force_include"][str(example)] = PLACE
