"""What may be said about a request while it is in progress.

Source: progress, Behavior Requirements; logging, Per-request log level.
"""

from __future__ import annotations

import math

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.server.events import CallLogged, CallProgressed
from mcp_tasks_core.server.exchanges import Exchange
from mcp_tasks_core.wire.meta import LOG_LEVELS


def _is_finite_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_progress(progress: object, total: object) -> None:
    """Refuse what JSON has no number for.

    Raises:
        LocalProtocolError: progress or total is not a finite number.
    """
    if not _is_finite_number(progress) or not (total is None or _is_finite_number(total)):
        raise LocalProtocolError(f"progress and total are finite numbers, not {progress!r} and {total!r}")


def progress_params(exchange: Exchange, event: CallProgressed) -> JSONObject | None:
    """The params of notifications/progress; ``None`` without a token, or when the progress does not increase.

    Raises:
        LocalProtocolError: progress or total is not a finite number.
    """
    check_progress(event.progress, event.total)
    token = exchange.progress_token
    if token is None or (exchange.progress is not None and event.progress <= exchange.progress):
        return None
    exchange.progress = event.progress
    params: JSONObject = {"progressToken": token, "progress": event.progress}
    if event.total is not None:
        params["total"] = event.total
    if event.message is not None:
        params["message"] = event.message
    return params


def log_params(exchange: Exchange | None, event: CallLogged) -> JSONObject | None:
    """The params of notifications/message; ``None`` unless the request asked for messages of this level.

    Raises:
        LocalProtocolError: there is no such level.
    """
    if event.level not in LOG_LEVELS:
        raise LocalProtocolError(f"a log level is one of {', '.join(LOG_LEVELS)}, not {event.level!r}")
    if exchange is None or exchange.invocation != event.ticket:
        return None
    wanted = exchange.meta.log_level
    if wanted is None or LOG_LEVELS.index(event.level) < LOG_LEVELS.index(wanted):
        return None
    params: JSONObject = {"level": event.level, "data": event.data}
    if event.logger is not None:
        params["logger"] = event.logger
    return params
