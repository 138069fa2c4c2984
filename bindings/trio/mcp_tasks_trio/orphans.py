"""Tasks whose process died and whose tool leaves what follows to the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import JSONObject, TaskId


@attrs.frozen(kw_only=True)
class OrphanedTask:
    """What is known of such a task.

    Args:
        arguments: those of the call, raw.
        meta: that call's ``_meta``.
        attempt: 2 when the first process died, and one more each time the process that was told last died, too.
    """

    task_id: TaskId
    tool_name: str
    arguments: Mapping[str, Any]
    owner: Owner
    meta: JSONObject
    attempt: int
