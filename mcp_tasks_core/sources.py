"""Which source holds a task: the records that this core manages, or an engine of the application's own.

A native engine is addressed by the prefix of its task ids; everything without such a prefix is managed.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import TaskId


def _check_prefixes(instance: object, attribute: attrs.Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    for prefix, name in value.items():
        if not prefix or not prefix.isascii() or not prefix.isprintable() or " " in prefix:
            raise LocalProtocolError(f"a source's prefix is printable ASCII without spaces, not {prefix!r}")
        if not name:
            raise LocalProtocolError(f"the source with the prefix {prefix!r} needs a name")
        for other in value:
            if other != prefix and other.startswith(prefix):
                raise LocalProtocolError(f"the prefixes {prefix!r} and {other!r} overlap; each id has one source")


@attrs.frozen
class SourceTable:
    """The native sources of a server: the name of each by the prefix of its ids. No prefix begins another."""

    names: Mapping[str, str] = attrs.field(factory=dict, validator=_check_prefixes)

    def source_of(self, task_id: TaskId) -> str | None:
        """The name of the native source that this id belongs to, ``None`` for managed records."""
        for prefix, name in self.names.items():
            if task_id.startswith(prefix):
                return name
        return None
