"""What a server shows of itself: server/discover and tools/list.

Source: discover, Response; tools, Listing Tools; pagination, Pagination Model.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from mcp_tasks_core.capabilities import SUPPORTED_VERSIONS, advertise_tasks
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.wire.headers import HeaderParameter, header_parameters


class UnknownCursor(Exception):
    """A cursor that this server did not give out, or whose tool is gone."""


_SUBSCRIBABLE = ("tools", "prompts", "resources")
_SUBSCRIPTION_MEMBERS = ("listChanged", "subscribe")


def server_capabilities(config: ServerConfig) -> JSONObject:
    """What the server says that it can: what discover shows, and what a subscription may therefore agree to."""
    capabilities = dict(config.capabilities)
    if config.tools is not None:
        capabilities["tools"] = {"listChanged": True, **(capabilities.get("tools") or {})}
    if not config.subscriptions:
        for family in _SUBSCRIBABLE:
            if isinstance(capabilities.get(family), dict):
                said = capabilities[family].items()
                capabilities[family] = {name: value for name, value in said if name not in _SUBSCRIPTION_MEMBERS}
    return advertise_tasks(capabilities) if config.tasks else capabilities


def discover_result(config: ServerConfig) -> JSONObject:
    """The ``DiscoverResult``, without serverInfo. The same for every caller."""
    result: JSONObject = {
        "resultType": "complete",
        "supportedVersions": list(SUPPORTED_VERSIONS),
        "capabilities": server_capabilities(config),
        "ttlMs": config.list_ttl_ms,
        "cacheScope": config.list_cache_scope,
    }
    if config.instructions is not None:
        result["instructions"] = config.instructions
    return result


class Catalogue:
    """The tools in their order, and pages of them. ``tools`` is a catalogue that ``check_tools`` has passed."""

    def __init__(self, tools: Sequence[ToolEntry], *, per_page: int) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._names = list(self._tools)
        self._per_page = per_page
        self._header_parameters = {name: header_parameters(tool.input_schema) for name, tool in self._tools.items()}

    def header_parameters(self, name: str) -> tuple[HeaderParameter, ...]:
        """The parameters of a known tool that headers repeat."""
        return self._header_parameters[name]

    def find(self, name: str) -> ToolEntry | None:
        return self._tools.get(name)

    def page(self, cursor: str | None, config: ServerConfig) -> JSONObject:
        """One page as a ``ListToolsResult``, without serverInfo.

        Args:
            cursor: ``None`` for the first page, else what the page before it gave.

        Raises:
            UnknownCursor: the cursor is none of ours.
        """
        first = 0 if cursor is None else self._after(cursor)
        names = self._names[first : first + self._per_page]
        result: JSONObject = {
            "resultType": "complete",
            "tools": [self._tools[name].definition for name in names],
            "ttlMs": config.list_ttl_ms,
            "cacheScope": config.list_cache_scope,
        }
        if first + self._per_page < len(self._names):
            result["nextCursor"] = base64.urlsafe_b64encode(names[-1].encode()).decode("ascii")
        return result

    def _after(self, cursor: str) -> int:
        """A cursor is the name of the last tool of the page before it, so that pages hold while tools come and go."""
        try:
            name = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode("utf-8")
            return self._names.index(name) + 1
        except (ValueError, binascii.Error) as problem:
            raise UnknownCursor from problem
