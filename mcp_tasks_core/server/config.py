"""What a server is told once, when it is built."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from mcp_tasks_core.access import AccessRule
from mcp_tasks_core.answers import check_answer
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, JSONValue
from mcp_tasks_core.limits import Limits
from mcp_tasks_core.request_state import RequestStateKey
from mcp_tasks_core.sources import SourceTable
from mcp_tasks_core.wire.headers import InvalidAnnotation, header_parameters
from mcp_tasks_core.wire.json import JsonCodec

RESERVED_METHODS: Final = frozenset(
    {"server/discover", "tools/list", "tools/call", "subscriptions/listen", "initialize"}
)
"""Methods that an application cannot serve itself; nor any that begins with ``tasks/`` or ``notifications/``."""


def method_is_reserved(method: str) -> bool:
    """Whether a method belongs to the core or to the extension. Source: tasks, Reservations."""
    return method in RESERVED_METHODS or method.startswith(("tasks/", "notifications/"))


def _check_definition(instance: object, attribute: attrs.Attribute[JSONObject], value: JSONObject) -> None:
    name, schema = value.get("name"), value.get("inputSchema")
    if not isinstance(name, str) or not name:
        raise LocalProtocolError(f"a tool's name is a string of 1 character or more, not {name!r}")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise LocalProtocolError(f'the inputSchema of the tool {name!r} is an object with "type": "object"')
    try:
        header_parameters(schema)
    except InvalidAnnotation as problem:
        raise LocalProtocolError(f"the tool {name!r}: {problem}") from problem


class Recovery(enum.Enum):
    """What becomes of a tool's task when the process that ran its work has died.

    ``FAIL``: it fails with -32603. ``RESUME``: the tool is called again, and gets the answers that were already
    given as it asks for them; for tools that may run twice. ``LEAVE``: the application is told, and settles it.
    """

    FAIL = "fail"
    RESUME = "resume"
    LEAVE = "leave"


@attrs.frozen(kw_only=True)
class ToolEntry:
    """One tool of the catalogue.

    Args:
        definition: the ``Tool`` as tools/list shows it, raw.
        requires_task: the tool can run as a task only: callers that do not declare tasks get -32021.
        recovery: what becomes of its tasks when their process dies.

    Raises:
        LocalProtocolError: the definition has no name or no object schema.
    """

    definition: JSONObject = attrs.field(validator=_check_definition)
    requires_task: bool = False
    recovery: Recovery = Recovery.FAIL

    @property
    def input_schema(self) -> JSONObject:
        schema: JSONObject = self.definition["inputSchema"]
        return schema

    @property
    def name(self) -> str:
        name: str = self.definition["name"]
        return name


def check_tools(tools: Sequence[ToolEntry], *, tasks: bool) -> None:
    """Refuse a catalogue that names a tool twice, or has one that could never run.

    Args:
        tasks: whether calls may become tasks at all.

    Raises:
        LocalProtocolError: it does.
    """
    seen: set[str] = set()
    for tool in tools:
        if not isinstance(tool, ToolEntry):
            raise LocalProtocolError(f"a catalogue holds ToolEntry values, not {tool!r}")
        if tool.requires_task and not tasks:
            raise LocalProtocolError(f"the tool {tool.name!r} requires a task, and tasks are not configured")
        if tool.name in seen:
            raise LocalProtocolError(f"two tools are named {tool.name!r}")
        seen.add(tool.name)


def _check_tools(instance: ServerConfig, attribute: object, value: Sequence[ToolEntry] | None) -> None:
    if value is not None:
        check_tools(value, tasks=instance.tasks)


def _as_frozenset(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


def _check_methods(instance: object, attribute: attrs.Attribute[frozenset[str]], value: frozenset[str]) -> None:
    for method in value:
        if method_is_reserved(method):
            raise LocalProtocolError(f"the method {method!r} is not an application's to serve")


def _check_scope(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in ("public", "private"):
        raise LocalProtocolError(f'{attribute.name} is "public" or "private", not {value!r}')


def _check_server_info(instance: object, attribute: attrs.Attribute[JSONObject | None], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in ("name", "version")):
        raise LocalProtocolError(f"server_info is None or an object whose name and version are strings, not {value!r}")


def _positive_or_none(instance: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise LocalProtocolError(f"{attribute.name} is None or an integer of 1 or more, not {value!r}")


def _not_negative(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 0:
        raise LocalProtocolError(f"{attribute.name} is an integer of 0 or more, not {value!r}")


@attrs.frozen(kw_only=True)
class ServerConfig:
    """How one server protocol core behaves.

    Args:
        server_info: ``Implementation``, raw; ``None`` to identify nobody (REQUIREMENTS B11).
        tools: the catalogue, in the order in which it is listed. ``None``: there is no tools family.
        methods: the names of all methods that the application serves itself.
        capabilities: families to advertise beside tools, raw, such as ``{"prompts": {}}``.
        tasks: whether calls may become tasks; without it tasks/* do not exist here.
        subscriptions: whether subscriptions/listen is served; without it that method does not exist here, and no
            family says ``listChanged`` or ``subscribe``. With it tools say ``listChanged``, and other families what
            ``capabilities`` says of them: what is advertised there is what a subscription agrees to.
        access: who may touch a task.
        sources: names of the application's own task engines by the prefix of their ids.
        request_state_keys: the sealing key first; without any, no state outlives a round of input.
        check_answer: what is wrong with an answer to a question, ``None`` for nothing; pure.
        list_ttl_ms: how long clients may keep discover and list results.
        list_cache_scope: ``public`` or ``private``, for the same.
        call_limit_ms: how long an inline call may take; ``None`` for as long as it likes.
        executor: names this process on a store that it shares with others, as no other process was ever named;
            ``None`` where the store lives and dies with this process.
        input_extension_ms: how much longer a task is kept, each time it comes due while a question stands open
            (DECISIONS D11); ``None`` to let it expire.
        task_name_required: whether tasks/* over HTTP must come with ``Mcp-Name``; some peers leave it out
            (DECISIONS D23). One that differs from the message is refused always.
        codec: another JSON codec than the standard one; see ``JsonCodec`` for what it must refuse.

    Raises:
        LocalProtocolError: a value is not of that form.
    """

    server_info: JSONObject | None = attrs.field(default=None, validator=_check_server_info)
    tools: Sequence[ToolEntry] | None = attrs.field(factory=tuple, validator=_check_tools)
    methods: frozenset[str] = attrs.field(default=frozenset(), converter=_as_frozenset, validator=_check_methods)
    capabilities: JSONObject = attrs.field(factory=dict)
    instructions: str | None = None
    tasks: bool = True
    subscriptions: bool = True
    access: AccessRule = AccessRule.OWNER
    sources: Mapping[str, str] = attrs.field(factory=dict)
    request_state_keys: Sequence[RequestStateKey] = ()
    check_answer: Callable[[JSONObject, JSONValue], str | None] = check_answer
    list_ttl_ms: int = attrs.field(default=60_000, validator=_not_negative)
    list_cache_scope: str = attrs.field(default="private", validator=_check_scope)
    call_limit_ms: int | None = attrs.field(default=None, validator=_positive_or_none)
    task_name_required: bool = True
    executor: str | None = None
    input_extension_ms: int | None = attrs.field(default=None, validator=_positive_or_none)
    limits: Limits = attrs.field(factory=Limits)
    codec: JsonCodec | None = None

    @property
    def source_table(self) -> SourceTable:
        return SourceTable(self.sources)
