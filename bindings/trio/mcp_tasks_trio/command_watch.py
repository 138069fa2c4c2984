"""``mcp-tasks watch``: shows the states of tasks as they come, to the end of each. It answers and cancels nothing."""

from __future__ import annotations

import logging
import shlex
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import anyio
import attrs

from mcp_tasks_core.errors import INVALID_PARAMS
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.tasks import CompletedTask, FailedTask, InputRequiredTask, Task
from mcp_tasks_core.wire.converter import encode
from mcp_tasks_trio.call_endings import summary
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import (
    CallTimedOut,
    ClientError,
    RemoteError,
    SubscriptionsUnsupported,
    TaskCancelled,
    TaskFailed,
)
from mcp_tasks_trio.client_inputs import InputRequest
from mcp_tasks_trio.client_stdio import open_stdio
from mcp_tasks_trio.command_call import DisplayHandler, check_http, server_name
from mcp_tasks_trio.display import Display, open_display, printable, result_text, write_json, write_result
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode
from mcp_tasks_trio.http_options import parse_headers
from mcp_tasks_trio.stderr_lines import StderrLines

_FAILURES: Final = frozenset({ExitCode.SERVER, ExitCode.TIMED_OUT})
_STYLES: Final = {"completed": "green", "failed": "red", "cancelled": "red", "input_required": "yellow"}


@attrs.frozen(kw_only=True)
class WatchOptions:
    """What the command line asked for.

    Args:
        task_ids: each once.
        server: the command line of the server; empty where it is reached over HTTP.
        http_url: the endpoint of the server.
        headers: for every HTTP request.
        timeout: seconds for all tasks together; starting the server is not counted.
    """

    task_ids: tuple[TaskId, ...]
    server: Sequence[str]
    as_json: bool
    timeout: float | None
    quiet: bool
    backend: str
    http_url: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def parse(
        cls, task_ids: Sequence[str], server: Sequence[str], *, headers: Sequence[str] = (), **plain: Any
    ) -> WatchOptions:
        """The options, checked.

        Raises:
            WrongUsage: a value is not of the form that it has to be.
        """
        check_http(plain.get("http_url"), headers)
        ids = tuple(dict.fromkeys(TaskId(task_id) for task_id in task_ids))
        return cls(task_ids=ids, server=tuple(server), headers=parse_headers(headers), **plain)


def run_watch(options: WatchOptions) -> int:
    """Watch the tasks and write their states on stdout; gives the exit status.

    Raises:
        EndsEarly: not every task was seen to its end; says why.
    """
    display = open_display(to_stdout=sys.stdout.isatty() and not options.as_json)
    logging.basicConfig(level=logging.WARNING, handlers=[DisplayHandler(display)], format="%(message)s")
    try:
        return anyio.run(_Watch(options, display).run, backend=options.backend)
    finally:
        display.close()


class _Watch:
    """One run of the command."""

    def __init__(self, options: WatchOptions, display: Display) -> None:
        self._options = options
        self._display = display
        self._stderr = StderrLines(display, quiet=options.quiet)
        self._interrupted = False
        self._asked: set[tuple[TaskId, InputKey]] = set()
        self._open = dict.fromkeys(options.task_ids)
        self._failed = False
        self._unknown: list[TaskId] = []
        self._error: ClientError | None = None

    async def run(self) -> int:
        """Watch, and give the exit status.

        Raises:
            EndsEarly: not every task was seen to its end.
        """
        ending: int | EndsEarly = EndsEarly(ExitCode.INTERRUPTED, "interrupted: the tasks are left alone")
        async with anyio.create_task_group() as group:
            await group.start(self._stop_when_interrupted, group.cancel_scope)
            # An exception that left the task group would come out wrapped.
            try:
                ending = await self._connect_and_watch()
            except EndsEarly as end:
                ending = end
            group.cancel_scope.cancel()
        self._display.close()
        self._stderr.finish()
        if isinstance(ending, EndsEarly):
            if ending.code in _FAILURES:
                self._stderr.show_hidden()
            raise ending
        return ending

    async def _stop_when_interrupted(
        self, everything: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                everything.cancel()
                return

    async def _connect_and_watch(self) -> int:
        client: Client | None = None
        try:
            client = await self._connect()
            self._display.say(
                f"connected to {server_name(client.server)}" if client.server else "connected", style="dim"
            )
            with anyio.move_on_after(self._options.timeout) as patience:
                await self._follow(client)
            if patience.cancelled_caught:
                raise EndsEarly(ExitCode.TIMED_OUT, f"not ended in {self._options.timeout:g} s: {self._unfinished()}")
        except ClientError as error:
            raise _ending_of(error) from None
        finally:
            if client is not None:
                await client.aclose()
        return self._status()

    async def _connect(self) -> Client:
        options = self._options
        if options.http_url is not None:
            from mcp_tasks_trio.client_http import open_http

            self._display.activity(f"connecting to {printable(options.http_url)}")
            return await open_http(options.http_url, headers=options.headers)
        self._display.activity(f"starting {printable(shlex.join(options.server))}")
        return await open_stdio(options.server, on_stderr=self._stderr.receive_data)

    # --- states as they come

    async def _follow(self, client: Client) -> None:
        """Show states until every task has ended or is unknown.

        Raises:
            ClientError: that cannot be.
        """
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, client, group)
        finally:
            self._display.close()
        if self._error is not None:
            raise self._error

    async def _listen(self, client: Client, group: anyio.abc.TaskGroup) -> None:
        """Have the server tell of the tasks, and poll those of which it does not."""
        self._show_activity()
        polled: set[TaskId] = set()

        def poll(task_ids: Iterable[TaskId]) -> None:
            for task_id in task_ids:
                if task_id not in polled:
                    polled.add(task_id)
                    group.start_soon(self._poll, client, task_id)

        try:
            async with client.listen(self._options.task_ids) as subscription:
                poll(subscription.not_agreed)
                async for change in subscription:
                    if isinstance(change, Task):
                        self._show(change)
                poll(subscription.not_agreed)
        except SubscriptionsUnsupported:
            self._display.say("the server has no subscriptions: the tasks are polled", style="dim")
            poll(tuple(self._open))
        except ClientError as error:
            self._stop(group, error)

    async def _poll(self, client: Client, task_id: TaskId) -> None:
        try:
            await client.observe(task_id, on_state=self._show, on_input=_leave_open).wait()
        except (TaskCancelled, TaskFailed):
            pass  # shown as a state
        except RemoteError as error:
            if error.code != INVALID_PARAMS:
                self._stop(None, error)
                return
            self._unknown.append(task_id)
            self._open.pop(task_id, None)
            self._display.say(f"{printable(task_id)}: the server does not know it, or not for you", style="red")
            self._show_activity()
        except ClientError as error:
            self._stop(None, error)

    def _stop(self, group: anyio.abc.TaskGroup | None, error: ClientError) -> None:
        """Keep the first failure; the one of the subscription ends everything, one of a single task does not."""
        if self._error is None:
            self._error = error
        if group is not None:
            group.cancel_scope.cancel()

    def _show(self, task: Task) -> None:
        if task.is_terminal:
            self._open.pop(task.task_id, None)
            self._failed |= not isinstance(task, CompletedTask) or task.result.get("isError") is True
        if self._options.as_json:
            write_json(encode(task))
        else:
            for line in self._lines(task):
                self._write(line, _STYLES.get(task.status.value, ""))
        self._show_activity()

    def _lines(self, task: Task) -> list[str]:
        name = printable(task.task_id)
        message = "" if task.status_message is None else f": {printable(task.status_message)}"
        lines = [f"{name} {task.status.value}{message}"]
        match task:
            case CompletedTask(result=result):
                text = printable(result_text(result), keep_lines=True)
                lines += [f"  {line}" for line in text.splitlines()]
            case FailedTask(error=error):
                lines.append(f"  error {error['code']}: {printable(error['message'])}")
            case InputRequiredTask(input_requests=requests):
                new = [key for key in requests if (task.task_id, key) not in self._asked]
                self._asked.update((task.task_id, key) for key in new)
                lines += [f"  asks {printable(key)!r}: {_in_words(requests[key])}" for key in new]
        return lines

    def _write(self, line: str, style: str) -> None:
        """States go to stdout, whatever it is; on a terminal they take turns with the live line."""
        if sys.stdout.isatty():
            self._display.say(line, style=style)
        else:
            write_result(line)

    def _show_activity(self) -> None:
        if self._open:
            self._display.activity(f"watching {len(self._open)} task{'s' if len(self._open) > 1 else ''}")

    # --- the end

    def _status(self) -> int:
        if self._unknown:
            names = ", ".join(printable(task_id) for task_id in self._unknown)
            raise EndsEarly(ExitCode.SERVER, f"the server does not know {names}, or not for you")
        return ExitCode.TOOL_FAILED if self._failed else ExitCode.RESULT

    def _unfinished(self) -> str:
        return ", ".join(printable(task_id) for task_id in self._open)


def _in_words(request: JSONObject) -> str:
    message = request.get("params", {}).get("message")
    return printable(message if isinstance(message, str) else str(request.get("method")))


async def _leave_open(request: InputRequest) -> JSONObject:
    """A question is for whoever made the call; the end of the wait, or of the task, ends this."""
    await anyio.sleep_forever()
    raise AssertionError("nothing ends sleep_forever but a cancellation")


def _ending_of(error: ClientError) -> EndsEarly:
    return EndsEarly(ExitCode.TIMED_OUT if isinstance(error, CallTimedOut) else ExitCode.SERVER, summary(error))
