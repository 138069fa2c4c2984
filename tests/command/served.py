"""A served application as a child process over HTTP, for tests of commands that reach one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio

from mcp_tasks_trio import connect_http

HERE = Path(__file__).resolve().parent
MCP_TASKS = [sys.executable, "-m", "mcp_tasks_trio"]


class Server:
    """A server over HTTP as a child process, and a client of it that makes tasks."""

    def __init__(self, spec: str = "sample_app:app", *options: str, cwd: Path = HERE) -> None:
        command = [*MCP_TASKS, "serve", spec, "--http", "0", *(options or ("--store", "memory"))]
        self.process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        said = ""
        while (found := re.search(r"is served at (\S+)\n", said)) is None:
            line = self.process.stderr.readline().decode()
            assert line, f"the server ended: {said}"
            said += line
        self.url = found[1]

    def start(self, tool: str, arguments: dict[str, Any] | None = None) -> str:
        """The id of a task that this tool was made."""

        async def main() -> str:
            async with connect_http(self.url) as client:
                execution = await client.start_tool(tool, arguments)
                assert execution.task_id is not None
                return execution.task_id

        return anyio.run(main)

    def cancel(self, task_id: str) -> None:
        async def main() -> None:
            async with connect_http(self.url) as client:
                await client.cancel_task(task_id)

        anyio.run(main)

    def state(self, task_id: str) -> dict[str, Any]:
        async def main() -> dict[str, Any]:
            async with connect_http(self.url) as client:
                return await client.request("tasks/get", {"taskId": task_id})

        return anyio.run(main)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
