"""What every answer is judged by: the request, what the application said, and every state the store ever held."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mcp_tasks_core.access import AccessRule
from mcp_tasks_core.identifiers import TaskId
from mcp_tasks_core.server.effects import Frame
from stateful.proving import prove
from stateful.server_peer import AUDITOR, Sent
from stateful.server_questions import fits
from stateful.store_ledger import Life, Version

if TYPE_CHECKING:
    from stateful.server_core import Core

SERVER_INFO: Final = {"name": "storm", "version": "1"}
_META: Final = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
_STANDARD: Final = (-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022)
_NOT_FOUND: Final = {"code": -32602, "message": "Task not found"}


def judge_notice(core: Core, frame: Frame, wire: dict[str, Any]) -> None:
    """A notification belongs to an open request that asked for it."""
    params = wire["params"]
    open_here = [sent for sent in core.open.values() if sent.stream_id == frame.stream_id]
    if wire["method"] == "notifications/message":
        prove(any(not s.judged or s.meta for s in open_here), "L2", f"{wire} for nobody")
        wanted = any(not s.judged or "io.modelcontextprotocol/logLevel" in s.meta for s in open_here)
        prove(wanted, "L2", f"nobody asked for {wire}")
        return
    prove(wire["method"] == "notifications/progress", "S5", f"a server sent {wire}")
    sent = core.world.progressing
    assert sent is not None
    prove(sent.key in core.open, "L1", f"progress of a request that is over: {wire}")
    if sent.judged:
        prove(params["progressToken"] == sent.meta["progressToken"], "L1", f"a token of another request: {wire}")
    prove(sent.progress is None or params["progress"] > sent.progress, "L1", f"progress went back: {wire}")
    sent.progress = params["progress"]


def judge_final(core: Core, sent: Sent, frame: Frame, wire: dict[str, Any]) -> None:
    """The one answer to a request."""
    prove(type(wire["id"]) is type(sent.id) and wire["id"] == sent.id, "B3", f"{wire['id']!r} answers {sent.id!r}")
    if not sent.judged:
        if wire.get("result", {}).get("resultType") == "task":
            _judge_handle(core, sent, wire["result"])
        return
    if "error" in wire:
        _judge_error(core, sent, wire["error"])
        if sent.method.startswith("tasks/") and wire["error"].get("code") == -32602:
            _judge_secrecy(core, sent, frame, wire["error"])
        return
    result = wire["result"]
    prove(type(result.get("resultType")) is str, "B4", f"{result} has no resultType")
    prove(result.get("_meta", {}).get("io.modelcontextprotocol/serverInfo") == SERVER_INFO, "B11", f"{result}")
    if result["resultType"] == "task":
        _judge_handle(core, sent, result)
    elif sent.method.startswith("tasks/"):
        prove(result["resultType"] == "complete", "D3", f"{result}")
        _judge_task_result(core, sent, result)


def _judge_error(core: Core, sent: Sent, error: dict[str, Any]) -> None:
    code = error["code"]
    prove(type(code) is int and (code in _STANDARD or not -32768 <= code <= -32000), "B5", f"{error} on the wire")
    if code == -32603 and sent.method.startswith("tasks/"):
        trouble = core.world.faults > sent.faults or error.get("data", {}).get("reason") == "busy"
        prove(trouble, "B7", f"{error} though nothing failed since {sent}")


def _permits(core: Core, sent: Sent, life: Life) -> bool:
    caller = (sent.owner.tenant, sent.owner.subject)
    if caller == life.owner:
        return True
    return core.config.access is AccessRule.ASK and sent.owner == AUDITOR and sent.method == "tasks/get"


def _judge_secrecy(core: Core, sent: Sent, frame: Frame, error: dict[str, Any]) -> None:
    """Unknown, gone and foreign look the same, byte for byte."""
    if not sent.declares_tasks or type(sent.params["taskId"]) is not str:
        return
    lives = core.world.ledger.since(TaskId(sent.params["taskId"]), sent.moment)
    permitted = [life for life in lives if _permits(core, sent, life)]
    if not permitted:
        if sent.method == "tasks/update" and type(sent.params["inputResponses"]) is not dict:
            return
        prove(error == _NOT_FOUND, "A1", f"{sent.owner} sees {error} of somebody else's task")
        payload = b"".join(frame.payload)
        whole = (
            b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Task not found"}}'
            % json.dumps(sent.id).encode()
        )
        prove(payload == whole, "G3", f"{payload!r}")
        return
    versions = [version for life in permitted for version in life.standing(sent.moment)]
    if error["message"] == "Task has expired":
        prove(any(v.state["expired"] for v in versions), "D9", f"{error} before its time")
    elif error == _NOT_FOUND:
        always = any(
            life.versions[0].since <= sent.moment and life.until is None for life in lives if life in permitted
        )
        prove(not always, "G1", f"{sent.owner} does not see a task of its own")
    elif sent.method == "tasks/update":
        bad = any(_bad_answer(version, sent.params["inputResponses"]) for version in versions)
        prove(bad, "U5", f"{error} though every answer fits, or the key is not outstanding")


def _bad_answer(version: Version, responses: Any) -> bool:
    if type(responses) is not dict:
        return True
    return any(key in responses and not fits(asked, responses[key]) for key, asked in version.outstanding.items())


def wall_moment(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{wall_ms % 1000:03d}Z"


def shown(version: Version, *, payload: bool) -> dict[str, Any]:
    """A state as the wire is to show it, without resultType and ``_meta``."""
    state = version.state
    wire: dict[str, Any] = {
        "taskId": state["id"],
        "status": state["status"],
        "createdAt": wall_moment(state["created"]),
        "lastUpdatedAt": wall_moment(state["updated"]),
        "ttlMs": state["ttl"],
    }
    if state["poll"] is not None:
        wire["pollIntervalMs"] = state["poll"]
    if state["message"] is not None:
        wire["statusMessage"] = state["message"]
    if payload and state["status"] == "input_required":
        wire["inputRequests"] = version.outstanding
    if payload and state["status"] in ("completed", "failed"):
        member = "result" if state["status"] == "completed" else "error"
        wire[member] = state[member]
    return wire


def _judge_handle(core: Core, sent: Sent, result: dict[str, Any]) -> None:
    prove(sent.method == "tools/call" and (sent.declares_tasks or not sent.judged), "C3", f"a task for {sent}")
    task_id = TaskId(result["taskId"])
    lives = core.world.ledger.since(task_id, sent.moment)
    prove(bool(lives), "C5", f"the handle of {task_id} was sent, and no store ever held it")
    life = lives[-1]
    read = core.reads.get(task_id, -1)
    prove(read >= life.versions[0].since, "C5", f"the handle of {task_id} was sent before it was read")
    bare = {name: value for name, value in result.items() if name not in ("resultType", "_meta")}
    known = any(bare == shown(version, payload=False) for version in life.versions)
    prove(known, "C4", f"the handle {bare} is of no state that was stored")
    prove(not life.announced, "C5", f"the task {task_id} was announced twice")
    life.announced = True


def _judge_task_result(core: Core, sent: Sent, result: dict[str, Any]) -> None:
    lives = [x for x in core.world.ledger.since(TaskId(sent.params["taskId"]), sent.moment) if _permits(core, sent, x)]
    prove(bool(lives), "A1", f"{sent.owner} was served a task that it may not touch: {result}")
    versions = [version for life in lives for version in life.standing(sent.moment)]
    if sent.method == "tasks/get":
        bare = {name: value for name, value in result.items() if name not in ("resultType", "_meta")}
        seen = any(bare == shown(version, payload=True) for version in versions if not version.state["expired"])
        prove(seen, "G1", f"{bare} was the state of the task at no moment since the request")
        return
    prove(result == {"resultType": "complete", "_meta": _META}, "U1", f"an acknowledgement holds more: {result}")
    if sent.method == "tasks/cancel":
        kept = any(version.ended or version.state["cancel"] is not None for version in versions)
        prove(kept, "X1", "a cancel was acknowledged and is not stored")
        return
    given = sent.params["inputResponses"]
    kept = any(version.ended or not (version.outstanding.keys() & given.keys()) for version in versions)
    prove(kept, "U1", f"answers were acknowledged and are not stored: {given}")
