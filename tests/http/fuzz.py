"""Does the fast path read only what h11 reads, and the same? A long run: ``python -m tests.http.fuzz [N] [SEED]``."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Final

import attrs
import h11

from mcp_tasks_http.heads import PlainHeadParser

FIELDS_MAX: Final = 100

_BODY: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
SEEDS: Final[Sequence[bytes]] = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tasks/get\r\n"
    b"Mcp-Name: abc\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY),
    b"POST /mcp?x=1 HTTP/1.1\r\nhost:a\r\nconnection: keep-alive\r\nContent-Length:2\r\nX-Empty:\r\n\r\n{}POST / H",
    b"POST http://a/mcp HTTP/1.1\r\nHost: a\r\nX: \xe4\xf6 \t b\t\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
)
PIECES: Final[Sequence[bytes]] = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\0", b"\x01", b"\x0b", b"\x7f", b"\x80", b"\xff", b",", b"0", b"+"),
    *(b"-", b";", b'"', b"_", b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:identity\r\n"),
    *(b"Content-Length: 3\r\n", b"content-length:2\r\n", b"Content-Length : 5\r\n", b"Host: a\r\n", b"Host:\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"CONNECTION: Keep-Alive\r\n", b"Connection: upgrade\r\n"),
    *(b"Upgrade: x\r\n", b" folded\r\n", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"POST ", b"GET ", b"X:\r\n", b"X: y"),
)


@attrs.frozen
class Reading:
    """What a parser makes of some bytes: one request and what is behind it."""

    method: bytes
    target: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes
    rest: bytes


def read_by_fast_path(data: bytes) -> Reading | None:
    """``None`` where it leaves the decision to h11, or the body is not complete."""
    read = PlainHeadParser(FIELDS_MAX).parse(data)
    if read is None:
        return None
    head = read.head
    assert head.body_bytes is not None
    end = read.end + head.body_bytes
    if len(data) < end:
        return None
    return Reading(head.method.encode(), head.target.encode(), list(head.fields), data[read.end : end], data[end:])


def read_by_h11(data: bytes) -> Reading | str:
    """What h11 reads, or why it does not."""
    connection = h11.Connection(h11.SERVER)
    request: h11.Request | None = None
    body = b""
    try:
        connection.receive_data(data)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return f"incomplete: {event!r}"
    except h11.RemoteProtocolError as problem:
        return str(problem)
    assert request is not None
    fields = [(bytes(name), bytes(value)) for name, value in request.headers]
    return Reading(bytes(request.method), bytes(request.target), fields, body, connection.trailing_data[0])


def mutate(data: bytes, source: random.Random) -> bytes:
    """A few small changes, mostly in the head."""
    mutant = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3, 5))):
        head_end = max(mutant.find(b"\r\n\r\n") + 4, 5)
        place = source.randrange(min(head_end, len(mutant)) + 1)
        kind = source.randrange(6)
        if kind == 0:
            mutant[place:place] = source.choice(PIECES)
        elif kind == 1:
            del mutant[place : place + source.randrange(1, 4)]
        elif kind == 2:
            mutant[place : place + 1] = bytes([source.randrange(256)])
        elif kind == 3:
            mutant[place:place] = mutant[place : place + source.randrange(1, 40)]
        elif kind == 4:
            lines = bytes(mutant).split(b"\r\n")
            source.shuffle(lines[1:-2])
            mutant = bytearray(b"\r\n".join(lines))
        else:
            piece = source.choice(PIECES)
            mutant[place : place + len(piece)] = piece
    return bytes(mutant)


@attrs.define
class Tally:
    tried: int = 0
    read: int = 0
    kept_by_h11: int = 0


def fuzz(count: int, seed: int) -> Tally:
    """Compare the two on mutants.

    Raises:
        AssertionError: they differ on something that the fast path reads.
    """
    source = random.Random(seed)
    tally = Tally()
    for _ in range(count):
        data = mutate(source.choice(SEEDS), source)
        tally.tried += 1
        fast = read_by_fast_path(data)
        if fast is None:
            tally.kept_by_h11 += 1
            continue
        tally.read += 1
        slow = read_by_h11(data)
        assert fast == slow, f"seed {seed}: {data!r}\nfast path: {fast}\nh11: {slow}"
    return tally


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    done = fuzz(arguments[0] if arguments else 1_000_000, arguments[1] if len(arguments) > 1 else 1)
    print(f"{done.tried} tried, {done.read} read by the fast path and the same by h11, {done.kept_by_h11} left to h11")
