"""The application that the official suite is pointed at. Its tools, prompts and resources stand beside this module."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mcp_tasks_trio import Application

app: Final = Application(
    "conformance-fixture",
    version="1.0",
    description="Every tool, prompt and resource that the official conformance suite calls by name.",
    # Lists never change while the process runs; nobody need ask twice within a minute.
    list_ttl=timedelta(minutes=1),
    list_cache_scope="public",
    default_poll_interval=timedelta(milliseconds=200),
)
