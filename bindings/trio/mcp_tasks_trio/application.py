"""What a server offers: tools, methods and task engines, declared with decorators."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import attrs

from mcp_tasks_core.access import Access, AccessRule, Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.server.config import Recovery, ServerConfig, method_is_reserved
from mcp_tasks_core.sources import SourceTable
from mcp_tasks_core.store import MemoryTaskStore, TaskStore
from mcp_tasks_trio.announcements import Announcer, entries_of
from mcp_tasks_trio.durations import duration_ms, optional_duration_ms
from mcp_tasks_trio.task_backends import TaskBackend
from mcp_tasks_trio.tools import Function, Tool, is_async, make_terms, make_tool

F = TypeVar("F", bound=Callable[..., Any])

RecoveryName: TypeAlias = Literal["fail", "resume", "leave"]
"""The values of ``Recovery``, as they are written where a tool is declared."""

AuthorizeTask = Callable[[Owner, Access, TaskId, Owner], "bool | Awaitable[bool]"]

_FAMILIES: Final[Mapping[str, str]] = {
    "prompts/": "prompts",
    "resources/": "resources",
    "completion/": "completions",
}
# What is advertised of a family that listeners are told of. Source: subscriptions, Notification Filter
_CHANGES: Final[Mapping[str, JSONObject]] = {
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
_ASKING_METHODS: Final = frozenset({"prompts/get", "resources/read"})  # Source: mrtr, Supported Requests
_DEFAULT_POLL_INTERVAL: Final = timedelta(seconds=1)


class _Unset:
    def __repr__(self) -> str:
        return "the application's default_ttl"


_UNSET: Final = cast("timedelta", _Unset())


@attrs.frozen
class Method:
    """A method that the application serves itself."""

    name: str
    function: Function
    is_async: bool

    @property
    def may_ask(self) -> bool:
        return self.name in _ASKING_METHODS


class Application(Announcer):
    """What one server offers. Independent of transports and event loops; one application may be served many times.

    Args:
        name, version, title, description, website_url: who the server is, for people.
        instructions: how to use the server, for models.
        store: where tasks are kept; ``None`` for memory, where they end with the process.
        request_state_keys: keys that seal the state of multi round-trip requests, shared by all processes that
            serve the application; ``None`` for one of this process alone.
        default_ttl: how long a task is kept where its tool does not say; ``None`` for without limit.
        default_poll_interval: how often clients are told to poll where a tool does not say.
        logging: log messages may be sent to callers that ask for them.
        authorize: another rule than the owner's alone for who may touch a task: caller, access, task, its owner.
        tasks: whether calls may become tasks; ``None`` where any tool or source says so.
        subscriptions: whether clients may listen for changes; ``False`` where no stream can be held open.
        call_limit: how long a call may be answered inline; ``None`` for as long as it likes.
        input_extension: how much longer a task is kept, each time it comes due while a question stands open;
            ``None`` to let it expire.
        list_ttl: how long clients may keep what lists and discover say; ``timedelta(0)`` for not at all.
        list_cache_scope: ``public`` or ``private``, for the same.
        worker_threads: tools, gates and methods that are not asynchronous and run at the same time, 1 or more.
            Engines of the application's own and access rules have threads of their own.
        limits: the core's bounds.
        capabilities: more families to advertise, raw; one that is served with ``method``, too, is advertised as it
            stands here. ``{"tools": {}}`` lets the first tool come while the application is served.

    Raises:
        LocalProtocolError: a value is not one of those that are allowed.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        instructions: str | None = None,
        store: TaskStore | None = None,
        request_state_keys: Sequence[RequestStateKey] | None = None,
        default_ttl: timedelta | None = timedelta(hours=1),
        default_poll_interval: timedelta | None = _DEFAULT_POLL_INTERVAL,
        logging: bool = True,
        authorize: AuthorizeTask | None = None,
        tasks: bool | None = None,
        subscriptions: bool = True,
        call_limit: timedelta | None = None,
        input_extension: timedelta | None = None,
        list_ttl: timedelta = timedelta(minutes=1),
        list_cache_scope: str = "private",
        worker_threads: int = 40,
        limits: Limits | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(tasks=tasks)
        self.name = name
        self.subscriptions = subscriptions
        self.server_info = _server_info(
            name=name, version=version, title=title, description=description, websiteUrl=website_url
        )
        self.instructions = instructions
        self.store = store
        self.request_state_keys = request_state_keys
        self.authorize = authorize
        self.limits = limits or Limits()
        if list_cache_scope not in ("public", "private"):
            raise LocalProtocolError(f'list_cache_scope is "public" or "private", not {list_cache_scope!r}')
        if type(worker_threads) is not int or worker_threads < 1:
            raise LocalProtocolError(f"worker_threads is an integer of 1 or more, not {worker_threads!r}")
        self.worker_threads = worker_threads
        for setting, value in (("default_ttl", default_ttl), ("default_poll_interval", default_poll_interval)):
            optional_duration_ms(value, setting)
        self._call_limit_ms = optional_duration_ms(call_limit, "call_limit")
        self._input_extension_ms = optional_duration_ms(input_extension, "input_extension")
        self._list_ttl_ms = 0 if list_ttl == timedelta(0) else duration_ms(list_ttl, "list_ttl")
        self._list_cache_scope = list_cache_scope
        self._default_ttl = default_ttl
        self._default_poll_interval = default_poll_interval
        self._logging = logging
        self._capabilities = dict(capabilities or {})
        self._families: set[str] = set()
        self._gates: list[Function] = []
        self.orphan_handler: Function | None = None
        self._methods: dict[str, Method] = {}
        self._sources: dict[str, TaskBackend] = {}

    @property
    def methods(self) -> Mapping[str, Method]:
        return self._methods

    @property
    def sources(self) -> Mapping[str, TaskBackend]:
        """The engines by the prefixes of their ids."""
        return self._sources

    def gates_of(self, tool: Tool) -> list[Function]:
        """What a call of this tool has to pass, in order: the application's gates, then the tool's own."""
        return [*self._gates, *tool.gates]

    def tool(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        task: str = "never",
        ttl: timedelta | None = _UNSET,
        poll_interval: timedelta | None = None,
        input_schema: JSONObject | None = None,
        output_schema: JSONObject | None = None,
        annotations: Mapping[str, Any] | None = None,
        gate: Function | None = None,
        detach_on_disconnect: bool = False,
        recovery: Recovery | RecoveryName = Recovery.FAIL,
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """Declare a function as a tool; the function itself stays as it is.

        Its docstring is the description, its annotations are the input schema and, for a typed return value,
        the output schema. A parameter annotated with ``ToolContext`` receives the call's context. A function
        that is not asynchronous runs in a worker thread.

        Args:
            name: 1 to 128 ASCII letters, digits, ``_``, ``-`` or ``.``; the function's own name by default.
            task: ``never``, ``always`` or ``required``; see ``TaskMode``.
            ttl: how long a task is kept from its creation; ``None`` for without limit.
            poll_interval: how often clients are told to poll.
            input_schema: an explicit JSON Schema, 2020-12 or draft-07, in place of the annotations.
            output_schema: an explicit JSON Schema of the structured result.
            annotations: ``ToolAnnotations``, raw, such as ``{"readOnlyHint": True}``.
            gate: runs before the tool, and before any task exists; it may refuse or ask.
            detach_on_disconnect: a task's work starts although its caller went away before it had the handle.
            recovery: what becomes of a task on a shared store when the process that ran its work has died. ``"fail"``:
                it fails, with -32603. ``"resume"``: the function is called again, in another process, and its
                questions are answered with the answers that were given already; for work that may run twice.
                ``"leave"``: the function given to ``on_orphan`` decides.
            meta: the tool's ``_meta``.

        Raises:
            LocalProtocolError: something that is said here cannot be.
        """
        terms = make_terms(
            task=task,
            ttl=self._default_ttl if ttl is _UNSET else ttl,
            poll_interval=self._default_poll_interval if poll_interval is None else poll_interval,
            detach_on_disconnect=detach_on_disconnect,
            recovery=recovery,
        )
        if name is not None and not isinstance(name, str):
            raise LocalProtocolError(f"name is a text, not {name!r}; write @app.tool() with its parentheses")
        # Annotations may name classes that were defined beside the function, inside another function.
        local_names = sys._getframe(1).f_locals

        def declare(function: F) -> F:
            tool = make_tool(
                function,
                name=name,
                title=title,
                description=description,
                terms=terms,
                input_schema=input_schema,
                output_schema=output_schema,
                annotations=annotations,
                meta=meta,
                gate=gate,
                local_names=local_names,
            )
            self._add_tool(tool)
            return function

        return declare

    def gate(self, function: F) -> F:
        """Declare a function that every tool call has to pass: it gets a ``GateContext`` and may raise or ask."""
        if not callable(function):
            raise LocalProtocolError(f"a gate is a function, not {function!r}")
        self._gates.append(function)
        return function

    def on_orphan(self, function: F) -> F:
        """Declare what decides on tasks whose process died and whose tool says ``recovery="leave"``.

        It gets an ``OrphanedTask``, may be asynchronous, and may take as long as it likes, as where an engine outside
        goes on with the work. What it returns or raises ends the task as it would have done in the tool. ``None``
        leaves the task as it is for good: then it ends with its time, or when its client cancels it. While the
        function runs, a cancel of the task stops it; when this process dies, too, the function is called in another
        one. Without such a function every such task is left as it is.

        Raises:
            LocalProtocolError: it is no function, or there is one already.
        """
        if not callable(function):
            raise LocalProtocolError(f"on_orphan is a function, not {function!r}; write @app.on_orphan")
        if self.orphan_handler is not None:
            raise LocalProtocolError("on_orphan is declared twice")
        self.orphan_handler = function
        return function

    def method(self, name: str, *, capability: str | None = None) -> Callable[[F], F]:
        """Declare a function that serves another MCP method: ``fn(params, context) -> result``, both raw.

        Args:
            capability: the family to advertise for it; derived from the name for prompts, resources, completion.

        Raises:
            LocalProtocolError: the method is the core's or the extension's, or declared twice.
        """
        if not isinstance(name, str) or not name:
            raise LocalProtocolError(f"a method's name is a string of 1 character or more, not {name!r}")
        if method_is_reserved(name) or name.startswith("tools/"):
            raise LocalProtocolError(f"the method {name!r} is not an application's to serve")
        if name in self._methods:
            raise LocalProtocolError(f"the method {name!r} is declared twice")

        def declare(function: F) -> F:
            if not callable(function):
                raise LocalProtocolError(f"a method is served by a function, not {function!r}")
            family = capability or next((f for prefix, f in _FAMILIES.items() if name.startswith(prefix)), None)
            if family is not None:
                self._families.add(family)
            self._methods[name] = Method(name, function, is_async(function))
            return function

        return declare

    def source(self, prefix: str, backend: TaskBackend) -> None:
        """Let an engine of the application's own hold the tasks whose ids begin with a prefix.

        Raises:
            LocalProtocolError: the prefix is not printable ASCII, or overlaps another.
        """
        if prefix in self._sources:
            raise LocalProtocolError(f"two sources have the prefix {prefix!r}")
        SourceTable({**{known: known for known in self._sources}, prefix: prefix})
        self._sources[prefix] = backend

    def server_config(
        self, request_state_keys: Sequence[RequestStateKey], *, executor: str | None = None
    ) -> ServerConfig:
        """What the protocol core is told of this application as it stands now.

        Args:
            request_state_keys: used where the application was given none.
            executor: names this process on a shared store.
        """
        tools = self.tools
        makes_tasks = bool(self._sources) or any(tool.terms.mode != "never" for tool in tools.values())
        return ServerConfig(
            server_info=self.server_info,
            tools=entries_of(tools) if tools or "tools" in self._capabilities else None,
            methods=frozenset(self._methods.keys()),
            capabilities=self._advertised(),
            instructions=self.instructions,
            tasks=makes_tasks if self._tasks is None else self._tasks,
            subscriptions=self.subscriptions,
            access=AccessRule.OWNER if self.authorize is None else AccessRule.ASK,
            sources={prefix: prefix for prefix in self._sources},
            request_state_keys=self.request_state_keys or request_state_keys,
            executor=executor,
            call_limit_ms=self._call_limit_ms,
            input_extension_ms=self._input_extension_ms,
            list_ttl_ms=self._list_ttl_ms,
            list_cache_scope=self._list_cache_scope,
            limits=self.limits,
        )

    def _advertised(self) -> JSONObject:
        """The families beside tools: what the author said of one counts, whatever methods it has."""
        changes = _CHANGES if self.subscriptions else {}
        served: JSONObject = {family: dict(changes.get(family, {})) for family in sorted(self._families)}
        logging: JSONObject = {"logging": {}} if self._logging else {}
        return {**served, **self._capabilities, **logging}

    def new_store(self) -> TaskStore:
        """The application's store, or a fresh one in memory."""
        return MemoryTaskStore() if self.store is None else self.store


def _server_info(**members: str | None) -> JSONObject:
    info = {name: value for name, value in members.items() if value is not None}
    for name, value in info.items():
        if not isinstance(value, str) or not value:
            raise LocalProtocolError(f"an application's {name} is a text of 1 character or more, not {value!r}")
    return info
