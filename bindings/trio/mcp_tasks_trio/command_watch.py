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

from mcp_tasks_core.client.config import ClientConfig, ClientLimits
from mcp_tasks_core.errors import INVALID_PARAMS
from mcp_tasks_core.identifiers import InputKey, JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.tasks import CompletedTask, FailedTask, InputRequiredTask, Task
from mcp_tasks_core.wire.converter import encode
from mcp_tasks_trio.call_endings import summary
from mcp_tasks_trio.client import DEFAULT_CAPABILITIES, DEFAULT_CLIENT_INFO, Client
from mcp_tasks_trio.client_errors import (
    CallTimedOut,
    ClientError,
    ConnectionLost,
    HttpError,
    RemoteError,
    SubscriptionsUnsupported,
    TaskCancelled,
    TaskFailed,
    Unauthorized,
)
from mcp_tasks_trio.client_inputs import InputRequest
from mcp_tasks_trio.client_listening import TaskDropped
from mcp_tasks_trio.client_stdio import open_stdio
from mcp_tasks_trio.command_call import DisplayHandler, check_http, server_name
from mcp_tasks_trio.display import (
    Display,
    open_display,
    printable,
    question_text,
    result_text,
    write_json,
    write_result,
)
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage
from mcp_tasks_trio.http_options import parse_headers
from mcp_tasks_trio.stderr_lines import StderrLines

_FAILURES: Final = frozenset({ExitCode.SERVER, ExitCode.TIMED_OUT})
_INTERRUPTED: Final = "interrupted: the tasks are left alone"
# At once. 5,000: half of what one client may wait for, so that all of them can be polled.
_TASKS_MAX: Final = 5_000
_LISTEN_TASKS_MAX: Final = Limits().subscription_tasks_max
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
        limits: how long to wait for what.
    """

    task_ids: tuple[TaskId, ...]
    server: Sequence[str]
    as_json: bool
    timeout: float | None
    quiet: bool
    backend: str
    http_url: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    limits: ClientLimits = attrs.field(factory=ClientLimits)

    @classmethod
    def parse(
        cls, task_ids: Sequence[str], server: Sequence[str], *, headers: Sequence[str] = (), **plain: Any
    ) -> WatchOptions:
        """The options, checked.

        Raises:
            WrongUsage: a value is not of the form that it has to be.
        """
        check_http(plain.get("http_url"), headers)
        ids = tuple(dict.fromkeys(_checked_id(task_id) for task_id in task_ids))
        if len(ids) > _TASKS_MAX:
            raise WrongUsage(f"{_TASKS_MAX:,} tasks can be watched at once, and not {len(ids):,}")
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
        self._work: anyio.CancelScope
        self._asked: set[tuple[TaskId, InputKey]] = set()
        self._open = dict.fromkeys(options.task_ids)
        self._known: set[TaskId] = set()
        self._shown: dict[TaskId, Task] = {}
        self._polled: set[TaskId] = set()
        self._says_polled = False
        self._failed = False
        self._has_unknown = False
        self._error: ClientError | None = None

    async def run(self) -> int:
        """Watch, and give the exit status.

        Raises:
            EndsEarly: not every task was seen to its end.
        """
        self._work = anyio.CancelScope()
        ending: int | EndsEarly = EndsEarly(ExitCode.INTERRUPTED, _INTERRUPTED)
        async with anyio.create_task_group() as group:
            await group.start(self._watch_interrupts, group.cancel_scope)
            # An exception that left the task group would come out wrapped.
            try:
                ending = await self._connect_and_watch()
            except EndsEarly as end:
                ending = end
            group.cancel_scope.cancel()
        self._display.close()
        self._stderr.finish()
        if (ending.code if isinstance(ending, EndsEarly) else ending) in _FAILURES:
            self._stderr.show_hidden()
        if isinstance(ending, EndsEarly):
            raise ending
        return ending

    async def _watch_interrupts(
        self, everything: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        """The first Ctrl-C ends the watching, another one the wait for the server's end, too."""
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                if self._work.cancel_called:
                    everything.cancel()
                self._work.cancel()

    async def _connect_and_watch(self) -> int:
        client: Client | None = None
        try:
            with self._work:
                client = await self._connect()
                server = "" if client.server is None else f" to {server_name(client.server)}"
                self._display.say(f"connected{server}", style="dim")
                with anyio.move_on_after(self._options.timeout) as patience:
                    await self._follow(client)
                if patience.cancelled_caught:
                    text = f"not ended in {self._options.timeout:g} s: {self._unfinished()}"
                    raise EndsEarly(ExitCode.TIMED_OUT, text)
                return self._status()
            raise EndsEarly(ExitCode.INTERRUPTED, _INTERRUPTED)
        except ClientError as error:
            raise _ending_of(error) from None
        finally:
            if client is not None:
                await client.aclose()

    async def _connect(self) -> Client:
        options = self._options
        config = ClientConfig(
            client_info=DEFAULT_CLIENT_INFO, capabilities=DEFAULT_CAPABILITIES, client_limits=options.limits
        )
        if options.http_url is not None:
            from mcp_tasks_trio.client_http import open_http

            self._display.activity(f"connecting to {printable(options.http_url)}")
            return await open_http(options.http_url, headers=options.headers, config=config)
        self._display.activity(f"starting {printable(shlex.join(options.server))}")
        return await open_stdio(options.server, config=config, on_stderr=self._stderr.receive_data)

    # --- states as they come

    async def _follow(self, client: Client) -> None:
        """Show states until every task has ended or is unknown.

        Raises:
            ClientError: that cannot be.
        """
        task_ids = self._options.task_ids
        self._display.activity(f"asking for the states of {_counted(len(task_ids))}")
        try:
            async with anyio.create_task_group() as group:
                for start in range(0, len(task_ids), _LISTEN_TASKS_MAX):
                    group.start_soon(self._listen, client, group, task_ids[start : start + _LISTEN_TASKS_MAX])
        finally:
            self._display.close()
        if self._error is not None:
            raise self._error

    async def _listen(self, client: Client, group: anyio.abc.TaskGroup, task_ids: Sequence[TaskId]) -> None:
        """Have the server tell of some tasks, and poll those of which it does not."""

        def poll(some: Iterable[TaskId]) -> None:
            for task_id in some:
                if task_id in self._open and task_id not in self._polled:
                    self._polled.add(task_id)
                    group.start_soon(self._poll, client, task_id)

        try:
            async with client.listen(task_ids) as subscription:
                self._known.update(TaskId(task_id) for task_id in subscription.agreed.task_ids or ())
                self._show_activity()
                poll(subscription.not_agreed)
                async for change in subscription:
                    if isinstance(change, TaskDropped):
                        self._known.discard(change.task_id)
                        poll([change.task_id])
                    elif isinstance(change, Task):
                        self._show(change)
                poll(subscription.not_agreed)
        except ClientError as error:
            if not _leaves_polling(error):
                self._stop(group, error)
                return
            self._say_polled(error)
            poll(task_ids)

    def _say_polled(self, error: ClientError) -> None:
        if not self._says_polled:
            self._says_polled = True
            why = "the server has no subscriptions" if isinstance(error, SubscriptionsUnsupported) else summary(error)
            self._display.say(f"{why}: the tasks are polled", style="dim")

    async def _poll(self, client: Client, task_id: TaskId) -> None:
        try:
            await client.observe(task_id, on_state=self._show, on_input=_leave_open).wait()
        except (TaskCancelled, TaskFailed):
            pass  # shown as a state
        except RemoteError as error:
            if error.code != INVALID_PARAMS:
                self._stop(None, error)
                return
            self._has_unknown = True
            self._open.pop(task_id, None)
            self._display.say(f"{printable(task_id)}: the server does not know it, or not for you", style="red")
            self._show_activity()
        except ClientError as error:
            self._stop(None, error)

    def _stop(self, group: anyio.abc.TaskGroup | None, error: ClientError) -> None:
        """Keep the first failure; the one of a subscription ends everything, one of a single task does not."""
        if self._error is None:
            self._error = error
        if group is not None:
            group.cancel_scope.cancel()

    def _show(self, task: Task) -> None:
        self._known.add(task.task_id)
        if task.task_id not in self._open or self._shown.get(task.task_id) == task:
            return  # whoever polls after a subscription begins with what that has told
        self._shown[task.task_id] = task
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
                lines.append(f"  error {printable(str(error.get('code')))}: {printable(str(error.get('message')))}")
            case InputRequiredTask(input_requests=requests):
                new = [key for key in requests if (task.task_id, key) not in self._asked]
                self._asked.update((task.task_id, key) for key in new)
                lines += [f"  asks {printable(key)!r}: {printable(question_text(requests[key]))}" for key in new]
        return lines

    def _write(self, line: str, style: str) -> None:
        """States go to stdout, whatever it is; on a terminal they take turns with the live line."""
        if sys.stdout.isatty():
            self._display.say(line, style=style)
        else:
            write_result(line)

    def _show_activity(self) -> None:
        """Tell how many tasks there are still to come of those that the server knows."""
        number = sum(task_id in self._known for task_id in self._open)
        if number:
            self._display.activity(f"watching {_counted(number)}")

    # --- the end

    def _status(self) -> int:
        if self._has_unknown:
            return ExitCode.SERVER  # each was named when it turned out
        return ExitCode.TOOL_FAILED if self._failed else ExitCode.RESULT

    def _unfinished(self) -> str:
        return ", ".join(printable(task_id) for task_id in self._open)


def _checked_id(text: str) -> TaskId:
    """A task's id, as a server can be asked for it.

    Raises:
        WrongUsage: it is none.
    """
    most = Limits().identifier_chars_max
    if not 1 <= len(text) <= most:
        raise WrongUsage(f"a task's id has 1 to {most} characters, and not {len(text)}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise WrongUsage(f"the task's id {printable(text)} is no UTF-8") from None
    return TaskId(text)


def _counted(number: int) -> str:
    return f"{number} task{'s' if number > 1 else ''}"


def _leaves_polling(error: ClientError) -> bool:
    """Whether tasks may still be read where the server does not, or not lastingly, tell of them."""
    match error:
        case Unauthorized():
            return False
        case ConnectionLost(exit_status=status):
            return status is None
        case SubscriptionsUnsupported() | CallTimedOut() | RemoteError() | HttpError():
            return True
    return False


async def _leave_open(request: InputRequest) -> JSONObject:
    """A question is for whoever made the call; the end of the wait, or of the task, ends this."""
    await anyio.sleep_forever()
    raise AssertionError("nothing ends sleep_forever but a cancellation")


def _ending_of(error: ClientError) -> EndsEarly:
    return EndsEarly(ExitCode.TIMED_OUT if isinstance(error, CallTimedOut) else ExitCode.SERVER, summary(error))
