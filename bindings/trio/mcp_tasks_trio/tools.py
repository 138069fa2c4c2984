"""A tool as an application declares it: checked where it is written."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.server.config import Recovery, ToolEntry
from mcp_tasks_trio.context import SyncToolContext, ToolContext
from mcp_tasks_trio.durations import duration_ms
from mcp_tasks_trio.results import OutputSchema, UnfitResult, json_object, output_schema_of
from mcp_tasks_trio.schemas import SchemaValidator
from mcp_tasks_trio.signatures import Arguments, ExplicitArguments, Signature, TypedArguments

TaskMode: TypeAlias = Literal["never", "always", "required"]
"""``never``: answered inline. ``always``: a task where the client declared tasks, else inline. ``required``: a
task, and -32021 for clients that did not declare tasks."""

_MODES: Final = ("never", "always", "required")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)  # Source: tools, Tool Names
_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}

Function: TypeAlias = Callable[..., Any]


def is_async(function: Function) -> bool:
    """Whether calling it gives something to await; everything else runs in a worker thread."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


@attrs.frozen(kw_only=True)
class TaskTerms:
    """How a call of a tool becomes a task.

    Args:
        ttl_ms: from creation; ``None`` for unlimited.
        poll_interval_ms: ``None`` to suggest none.
        detach_on_disconnect: the work starts although the caller went away before its handle.
        recovery: what becomes of the task when the process that ran its work has died.
    """

    mode: TaskMode
    ttl_ms: int | None
    poll_interval_ms: int | None
    detach_on_disconnect: bool
    recovery: Recovery


@attrs.frozen
class TaskClaim:
    """A tool's answer that hands its call to an engine of the application's own: the task has this id.

    Args:
        task_id: the engine's id, beginning with the prefix of its source.
        ttl: how long the engine keeps it; ``None`` for without limit.
        poll_interval: how often to poll, ``None`` to suggest nothing.
        status_message: what the handle says.
    """

    task_id: TaskId
    ttl: timedelta | None = attrs.field(kw_only=True)
    poll_interval: timedelta | None = attrs.field(kw_only=True, default=None)
    status_message: str | None = attrs.field(kw_only=True, default=None)

    def __attrs_post_init__(self) -> None:
        if self.ttl is not None:
            duration_ms(self.ttl, "ttl")
        if self.poll_interval is not None:
            duration_ms(self.poll_interval, "poll_interval")


@attrs.frozen(kw_only=True)
class Tool:
    """One tool, ready to be listed and called."""

    name: str
    function: Function
    is_async: bool
    context_parameter: str | None
    arguments: Arguments
    output: OutputSchema | None
    terms: TaskTerms
    gates: Sequence[Function]
    definition: JSONObject

    @property
    def entry(self) -> ToolEntry:
        requires_task = self.terms.mode == "required"
        return ToolEntry(definition=self.definition, requires_task=requires_task, recovery=self.terms.recovery)


def make_tool(
    function: Function,
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    terms: TaskTerms,
    input_schema: JSONObject | None,
    output_schema: JSONObject | None,
    annotations: Mapping[str, Any] | None,
    meta: Mapping[str, Any] | None,
    gate: Function | None,
    local_names: Mapping[str, Any],
) -> Tool:
    """A tool from a function and what was said about it.

    Raises:
        LocalProtocolError: something that was said cannot be.
    """
    if not callable(function):
        raise LocalProtocolError(f"a tool is a function, not {function!r}; write @app.tool() with its parentheses")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise LocalProtocolError(f"a tool gives one result; {function!r} is a generator")
    name = _checked_name(getattr(function, "__name__", None) if name is None else name)
    what = f"the tool {name!r}"
    signature = Signature(function, what=what, context_types=(ToolContext, SyncToolContext), local_names=local_names)
    arguments: Arguments
    if input_schema is None:
        arguments = TypedArguments(signature)
    else:
        arguments = ExplicitArguments(signature, input_schema)
    output = _output(signature, output_schema, what)
    definition: JSONObject = {"name": name}
    _add(definition, "title", title, what)
    _add(definition, "description", inspect.getdoc(function) if description is None else description, what)
    definition["inputSchema"] = arguments.schema
    if output is not None:
        definition["outputSchema"] = output.schema
    if annotations is not None:
        definition["annotations"] = _checked_annotations(annotations, what)
    if meta is not None:
        definition["_meta"] = _checked_json(meta, f"the meta of {what}")
    return Tool(
        name=name,
        function=function,
        is_async=is_async(function),
        context_parameter=signature.context_parameter,
        arguments=arguments,
        output=output,
        terms=terms,
        gates=() if gate is None else (gate,),
        definition=definition,
    )


def make_terms(
    *,
    task: str,
    ttl: timedelta | None,
    poll_interval: timedelta | None,
    detach_on_disconnect: bool,
    recovery: Recovery | str,
) -> TaskTerms:
    """How calls become tasks, checked.

    Raises:
        LocalProtocolError: a value is not one of those that are allowed.
    """
    if task not in _MODES:
        raise LocalProtocolError(f"task is one of {', '.join(map(repr, _MODES))}; not {task!r}")
    try:
        chosen = Recovery(recovery)
    except ValueError:
        allowed = ", ".join(repr(each.value) for each in Recovery)
        raise LocalProtocolError(f"recovery is one of {allowed}; not {recovery!r}") from None
    mode: TaskMode = task  # type: ignore[assignment]
    return TaskTerms(
        mode=mode,
        ttl_ms=None if ttl is None else duration_ms(ttl, "ttl"),
        poll_interval_ms=None if poll_interval is None else duration_ms(poll_interval, "poll_interval"),
        detach_on_disconnect=detach_on_disconnect,
        recovery=chosen,
    )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise LocalProtocolError(
            f"a tool's name is 1 to 128 ASCII letters, digits, '_', '-' or '.', not {name!r}; give it with name="
        )
    return name


def _add(definition: JSONObject, member: str, value: str | None, what: str) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise LocalProtocolError(f"the {member} of {what} is a text, not {value!r}")
    definition[member] = value


def _output(signature: Signature, output_schema: object, what: str) -> OutputSchema | None:
    if output_schema is None:
        return output_schema_of(signature.returns)
    validator = SchemaValidator(output_schema, f"the output_schema of {what}")
    return OutputSchema(validator.schema, validator=validator)


def _checked_annotations(annotations: Mapping[str, Any], what: str) -> JSONObject:
    checked = _checked_json(annotations, f"the annotations of {what}")
    for hint, of_type in _HINTS.items():
        if hint in checked and type(checked[hint]) is not of_type:
            raise LocalProtocolError(f"the annotation {hint} of {what} is a {of_type.__name__}, not {checked[hint]!r}")
    return checked


def _checked_json(value: object, where: str) -> JSONObject:
    try:
        return json_object(value)
    except UnfitResult as error:
        raise LocalProtocolError(f"{where}: {error}") from None
