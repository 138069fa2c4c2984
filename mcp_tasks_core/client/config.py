"""How one client speaks: what it declares, which versions it knows, and every bound of its own."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from mcp_tasks_core.capabilities import SUPPORTED_VERSIONS, problem_with_capabilities
from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.limits import Limits, bound


class TransportKind(enum.Enum):
    """Where answers come in, and so how a request in flight is given up.

    ``SHARED``: one channel for everything, such as stdio; ``notifications/cancelled`` names the request.
    ``PER_REQUEST``: a stream per request, such as an HTTP POST; closing the stream is the cancellation.
    Source: cancellation, Transport-Specific Cancellation.
    """

    SHARED = "shared"
    PER_REQUEST = "per_request"


@attrs.frozen(kw_only=True)
class ClientLimits:
    """How long a client waits and how much it keeps. Every value is an integer of 1 or more.

    Raises:
        LocalProtocolError: a value is not such an integer.
    """

    # Silence on one request, started anew by progress. 60 s: what most clients of the field allow.
    request_timeout_ms: int = bound(60_000)
    # One request altogether, in spite of progress. 10 minutes: what takes longer belongs in a task.
    request_total_ms: int = bound(600_000)
    # Silence on a tools/call, which may run inline for long. 5 minutes, and 1 hour altogether.
    tool_timeout_ms: int = bound(300_000)
    tool_total_ms: int = bound(3_600_000)
    # Silence on server/discover, after which a server counts as legacy. 10 s: slow interpreters start in 3.
    discover_timeout_ms: int = bound(10_000)
    # One tasks/get, tasks/update or tasks/cancel. 10 s: they read and write one record.
    task_request_timeout_ms: int = bound(10_000)
    # Polls that fail in passing: a task is given up after so many in a row that took at least so long altogether. Both
    # count: refused connections fail at once, and intervals may be long. 5, and a minute: a restart takes that long.
    poll_failures_max: int = bound(5)
    poll_failing_ms: int = bound(60_000)
    # The wait after a poll that failed: this long at first, then twice as long each time up to the other bound, and
    # never shorter than the server's interval.
    poll_backoff_ms: int = bound(500)
    poll_backoff_ms_max: int = bound(30_000)
    # Bounds on the server's pollIntervalMs, and the interval where it suggests none. 100 ms: people notice no less.
    poll_interval_ms_min: int = bound(100)
    poll_interval_ms_max: int = bound(60_000)
    poll_interval_ms_default: int = bound(1_000)
    # Beyond createdAt + ttlMs. 90 s: more than the longest interval, so that one poll always falls after the expiry.
    ttl_grace_ms: int = bound(90_000)
    # Warnings about the states of one task or subscription. 16: a dozen kinds are known, and a server's values vary.
    state_warnings_max: int = bound(16)
    # Polls in a row that say input_required and hold no question. 60: a minute at the default interval.
    stuck_polls_max: int = bound(60)
    # Sightings of a question after the acknowledgement of its answer was lost, before the outcome counts as unknown.
    update_rereads_max: int = bound(3)
    # Silence on subscriptions/listen before its acknowledgement. 10 s, as for server/discover.
    listen_ack_timeout_ms: int = bound(10_000)
    # A stream of its own that brings no byte at all for so long counts as cut; there is no such bound on a shared
    # channel. 60 s: servers send a comment every 15 to 30 s.
    listen_quiet_ms: int = bound(60_000)
    # Listens in a row that brought no state of a task before it is given up. 8 of them, with the waits below, outlive
    # a minute. One that the server ended in good order does not count while the tasks can be read.
    listen_failures_max: int = bound(8)
    # The wait before listening again: this long at first, then, after streams that did not last, whatever they brought,
    # twice as long each time up to the other bound. After short ones that end in good order: the tasks' interval.
    listen_backoff_ms: int = bound(500)
    listen_backoff_ms_max: int = bound(30_000)
    # A subscription that lasted this long did not fail, even if it brought nothing. 10 s: more than most waits.
    listen_steady_ms: int = bound(10_000)
    # States that servers send of their own accord after the acknowledgement; after this wait the client reads them, and
    # again after twice as long each time, while none can be read.
    listen_snapshot_ms: int = bound(2_000)
    # The longest silence about one task before it is read all the same: servers lose tasks, and notifications. 60 s: a
    # thousand tasks make 17 reads a second at most, and only while none of them changes.
    listen_reread_ms: int = bound(60_000)
    # tasks/get in flight for one subscription. 8: a read of a thousand tasks leaves room for others.
    listen_reads_max: int = bound(8)
    # How long a server may take to end a subscription that has nothing left to tell, before the client does. 1 s.
    listen_end_ms: int = bound(1_000)
    # Times that a request may answer input_required. 16: forms with more pages than that loop.
    rounds_max: int = bound(16)
    # Pages of one list. 1,000 pages of one tool each; real servers send one page.
    pages_max: int = bound(1_000)
    # Messages in a row that make no sense before the peer counts as something else than a server.
    junk_messages_max: int = bound(1_000)
    # Requests that were given up, kept in order to recognize their late answers.
    abandoned_max: int = bound(1_024)
    # Operations and requests in progress. 10,000: about 10 MB of state.
    operations_max: int = bound(10_000)


def _checked_info(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in ("name", "version")):
        raise LocalProtocolError("client_info is None or an object with a name and a version, both strings")


def _checked_capabilities(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    problem = problem_with_capabilities(value)
    if problem is not None:
        raise LocalProtocolError(problem)


def _checked_versions(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, tuple) or not value or not set(value) <= set(SUPPORTED_VERSIONS):
        raise LocalProtocolError(f"versions is a tuple out of {SUPPORTED_VERSIONS}, not {value!r}")


@attrs.frozen(kw_only=True)
class ClientConfig:
    """Everything that is the same for all requests of a client.

    Args:
        client_info: name, version and whatever else an ``Implementation`` holds; ``None`` sends none.
        capabilities: what every request declares. The tasks extension is added where an operation wants it, and
            always on ``tasks/*``.
        versions: protocol versions, the preferred one first.
        lenient: accept, with a report, what peers of old drafts send: ``resultType: "task"`` on tasks/get, and
            statuses that nobody knows, which then count as working.
        cancel_unasked_tasks: when a server makes a task for a request that did not declare tasks, tell it to
            cancel that task. The response is invalid in either case, and names the task.
    """

    client_info: JSONObject | None = attrs.field(default=None, validator=_checked_info)
    capabilities: JSONObject = attrs.field(factory=dict, validator=_checked_capabilities)
    versions: tuple[str, ...] = attrs.field(default=SUPPORTED_VERSIONS, validator=_checked_versions)
    transport: TransportKind = TransportKind.SHARED
    lenient: bool = False
    cancel_unasked_tasks: bool = False
    limits: Limits = attrs.field(factory=Limits)
    client_limits: ClientLimits = attrs.field(factory=ClientLimits)
