"""``mcp-tasks call``: starts or reaches a server, calls one tool, follows its task and writes the result."""

from __future__ import annotations

import functools
import json
import logging
import math
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import attrs

from mcp_tasks_core.client.effects import LogObserved, ProgressObserved
from mcp_tasks_core.client.outcomes import Discovered
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.tasks import Task
from mcp_tasks_core.wire.converter import encode
from mcp_tasks_trio.answers_given import GivenAnswers, parse_object
from mcp_tasks_trio.call_endings import called_off, failed, unanswered
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import ClientError, InputUnhandled
from mcp_tasks_trio.client_inputs import InputRequest, NobodyToAsk
from mcp_tasks_trio.client_results import CallToolResult
from mcp_tasks_trio.client_stdio import open_stdio
from mcp_tasks_trio.display import Display, open_display, printable, result_text, write_json, write_result
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode, WrongUsage
from mcp_tasks_trio.http_options import parse_headers
from mcp_tasks_trio.prompting import NotAnswerable, ask_person
from mcp_tasks_trio.stderr_lines import StderrLines
from mcp_tasks_trio.terminal import Terminal, person_is_here

T = TypeVar("T")

_FAILURES: Final = frozenset({ExitCode.SERVER, ExitCode.TOOL_FAILED, ExitCode.TIMED_OUT})
_ELICITATION: Final[JSONObject] = {"elicitation": {"form": {}, "url": {}}}


@attrs.frozen(kw_only=True)
class CallOptions:
    """What the command line asked for.

    Args:
        server: the command line of the server; empty where it is reached over HTTP.
        http_url: the endpoint of the server.
        headers: for every HTTP request.
        timeout: seconds for the call with all that follows of it; starting the server is not counted.
        detach: end as soon as the call is a task, and leave that running.
    """

    tool: str
    arguments: JSONObject
    server: Sequence[str]
    answers: GivenAnswers
    as_json: bool
    timeout: float | None
    tasks: bool
    log_level: str | None
    quiet: bool
    backend: str
    detach: bool = False
    http_url: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def parse(
        cls,
        tool: str,
        arguments: str,
        server: Sequence[str],
        *,
        answers: Sequence[str],
        no_tasks: bool,
        headers: Sequence[str] = (),
        **plain: Any,
    ) -> CallOptions:
        """The options, checked.

        Raises:
            WrongUsage: a value is not of the form that it has to be.
        """
        check_http(plain.get("http_url"), headers)
        if no_tasks and plain.get("detach"):
            raise WrongUsage("--detach leaves a task running, and --no-tasks lets the call become none")
        return cls(
            tool=tool,
            arguments=parse_object(arguments, "ARGUMENTS_JSON"),
            server=tuple(server),
            answers=GivenAnswers(answers),
            tasks=not no_tasks,
            headers=parse_headers(headers),
            **plain,
        )


def check_http(url: str | None, headers: Sequence[str]) -> None:
    """Refuse what no request can be sent with.

    Raises:
        WrongUsage: the URL or a header makes no sense, or there are headers and no URL.
    """
    if url is None:
        if headers:
            raise WrongUsage("--header goes with --http URL")
        return
    from mcp_tasks_http import Endpoint
    from mcp_tasks_trio.http_transport import checked_headers

    try:
        Endpoint.parse(url)
        checked_headers(parse_headers(headers))
    except LocalProtocolError as error:
        raise WrongUsage(str(error)) from None


def run_call(options: CallOptions) -> int:
    """Call the tool and write its result on stdout; gives the exit status.

    Raises:
        EndsEarly: there is no result; says why.
    """
    display = open_display()
    logging.basicConfig(level=logging.WARNING, handlers=[DisplayHandler(display)], format="%(message)s")
    try:
        return anyio.run(_Call(options, display).run, backend=options.backend)
    finally:
        display.close()


class DisplayHandler(logging.Handler):
    """What the client has to say about its server."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(f"{record.levelname.lower()}: {printable(record.getMessage())}", style="yellow")


class _Stopped(Exception):
    """Something outside ended it: Ctrl-C, or the deadline."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


class _Call:
    """One run of the command."""

    def __init__(self, options: CallOptions, display: Display) -> None:
        self._options = options
        self._display = display
        self._stderr = StderrLines(display, quiet=options.quiet)
        self._terminal = Terminal() if person_is_here() else None
        self._task_id: TaskId | None = None
        self._scope: anyio.CancelScope | None = None
        self._interrupted = False

    async def run(self) -> int:
        """Call, and give the exit status.

        Raises:
            EndsEarly: there is no result.
        """
        ending: int | EndsEarly = EndsEarly(ExitCode.INTERRUPTED, "interrupted twice: nothing more was waited for")
        async with anyio.create_task_group() as group:
            await group.start(self._watch_interrupts, group.cancel_scope)
            # An exception that left the task group would come out wrapped.
            try:
                ending = await self._connect_and_call()
            except EndsEarly as end:
                ending = end
            group.cancel_scope.cancel()
        self._display.close()
        self._stderr.finish()
        if isinstance(ending, EndsEarly):
            if ending.code in _FAILURES:
                self._stderr.show_hidden()
            raise ending
        for key in self._options.answers.unused:
            self._display.say(f"warning: nobody asked {key!r}, to which --answer was given", style="yellow")
        return ending

    async def _watch_interrupts(
        self, everything: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                if self._interrupted:
                    everything.cancel()
                self._interrupted = True
                if self._scope is not None:
                    self._scope.cancel()

    async def _stoppable(self, step: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Do something that Ctrl-C ends, and the time.

        Raises:
            _Stopped: one of them did.
        """
        deadline = math.inf if timeout_s is None else anyio.current_time() + timeout_s
        with anyio.CancelScope(deadline=deadline) as self._scope:
            if self._interrupted:
                self._scope.cancel()
            return await step()
        raise _Stopped(ExitCode.INTERRUPTED if self._interrupted else ExitCode.TIMED_OUT)

    async def _connect_and_call(self) -> int:
        client: Client | None = None
        try:
            client = await self._stoppable(self._connect)
            result = await self._stoppable(functools.partial(self._follow, client), self._options.timeout)
        except _Stopped as stopped:
            raise EndsEarly(stopped.code, await self._called_off(client, stopped.code)) from None
        except EndsEarly as end:
            # An --answer that does not fit.
            assert client is not None
            raise EndsEarly(end.code, f"{end.message}; {await called_off(client, self._task_id)}") from None
        except InputUnhandled as error:
            assert client is not None
            raise await unanswered(client, error, at_terminal=self._terminal is not None) from None
        except ClientError as error:
            raise await failed(client, error, self._options.tool) from None
        else:
            return self._write(result)
        finally:
            if client is not None:
                await client.aclose()

    async def _called_off(self, client: Client | None, code: ExitCode) -> str:
        why = "interrupted" if code is ExitCode.INTERRUPTED else f"no result in {self._options.timeout:g} s"
        if client is None:
            return f"{why}: the server was not asked yet"
        self._display.activity("cancelling; Ctrl-C again leaves at once")
        return f"{why}: {await called_off(client, self._task_id)}"

    async def _connect(self) -> Client:
        options = self._options
        capabilities = {**_ELICITATION, **options.answers.capabilities}
        if options.http_url is None:
            self._display.activity(f"starting {printable(shlex.join(options.server))}")
            client = await open_stdio(
                options.server,
                capabilities=capabilities,
                on_log=self._show_log,
                on_stderr=self._stderr.receive_data,
            )
        else:
            client = await self._reach(options.http_url, capabilities)
        assert client.server is not None
        self._display.say(f"connected to {server_name(client.server)}", style="dim")
        return client

    async def _reach(self, url: str, capabilities: JSONObject) -> Client:
        from mcp_tasks_trio.client_http import open_http

        self._display.activity(f"connecting to {printable(url)}")
        return await open_http(url, headers=self._options.headers, capabilities=capabilities, on_log=self._show_log)

    async def _follow(self, client: Client) -> CallToolResult | Task:
        """The result, or with ``--detach`` the task that the call has become."""
        options = self._options
        self._display.activity(f"calling {printable(options.tool)}")
        common: dict[str, Any] = {
            "on_input": self._answer,
            "on_progress": self._show_progress,
            "on_state": self._show_state,
            "log_level": options.log_level,
        }
        if not options.detach:
            return await client.call_tool(options.tool, options.arguments, tasks=options.tasks, **common)
        execution = await client.start_tool(options.tool, options.arguments, **common)
        return await execution.wait() if execution.state is None else execution.state

    def _write(self, result: CallToolResult | Task) -> int:
        self._display.close()
        if isinstance(result, Task):
            return self._write_handle(result)
        if self._options.as_json:
            write_json(result.raw)
        else:
            write_result(result_text(result.raw))
        if not result.is_error:
            return ExitCode.RESULT
        self._display.say("the tool says that it failed (isError)", style="red")
        return ExitCode.TOOL_FAILED

    def _write_handle(self, task: Task) -> int:
        """Write the task's id, and say how it can be followed; the task is left alone."""
        if self._options.as_json:
            write_json({"resultType": "task", **encode(task)})
        else:
            write_result(task.task_id)
        url = self._options.http_url
        if url is None:
            self._display.say(
                "the server ends now: the task goes on in another process where the store is kept in a file, as the "
                'tool\'s recovery says ("fail" ends it)',
                style="yellow",
            )
        else:
            command = shlex.join(["mcp-tasks", "watch", task.task_id, "--http", url])
            more = " and the same --header" if self._options.headers else ""
            self._display.say(f"follow it with: {printable(command)}{more}", style="dim")
        return ExitCode.RESULT

    # --- what happens on the way

    def _show_state(self, task: Task) -> None:
        if self._task_id is None:
            self._task_id = task.task_id
            self._display.say(f"the call is task {printable(task.task_id)} now", style="dim")
        message = "" if task.status_message is None else f": {printable(task.status_message)}"
        self._display.activity(f"{task.status}{message}")

    def _show_progress(self, progress: ProgressObserved) -> None:
        message = printable(progress.message or "working")
        self._display.activity(message, progress.progress, progress.total)

    def _show_log(self, log: LogObserved) -> None:
        text = log.data if isinstance(log.data, str) else json.dumps(log.data, ensure_ascii=False)
        logger = "" if log.logger is None else f" {printable(log.logger)}"
        self._display.say(f"{log.level}{logger}: {printable(text)}", style="cyan")

    async def _answer(self, request: InputRequest) -> JSONObject:
        """Answers a question of the server.

        Raises:
            NobodyToAsk: neither the command line nor a person answers it.
            WrongUsage: the command line does, and the answer does not fit.
        """
        given = self._options.answers.find(request.key, request.raw)
        if given is not None:
            self._display.say(f"{printable(request.key)!r} is answered from the command line")
            return given
        if self._terminal is None:
            raise NobodyToAsk
        with self._display.for_prompt():
            try:
                answer = await ask_person(request.key, request.raw, self._terminal.read_line, self._display.say)
            except anyio.get_cancelled_exc_class():
                self._display.say("")
                raise
        if isinstance(answer, NotAnswerable):
            self._display.say(f"{printable(request.key)!r} is refused: {answer.reason}", style="red")
            raise NobodyToAsk
        return answer


def server_name(server: Discovered) -> str:
    """A server as it calls itself."""
    info = server.server_info or {}
    name = info.get("title") or info.get("name") or "a server without a name"
    return printable(f"{name} {info.get('version', '')}".strip())
