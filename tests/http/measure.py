"""What the HTTP server's binding costs, in microseconds of processor time: ``python -m tests.http.measure``.

The least of many short runs, since anything above it is somebody else's work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import h11

from mcp_tasks_http import HttpLimits, responses
from mcp_tasks_http.heads import H11HeadParser, routing_headers_of
from tests.http.wire import notice, post, result, server

NAME = "F" * 43
MESSAGE = (
    b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"%b","_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":'
    b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}' % NAME.encode()
)
ANSWER = result(b'{"jsonrpc":"2.0","id":1,"result":{' + b"x" * 365 + b"}}")


def least_us(action: Callable[[], object], loops: int = 1000, runs: int = 40) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        for _ in range(loops):
            action()
        best = min(best, time.process_time() - start)
    return best / loops * 1e6


def by_h11(data: bytes) -> list[object]:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    return [connection.next_event() for _ in range(3)]


def main() -> None:
    request = post("Connection: keep-alive", f"Mcp-Name: {NAME}", "User-Agent: measure/1", body=MESSAGE)
    served = server(HttpLimits(requests_per_connection_max=10**9))
    connection = served.connect(0)
    read = served.reader.read(request)
    patient = H11HeadParser(100)
    head_bytes = request[: request.index(b"\r\n\r\n") + 4]

    def exchange() -> bytes:
        (event,) = connection.receive_data(request, 0)
        connection.send(event.exchange, ANSWER, 0)
        return connection.data_to_send()

    def stream_event() -> None:
        connection.send(event.exchange, notice(), 0)
        connection.data_to_send()

    rows: dict[str, Callable[[], object]] = {
        "request to answer, all in all": exchange,
        "a head by the fast path": lambda: served.reader.read(request),
        "the checks of a head": lambda: served.judge.judge(read.head),
        "routing headers": lambda: routing_headers_of(read.head),
        "a JSON answer": lambda: responses.json_answer(None, ANSWER.payload, close=False),
        "a head by h11 and our stricter checks": lambda: patient.parse(head_bytes),
        "head and body by h11 alone": lambda: by_h11(request),
    }
    for name, action in rows.items():
        print(f"{least_us(action):8.2f}  {name}")
    (event,) = connection.receive_data(request, 0)
    print(f"{least_us(stream_event):8.2f}  an event of an open stream")


if __name__ == "__main__":
    main()
