"""Every bound of the core in one place: its unit is in its name, its ground in its comment."""

from __future__ import annotations

import attrs

from mcp_tasks_core.errors import LocalProtocolError


def _positive(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if type(value) is not int or value < 1:
        raise LocalProtocolError(f"{attribute.name} is an integer of 1 or more, not {value!r}")


def bound(default: int) -> int:
    """An attribute of a class of bounds: an integer of 1 or more, else ``LocalProtocolError``."""
    field: int = attrs.field(default=default, validator=_positive)
    return field


@attrs.frozen(kw_only=True)
class Limits:
    """What one core accepts and keeps. Every value is an integer of 1 or more.

    Raises:
        LocalProtocolError: a value is not such an integer.
    """

    # One message. 16 MiB: base64 images in tool results reach several MiB; anything larger belongs in a resource.
    frame_bytes_max: int = bound(16 * 1024 * 1024)
    # One result that an application returns. 15 MiB: with its envelope it fits into a frame that a peer of ours reads.
    result_bytes_max: int = bound(15 * 1024 * 1024)
    # Nesting of arrays and objects. 128: what serde_json allows; real messages stay under 20.
    json_depth_max: int = bound(128)
    # Digits of one integer. 1,000: CPython itself refuses more than 4,300.
    json_integer_digits_max: int = bound(1000)
    # Characters of a string id, a method name, a task id. 1,024: proxies bound headers at 8 KiB.
    identifier_chars_max: int = bound(1024)
    # Requests in progress on one stream. 1,024: HTTP/2 peers settle around 100 to 250 concurrent streams.
    open_exchanges_per_stream_max: int = bound(1024)
    # How long a store or an authorization may take to answer. 30 s: three times the longest lock that a test holds.
    answer_wait_ms: int = bound(30_000)
    # Swaps of one state change before giving up. 64 writers of one task each win once before the last one does.
    swap_attempts_max: int = bound(64)
    # Questions of one task over its whole life, and how many may stand open at once.
    inputs_per_task_max: int = bound(256)
    inputs_outstanding_max: int = bound(32)
    # Characters of a question's key.
    input_key_chars_max: int = bound(256)
    # Characters of a statusMessage; a longer one is cut. 1,000: it is a line for a person.
    status_message_chars_max: int = bound(1000)
    # At most one stored progress message per task in this time. 1 s: nobody reads faster, every write costs an fsync.
    progress_interval_ms: int = bound(1_000)
    # How long work may go on after a cancel was accepted before the task says cancelled (DECISIONS D28).
    cancel_grace_ms: int = bound(5_000)
    # Time between attempts to store the outcome of finished work while the store fails, and after how many of them
    # the store is tried once in a sweep interval only.
    settle_retry_ms: int = bound(1_000)
    settle_attempts_max: int = bound(60)
    # How long an expired task can still be read before it becomes a tombstone, and how long that says "expired".
    expiry_grace_ms: int = bound(60_000)
    tombstone_ms: int = bound(10 * 60_000)
    # Looking for overdue tasks: at the latest after this time, and so many rows at once.
    sweep_interval_ms: int = bound(60_000)
    sweep_rows_max: int = bound(256)
    # Processes on one store. A lease of 15 s renewed every 5 s lives through two lost renewals and through a foreign
    # lock of 10 s; the work of a dead process is settled after 20 s at the latest.
    lease_ms: int = bound(15_000)
    lease_renewal_ms: int = bound(5_000)
    # How often hints of other processes' changes are taken, and how many at once. 250 ms: a person does not notice.
    hint_interval_ms: int = bound(250)
    hints_max: int = bound(1_000)
    # How many processes may run the work of one task in turn, before what kills them is taken to be the work.
    # 8: every restart of a server counts, too, and a task may live through some.
    work_attempts_max: int = bound(8)
    # Subscriptions. Ids and URIs in one listen: 1,000 of each; who watches more asks in several. The characters of a
    # URI: 2,048, what browsers and proxies carry.
    subscription_tasks_max: int = bound(1_000)
    subscription_resources_max: int = bound(1_000)
    resource_uri_chars_max: int = bound(2_048)
    # Subscriptions open on one stream, such as a pipe, and for one owner, who may be everybody on an open server: as
    # many as the HTTP server takes connections. And how many tasks the subscriptions of one owner watch together.
    subscriptions_per_stream_max: int = bound(128)
    subscriptions_per_owner_max: int = bound(10_000)
    subscribed_tasks_per_owner_max: int = bound(100_000)
    # Resources that they are told of together: at 2,048 characters each, 20,000 URIs are 40 MB.
    subscribed_resources_per_owner_max: int = bound(20_000)
    # How long one subscription lasts before it ends gracefully. 1 h: tokens and proxies rarely live longer.
    subscription_duration_ms: int = bound(3_600_000)
    # Every watched task is read again after this time, so that a lost hint costs no more than it. 10 s.
    reconcile_interval_ms: int = bound(10_000)
    # How long a reader may take nothing before its subscriptions are dropped. 30 s: as long as the HTTP server waits.
    slow_reader_ms: int = bound(30_000)
    # Bytes that one stream gets in one go, before it is seen whether its reader takes them. 1 MiB.
    subscription_burst_bytes_max: int = bound(1024 * 1024)
    # requestState: how long a person may think (15 minutes), and how large the sealed string may get.
    request_state_ttl_ms: int = bound(15 * 60_000)
    request_state_bytes_max: int = bound(64 * 1024)
    # States that were spent and may not count again, remembered until they expire.
    spent_states_max: int = bound(10_000)
    # Task ids: bytes of entropy that the runner hands in. 24 bytes are 192 bits (REQUIREMENTS C7).
    task_id_entropy_bytes_min: int = bound(24)
    # Tools on one page of tools/list. 1,000: one page for all but generated catalogues.
    tools_per_page: int = bound(1000)
    # Encoded task states kept, so that polling an unchanged task costs no encoding.
    cached_states_max: int = bound(4096)
