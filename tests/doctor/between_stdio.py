"""Something between the doctor and a server on stdio that breaks one rule: ``between_stdio.py BREACH COMMAND...``."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

_LOCK = threading.Lock()
_ID = b'"id":'


def _write(data: bytes) -> None:
    with _LOCK:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _answer(message_id: Any) -> bytes:
    result = {"resultType": "complete", "content": []}
    return json.dumps({"jsonrpc": "2.0", "id": message_id, "result": result}).encode() + b"\n"


def _read(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


class _Between:
    def __init__(self, breach: str, child: subprocess.Popen[bytes]) -> None:
        self._breach = breach
        self._child = child
        self._busy = threading.Event()

    def there(self) -> None:
        """Carry what the doctor says to the server."""
        assert self._child.stdin is not None
        for line in sys.stdin.buffer:
            message = _read(line)
            cancelled = message.get("method") == "notifications/cancelled"
            named = message.get("params", {}).get("requestId") if cancelled else None
            if self._breach == "cancelled requests are answered" and isinstance(named, int):
                _write(_answer(named))
            elif self._breach == "wrong cancellations are answered" and cancelled and named is None:
                _write(b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"which one?"}}\n')
            elif self._breach == "notifications are answered" and message.get("method") and "id" not in message:
                _write(b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"what?"}}\n')
            elif self._breach == "one request after the other" and self._is_slow_call(message):
                self._busy.set()
            elif self._busy.is_set() and "id" in message:
                continue
            if self._busy.is_set() and cancelled:
                self._busy.clear()
            self._child.stdin.write(line)
            self._child.stdin.flush()
        self._child.stdin.close()
        if self._breach == "it lives on":
            time.sleep(60)

    @staticmethod
    def _is_slow_call(message: dict[str, Any]) -> bool:
        params = message.get("params", {})
        declared = "io.modelcontextprotocol/tasks" in json.dumps(params)
        return message.get("method") == "tools/call" and params.get("name") == "slow" and not declared

    def back(self) -> None:
        """Carry what the server says to the doctor."""
        assert self._child.stdout is not None
        if self._breach == "it greets on stdout":
            _write(b"Welcome!\n")
        for line in self._child.stdout:
            _write(line)
            if self._breach == "answers come twice" and b'"tools":[' in line:
                _write(line.replace(_ID, b'"id":90', 1))


def main() -> None:
    breach, *command = sys.argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    between = _Between(breach, child)
    threading.Thread(target=between.back, daemon=True).start()
    between.there()
    child.wait()


if __name__ == "__main__":
    main()
