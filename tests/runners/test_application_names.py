"""The package's public names."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import mcp_tasks_trio


def test_every_public_name_is_there_and_no_submodule_hides_one() -> None:
    for name in mcp_tasks_trio.__all__:
        assert not isinstance(getattr(mcp_tasks_trio, name), types.ModuleType), name
    assert set(mcp_tasks_trio.__all__) <= set(dir(mcp_tasks_trio))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mcp_tasks_trio.nothing  # noqa: B018


def test_a_server_on_asyncio_loads_neither_trio_nor_the_client_nor_the_schema_validator() -> None:
    program = (
        "import sys, runpy; runpy.run_module('examples.reports'); from mcp_tasks_trio import run_stdio; "
        "from examples.reports import app; run_stdio(app); "
        "print(*sorted({'trio', 'jsonschema', 'mcp_tasks_trio.client', 'rich', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    assert done.stdout.strip() == b""
