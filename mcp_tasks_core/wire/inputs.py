"""Input requests and the answers to them: elicitation, sampling and roots, as they travel inside other messages.

Requests stay raw values; the classes here read them where their parts are needed.

Source: mrtr, InputRequests; elicitation; sampling; roots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs

from mcp_tasks_core.capabilities import ELICITATION, INPUT_REQUEST_METHODS, ROOTS, SAMPLING
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.content import check_content, check_content_block
from mcp_tasks_core.wire.converter import DecodeError, decode, shown
from mcp_tasks_core.wire.formats import is_uri
from mcp_tasks_core.wire.requested_schema import check_requested_schema
from mcp_tasks_core.wire.tools import Tool

# --- Elicitation


def _check_url(url: str) -> None:
    if not is_uri(url):
        raise DecodeError("", f"an absolute URL, not {shown(url)}")


@attrs.frozen(kw_only=True)
class ElicitFormParams:
    """Params of ``elicitation/create`` in form mode, which is also meant where no mode is named.

    Args:
        requested_schema: a flat object of primitive properties, raw.

    Source: elicitation, Form Mode Elicitation Requests.
    """

    mode: Literal["form"] | None = None
    message: str
    requested_schema: Annotated[JSONObject, check_requested_schema]


@attrs.frozen(kw_only=True)
class ElicitUrlParams:
    """Params of ``elicitation/create`` in url mode. Source: elicitation, URL Mode Elicitation Requests."""

    mode: Literal["url"]
    message: str
    url: Annotated[str, _check_url]


ElicitParams: TypeAlias = ElicitFormParams | ElicitUrlParams


def decode_elicit_params(params: Any, path: str = "params") -> ElicitParams:
    """The params of an elicitation, by its mode.

    Raises:
        DecodeError: they are neither those of a form nor those of a URL.
    """
    mode = params.get("mode", "form") if type(params) is dict else "form"
    if mode not in ("form", "url"):
        raise DecodeError(f"{path}.mode", f'"form", "url" or absent, not {shown(mode)}')
    return decode(ElicitUrlParams, params, path) if mode == "url" else decode(ElicitFormParams, params, path)


@attrs.frozen(kw_only=True)
class ElicitResult:
    """An answer to an elicitation. ``content`` is that of an accepted form, raw.

    Source: elicitation, Response Actions.
    """

    action: Literal["accept", "decline", "cancel"]
    content: JSONObject | None = None


# --- Sampling


def _check_message_content(content: Any) -> None:
    if type(content) is list:
        check_content(content)
    else:
        check_content_block(content)


def _check_messages(messages: list[Any]) -> None:
    for index, message in enumerate(messages):
        if type(message) is not dict:
            raise DecodeError(f"[{index}]", f"an object, not {shown(message)}")
        decode(_SamplingMessage, message, f"[{index}]")


def _check_tools(tools: list[Any]) -> None:
    for index, tool in enumerate(tools):
        decode(Tool, tool, f"[{index}]")


def _check_preferences(preferences: JSONObject) -> None:
    for name in ("costPriority", "speedPriority", "intelligencePriority"):
        value = preferences.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise DecodeError(f".{name}", f"a number from 0 to 1, not {shown(value)}")
    hints = preferences.get("hints", [])
    if type(hints) is not list or not all(type(hint) is dict for hint in hints):
        raise DecodeError(".hints", f"an array of objects, not {shown(hints)}")


def _check_tool_choice(choice: JSONObject) -> None:
    if choice.get("mode", "auto") not in ("auto", "none", "required"):
        raise DecodeError(".mode", f'"auto", "none" or "required", not {shown(choice["mode"])}')


@attrs.frozen(kw_only=True)
class _SamplingMessage:
    """One message of a conversation. Source: sampling, Messages."""

    role: Literal["user", "assistant"]
    content: Annotated[Any, _check_message_content]


@attrs.frozen(kw_only=True)
class CreateMessageParams:
    """Params of ``sampling/createMessage``.

    Args:
        messages: raw: role and content.
        max_tokens: how many tokens the model may produce.
        tools: raw tools that the model may use.

    Source: sampling, Creating Messages.
    """

    messages: Annotated[list[Any], _check_messages]
    model_preferences: Annotated[JSONObject, _check_preferences] | None = None
    system_prompt: str | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    max_tokens: int
    stop_sequences: tuple[str, ...] | None = None
    metadata: JSONObject | None = None
    tools: Annotated[list[Any], _check_tools] | None = None
    tool_choice: Annotated[JSONObject, _check_tool_choice] | None = None


@attrs.frozen(kw_only=True)
class CreateMessageResult:
    """An answer to a sampling request. ``content`` is one block or an array of blocks, raw.

    Source: sampling, Creating Messages.
    """

    role: Literal["user", "assistant"]
    content: Annotated[Any, _check_message_content]
    model: str
    stop_reason: str | None = None
    meta: JSONObject | None = None


# --- Roots


@attrs.frozen(kw_only=True)
class ListRootsParams:
    """Params of ``roots/list``, which may be absent."""

    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class Root:
    """A directory or file that a server may work on. Source: roots, Root."""

    uri: Annotated[str, _check_url]
    name: str | None = None
    meta: JSONObject | None = None


@attrs.frozen(kw_only=True)
class ListRootsResult:
    """An answer to a roots request. Source: roots, Listing Roots."""

    roots: tuple[Root, ...]


# --- Requests of any kind


_CHECKS: Final[dict[str, Callable[[Any], object]]] = {
    ELICITATION: decode_elicit_params,
    SAMPLING: lambda params: decode(CreateMessageParams, params),
    ROOTS: lambda params: decode(ListRootsParams, params),
}


def check_input_request(request: object) -> str | None:
    """What is wrong with an input request, in one sentence; ``None`` for a well-formed one.

    Source: mrtr, InputRequests.
    """
    if type(request) is not dict:
        return f"an input request is an object with a method and params, not {shown(request)}"
    method = request.get("method")
    if method not in INPUT_REQUEST_METHODS:
        return f"method: one of {', '.join(INPUT_REQUEST_METHODS)}, not {shown(method)}"
    if "params" not in request and method != ROOTS:
        return "params: this member is required, and it is missing"
    try:
        _CHECKS[method](request.get("params", {}))
    except DecodeError as fault:
        return str(fault)
    return None
