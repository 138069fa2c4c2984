"""The client of the official Python SDK talks to ``mcp-tasks serve`` over stdio."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

pytest.importorskip("mcp_types", reason="needs the mcp package, 2.3 or newer, as the dependency group interop has it")

import mcp_types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientExtension, advertise
from mcp.client.extension import ClaimContext, ResultClaim
from pydantic import ConfigDict

ROOT = Path(__file__).resolve().parents[2]
TASKS = "io.modelcontextprotocol/tasks"
COMMAND = ["-m", "mcp_tasks_trio", "serve", "examples.reports:app"]


class AnyResult(mcp_types.Result):
    """A result of the extension, of which the SDK knows nothing."""

    model_config = ConfigDict(extra="allow")

    def member(self, name: str) -> Any:
        return (self.model_extra or {})[name]


class Handle(AnyResult):
    result_type: Literal["task"]


class TaskRequest(mcp_types.Request[dict[str, Any], str]):
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """What the SDK leaves to others: polls a task, and answers its question."""

    identifier = TASKS

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.states: list[dict[str, Any]] = []

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Handle, resolve=self._resolve)]

    async def _resolve(self, handle: Handle, context: ClaimContext) -> mcp_types.CallToolResult:
        self.handles.append(handle)
        task_id = handle.member("taskId")
        while True:
            state = (await send(context.session, "tasks/get", taskId=task_id)).model_dump(by_alias=True)
            if not self.states or self.states[-1]["lastUpdatedAt"] != state["lastUpdatedAt"]:
                self.states.append(state)
            if state["status"] == "completed":
                return mcp_types.CallToolResult.model_validate(state["result"])
            assert state["status"] in ("working", "input_required"), state
            if state["status"] == "input_required":
                answers = {"quarter": {"action": "accept", "content": {"quarter": "Q3"}}}
                await send(context.session, "tasks/update", taskId=task_id, inputResponses=answers)


async def send(session: Any, method: str, **params: Any) -> AnyResult:
    result: AnyResult = await session.send_request(TaskRequest(method=method, params=params), AnyResult)
    return result


async def refuse(context: Any, params: Any) -> mcp_types.ElicitResult:
    """Makes the client declare elicitation. Questions of a task come another way."""
    return mcp_types.ElicitResult(action="decline")


def run(body: Callable[[Client], Awaitable[None]], *extensions: ClientExtension) -> None:
    async def main() -> None:
        server = StdioServerParameters(command=sys.executable, args=COMMAND, cwd=ROOT)
        with anyio.fail_after(60):
            async with Client(server, extensions=extensions, elicitation_callback=refuse) as client:
                await body(client)

    anyio.run(main)


@pytest.mark.spec("N3", "C3")
def test_it_discovers_lists_and_calls_an_ordinary_tool() -> None:
    async def body(client: Client) -> None:
        assert client.session.protocol_version == "2026-07-28"
        assert client.session.discover_result is not None
        assert client.session.server_info is not None
        assert client.session.server_info.name == "reports"
        assert (client.session.server_capabilities.extensions or {}) == {TASKS: {}}
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["greet", "generate_report"]
        result = await client.call_tool("greet", {"name": "Ada"})
        assert result.content[0].text == "Hello, Ada!"
        assert not result.is_error

    run(body)


def test_its_client_follows_a_task_that_an_extension_of_it_claims() -> None:
    tasks = TasksExtension()

    async def body(client: Client) -> None:
        result = await client.call_tool("generate_report", {"topic": "sales", "pages": 1})
        assert result.content[0].text == "Report on sales, Q3: 1 pages."

    run(body, tasks)
    (handle,) = tasks.handles
    assert handle.member("status") == "working"
    statuses = [state["status"] for state in tasks.states]
    assert statuses[-1] == "completed"
    assert "input_required" in statuses


def test_its_raw_session_reads_a_handle_and_polls_it_to_the_end() -> None:
    async def body(client: Client) -> None:
        # The SDK holds every tools/call to the core's schema: a handle can be read only by who claims it.
        handle = await client.session.call_tool("generate_report", {"topic": "x"}, allow_claimed=True)
        assert isinstance(handle, Handle)
        task_id = handle.member("taskId")
        acknowledged = await send(client.session, "tasks/cancel", taskId=task_id)
        assert acknowledged.member("resultType") == "complete"
        state = await send(client.session, "tasks/get", taskId=task_id)
        while state.member("status") in ("working", "input_required"):
            state = await send(client.session, "tasks/get", taskId=task_id)
        assert state.member("status") == "cancelled"

    run(body, TasksExtension())


def test_our_errors_reach_its_caller_as_they_are() -> None:
    async def body(client: Client) -> None:
        for method, params, code in (
            ("tools/call", {"name": "nobody"}, -32602),
            ("tasks/get", {"taskId": "nobody's"}, -32602),
            ("tasks/list", {"taskId": ""}, -32601),
        ):
            with pytest.raises(MCPError) as caught:
                await send(client.session, method, **{"taskId": "", **params})
            assert caught.value.error.code == code

    run(body, advertise(TASKS))


@pytest.mark.spec("C3", "N7")
def test_it_gets_an_ordinary_result_where_it_does_not_declare_tasks() -> None:
    async def body(client: Client) -> None:
        result = await client.call_tool("generate_report", {"topic": "sales"})
        assert result.is_error is True  # the question came inline, and was declined
        with pytest.raises(MCPError) as caught:
            await send(client.session, "tasks/get", taskId="x")
        assert caught.value.error.code == -32021

    run(body)
