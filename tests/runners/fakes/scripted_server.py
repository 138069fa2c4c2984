"""A server for tests of clients, run as a child process: what it does is told by the names that it is called with.

usage: scripted_server.py RECORD [DISCOVER]

RECORD gets a line for each message that came in, and one for each other thing that happened to it.
DISCOVER says how server/discover is answered: modern, silent, exit, an error code, or -32022-then-modern.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

RECORD, ERA = sys.argv[1], (sys.argv[2:] or ["modern"])[0]
OUT = sys.stdout.buffer
discovers = 0
polls: dict[str, int] = {}
answers: dict[str, Any] = {}
cancelled: set[str] = set()


def record(kind: str, value: object = None) -> None:
    with open(RECORD, "a", encoding="utf-8") as file:
        file.write(json.dumps([kind, value]) + "\n")


def send(message: object) -> None:
    OUT.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    OUT.flush()


def result(request: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **members}}


def error(request: dict[str, Any], code: int, text: str, data: Any = None) -> dict[str, Any]:
    body = {"code": code, "message": text} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": request["id"], "error": body}


def text(request: dict[str, Any], value: str, **members: Any) -> dict[str, Any]:
    return result(request, content=[{"type": "text", "text": value}], **members)


def task(name: str, status: str = "working", **members: Any) -> dict[str, Any]:
    changes = {"working": 0, "input_required": 1}.get(status, 2)
    return {
        "taskId": name,
        "status": status,
        "createdAt": "2026-07-28T10:00:00Z",
        "lastUpdatedAt": f"2026-07-28T10:00:0{changes}Z",
        "ttlMs": 60_000,
        "pollIntervalMs": 100,
        **members,
    }


QUESTION = {
    "method": "elicitation/create",
    "params": {
        "message": "Which quarter?",
        "requestedSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}


def discover(request: dict[str, Any]) -> None:
    global discovers
    discovers += 1
    if ERA == "silent":
        return
    if ERA == "exit":
        sys.stderr.write("unknown method server/discover\n")
        sys.exit(1)
    if ERA == "-32022-then-modern" and discovers == 1:
        send(error(request, -32022, "version", {"supported": ["2026-07-28"], "requested": "2026-07-28"}))
    elif ERA == "-32022":
        send(error(request, -32022, "version", {"supported": ["2025-11-25"], "requested": "2026-07-28"}))
    elif ERA.startswith("-") and ERA != "-32022-then-modern":
        send(error(request, int(ERA), "Received request before initialization was complete"))
    else:
        send(
            result(request, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, ttlMs=0, cacheScope="private")
        )


def call(request: dict[str, Any]) -> None:
    params = request["params"]
    name, arguments = params["name"], params["arguments"]
    match name:
        case "echo":
            send(text(request, json.dumps(arguments), structuredContent=arguments))
        case "broken":
            send(error(request, -32603, "It broke", {"hint": 7}))
        case "refused":
            send(text(request, "no such city", isError=True))
        case "banner":
            OUT.write(b"Starting up...\n\n   \n\x1b[32mready\x1b[0m\n42\n{}\n[1]\n\xff\xfe\n\x00\n\xed\xa0\x80\n")
            send(text(request, "after the banner"))
        case "only_junk":
            OUT.write(b"2026-07-28 10:00:00 INFO still alive\n" * 5_000)
            OUT.flush()
        case "noisy":
            os.write(2, b"x" * (1024 * 1024))
            send(text(request, "after the noise"))
        case "bytewise":
            for byte in json.dumps(text(request, "é€\U0001f600" * 3), ensure_ascii=False).encode() + b"\n":
                OUT.write(bytes([byte]))
                OUT.flush()
        case "separators":
            send(text(request, "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei"))
        case "huge":
            send(text(request, "y" * arguments["size"]))
        case "length":
            send(text(request, str(len(arguments["x"]))))
        case "hang":
            if arguments.get("touch"):
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress(request)})
        case "progress":
            for step in (1, 2, 3):
                params = {**progress(request), "progress": step, "total": 3, "message": f"step {step}"}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            log = {"level": "info", "logger": "tool", "data": {"n": 1}}
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": log})
            send(text(request, "done"))
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            sys.stderr.write("Traceback: out of cheese\n")
            sys.stderr.flush()
            os._exit(3)
        case "closes_stdout":
            sys.stderr.write("closing shop\n")
            sys.stderr.flush()
            os.close(1)
        case "rounds":
            if "inputResponses" in params:
                send(text(request, params["inputResponses"]["k"]["content"]["q"]))
            else:
                asked = {"resultType": "input_required", "inputRequests": {"k": QUESTION}, "requestState": "s\u2028"}
                send({"jsonrpc": "2.0", "id": request["id"], "result": asked})
        case _ if name.startswith("task"):
            send(result(request, **task(name), resultType="task"))
        case _:
            send(error(request, -32602, f"Unknown tool: {name}"))


def progress(request: dict[str, Any]) -> dict[str, Any]:
    return {"progressToken": request["params"]["_meta"].get("progressToken"), "progress": 1}


def get(request: dict[str, Any]) -> None:
    name = request["params"]["taskId"]
    polls[name] = polls.get(name, 0) + 1
    done = {"content": [{"type": "text", "text": f"{name} is done"}]}
    if name in cancelled:
        state = task(name, "cancelled")
    elif name == "task_ends" and polls[name] > 1:
        state = task(name, "completed", result=done)
    elif name == "task_fails":
        state = task(name, "failed", error={"code": -32603, "message": "worker lost"})
    elif name == "task_asks":
        if "k" in answers:
            state = task(
                name, "completed", result={"content": [{"type": "text", "text": answers["k"]["content"]["q"]}]}
            )
        else:
            state = task(name, "input_required", inputRequests={"k": QUESTION})
    else:
        state = task(name)
    send(result(request, **state))


def serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "server/discover":
            discover(message)
        case "tools/list":
            tool = {"name": "echo", "inputSchema": {"type": "object"}}
            page = {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
            send(result(message, **page, **({} if message["params"].get("cursor") == "" else {"nextCursor": ""})))
        case "tools/call":
            call(message)
        case "tasks/get":
            get(message)
        case "tasks/update":
            answers.update(message["params"]["inputResponses"])
            send(result(message))
        case "tasks/cancel":
            cancelled.add(message["params"]["taskId"])
            send(result(message))
        case "test/ignore_everything":
            signal.signal(signal.SIGTERM, lambda *_: record("terminated"))
            send(result(message))
        case method if "id" in message:
            send(error(message, -32601, f"Unknown method: {method}"))


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        record("message", message)
        serve(message)
        stubborn = message["method"] == "test/ignore_everything"
        if stubborn or message["params"].get("name") == "closes_stdout":
            # Lives on whatever happens to its pipes.
            while True:
                signal.pause()
    record("stdin closed")


if __name__ == "__main__":
    main()
