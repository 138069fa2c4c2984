"""Which of the server's tools can be used for what, found out by calling them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

import attrs

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.headers import HeaderParameter, InvalidAnnotation, header_parameters
from mcp_tasks_trio.doctor.dummies import arguments_for
from mcp_tasks_trio.doctor.exchanges import Exchange


class Role(enum.Enum):
    """What a tool is good for; the value is the option that names one."""

    PLAIN = "plain-tool"
    TASK = "task-tool"
    SLOW = "slow-tool"
    ASK = "ask-tool"
    FAILING = "failing-tool"
    TOOL_ERROR = "tool-error-tool"
    REQUIRED = "required-tool"
    ROUND = "round-tool"
    PROGRESS = "progress-tool"
    HEADER = "header-tool"


NEEDS: Final = {
    Role.PLAIN: "a tool that answers with an ordinary result",
    Role.TASK: "a tool that becomes a task which completes within two seconds",
    Role.SLOW: "a tool that becomes a task which works for half a minute or more",
    Role.ASK: "a tool that becomes a task which asks for input",
    Role.FAILING: "a tool that becomes a task which fails with a JSON-RPC error",
    Role.TOOL_ERROR: "a tool that becomes a task whose result says isError",
    Role.REQUIRED: "a tool that can run as a task only",
    Role.ROUND: "a tool that answers the call itself with input_required",
    Role.PROGRESS: "a tool that reports progress while its call waits",
    Role.HEADER: "a tool with a string parameter that a header repeats (x-mcp-header)",
}


@attrs.frozen(kw_only=True)
class NamedTool:
    """What the command line says of a tool."""

    role: Role
    name: str
    arguments: JSONObject | None


@attrs.define(kw_only=True, eq=False)
class Tool:
    """A tool and what was found out about it.

    Args:
        declared: the answer to a call that declared everything.
        undeclared: the answer to the same call without the tasks extension; ``None`` if none came in time.
        states: of the task that the first call became, in order.
    """

    name: str
    definition: JSONObject
    arguments: JSONObject
    parameters: tuple[HeaderParameter, ...]
    declared: Exchange | None = None
    undeclared: Exchange | None = None
    states: list[JSONObject] = attrs.field(factory=list)
    roles: set[Role] = attrs.field(factory=set)

    @classmethod
    def of(cls, definition: JSONObject, arguments: JSONObject | None) -> Tool:
        schema = definition.get("inputSchema")
        try:
            parameters = header_parameters(schema) if isinstance(schema, dict) else ()
        except InvalidAnnotation:
            parameters = ()
        made_up = arguments_for(schema) if arguments is None else arguments
        return cls(name=definition["name"], definition=definition, arguments=made_up, parameters=parameters)

    @property
    def says_destructive(self) -> bool:
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("destructiveHint") is True

    @property
    def becomes_a_task(self) -> bool:
        result = None if self.declared is None else self.declared.result
        return result is not None and result.get("resultType") == "task"


def roles_of(tool: Tool) -> set[Role]:
    """What a tool that was called is good for."""
    found: set[Role] = set()
    if any(parameter.type == "string" for parameter in tool.parameters):
        found.add(Role.HEADER)
    if tool.declared is None:
        return found
    if any(message.get("method") == "notifications/progress" for message in tool.declared.notifications):
        found.add(Role.PROGRESS)
    result = tool.declared.result or {}
    match result.get("resultType"):
        case "task":
            found |= _roles_of_task(tool)
        case "input_required":
            found.add(Role.ROUND)
        case "complete" | None if tool.declared.result is not None and not result.get("isError"):
            found.add(Role.PLAIN)
        case _:
            pass
    return found


def _roles_of_task(tool: Tool) -> set[Role]:
    found = {Role.REQUIRED} if tool.undeclared is not None and tool.undeclared.code == -32021 else set()
    statuses = [state.get("status") for state in tool.states]
    if "input_required" in statuses:
        return found | {Role.ASK}
    last: JSONObject = tool.states[-1] if tool.states else {}
    match last.get("status"):
        case "completed":
            result = last.get("result")
            is_error = isinstance(result, dict) and result.get("isError") is True
            return found | {Role.TOOL_ERROR if is_error else Role.TASK}
        case "failed":
            return found | {Role.FAILING}
        case "working":
            return found | {Role.SLOW}
        case _:
            return found


@attrs.define
class ToolBook:
    """The tools that may be called.

    Args:
        named: what the command line says of them; what it names comes before what was found.
        listed: all definitions, as the server gave them.
    """

    named: Sequence[NamedTool]
    tools: list[Tool] = attrs.field(factory=list)
    listed: list[JSONObject] = attrs.field(factory=list)

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def with_role(self, role: Role) -> Tool | None:
        """A tool for a role; the one that was named for it, even if calling it has not shown that it fits."""
        for named in self.named:
            if named.role is role:
                return next((t for t in self.tools if t.name == named.name and _argued(t, named)), None)
        return next((tool for tool in self.tools if role in tool.roles), None)

    def task_tools(self) -> list[Tool]:
        return [tool for tool in self.tools if tool.becomes_a_task]


def _argued(tool: Tool, named: NamedTool) -> bool:
    return named.arguments is None or tool.arguments == named.arguments


def entries(listed: Sequence[Any], named: Sequence[NamedTool], *, only_named: bool) -> list[Tool]:
    """The tools to call, each with each of the arguments it was named with.

    A tool that says it is destructive is called only when it is named.
    """
    found: list[Tool] = []
    for definition in listed:
        if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
            continue
        variants: list[JSONObject | None] = []
        for one in named:
            if one.name == definition["name"] and one.arguments not in variants:
                variants.append(one.arguments)
        if not variants and not only_named and not Tool.of(definition, None).says_destructive:
            variants.append(None)
        found += [Tool.of(definition, arguments) for arguments in variants]
    return found
