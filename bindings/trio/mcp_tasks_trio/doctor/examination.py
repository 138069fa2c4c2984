"""What a check works with: one server, its tools, and the means to ask it anything and to keep what it said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio
import attrs

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.headers import (
    HeaderParameter,
    HeaderValueError,
    routing_headers,
)
from mcp_tasks_trio.doctor.checks import NotExercised, demand, demand_result
from mcp_tasks_trio.doctor.dummies import answer_to
from mcp_tasks_trio.doctor.exchanges import Exchange, Listening, Sent, Transport, encode
from mcp_tasks_trio.doctor.journal import TERMINAL, Journal
from mcp_tasks_trio.doctor.tools import NEEDS, Role, Tool, ToolBook

VERSION: Final = "2026-07-28"
EXTENSION: Final = "io.modelcontextprotocol/tasks"
META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
LEGACY_TASKS: Final[JSONObject] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

PLAIN: Final[JSONObject] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
TASKS: Final[JSONObject] = {**PLAIN, "extensions": {EXTENSION: {}}}
TASKS_ALONE: Final[JSONObject] = {"extensions": {EXTENSION: {}}}
NOTHING: Final[JSONObject] = {}
LEGACY: Final[JSONObject] = {**PLAIN, "tasks": LEGACY_TASKS}

UNKNOWN_TASK: Final = "mcp-tasks-doctor-knows-no-such-task"
_SETTLE_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.05
_POLL_SECONDS_MAX: Final = 0.5

Headers = Mapping[str, str | None]


@attrs.frozen(kw_only=True)
class Patience:
    """How long things may take, in seconds.

    Args:
        answer: any one request.
        probe: a task is watched for that long to see what it is good for.
        settle: a task may take for what has to happen to it: to end, to ask, to take up an answer.
        quiet: nothing may happen for that long before it counts as not happening.
    """

    answer: float = 10.0
    probe: float = 2.0
    settle: float = 10.0
    quiet: float = 0.7


@attrs.define(kw_only=True, eq=False)
class Task:
    """A task that the doctor created."""

    task_id: str
    tool: Tool
    created: Exchange
    states: list[JSONObject] = attrs.field(factory=list)
    last: Exchange
    # What the doctor declares when it looks at the task.
    declares: JSONObject = TASKS

    @property
    def state(self) -> JSONObject:
        return self.states[-1]

    @property
    def status(self) -> Any:
        return self.state.get("status")

    @property
    def requests(self) -> JSONObject:
        found = self.state.get("inputRequests")
        return found if isinstance(found, dict) else {}


@attrs.define(kw_only=True, eq=False)
class Examination:
    """One server under examination.

    Args:
        headers: sent with every HTTP request, such as the caller's credentials.
        other_headers: those of another caller, for the checks that keep callers apart.
    """

    transport: Transport
    tools: ToolBook
    patience: Patience
    headers: Sequence[tuple[str, str]] = ()
    other_headers: Sequence[tuple[str, str]] = ()
    journal: Journal = attrs.field(factory=Journal)
    capabilities: JSONObject = attrs.field(factory=dict)
    _earlier: bool | None = None
    _ids: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))
    _unfinished: list[str] = attrs.field(factory=list)

    # --- messages

    def next_id(self) -> int:
        return next(self._ids)

    def meta(self, declares: JSONObject = TASKS) -> JSONObject:
        """What every request says of itself."""
        info = {"name": "mcp-tasks-doctor", "version": "1.0"}
        return {
            META_VERSION: VERSION,
            META_CAPABILITIES: declares,
            "io.modelcontextprotocol/clientInfo": info,
        }

    def sent(
        self,
        method: str,
        params: JSONObject | None = None,
        *,
        declares: JSONObject = TASKS,
        meta: JSONObject | None = None,
        headers: Headers | None = None,
        request_id: Any = None,
        other_caller: bool = False,
        hostile: bool = False,
    ) -> Sent:
        """A request that is right but for what is said otherwise.

        Args:
            meta: members that replace those of ``_meta``, or with ``None`` leave them out.
            headers: HTTP header fields that replace the right ones, or with ``None`` leave them out.
        """
        told = {**self.meta(declares), **(meta or {})}
        whole = {**(params or {}), "_meta": {name: value for name, value in told.items() if value is not None}}
        own_id = self.next_id() if request_id is None else request_id
        message = {"jsonrpc": "2.0", "id": own_id, "method": method, "params": whole}
        return Sent(
            body=encode(message),
            method=method,
            request_id=own_id,
            params=whole,
            headers=self.head(method, whole, headers or {}, other_caller=other_caller),
            hostile=hostile or bool(headers),
        )

    def head(
        self, method: str, params: JSONObject, changes: Headers, *, other_caller: bool = False
    ) -> list[tuple[str, str]]:
        """The header fields of a message over HTTP."""
        if self.transport.name != "http":
            return []
        parameters = self._parameters_of(params.get("name")) if method == "tools/call" else ()
        fields = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
        try:
            fields += routing_headers(method, params, VERSION, parameters)
        except HeaderValueError:
            fields += routing_headers(method, params, VERSION)
        fields += self.other_headers if other_caller else self.headers
        replaced = {name.lower() for name in changes}
        kept = [(name, value) for name, value in fields if name.lower() not in replaced]
        return kept + [(name, value) for name, value in changes.items() if value is not None]

    def _parameters_of(self, name: Any) -> tuple[HeaderParameter, ...]:
        tool = self.tools.tool(name) if isinstance(name, str) else None
        return () if tool is None else tool.parameters

    async def send(self, sent: Sent, wait_seconds: float | None = None) -> Exchange:
        """Send what was put together, and wait for its answer."""
        exchange = await self.transport.exchange(sent, self.patience.answer if wait_seconds is None else wait_seconds)
        self.journal.exchanges.append(exchange)
        return exchange

    async def ask(
        self, method: str, params: JSONObject | None = None, *, wait: float | None = None, **how: Any
    ) -> Exchange:
        """Ask as ``sent`` says, and wait for the answer."""
        return await self.send(self.sent(method, params, **how), wait)

    async def raw(
        self, body: bytes, *, request_id: Any = None, method: str = "", wait: float | None = None
    ) -> Exchange:
        """Send bytes as they are. Over HTTP the header fields are those of a discovery."""
        head = self.head(method or "server/discover", {}, {})
        sent = Sent(body=body, request_id=request_id, method=method, headers=head, hostile=True)
        return await self.send(sent, wait)

    async def bare(self, message: Any, *, wait: float | None = None) -> Exchange:
        """Send a JSON value that is no right message."""
        request_id = message.get("id") if isinstance(message, dict) else None
        method = message.get("method") if isinstance(message, dict) else None
        named = method if isinstance(method, str) else ""
        return await self.raw(encode(message), request_id=request_id, method=named, wait=wait)

    async def notify(self, method: str, params: JSONObject) -> Exchange:
        """Send a notification; whatever comes within a quiet time comes too much."""
        body = encode({"jsonrpc": "2.0", "method": method, "params": params})
        sent = Sent(body=body, method=method, params=params, headers=self.head(method, params, {}), hostile=True)
        return await self.send(sent, self.patience.quiet if self.transport.name == "stdio" else None)

    async def initialize(self, version: str) -> Exchange:
        """Begin as a client of an earlier revision does, which knows nothing of this one's headers and ``_meta``."""
        own_id = self.next_id()
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "doctor", "version": "1.0"}}
        body = encode({"jsonrpc": "2.0", "id": own_id, "method": "initialize", "params": params})
        fields = self.head("initialize", params, {"MCP-Protocol-Version": None, "Mcp-Method": None})
        sent = Sent(body=body, method="initialize", request_id=own_id, params=params, headers=fields, hostile=True)
        # Not for the journal: what an earlier revision answers is not judged by this one's rules.
        return await self.transport.exchange(sent, self.patience.answer)

    async def serves_earlier_revisions(self) -> bool:
        """Whether the server also speaks the revisions that began with initialize."""
        if self._earlier is None:
            exchange = await self.initialize("2025-03-26")
            self._earlier = exchange.result is not None
            session = exchange.field("mcp-session-id")
            if session is not None:
                head = self.head("", {}, {"Mcp-Method": None, "Mcp-Session-Id": session})
                farewell = Sent(body=b"", verb="DELETE", headers=head, hostile=True)
                await self.transport.exchange(farewell, self.patience.answer)
        return self._earlier

    def listen(self, notifications: JSONObject, **how: Any) -> AbstractAsyncContextManager[Listening]:
        """Open a subscription while the block runs. What came is to be put on record with ``keep``."""
        return self.transport.listening(self.sent("subscriptions/listen", {"notifications": notifications}, **how))

    def keep(self, exchange: Exchange) -> None:
        """Put what came outside of ``send`` on record."""
        self.journal.exchanges.append(exchange)

    # --- tools and tasks

    def need(self, role: Role) -> Tool:
        """The tool for a role.

        Raises:
            NotExercised: there is none.
        """
        tool = self.tools.with_role(role)
        if tool is None:
            raise NotExercised(f"needs {NEEDS[role]} (--{role.value} NAME)")
        return tool

    def any_task_tool(self, *preferred: Role) -> Tool:
        """A tool that becomes a task, of one of these roles if there is one.

        Raises:
            NotExercised: no tool becomes a task.
        """
        for role in preferred:
            tool = self.tools.with_role(role)
            if tool is not None:
                return tool
        tasks = self.tools.task_tools()
        if not tasks:
            raise NotExercised("needs a tool that becomes a task (--task-tool NAME)")
        return tasks[0]

    async def call(self, tool: Tool, params: JSONObject | None = None, **how: Any) -> Exchange:
        """Call a tool with the arguments that are known to do."""
        whole = {"name": tool.name, "arguments": tool.arguments, **(params or {})}
        exchange = await self.ask("tools/call", whole, **how)
        result = exchange.result or {}
        if result.get("resultType") == "task" and isinstance(result.get("taskId"), str):
            self._unfinished.append(result["taskId"])
        return exchange

    async def create(self, tool: Tool, **how: Any) -> Task:
        """A new task.

        Raises:
            NotExercised: the call did not become one.
        """
        return self.task_of(tool, await self.call(tool, **how))

    @staticmethod
    def task_of(tool: Tool, exchange: Exchange) -> Task:
        """The task that a call became.

        Raises:
            NotExercised: it did not become one.
        """
        result = exchange.result or {}
        if result.get("resultType") != "task" or not isinstance(result.get("taskId"), str):
            raise NotExercised(f"needs a task, and a call of {tool.name} did not become one")
        return Task(task_id=result["taskId"], tool=tool, created=exchange, states=[result], last=exchange)

    async def look(self, task: Task) -> JSONObject:
        """The state of a task now.

        Raises:
            Failed: the server does not tell.
        """
        exchange = await self.ask("tasks/get", {"taskId": task.task_id}, declares=task.declares)
        state = demand_result(exchange, "tasks/get of a task that exists")
        task.last = exchange
        task.states.append(state)
        if state.get("status") in TERMINAL and task.task_id in self._unfinished:
            self._unfinished.remove(task.task_id)
        return state

    async def follow(self, task: Task, until: Callable[[JSONObject], bool], seconds: float | None = None) -> bool:
        """Poll a task until this holds of it; gives whether it ever did."""
        pause = _POLL_SECONDS
        with anyio.move_on_after(self.patience.settle if seconds is None else seconds):
            while True:
                if until(await self.look(task)):
                    return True
                await anyio.sleep(pause)
                pause = min(pause * 1.5, _POLL_SECONDS_MAX)
        return False

    async def ended(self, tool: Tool) -> Task:
        """A task of a tool, followed to its end.

        Raises:
            NotExercised: it does not end.
        """
        task = await self.create(tool)
        if not await self.follow(task, lambda state: state.get("status") in TERMINAL):
            raise NotExercised(
                f"needs a task that ends, and one of {tool.name} did not within {self.patience.settle:g} s"
            )
        return task

    async def asking(self, tool: Tool | None = None, **how: Any) -> Task:
        """A task that asks for input.

        Raises:
            NotExercised: there is none.
        """
        chosen = self.need(Role.ASK) if tool is None else tool
        task = await self.create(chosen, **how)
        if not await self.follow(
            task, lambda state: state.get("status") == "input_required" or state.get("status") in TERMINAL
        ):
            raise NotExercised(
                f"needs a task that asks, and one of {chosen.name} did not within {self.patience.settle:g} s"
            )
        if task.status != "input_required":
            raise NotExercised(
                f"needs a task that asks, and one of {chosen.name} ended as {task.status} without asking"
            )
        # Several questions may come one after the other: go on once there are no more of them.
        seen: JSONObject = {}
        while task.requests != seen:
            seen = task.requests
            await anyio.sleep(_SETTLE_SECONDS)
            await self.look(task)
        return task

    async def update(self, task: Task, responses: Any, **how: Any) -> Exchange:
        return await self.ask("tasks/update", {"taskId": task.task_id, "inputResponses": responses}, **how)

    async def answer(self, task: Task, *keys: str) -> Exchange:
        """Answer questions of a task: these, or all.

        Raises:
            Failed: the answers are refused.
        """
        asked = task.requests
        responses = {key: answer_to(asked[key]) for key in keys or tuple(asked)}
        exchange = await self.update(task, responses)
        demand_result(exchange, "tasks/update with answers that fit the questions")
        return exchange

    async def cancel(self, task: Task, **how: Any) -> Exchange:
        return await self.ask("tasks/cancel", {"taskId": task.task_id}, **how)

    async def unchanged(self, task: Task, what: str) -> None:
        """See that a task stands as it stood. When it was last updated is looked at elsewhere.

        Raises:
            Failed: it does not.
        """
        before = task.last
        state, now = bare_state(task.state), bare_state(await self.look(task))
        names = {*state, *now} - {"lastUpdatedAt"}
        changed = sorted(name for name in names if state.get(name) != now.get(name))
        demand(not changed, f"{what} changed {', '.join(changed)} of the task", before, task.last)

    async def cancel_unfinished(self) -> None:
        """Cancel every task of the doctor's own that was not seen to end."""
        for task_id in self._unfinished:
            await self.transport.exchange(self.sent("tasks/cancel", {"taskId": task_id}), self.patience.answer)


def bare_state(state: JSONObject) -> JSONObject:
    """A task's state without what belongs to the answer that carries it."""
    return {name: value for name, value in state.items() if name not in ("_meta", "resultType")}


def status_is(*statuses: str) -> Callable[[JSONObject], bool]:
    """Whether a state has one of these statuses."""
    return lambda state: state.get("status") in statuses
