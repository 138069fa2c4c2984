"""Content blocks: raw JSON objects, told apart by their ``type``, checked and never rebuilt.

Source: tools, Tool Result; sampling, Data Types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.wire.converter import DecodeError, shown

_Check = Callable[[Any], bool]


def _string(value: Any) -> bool:
    return type(value) is str


def _object(value: Any) -> bool:
    return type(value) is dict


def _array(value: Any) -> bool:
    return type(value) is list


_NAMES: Final[dict[_Check, str]] = {_string: "a string", _object: "an object", _array: "an array"}

_REQUIRED: Final[dict[str, dict[str, _Check]]] = {
    "text": {"text": _string},
    "image": {"data": _string, "mimeType": _string},
    "audio": {"data": _string, "mimeType": _string},
    "resource_link": {"uri": _string, "name": _string},
    "resource": {"resource": _object},
    "tool_use": {"id": _string, "name": _string, "input": _object},
    "tool_result": {"toolUseId": _string, "content": _array},
}
"""What a block of a type has to hold. Blocks of other types are accepted as they are."""


def check_content_block(block: Any, path: str = "") -> None:
    """Raises ``DecodeError`` unless a value is a content block.

    Args:
        path: the block's own place.
    """
    if type(block) is not dict:
        raise DecodeError(path, f"a content block is an object, not {shown(block)}")
    kind = block.get("type")
    if type(kind) is not str:
        raise DecodeError(f"{path}.type", f"a string, {_found(block, 'type')}")
    for name, check in _REQUIRED.get(kind, {}).items():
        if not check(block.get(name)):
            raise DecodeError(f"{path}.{name}", f"{_NAMES[check]} in {kind} content, {_found(block, name)}")
    if kind == "resource":
        _check_embedded(block["resource"], f"{path}.resource")
    if kind == "tool_result":
        check_content(block["content"], f"{path}.content")


def check_content(blocks: Any, path: str = "") -> None:
    """Raises ``DecodeError`` unless a value is an array of content blocks."""
    if type(blocks) is not list:
        raise DecodeError(path, f"an array of content blocks, not {shown(blocks)}")
    for index, block in enumerate(blocks):
        check_content_block(block, f"{path}[{index}]")


def _check_embedded(resource: JSONObject, path: str) -> None:
    if not _string(resource.get("uri")):
        raise DecodeError(f"{path}.uri", f"a string, {_found(resource, 'uri')}")
    if not (_string(resource.get("text")) or _string(resource.get("blob"))):
        raise DecodeError(path, "an object with a text or a blob that is a string")


def _found(holder: JSONObject, name: str) -> str:
    return f"not {shown(holder[name])}" if name in holder else "and it is missing"
