"""A server for tests of subscriptions, run as a child process: what it does is told by the ids that are listened to.

usage: listening_server.py RECORD

RECORD gets a line for each message that came in.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

RECORD = sys.argv[1]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
listens = 0
dropped = False


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def result(request: dict[str, Any], **members: Any) -> None:
    send({"id": request["id"], "result": {"resultType": "complete", **members}})


def task(name: str, status: str = "working", second: int = 0, **members: Any) -> dict[str, Any]:
    moment = f"2026-07-28T10:{second // 60:02d}:{second % 60:02d}Z"
    return {
        "taskId": name, "status": status, "createdAt": "2026-07-28T10:00:00Z", "lastUpdatedAt": moment, "ttlMs": None,
        **members,
    }  # fmt: skip


def done(name: str, second: int) -> dict[str, Any]:
    return task(name, "completed", second, result={"content": [{"type": "text", "text": f"{name} is done"}]})


def tell(listen: dict[str, Any], method: str, **params: Any) -> None:
    send({"method": method, "params": {"_meta": {SUBSCRIPTION: listen["id"]}, **params}})


def cancelled(listen: dict[str, Any]) -> None:
    tell(listen, "notifications/cancelled", requestId=listen["id"])


def listen(request: dict[str, Any]) -> None:
    global listens, dropped
    listens += 1
    asked = request["params"]["notifications"]
    ids = asked.get("taskIds", [])
    if ids == ["bare"]:
        result(request, _meta={SUBSCRIPTION: request["id"]})
        return
    if ids == ["early"]:
        tell(request, "notifications/tasks", **task("early"))
    if ids == ["unsupported"]:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        return
    agreed = {**asked, "taskIds": [name for name in ids if name != "unknown"]}
    tell(request, "notifications/subscriptions/acknowledged", notifications=agreed)
    for name in agreed["taskIds"]:
        tell(request, "notifications/tasks", **task(name))
    for name in agreed["taskIds"]:
        if name == "ends":
            tell(request, "notifications/tasks", **done(name, 2))
        elif name == "lies":
            tell(request, "notifications/tasks", **task("another"))
        elif name == "dies":
            sys.stderr.write("out of cheese\n")
            sys.stderr.flush()
            os._exit(3)
        elif name == "drops" and not dropped:
            dropped = True
            cancelled(request)
        elif name == "drops":
            tell(request, "notifications/tasks", **done(name, 2))
        elif name == "busy":
            for second in range(1, 3_000):
                tell(request, "notifications/tasks", **task(name, second=second, statusMessage=str(second)))
            tell(request, "notifications/tasks", **done(name, 3_000))
    if agreed["taskIds"] and set(agreed["taskIds"]) <= {"ends", "busy"}:
        result(request, _meta={SUBSCRIPTION: request["id"]})
        cancelled(request)


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        with open(RECORD, "a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
        match message["method"]:
            case "server/discover":
                more = {"ttlMs": 0, "cacheScope": "private"}
                result(message, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, **more)
            case "subscriptions/listen":
                listen(message)
            case "tasks/get":
                result(message, **task(message["params"]["taskId"], second=1))
            case "ping":
                result(message)


if __name__ == "__main__":
    main()
