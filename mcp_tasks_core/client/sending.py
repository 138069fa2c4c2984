"""Requests on their way out: written, timed, and given up.

Source: basic, Requests; cancellation.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from mcp_tasks_core.client.agenda import Agenda
from mcp_tasks_core.client.calls import (
    TASKS_CANCEL,
    CallSettings,
    CallTable,
    OpenCall,
    Purpose,
    routing_name,
    wire_params,
)
from mcp_tasks_core.client.config import ClientConfig, TransportKind
from mcp_tasks_core.client.effects import ClientEffect, CloseStream, Frame, Report, Severity
from mcp_tasks_core.client.events import OperationId
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject, TaskId
from mcp_tasks_core.wire.json import JsonCodec, JsonError
from mcp_tasks_core.wire.jsonrpc import notification_frame, request_frame

_CANCELLED: Final = "notifications/cancelled"
_NO_LONGER_WAITED_FOR: Final = "The client no longer waits for the answer"


class Due(enum.Enum):
    """What comes due; of things that are due together, the callers' own deadlines come first, polls last."""

    OPERATION = 1
    CALL = 2
    WATCH = 3


class Sender:
    """The requests in progress of one client, and everything that comes due.

    ``effects`` collects what is to be done about the event at hand, ``now_ms`` is when it happened.
    """

    def __init__(self, config: ClientConfig, codec: JsonCodec) -> None:
        self._config = config
        self._codec = codec
        self._version = config.versions[0]
        self.task_settings = CallSettings(
            timeout_ms=config.client_limits.task_request_timeout_ms,
            total_ms=config.client_limits.task_request_timeout_ms,
            tasks=True,
        )
        self.agenda: Agenda[tuple[Due, int]] = Agenda()
        self.calls = CallTable(config)
        self.effects: list[ClientEffect] = []
        self.now_ms = 0

    def report(self, severity: Severity, message: str) -> None:
        self.effects.append(Report(severity, message))

    @property
    def deadline_ms(self) -> int | None:
        """The earliest moment at which something is due."""
        return self.agenda.earliest_ms

    def send(
        self,
        operation_id: OperationId | None,
        purpose: Purpose,
        method: str,
        params: JSONObject,
        settings: CallSettings,
    ) -> None:
        """Send a request under a new id.

        Args:
            operation_id: ``None`` where nobody waits for the reply.
            params: complete but for the protocol's members of ``_meta``.

        Raises:
            LocalProtocolError: it cannot be written; nothing has changed but the next id.
        """
        call = OpenCall(
            call_id=self.calls.new_id(),
            operation_id=operation_id,
            purpose=purpose,
            method=method,
            params=params,
            settings=settings,
            version=self._version,
            expires_ms=self.now_ms + min(settings.timeout_ms, settings.total_ms),
            latest_ms=self.now_ms + settings.total_ms,
        )
        self.put_on_wire(call)

    def put_on_wire(self, call: OpenCall) -> None:
        """Send a request that has its id.

        Raises:
            LocalProtocolError: it cannot be written.
        """
        try:
            payload = request_frame(call.call_id, call.method, wire_params(call, self._config), self._codec)
        except JsonError as error:
            raise LocalProtocolError(f"the params of {call.method} cannot be sent: {error.message}") from None
        self.calls.add(call)
        self.agenda.set((Due.CALL, call.call_id), call.expires_ms)
        self.effects.append(
            Frame(
                call_id=call.call_id,
                payload=payload,
                method=call.method,
                name=routing_name(call.method, call.params),
                version=call.version,
            )
        )

    def cancel_aside(self, task_id: TaskId) -> None:
        """Tell the server to cancel a task, and wait for nothing."""
        self.send(None, Purpose.ASIDE, TASKS_CANCEL, {"taskId": task_id}, self.task_settings)

    def give_up(
        self, call: OpenCall, *, tell: bool, cancels_late_task: bool = False, reason: str | None = None
    ) -> None:
        """Wait no longer for an answer.

        Args:
            tell: also on a shared channel, where telling takes a notification; a stream of its own is closed anyway.
            cancels_late_task: if the answer comes all the same and is a task, that task is cancelled.
            reason: for people at the server.
        """
        self.calls.abandon(call, cancels_late_task=cancels_late_task)
        self.agenda.set((Due.CALL, call.call_id), None)
        if self._config.transport is TransportKind.PER_REQUEST:
            self.effects.append(CloseStream(call.call_id))
        elif tell:
            params: JSONObject = {"requestId": call.call_id, "reason": reason or _NO_LONGER_WAITED_FOR}
            payload = notification_frame(_CANCELLED, params, self._codec)
            self.effects.append(Frame(call_id=None, payload=payload, method=_CANCELLED))

    def close(self, call: OpenCall) -> None:
        """Nothing more is expected for this request."""
        self.calls.close(call)
        self.agenda.set((Due.CALL, call.call_id), None)

    def extend(self, call: OpenCall) -> None:
        """The request shows signs of life: its silence begins anew, within its total time."""
        call.expires_ms = min(self.now_ms + call.settings.timeout_ms, call.latest_ms)
        self.agenda.set((Due.CALL, call.call_id), call.expires_ms)

    def let_finish(self, call: OpenCall) -> None:
        """Nothing more is wanted of a subscription, and its server knows that, too: it may end it in good order."""
        self.calls.close(call)
        expires_ms = self.now_ms + self._config.client_limits.listen_end_ms
        self.calls.add(attrs.evolve(call, operation_id=None, purpose=Purpose.ASIDE, expires_ms=expires_ms))
        self.agenda.set((Due.CALL, call.call_id), expires_ms)
