"""The server that is killed: tools that end by themselves, that ask, that never end, and how they are served.

python -m tests.crash.crash_app FILE BACKEND plain|sealed|forgetful
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, Final

import anyio

from mcp_tasks_core.limits import Limits
from mcp_tasks_core.server.config import Recovery
from mcp_tasks_core.store import SharedTaskStore
from mcp_tasks_sqlite import SealedTaskStore, SealingKey, SqliteTaskStore
from mcp_tasks_trio import Application, ToolContext, run_stdio
from tests.crash.forgetful_store import ForgetfulTaskStore

LEASE_MS: Final = 300
LIMITS: Final = Limits(
    lease_ms=LEASE_MS,
    lease_renewal_ms=100,
    hint_interval_ms=50,
    cancel_grace_ms=200,
    settle_retry_ms=50,
    work_attempts_max=1_000_000,  # a task of this test is to outlive any number of processes
)
KEY: Final = SealingKey("crash", bytes(range(32)))

RESUMED: Final = frozenset({"interview"})
"""The tools that are called again after their process has died."""


def question(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def value_of(answer: dict[str, Any]) -> str:
    value: str = answer["content"]["value"]
    return value


def make_application() -> Application:
    app = Application("crash", version="1", default_ttl=timedelta(hours=1), limits=LIMITS)

    @app.tool(task="always")
    async def quick(text: str, pause_ms: int) -> str:
        await anyio.sleep(pause_ms / 1000)
        return f"done: {text}"

    @app.tool(task="always")
    async def endless(text: str) -> str:
        await anyio.sleep_forever()
        return text

    @app.tool(task="always")
    async def ask_once(context: ToolContext, text: str) -> str:
        answers = await context.ask({"only": question(f"the only one of {text}")})
        return value_of(answers["only"])

    @app.tool(task="always", recovery=Recovery.RESUME)
    async def interview(context: ToolContext, text: str, pause_ms: int) -> str:
        first = await context.ask({"first": question(f"the first of {text}")})
        await anyio.sleep(pause_ms / 1000)
        rest = await context.ask({key: question(f"the {key} of {text}") for key in ("second", "third")})
        return "|".join(map(value_of, (first["first"], rest["second"], rest["third"])))

    return app


APPLICATION: Final = make_application()


def open_store(path: str, kind: str) -> tuple[SqliteTaskStore, SharedTaskStore]:
    """The file's store, and the store that a server is given.

    Args:
        kind: ``plain``, ``sealed``, or ``forgetful``: the one that has to be found out.
    """
    if kind == "forgetful":
        forgetful = ForgetfulTaskStore(path)
        return forgetful, forgetful
    file = SqliteTaskStore(path, synchronous="FULL")
    return file, SealedTaskStore(file, [KEY]) if kind == "sealed" else file


def serve(path: str, backend: str, kind: str) -> int:
    return run_stdio(APPLICATION, backend=backend, store=open_store(path, kind)[1])


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:4]))
