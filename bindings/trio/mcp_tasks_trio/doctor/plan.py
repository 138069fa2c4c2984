"""All checks, in the order in which they are made."""

from __future__ import annotations

from typing import Final

from mcp_tasks_trio.doctor.check_creation import CREATION
from mcp_tasks_trio.doctor.check_envelope import ENVELOPE
from mcp_tasks_trio.doctor.check_every_message import EVERY_MESSAGE
from mcp_tasks_trio.doctor.check_every_state import EVERY_STATE
from mcp_tasks_trio.doctor.check_http import HTTP
from mcp_tasks_trio.doctor.check_inputs import INPUTS
from mcp_tasks_trio.doctor.check_methods import METHODS
from mcp_tasks_trio.doctor.check_negotiation import NEGOTIATION
from mcp_tasks_trio.doctor.check_owners import OWNERS
from mcp_tasks_trio.doctor.check_rounds import ROUNDS
from mcp_tasks_trio.doctor.check_state import STATE
from mcp_tasks_trio.doctor.check_stdio import STDIO, STDIO_END
from mcp_tasks_trio.doctor.check_subscriptions import SUBSCRIPTIONS
from mcp_tasks_trio.doctor.checks import Check

# What looks back at everything that was said comes last, and the end of the server after that.
SUBJECTS: Final = (
    NEGOTIATION,
    CREATION,
    METHODS,
    INPUTS,
    ROUNDS,
    SUBSCRIPTIONS,
    OWNERS,
    STDIO,
    ENVELOPE,
    STATE,
    HTTP,
    EVERY_STATE,
    EVERY_MESSAGE,
    STDIO_END,
)


def checks_for(transport: str) -> list[tuple[str, Check]]:
    """Every check that means something on a transport, with the title of its subject."""
    return [
        (subject.title, check)
        for subject in SUBJECTS
        for check in subject.checks
        if check.only is None or check.only == transport
    ]
