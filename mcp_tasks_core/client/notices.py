"""Notifications that belong to a request in progress: progress and log messages.

Source: progress; logging.
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.wire.meta import LOG_LEVELS


@attrs.frozen(kw_only=True, slots=True)
class Progress:
    """``notifications/progress``, read. ``token`` is whatever stood there."""

    token: JSONValue
    progress: float
    total: float | None
    message: str | None


@attrs.frozen(kw_only=True, slots=True)
class LogMessage:
    """``notifications/message``, read."""

    level: str
    logger: str | None
    data: JSONValue


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def read_progress(params: JSONObject) -> Progress | str:
    """The progress, or what is wrong with it in one sentence; null counts as absent."""
    progress, total, message = params.get("progress"), params.get("total"), params.get("message")
    if progress is None or not _is_number(progress):
        return "progress is a number"
    if total is not None and not _is_number(total):
        return "total is a number or absent"
    if message is not None and type(message) is not str:
        return "message is a string or absent"
    return Progress(token=params.get("progressToken"), progress=progress, total=total, message=message)


def read_log(params: JSONObject) -> LogMessage | str:
    """The log message, or what is wrong with it in one sentence; null counts as absent."""
    level, logger = params.get("level"), params.get("logger")
    if level not in LOG_LEVELS:
        return f"level is one of {', '.join(LOG_LEVELS)}"
    if logger is not None and type(logger) is not str:
        return "logger is a string or absent"
    if "data" not in params:
        return "data is missing"
    return LogMessage(level=level, logger=logger, data=params["data"])
