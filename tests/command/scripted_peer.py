"""A server over HTTP for tests of commands: a test writes what it answers to tasks/get and subscriptions/listen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
BOUND_SECONDS = 30  # nothing waits for it but a test that fails
DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    "ttlMs": 0,
    "cacheScope": "private",
}


def task(task_id: str, status: str = "working", **members: Any) -> Message:
    moment = "2026-07-28T10:00:00Z"
    times = {"createdAt": moment, "lastUpdatedAt": moment, "ttlMs": None}
    return {"taskId": task_id, "status": status, **times, **members}


def completed(task_id: str) -> Message:
    result = {"content": [{"type": "text", "text": f"{task_id} is done"}]}
    return task(task_id, "completed", result=result) | {"lastUpdatedAt": "2026-07-28T10:00:05Z"}


class Exchange:
    """One request, and how a test answers it."""

    def __init__(self, message: Message, handler: BaseHTTPRequestHandler, over: threading.Event) -> None:
        self.message = message
        self._handler = handler
        self._over = over
        self._is_open = False

    @property
    def task_ids(self) -> list[str]:
        ids: list[str] = self.message["params"]["notifications"]["taskIds"]
        return ids

    def result(self, **members: Any) -> None:
        self._answer(result={"resultType": "complete", **members})

    def error(self, code: int, message: str) -> None:
        self._answer(error={"code": code, "message": message})

    def acknowledge(self, task_ids: list[str] | None = None) -> None:
        agreed = self.task_ids if task_ids is None else task_ids
        self.tell("notifications/subscriptions/acknowledged", notifications={"taskIds": agreed})

    def push(self, state: Message) -> None:
        self.tell("notifications/tasks", **state)

    def end(self) -> None:
        """As servers end a subscription in order."""
        self._event({"id": self.message["id"], "result": {"resultType": "complete", "_meta": self._meta}})

    def hold(self) -> None:
        """Keep the stream open until the test is over."""
        self._open_stream()
        assert self._over.wait(BOUND_SECONDS)

    def tell(self, method: str, **params: Any) -> None:
        self._event({"method": method, "params": {**params, "_meta": self._meta}})

    @property
    def _meta(self) -> Message:
        return {SUBSCRIPTION: self.message["id"]}

    def _answer(self, **members: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": self.message["id"], **members}).encode()
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Content-Length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def _open_stream(self) -> None:
        if not self._is_open:
            self._is_open = True
            self._handler.send_response(200)
            self._handler.send_header("Content-Type", "text/event-stream")
            self._handler.send_header("Transfer-Encoding", "chunked")
            self._handler.end_headers()

    def _event(self, message: Message) -> None:
        self._open_stream()
        self._chunk(b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")

    def close(self) -> None:
        if self._is_open:
            self._chunk(b"")


class Peer:
    """The server, and what came in at it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.received: list[Message] = []

    def count(self, method: str) -> int:
        return sum(message["method"] == method for message in self.received)


Answer = Callable[[Exchange], None]


@contextmanager
def scripted_peer(*, listen: Answer, get: Answer) -> Iterator[Peer]:
    """Serve on loopback, each connection in a thread of its own."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            peer.received.append(message)
            exchange = Exchange(message, self, over)
            try:
                match message["method"]:
                    case "server/discover":
                        exchange.result(**DISCOVERED)
                    case "subscriptions/listen":
                        listen(exchange)
                    case "tasks/get":
                        get(exchange)
                exchange.close()
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, *parts: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    peer = Peer(f"http://127.0.0.1:{server.server_address[1]}/mcp")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield peer
    finally:
        over.set()
        server.shutdown()
        thread.join(BOUND_SECONDS)
        server.socket.close()  # not server_close, which joins threads that wait for idle clients
