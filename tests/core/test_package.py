"""The package's public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mcp_tasks_core


@pytest.mark.parametrize("name", mcp_tasks_core.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mcp_tasks_core, name) is not None
    assert name in dir(mcp_tasks_core)


def test_every_home_of_a_name_is_listed_as_public() -> None:
    assert sorted(mcp_tasks_core._HOME_OF) == sorted(mcp_tasks_core.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'TaskManager'"):
        mcp_tasks_core.TaskManager  # noqa: B018


def test_importing_the_package_alone_loads_neither_side() -> None:
    program = "import mcp_tasks_core, sys; print([m for m in sys.modules if m.startswith('mcp_tasks_core.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
