"""What a tool returns, made into the result of ``tools/call``.

Source: tools, Tool Result.
"""

from __future__ import annotations

import base64
import json
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Union

import attrs
import msgspec

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_trio.schemas import SchemaValidator
from mcp_tasks_trio.signatures import schema_of


class ContentBlock(dict[str, Any]):
    """One block of unstructured content. Made by ``text``, ``image``, ``audio``, ``resource_link`` and ``resource``."""


def text(value: str) -> ContentBlock:
    """A block of plain text."""
    return ContentBlock(type="text", text=value)


def image(data: bytes, mime_type: str) -> ContentBlock:
    """A block that holds an image, such as ``image/png``."""
    return ContentBlock(type="image", data=base64.b64encode(data).decode("ascii"), mimeType=mime_type)


def audio(data: bytes, mime_type: str) -> ContentBlock:
    """A block that holds sound, such as ``audio/wav``."""
    return ContentBlock(type="audio", data=base64.b64encode(data).decode("ascii"), mimeType=mime_type)


def resource_link(uri: str, name: str, *, description: str | None = None, mime_type: str | None = None) -> ContentBlock:
    """A link to a resource that the client may read."""
    block = ContentBlock(type="resource_link", uri=uri, name=name)
    if description is not None:
        block["description"] = description
    if mime_type is not None:
        block["mimeType"] = mime_type
    return block


def resource(
    uri: str, *, text: str | None = None, blob: bytes | None = None, mime_type: str | None = None
) -> ContentBlock:
    """An embedded resource: its text, or its bytes.

    Raises:
        LocalProtocolError: both are given, or neither.
    """
    if (text is None) == (blob is None):
        raise LocalProtocolError("an embedded resource has either a text or a blob")
    held: JSONObject = {"uri": uri}
    if mime_type is not None:
        held["mimeType"] = mime_type
    if text is not None:
        held["text"] = text
    if blob is not None:
        held["blob"] = base64.b64encode(blob).decode("ascii")
    return ContentBlock(type="resource", resource=held)


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""No structured content, where ``None`` would be the JSON value null."""


@attrs.frozen
class ToolResult:
    """The whole result, where a plain value does not say enough.

    Args:
        content: blocks, or texts.
        structured: the structured content; a text block of it is added where ``content`` is empty.
        is_error: the tool could not do it, and the content says why.
        meta: members of the result's ``_meta``.
    """

    content: Sequence[ContentBlock | JSONObject | str] = ()
    structured: Any = ABSENT
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


class UnfitResult(Exception):
    """A result that may not go out. ``args[0]`` says why, for the log; the caller is told in general words."""


@attrs.frozen
class OutputSchema:
    """What a tool's structured content conforms to.

    Args:
        of_type: the return annotation, where it comes from one.
        validator: the application's own schema, where it gave one.
    """

    schema: JSONObject
    of_type: Any = None
    validator: SchemaValidator | None = None

    def problem_with(self, value: Any) -> str | None:
        if self.validator is not None:
            return self.validator.problems_with(value, "member")
        try:
            msgspec.convert(value, self.of_type, strict=True, str_keys=True)
        except msgspec.ValidationError as error:
            return str(error)
        return None


_NOT_STRUCTURED: Final = (str, ToolResult, ContentBlock)


def output_schema_of(annotation: Any) -> OutputSchema | None:
    """The schema of a return annotation, ``None`` where it promises no structured content."""
    if annotation in (None, types.NoneType, Any) or any(_is_unstructured(part) for part in _parts(annotation)):
        return None
    try:
        return OutputSchema(schema_of(annotation), annotation)
    except (TypeError, ValueError, NotImplementedError):
        return None  # a type without a schema is returned as it is; only what can be described is promised


def _parts(annotation: Any) -> list[Any]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _parts(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [part for member in typing.get_args(annotation) for part in _parts(member)]
    if origin in (list, tuple, Sequence):
        return [annotation, *(a for a in typing.get_args(annotation) if a is ContentBlock)]
    return [annotation]


def _is_unstructured(part: Any) -> bool:
    return part is Any or (isinstance(part, type) and issubclass(part, _NOT_STRUCTURED))


def to_wire(value: Any, output: OutputSchema | None) -> JSONObject:
    """The members of a ``CallToolResult``.

    Raises:
        UnfitResult: the value has no JSON form, or does not conform to the output schema.
    """
    if isinstance(value, ToolResult):
        return _from_tool_result(value, output)
    if output is None:
        blocks = _as_blocks(value)
        if blocks is not None:
            return {"content": [_checked_block(block) for block in blocks]}
    return _structured(value, output)


def error_to_wire(message: str) -> JSONObject:
    """An ordinary result that says that, and why, the tool could not do it. Source: tools, Error Handling."""
    return {"content": [{"type": "text", "text": clean_text(message)}], "isError": True}


def clean_text(value: str) -> str:
    """The text with every lone surrogate replaced: what can be written as UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8")


def _as_blocks(value: Any) -> list[Any] | None:
    if value is None:
        return []
    if isinstance(value, str | ContentBlock):
        return [value]
    if isinstance(value, list | tuple) and any(isinstance(item, ContentBlock) for item in value):
        return list(value)
    return None


def _from_tool_result(value: ToolResult, output: OutputSchema | None) -> JSONObject:
    content = [_checked_block(block) for block in value.content]
    wire: JSONObject = {"content": content}
    if value.structured is not ABSENT:
        structured = _structured(value.structured, None if value.is_error else output)
        wire["structuredContent"] = structured["structuredContent"]
        if not content:
            wire["content"] = structured["content"]
    elif output is not None and not value.is_error:
        raise UnfitResult("it has no structured content, and the tool has an output schema")
    if value.is_error:
        wire["isError"] = True
    if value.meta is not None:
        wire["_meta"] = _builtins(value.meta)
        _json_text(wire["_meta"])
    return wire


def _checked_block(block: Any) -> JSONObject:
    if isinstance(block, str):
        block = text(block)
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise UnfitResult(f"a content block is a text or an object with a type, not {type(block).__name__}")
    plain = dict(block)
    _json_text(plain)
    return plain


def _structured(value: Any, output: OutputSchema | None) -> JSONObject:
    plain = _builtins(value)
    if output is not None:
        problem = output.problem_with(plain)
        if problem is not None:
            raise UnfitResult(f"it does not conform to the output schema: {problem}")
    return {"content": [{"type": "text", "text": _json_text(plain)}], "structuredContent": plain}


def _builtins(value: Any) -> Any:
    """The value as JSON values; bytes stay, so that they are refused and not sent as base64 by accident."""
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, bytearray, memoryview), str_keys=True)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnfitResult(f"it has no JSON form: {error}") from None


def _json_text(value: Any) -> str:
    """The value as JSON text: proves that it can be written."""
    try:
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitResult(f"it has no JSON form: {error}") from None
    return encoded


def json_value(value: Any) -> Any:
    """A value as JSON values, checked.

    Raises:
        UnfitResult: it has no JSON form.
    """
    plain = _builtins(value)
    _json_text(plain)
    return plain


def json_object(value: Any) -> JSONObject:
    """As ``json_value``, for what has to be an object.

    Raises:
        UnfitResult: it is not an object, or has no JSON form.
    """
    if not isinstance(value, Mapping):
        raise UnfitResult(f"a result is a dict, not {type(value).__name__}")
    plain: JSONObject = json_value(value)
    return plain
