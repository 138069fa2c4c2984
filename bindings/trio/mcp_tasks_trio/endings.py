"""How the run of a tool, a gate or a method ended: every exception becomes an outcome here, and nowhere else."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio

from mcp_tasks_core.errors import INTERNAL_ERROR, ErrorObject
from mcp_tasks_core.server.events import Outcome, Raised, Returned
from mcp_tasks_trio.channels import Channel
from mcp_tasks_trio.results import UnfitResult, error_to_wire, json_object
from mcp_tasks_trio.tool_errors import BodyUnwound, CallCancelled, ProtocolError, ToolError

T = TypeVar("T")

_log = logging.getLogger("mcp_tasks_trio")


def as_result(text: str) -> Outcome:
    """A failure of a tool: an ordinary result with ``isError: true``."""
    return Returned(error_to_wire(text))


def as_error(text: str) -> Outcome:
    """A failure of any other method: a JSON-RPC error."""
    return Raised(ErrorObject(INTERNAL_ERROR, text))


async def settle(
    what: str,
    scope: anyio.CancelScope,
    channel: Channel,
    steps: Callable[[], Awaitable[T]],
    *,
    fail: Callable[[str], Outcome] = as_result,
) -> T | Outcome | None:
    """Run the steps: what they gave, what they raised as an outcome, or ``None`` where they were made to stop.

    Only the server's own end passes through as an exception.

    Args:
        what: is run, for messages.
        scope: is cancelled to stop it.
        fail: how a failure is put that is no protocol error.
    """
    value: T | None = None
    try:
        with scope:
            value = await steps()
    except UnfitResult as unfit:
        _log.error("%s returned what may not go out: %s", what, unfit)
        return fail(f"{what} failed: its result could not be sent")
    except BaseException as error:
        return _outcome_of(what, error, channel, fail)
    return value


def _outcome_of(what: str, error: BaseException, channel: Channel, fail: Callable[[str], Outcome]) -> Outcome | None:
    """What an exception means for the call; the server's own end is raised again."""
    if is_own_end(error):
        raise error
    leaves = list(_leaves(error))
    if any(isinstance(leaf, BodyUnwound) for leaf in leaves):
        return fail("")  # the channel's verdict stands in its place
    if channel.cancel_requested and all(isinstance(leaf, CallCancelled) for leaf in leaves):
        return None
    told = [leaf for leaf in leaves if isinstance(leaf, ProtocolError)]
    told_as_result = [leaf for leaf in leaves if isinstance(leaf, ToolError)]
    if len(told) + len(told_as_result) < len(leaves):
        _log.error("%s failed", what, exc_info=error)
        return fail(f"{what} failed")
    if told:
        return Raised(_sendable(told[0].error, what))
    return fail(told_as_result[0].text)


def is_own_end(error: BaseException) -> bool:
    """Whether this exception, out of what an application declared, is the server's own end; any other is a failure."""
    leaves = list(_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt | GeneratorExit) for leaf in leaves):
        return True
    return any(isinstance(leaf, anyio.get_cancelled_exc_class()) for leaf in leaves) and _loop_is_cancelling()


def _loop_is_cancelling() -> bool:
    """Whether a scope around this task was cancelled: the server ends.

    Without one, a cancellation is a stray of the tool's own, such as an awaited asyncio task that was cancelled.
    """
    return anyio.current_effective_deadline() == -math.inf


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for child in error.exceptions:
            yield from _leaves(child)
    else:
        yield error


def _sendable(error: ErrorObject, what: str) -> ErrorObject:
    """The error with data that can be written as JSON."""
    if error.data is None:
        return error
    try:
        json_object({"data": error.data})
    except UnfitResult as unfit:
        _log.error("%s raised a protocol error whose data may not go out: %s", what, unfit)
        return ErrorObject(error.code, error.message)
    return error
