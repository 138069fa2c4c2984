"""``mcp-tasks demo``: a tool call becomes a task, with a real server in a child process, and each step explained."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

import mcp_tasks_trio
from mcp_tasks_core.client.outcomes import Discovered
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.tasks import InputRequiredTask, Task
from mcp_tasks_trio.client import Client
from mcp_tasks_trio.client_errors import ClientError
from mcp_tasks_trio.client_inputs import InputRequest
from mcp_tasks_trio.client_results import CallToolResult
from mcp_tasks_trio.client_stdio import connect_stdio
from mcp_tasks_trio.display import Display, open_display, printable
from mcp_tasks_trio.exit_codes import EndsEarly, ExitCode
from mcp_tasks_trio.prompting import NotAnswerable, ask_person
from mcp_tasks_trio.terminal import Terminal, person_is_here

_ARGUMENTS: Final[JSONObject] = {"topic": "sales", "pages": 3}
_OWN_ANSWERS: Final[Mapping[str, JSONObject]] = {"quarter": {"quarter": "Q3"}}


def run_demo(*, backend: str) -> int:
    """Show it; gives the exit status.

    Raises:
        EndsEarly: the server could not be started or failed.
    """
    display = open_display(to_stdout=True)
    try:
        return anyio.run(_Demo(display, backend).run, backend=backend)
    finally:
        display.close()


def find_example() -> tuple[str, Path | None]:
    """The bundled example as MODULE:APP, and the directory that it is to be served from.

    An installed package holds a copy of ``examples/reports.py``; in a checkout the file itself is used.

    Raises:
        EndsEarly: there is neither.
    """
    package = Path(mcp_tasks_trio.__file__).parent
    if (package / "examples" / "reports.py").is_file():
        return "mcp_tasks_trio.examples.reports:app", None
    checkout = package.parents[2]
    if (checkout / "examples" / "reports.py").is_file():
        return "examples.reports:app", checkout
    raise EndsEarly(ExitCode.SERVER, f"there is no examples/reports.py in {package} or {checkout}")


class _Demo:
    """One run of the demo."""

    def __init__(self, display: Display, backend: str) -> None:
        self._display = display
        self._backend = backend
        self._terminal = Terminal() if person_is_here() else None
        self._last: tuple[str, str | None] | None = None
        self._titles = 0

    async def run(self) -> int:
        spec, directory = find_example()
        with tempfile.TemporaryDirectory(prefix="mcp-tasks-demo-") as folder:
            return await self._run(spec, directory, Path(folder) / "tasks.db")

    async def _run(self, spec: str, directory: Path | None, store: Path) -> int:
        serve = [sys.executable, "-m", "mcp_tasks_trio", "serve", spec]
        command = [*serve, "--backend", self._backend, "--store", str(store)]
        self._title(f"A server in a child process: mcp-tasks serve {spec}")
        self._explain("client and server speak JSON-RPC over the child's stdin and stdout, a message a line")
        try:
            async with connect_stdio(command, cwd=directory) as client:
                return await self._show(client)
        except ClientError as error:
            raise EndsEarly(ExitCode.SERVER, str(error)) from None

    async def _show(self, client: Client) -> int:
        assert client.server is not None
        self._show_discovery(client.server)
        self._show_tools(await client.list_tools())
        await self._greet(client)
        result = await self._report(client)
        self._title("The result")
        self._explain("the completed task holds what an ordinary tools/call would have returned")
        self._display.close()
        self._display.say(f"   {printable(result.text)}", style="bold red" if result.is_error else "bold green")
        return ExitCode.RESULT

    def _show_discovery(self, server: Discovered) -> None:
        self._title("What is this server?")
        self._sent("server/discover")
        info = server.server_info or {}
        extensions = ", ".join(server.capabilities.get("extensions", {}))
        self._came(f"{info.get('name')} {info.get('version')}, revision {', '.join(server.supported_versions)}")
        self._came(f"extensions: {extensions}")

    def _show_tools(self, tools: Sequence[JSONObject]) -> None:
        self._title("What can it do?")
        self._sent("tools/list")
        for tool in tools:
            parameters = ", ".join(tool["inputSchema"].get("properties", {}))
            self._came(f"{tool['name']}({parameters}): {tool.get('description', '')}")

    async def _greet(self, client: Client) -> None:
        self._title("An ordinary tool call")
        self._sent("tools/call", 'greet {"name": "Ada"}')
        result = await client.call_tool("greet", {"name": "Ada"})
        self._came(f'resultType "complete": {result.text}')

    async def _report(self, client: Client) -> CallToolResult:
        self._title("A slow tool call, which the server makes a task")
        self._sent("tools/call", 'generate_report {"topic": "sales", "pages": 3}')
        execution = await client.start_tool(
            "generate_report", _ARGUMENTS, on_input=self._answer, on_state=self._show_state
        )
        return await execution.wait()

    def _show_state(self, task: Task) -> None:
        if self._last is None:
            self._show_handle(task)
        elif (task.status, task.status_message) != self._last:
            detail = task.status_message or ""
            if isinstance(task, InputRequiredTask):
                detail = f"inputRequests: {', '.join(task.input_requests)}"
            self._sent("tasks/get")
            self._came(f"{task.status:<15} {'' if task.is_terminal else detail}".rstrip())
        self._last = (task.status, task.status_message)
        self._display.activity(f"tasks/get every {task.poll_interval_ms} ms")

    def _show_handle(self, task: Task) -> None:
        self._came(f'resultType "task": the handle of task {task.task_id}')
        self._came(f"{task.status}, ttlMs {task.ttl_ms}, pollIntervalMs {task.poll_interval_ms}")
        self._explain("the request is answered; the work goes on, whatever becomes of the connection")

    async def _answer(self, request: InputRequest) -> JSONObject:
        self._explain(f"the task waits for an answer to {request.key!r} ({request.method})")
        answer = await self._person_or_own(request)
        self._sent("tasks/update", f"{request.key}: {_shown(answer)}")
        self._explain("the server acknowledges it once the answer is stored; then the work goes on")
        return answer

    async def _person_or_own(self, request: InputRequest) -> JSONObject:
        if self._terminal is not None:
            with self._display.for_prompt():
                answer = await ask_person(request.key, request.raw, self._terminal.read_line, self._display.say)
            if not isinstance(answer, NotAnswerable):
                return answer
        self._display.say(f"   ?  {printable(request.message or request.method)}", style="bold")
        self._explain("there is no terminal to ask at, so the demo answers itself")
        return request.accept(_OWN_ANSWERS[request.key])

    # --- the layout

    def _title(self, text: str) -> None:
        self._titles += 1
        gap = "\n" if self._titles > 1 else ""
        self._display.say(f"{gap}{self._titles}. {printable(text)}", style="bold cyan")

    def _explain(self, text: str) -> None:
        self._display.say(f"   {printable(text)}", style="dim")

    def _sent(self, method: str, what: str = "") -> None:
        self._display.say(f"   -> {method}  {printable(what)}".rstrip())

    def _came(self, text: str) -> None:
        self._display.say(f"   <- {printable(text)}", style="green")


def _shown(answer: Mapping[str, Any]) -> str:
    content = answer.get("content")
    return str(answer["action"]) if content is None else f"{answer['action']} {json.dumps(content, ensure_ascii=False)}"
