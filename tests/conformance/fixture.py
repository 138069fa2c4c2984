"""The conformance fixture: ``mcp-tasks serve tests.conformance.fixture:app``.

Tools are listed in the order in which they are declared. The suite calls the first one with nothing but ``{}``, so
``fixture_content`` with ``test_simple_text`` at its head comes first.
"""

from __future__ import annotations

from tests.conformance import fixture_content, fixture_families, fixture_rounds, fixture_tasks
from tests.conformance.fixture_app import app

__all__ = ["app", "fixture_content", "fixture_families", "fixture_rounds", "fixture_tasks"]
