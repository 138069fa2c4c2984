"""What an application tells those who listen, on its way to every server that serves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.server.config import ServerConfig, ToolEntry
from mcp_tasks_core.server.events import ListChanged, ListKind, ResourceUpdated, ServerEvent, ToolsReplaced
from mcp_tasks_trio.threads import JoiningHandover
from mcp_tasks_trio.tools import Tool


@attrs.frozen
class _CatalogueChanged:
    """The tools are others than they were: which ones, is read as late as it can be."""


_Announcement: TypeAlias = ListChanged | ResourceUpdated | _CatalogueChanged


@attrs.frozen(eq=False)
class _Server:
    """A server that runs: how it was configured, and the way to it."""

    config: ServerConfig
    inbox: JoiningHandover[_Announcement]


class Announcer:
    """Tells what has changed to all servers that serve the application at this moment, whatever loops they run in.

    The announcements may be made anywhere: in any thread, in the tools themselves, before and after anything is
    served. They return at once. Equal ones that come quickly after each other may be joined.
    """

    def __init__(self, *, tasks: bool | None) -> None:
        self._tasks = tasks
        self._tools: Mapping[str, Tool] = {}
        self._servers: list[_Server] = []
        self._lock = threading.RLock()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name, as they are now; the mapping itself never changes."""
        return self._tools

    def tools_changed(self, *, owner: Owner | None = None) -> None:
        """Tell whoever listens that the list of tools, or what one of them says, is another.

        Adding and removing tools says so by itself.

        Args:
            owner: the only one whose listeners are told; ``None`` for all.

        Raises:
            LocalProtocolError: it is no owner.
        """
        self._tell(ListChanged(ListKind.TOOLS, _checked_owner(owner)))

    def prompts_changed(self, *, owner: Owner | None = None) -> None:
        """As ``tools_changed``, of the prompts."""
        self._tell(ListChanged(ListKind.PROMPTS, _checked_owner(owner)))

    def resources_changed(self, *, owner: Owner | None = None) -> None:
        """As ``tools_changed``, of the list of resources; of what one of them holds, see ``resource_updated``."""
        self._tell(ListChanged(ListKind.RESOURCES, _checked_owner(owner)))

    def resource_updated(self, uri: str, *, owner: Owner | None = None) -> None:
        """Tell whoever listens to this resource that it is to be read anew.

        Args:
            uri: as clients subscribe to it, character by character.
            owner: the only one whose listeners are told; ``None`` for all.

        Raises:
            LocalProtocolError: it is no URI, or no owner.
        """
        self._tell(ResourceUpdated(_checked_uri(uri), _checked_owner(owner)))

    def remove_tool(self, name: str) -> None:
        """Take a tool out of the catalogue, also while it is served; whoever listens is told.

        Calls that have begun and tasks go on. A task whose process dies and whose tool would be called again fails,
        where the next process has no such tool.

        Raises:
            LocalProtocolError: there is no such tool.
        """
        with self._lock:
            if name not in self._tools:
                known = ", ".join(sorted(self._tools)) or "none at all"
                raise LocalProtocolError(f"there is no tool {name!r} to remove; there are: {known}")
            self._tools = {known: tool for known, tool in self._tools.items() if known != name}
            self._tell(_CatalogueChanged())

    def _add_tool(self, tool: Tool) -> None:
        with self._lock:
            if tool.name in self._tools:
                raise LocalProtocolError(f"two tools are named {tool.name!r}")
            for server in self._servers:
                self._check_addition(tool, server.config)
            self._tools = {**self._tools, tool.name: tool}
            self._tell(_CatalogueChanged())

    @contextmanager
    def announcing_to(self, config: ServerConfig, take: Callable[[Sequence[ServerEvent]], None]) -> Iterator[None]:
        """Announce to a server of this application while the block runs, in the thread of its event loop.

        Args:
            config: what the server was told of the application; tools that came and went since then are told at once.
            take: takes the events.

        Raises:
            LocalProtocolError: a tool that came since then cannot be added any longer.
        """

        def deliver(announcements: Sequence[_Announcement]) -> None:
            take([self._event_of(announcement) for announcement in announcements])

        server = _Server(config, JoiningHandover(deliver, "The server"))
        with self._lock:
            known = {tool.name for tool in config.tools or ()}
            for tool in self._tools.values():
                if tool.name not in known:
                    self._check_addition(tool, config)
            if entries_of(self._tools) != list(config.tools or ()):
                server.inbox.give(_CatalogueChanged())
            self._servers.append(server)
        try:
            yield
        finally:
            with self._lock:
                self._servers.remove(server)
            server.inbox.end()

    def _check_addition(self, tool: Tool, config: ServerConfig) -> None:
        """Refuse a tool that a running server cannot take in, as it has told its clients otherwise."""
        if config.tools is None:
            raise LocalProtocolError(
                f"the tool {tool.name!r} comes too late: the application is being served as one without tools. Declare"
                ' one before, or give the application capabilities={"tools": {}}'
            )
        runs_inline = tool.terms.mode == "never" or (tool.terms.mode != "required" and self._tasks is False)
        if not runs_inline and not config.tasks:
            raise LocalProtocolError(
                f"the tool {tool.name!r} makes tasks, and the application is being served as one without tasks. Declare"
                " such a tool before, or give the application tasks=True"
            )

    def _tell(self, announcement: _Announcement) -> None:
        with self._lock:
            for server in self._servers:
                server.inbox.give(announcement)

    def _event_of(self, announcement: _Announcement) -> ServerEvent:
        if isinstance(announcement, _CatalogueChanged):
            return ToolsReplaced(entries_of(self._tools))
        return announcement


def entries_of(tools: Mapping[str, Tool]) -> list[ToolEntry]:
    """The catalogue that these tools are."""
    return [tool.entry for tool in tools.values()]


def _checked_owner(owner: object) -> Owner | None:
    if owner is None or isinstance(owner, Owner):
        return owner
    raise LocalProtocolError(f"owner is an Owner, or None for everybody; not {owner!r}")


def _checked_uri(uri: object) -> str:
    if not isinstance(uri, str) or not uri:
        raise LocalProtocolError(f"uri is a text of 1 character or more, not {uri!r}")
    try:
        uri.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"uri is a text without lone surrogates, not {uri!r}") from None
    return uri
