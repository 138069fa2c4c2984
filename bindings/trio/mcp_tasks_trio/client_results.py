"""What a tool call gives back to the caller of a client."""

from __future__ import annotations

import attrs

from mcp_tasks_core.identifiers import JSONObject, JSONValue, TaskId


@attrs.frozen(kw_only=True)
class CallToolResult:
    """The result of a tool call. One whose ``is_error`` is true is a result, too: the tool says what went wrong.

    Args:
        raw: the whole ``CallToolResult`` as it came, unknown members included.
        task_id: the task that produced it; ``None`` where the call was answered at once.

    Source: tools, Tool Result.
    """

    raw: JSONObject
    task_id: TaskId | None = None

    @property
    def content(self) -> list[JSONObject]:
        """The content blocks, raw."""
        blocks: list[JSONObject] = self.raw["content"]
        return blocks

    @property
    def structured_content(self) -> JSONValue:
        """The structured content, raw; ``None`` where there is none. ``raw`` tells that from null."""
        value: JSONValue = self.raw.get("structuredContent")
        return value

    @property
    def is_error(self) -> bool:
        return self.raw.get("isError") is True

    @property
    def text(self) -> str:
        """All text blocks, one after the other, a line end between them."""
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")
