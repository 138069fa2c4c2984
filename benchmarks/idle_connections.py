"""What an idle keep-alive connection costs a server in memory.

    python -m benchmarks.idle_connections URL PID [--connections 500]

Opens connections to a server of this machine, has one request answered on each, and leaves them open. Prints by how
much the resident memory of the process PID has grown, for each connection beyond the first fifty, which fill pools.
"""

from __future__ import annotations

import argparse
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

VERSION = "2026-07-28"
WARM = 50


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise SystemExit(f"there is no process {pid}, or it has no memory to measure")


def request_to(url: str) -> tuple[tuple[str, int], bytes]:
    """The address of a URL, and a whole ``server/discover`` for it."""
    parts = urlsplit(url)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1") or parts.port is None:
        raise SystemExit("URL is that of a server on the loopback interface, with its port")
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    body = json.dumps(message).encode()
    head = (
        f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
        f"Mcp-Method: server/discover\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (parts.hostname, parts.port), head.encode() + body


def open_idle(address: tuple[str, int], request: bytes) -> socket.socket:
    """A connection on which one request was answered."""
    connection = socket.create_connection(address, timeout=10)
    connection.sendall(request)
    received = b""
    while b'"supportedVersions"' not in received:
        data = connection.recv(65536)
        if not data:
            raise SystemExit(f"the server closed a connection after {received[:200]!r}")
        received += data
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("pid", type=int)
    parser.add_argument("--connections", type=int, default=500)
    options = parser.parse_args()
    address, request = request_to(options.url)
    with ExitStack() as idle:
        for _ in range(WARM):
            idle.enter_context(open_idle(address, request))
        before = resident_kib(options.pid)
        for _ in range(options.connections):
            idle.enter_context(open_idle(address, request))
        grown = resident_kib(options.pid) - before
    print(f"{grown / options.connections:.1f} KiB for each of {options.connections} idle connections")


if __name__ == "__main__":
    main()
