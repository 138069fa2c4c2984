"""Who may touch a task: its owner, and whom the application's own rule lets in."""

from __future__ import annotations

import enum
from typing import Final

import attrs

from mcp_tasks_core.errors import LocalProtocolError


def _named(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value:
        raise LocalProtocolError(f"an owner's {attribute.name} is a string of 1 character or more, not {value!r}")


@attrs.frozen(slots=True)
class Owner:
    """Whose a task is: a subject within a tenant. Equal subjects of two tenants share nothing.

    It comes from the transport's trusted context, never from what a peer wrote in a message.
    Source: tasks, Security Considerations, Auth binding.
    """

    tenant: str = attrs.field(validator=_named)
    subject: str = attrs.field(validator=_named)


LOCAL_OWNER: Final = Owner("local", "local")
"""The one owner of a stdio server unless the runner is given another: it survives restarts."""


class Access(enum.Enum):
    """What a caller is about to do with a task."""

    READ = "read"
    ANSWER = "answer"
    CANCEL = "cancel"


class AccessRule(enum.Enum):
    """How a core decides whether a caller may touch a task.

    ``OWNER`` admits the task's owner and nobody else. ``ASK`` puts every access, the owner's own
    included, to the application with an ``Authorize`` effect; there is no rule that admits all.
    """

    OWNER = "owner"
    ASK = "ask"
