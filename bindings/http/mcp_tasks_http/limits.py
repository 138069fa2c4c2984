"""Every bound of the HTTP binding in one place: its unit is in its name, its ground in its comment."""

from __future__ import annotations

import attrs

from mcp_tasks_core.limits import bound


@attrs.frozen(kw_only=True)
class HttpLimits:
    """What one connection accepts, keeps and waits for. Every value is an integer of 1 or more.

    Raises:
        LocalProtocolError: a value is not such an integer.
    """

    # A head: request line or status line, fields, and the empty line. 32 KiB: proxies commonly stop at 8 to 32 KiB.
    head_bytes_max: int = bound(32 * 1024)
    # Fields of one head. 100: what several servers and proxies allow.
    head_fields_max: int = bound(100)
    # A request's body as its bytes arrive. 4 MiB: arguments, not uploads; the core's frame limit is above it.
    body_bytes_max: int = bound(4 * 1024 * 1024)
    # What the chunked coding may add to a body: sizes, extensions, trailers. 256 KiB: 50,000 one-byte chunks.
    chunk_framing_bytes_max: int = bound(256 * 1024)
    # Bytes that may wait unread behind a request in progress, before the runner is asked to stop reading.
    read_ahead_bytes_max: int = bound(64 * 1024)
    # An unread body of a refused request up to this is read and dropped, so that the connection can be kept.
    drain_bytes_max: int = bound(64 * 1024)
    # Requests on one connection. 10,000: often enough to spread load anew, seldom enough to cost nothing.
    requests_per_connection_max: int = bound(10_000)
    # From a head's first byte to its last, and from the head to the body's last. A person's slow line, not an attack.
    head_wait_ms: int = bound(10_000)
    body_wait_ms: int = bound(60_000)
    # Between an answer and the next request. 75 s: above the 60 s after which common proxies close their side.
    idle_wait_ms: int = bound(75_000)
    # How long a peer may take nothing of what we write, or confirm nothing, and how much may wait for it. A peer that
    # takes something has its time anew.
    write_wait_ms: int = bound(30_000)
    unsent_bytes_max: int = bound(16 * 1024 * 1024)
    # How long the rest of what a refused peer sends is read, so that it can read the refusal before a reset.
    linger_ms: int = bound(2_000)
    # Silence on an answer after which a comment is sent. 15 s: the shortest common idle limit of proxies is 30 s.
    comment_interval_ms: int = bound(15_000)
    # The same once the client's bytes have ended. Only an answer to what we write tells a client that merely sends
    # nothing more from one that has gone. 1 s: work that nobody waits for goes on for so long, twice.
    eof_comment_interval_ms: int = bound(1_000)
