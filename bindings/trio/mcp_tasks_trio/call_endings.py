"""How ``mcp-tasks call`` ends without a result: what is still to be done at the server, and what the person is told."""

from __future__ import annotations

import shlex
from typing import Final

import anyio

from mcp_tasks_core.errors import INVALID_PARAMS
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_trio.answers_given import example_for
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import (
    CallTimedOut,
    ClientError,
    ConnectionLost,
    InputUnhandled,
    RemoteError,
    TaskCancelled,
    TaskFailed,
    TaskUnreachable,
)
from mcp_tasks_trio.client_inputs import InputRequest
from mcp_tasks_trio.display import printable, question_text
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode

_CANCEL_WATCH_S: Final = 6.0  # how long to watch for the end of a cancelled task; servers give work 5 s to stop
_REQUEST_S: Final = 5.0  # how long one last request may take
_WAYS_TO_DECLARE: Final = {
    "sampling": "sampling is declared, and answered, with an --answer that has a role",
    "roots": "roots are declared, and answered, with an --answer that has roots",
    "extensions": "tasks are declared without --no-tasks",
}


def summary(error: ClientError) -> str:
    """An error as one line; the end of the server's stderr, which some carry, has been shown already."""
    text, _, _ = str(error).partition("\n--- ")
    return printable(text)


async def called_off(client: Client, task_id: TaskId | None) -> str:
    """What became of a call whose scope was cancelled: the client has told the server so by itself."""
    if task_id is None:
        how = "its response was closed" if client.has_stream_per_request else "notifications/cancelled"
        return f"the server was told that nobody waits for the answer ({how})"
    told = "the server was told to cancel the task (tasks/cancel)"
    try:
        await client.observe(task_id, on_input=_leave_open).wait(timeout=_CANCEL_WATCH_S)
    except TaskCancelled:
        return f"{told}, and it is cancelled"
    except TaskFailed as error:
        return f"{told}, but it had failed: {summary(error)}"
    except ClientError as error:
        return f"{told}; whether it stopped is not known: {summary(error)}"
    return f"{told}, but it had completed"


async def _leave_open(request: InputRequest) -> JSONObject:
    """A question of a task that is being cancelled: the end of the task ends it, too."""
    await anyio.sleep_forever()
    raise AssertionError("nothing ends sleep_forever but a cancellation")


async def unanswered(client: Client, error: InputUnhandled, *, at_terminal: bool) -> EndsEarly:
    """Leave no task behind that waits for ever, and say how the questions could have been answered."""
    asked = "; ".join(
        f"{printable(key)!r} ({printable(question_text(request))}), to be answered with {example_for(key, request)}"
        for key, request in error.requests.items()
    )
    why = "nobody can type that" if at_terminal else "there is no terminal to ask at"
    return EndsEarly(ExitCode.UNANSWERED, f"the server asks {asked}; {why}. {await _cancelled(client, error.task_id)}")


async def _cancelled(client: Client, task_id: TaskId | None) -> str:
    if task_id is None:
        return "The call was given up."
    try:
        await client.cancel_task(task_id, timeout=_REQUEST_S)
    except ClientError as error:
        return f"The task could not be cancelled: {summary(error)}"
    return "The task was cancelled."


async def failed(client: Client | None, error: ClientError, tool: str) -> EndsEarly:
    """What to tell about a failure, and its exit status."""
    text = summary(error)
    match error:
        case RemoteError(code=code, method="tools/call") if code == INVALID_PARAMS and client is not None:
            text += await _other_tools(client, tool)
        case RemoteError(data={"requiredCapabilities": dict(required)}):
            text += _how_to_declare(required)
        case TaskFailed(data={"requiredCapabilities": dict(required)}):
            text += _how_to_declare(required)
    if isinstance(error, (TaskFailed, TaskCancelled)):
        return EndsEarly(ExitCode.TOOL_FAILED, text)
    if isinstance(error, (ConnectionLost, TaskUnreachable)) and error.task_id is not None:
        text += f"; the task may run on: mcp-tasks watch {printable(shlex.quote(error.task_id))}"
    return EndsEarly(ExitCode.TIMED_OUT if isinstance(error, CallTimedOut) else ExitCode.SERVER, text)


def _how_to_declare(required: JSONObject) -> str:
    """What on the command line makes this client declare what a server requires."""
    ways = [way for name, way in _WAYS_TO_DECLARE.items() if name in required]
    return "".join(f"; {way}" for way in ways)


async def _other_tools(client: Client, tool: str) -> str:
    """The names of the server's tools, where the one that was called is not among them."""
    try:
        names = [str(entry["name"]) for entry in await client.list_tools(timeout=_REQUEST_S)]
    except ClientError:
        return ""
    return "" if tool in names else f"; its tools are {printable(', '.join(names)) or 'none'}"
