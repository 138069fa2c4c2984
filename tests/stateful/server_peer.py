"""Clients of a storm: they send whatever comes to their mind, and know what must be refused at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from mcp_tasks_core.access import Owner
from mcp_tasks_core.identifiers import StreamId
from stateful.picking import Pick
from stateful.server_questions import ANSWERS, CAPABILITIES, KEYS, fits

if TYPE_CHECKING:
    from stateful.server_core import Core
    from stateful.store_ledger import Life

ALICE: Final = Owner("tenant", "alice")
OWNERS: Final = (ALICE, Owner("tenant", "bob"), Owner("other", "alice"))
AUDITOR: Final = Owner("tenant", "auditor")
"""May read every task where the application decides about access, and nothing else."""

TOOLS: Final = ("work", "lookup", "only")
_ROUNDS: Final = ("_meta", "inputResponses", "requestState")
_SERVED: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "tools/call",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "prompts/get",
        "shop/echo",
    }
)
_REQUESTS: Final = (
    *("tools/call",) * 6,
    *("tasks/get",) * 5,
    *("tasks/update",) * 9,
    *("tasks/cancel",) * 3,
    *("prompts/get", "shop/echo", "server/discover", "tools/list"),
    *("tasks/result", "subscriptions/listen", "initialize", "nonsense"),
)
_META: Final = "io.modelcontextprotocol/"


def salient(params: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in params.items() if k not in _ROUNDS}, sort_keys=True)


@attrs.frozen
class SealedState:
    """A requestState that a core gave out, and for whom it counts."""

    owner: Owner
    method: str
    params: dict[str, Any]
    asked: dict[str, Any]
    answers: dict[str, Any]
    state: Any
    single_use: bool
    expires_ms: int


@attrs.define(eq=False)
class Sent:
    """One request, from its sending to the last frame that it got."""

    stream_id: StreamId
    id: Any
    method: str
    params: dict[str, Any]
    owner: Owner
    moment: int = 0
    faults: int = 0
    judged: bool = True
    answered: bool = False
    gone: bool = False
    progress: float | None = None
    called: bool = False
    expected: Any = None

    @property
    def key(self) -> tuple[int, str]:
        return (self.stream_id, json.dumps(self.id))

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def capabilities(self) -> Any:
        return self.meta.get(_META + "clientCapabilities")

    @property
    def declares_tasks(self) -> bool:
        extensions = self.capabilities.get("extensions") if isinstance(self.capabilities, dict) else None
        return isinstance(extensions, dict) and _META + "tasks" in extensions


@attrs.frozen
class Message:
    """Bytes for a stream.

    Args:
        sent: the request in it.
        errors: for what is no request: the codes of the one error that answers it; empty for silence.
        anything: altered at random, so only the general rules can be judged.
    """

    payload: bytes
    sent: Sent | None = None
    errors: tuple[int, ...] = ()
    id: Any = None
    anything: bool = False


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def compose(pick: Pick, core: Core, stream_id: StreamId) -> Message:
    """A message, most often a request that can be served."""
    whim = pick.number(0, 19)
    if whim < 15:
        sent = _request(pick, core, stream_id)
        return Message(_encode(_envelope(sent)), sent)
    if whim == 15:
        return Message(
            _encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": _cancelled(pick, core)})
        )
    if whim == 16:
        return _no_request(pick)
    payload = _encode(_envelope(_request(pick, core, stream_id)))
    if whim == 17:
        return Message(payload[: pick.number(0, len(payload) - 1)], errors=(-32700,))
    if whim == 18:
        return Message(b"\xff" + pick.bytes(12), errors=(-32700,))
    place = pick.number(0, len(payload) - 1)
    return Message(payload[:place] + pick.bytes(3) + payload[place + pick.number(0, 2) :], anything=True)


def welcome_call(core: Core, stream_id: StreamId, tool: str) -> Message:
    """A tool call that declares everything."""
    core.ids += 1
    meta = {_META + "protocolVersion": "2026-07-28", _META + "clientCapabilities": CAPABILITIES[0]}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    sent = Sent(stream_id, core.ids, "tools/call", params, core.streams[stream_id])
    return Message(_encode(_envelope(sent)), sent)


def owners_message(pick: Pick, core: Core, stream_id: StreamId, life: Life) -> Message:
    """What a task's owner would send: good answers to everything that is asked, or a cancel."""
    core.ids += 1
    meta = {_META + "protocolVersion": "2026-07-28", _META + "clientCapabilities": CAPABILITIES[0]}
    params: dict[str, Any] = {"taskId": life.last.row.task_id, "_meta": meta}
    method = "tasks/cancel"
    if life.last.outstanding and pick.number(0, 3):
        method = "tasks/update"
        asked = life.last.outstanding
        params["inputResponses"] = {key: pick.of([x for x in ANSWERS if fits(asked[key], x)]) for key in asked}
    sent = Sent(stream_id, core.ids, method, params, core.streams[stream_id])
    return Message(_encode(_envelope(sent)), sent)


def retry(pick: Pick, core: Core, stream_id: StreamId, text: str) -> Message:
    """The next round of a request that was asked something, as its client would send it."""
    core.ids += 1
    state = core.world.sealed[text]
    meta = {_META + "protocolVersion": "2026-07-28", _META + "clientCapabilities": CAPABILITIES[0]}
    answers = {key: pick.of([x for x in ANSWERS if fits(asked, x)]) for key, asked in state.asked.items()}
    params = {**state.params, "_meta": meta, "requestState": text, "inputResponses": answers}
    sent = Sent(stream_id, core.ids, state.method, params, core.streams[stream_id])
    return Message(_encode(_envelope(sent)), sent)


def _envelope(sent: Sent) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": sent.id, "method": sent.method, "params": sent.params}


def _cancelled(pick: Pick, core: Core) -> Any:
    open_ids = [sent.id for sent in core.open.values()]
    return pick.of([*({"requestId": i, "reason": "no"} for i in [*open_ids, 1, "1", None, 1.0, [], True]), {}, []])


def _no_request(pick: Pick) -> Message:
    head = {"jsonrpc": "2.0"}
    return pick.of(
        [
            Message(_encode([]), errors=(-32600,)),
            Message(_encode([{**head, "id": 1, "method": "tasks/get"}]), errors=(-32600,)),
            Message(_encode({"id": 1, "method": "tasks/get"}), errors=(-32600,), id=1),
            Message(_encode({**head, "id": None, "method": "tasks/get"}), errors=(-32600,)),
            Message(_encode({**head, "id": 1.0, "method": "tasks/get"}), errors=(-32600,)),
            Message(_encode({**head, "id": True, "method": "tasks/get"}), errors=(-32600,)),
            Message(_encode({**head, "id": "q", "method": 5}), errors=(-32600,), id="q"),
            Message(_encode({**head, "id": "q", "method": "tasks/get", "params": []}), errors=(-32602,), id="q"),
            Message(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tasks/get"}', errors=(-32700,)),
            Message(b'{"jsonrpc":"2.0","id":"\\ud800","method":"tasks/get"}', errors=(-32700,)),
            Message(b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"a":NaN}}', errors=(-32700,)),
            Message(b"[" * 200 + b"]" * 200, errors=(-32600,)),
            Message(_encode({**head, "method": "notifications/tasks", "params": {"taskId": 1}})),
            Message(_encode({**head, "method": "tasks/cancel", "params": {"taskId": "x"}})),
            Message(_encode({**head, "method": 5})),
            Message(_encode({**head, "id": 1, "result": {}})),
            Message(_encode({**head, "id": 1, "error": {"code": 1, "message": "no"}})),
        ]
    )


def _meta(pick: Pick) -> Any:
    whim = pick.number(0, 19)
    if whim == 19:
        return pick.of([None, [], {}, {_META + "protocolVersion": 5, _META + "clientCapabilities": {}}])
    meta: dict[str, Any] = {
        _META + "protocolVersion": "2025-11-25" if whim == 18 else "2026-07-28",
        _META + "clientCapabilities": CAPABILITIES[max(0, pick.number(-16, len(CAPABILITIES) - 1))],
    }
    if pick.number(0, 1):
        meta["progressToken"] = pick.of([7, "seven"])
        meta[_META + "logLevel"] = "info"
        meta["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    return meta


def _request(pick: Pick, core: Core, stream_id: StreamId) -> Sent:
    method = pick.of(_REQUESTS)
    params: dict[str, Any] = {}
    if method in ("tools/call", "prompts/get"):
        params = _call(pick, core, method)
    elif method.startswith("tasks/"):
        params["taskId"] = _task_id(pick, core)
        if method == "tasks/update":
            params["inputResponses"] = _responses(pick, core, params["taskId"])
    elif method == "tools/list" and pick.number(0, 1):
        params["cursor"] = pick.of(["b25seQ==", "", "%", 5])
    params["_meta"] = _meta(pick)
    core.ids += 1
    request_id = pick.of([core.ids, f"id {core.ids}", core.ids + 10**20, 1, "1", 2])
    taken = [sent.id for sent in core.open.values() if sent.stream_id == stream_id]
    if taken and pick.number(0, 2) == 0:
        request_id = pick.of([*taken, *map(str, taken)])
    return Sent(stream_id, request_id, method, params, core.streams[stream_id])


def _call(pick: Pick, core: Core, method: str) -> dict[str, Any]:
    params: dict[str, Any] = {"name": pick.of([*TOOLS, *TOOLS, "unknown"])}
    if method == "tools/call":
        params["arguments"] = pick.of([{}, {"topic": "sales"}, {}, {"topic": "é"}, {}, None])
    sealed = list(core.world.sealed)
    if sealed and pick.number(0, 2) == 0:
        text = pick.of(sealed)
        state = core.world.sealed[text]
        if pick.number(0, 3):
            params = dict(state.params)
        params["requestState"] = pick.of([text, text, text, text[:-1] + "A", text[1:], "x.y.z", 5])
        keys = [*state.asked, "unknown"]
        params["inputResponses"] = {key: pick.of(ANSWERS) for key in keys if pick.number(0, 2)}
    elif pick.number(0, 6) == 0:
        params["inputResponses"] = pick.of([{"first": ANSWERS[0]}, {"first": "no"}, []])
    return params


def _task_id(pick: Pick, core: Core) -> Any:
    open_tasks: list[Any] = [x.last.row.task_id for x in core.world.ledger.all_current() if not x.last.ended]
    known: list[Any] = list(core.world.ledger.lives)[-4:]
    return pick.of([*open_tasks * 3, *known, "claim-1", "unknown", pick.of(["", "x" * 2000, None, 5])])


def _responses(pick: Pick, core: Core, task_id: Any) -> Any:
    if pick.number(0, 11) == 0:
        return pick.of([None, [], "x"])
    life = core.world.ledger.current(task_id) if isinstance(task_id, str) else None  # type: ignore[arg-type]
    asked = {} if life is None else {key: question for key, question, _, _ in life.last.state["inputs"]}
    responses: dict[str, Any] = {}
    for key in [*asked, pick.of(KEYS)]:
        good = [answer for answer in ANSWERS if key in asked and fits(asked[key], answer)]
        if pick.number(0, 3):
            responses[key] = pick.of([*good, *good, *good, *ANSWERS])
    return responses


# --- what must be refused at once, in the order of DECISIONS D24


def refusal_of(sent: Sent, core: Core) -> int | None:
    """The code of the error that answers a request before anything is asked of a store or an application."""
    meta, params, method = sent.params["_meta"], sent.params, sent.method
    if (
        type(meta) is not dict
        or type(sent.capabilities) is not dict
        or type(meta[_META + "protocolVersion"]) is not str
    ):
        return -32602
    if sent.capabilities.get("extensions") == []:
        return -32602
    if meta[_META + "protocolVersion"] != "2026-07-28":
        return -32022
    if method not in _SERVED:
        return -32601
    if core.open_on(sent.stream_id) >= core.world.limits.open_exchanges_per_stream_max:
        return -32603
    if method.startswith("tasks/"):
        return _refusal_of_task_method(sent)
    if method == "tools/list":
        return -32602 if params.get("cursor", "b25seQ==") != "b25seQ==" else None
    if method == "tools/call":
        if params["name"] not in TOOLS:
            return -32602
        if params["name"] == "only" and not sent.declares_tasks:
            return -32021
        if type(params.get("arguments", {})) is not dict:
            return -32602
    return _refusal_of_round(sent, core) if method in ("tools/call", "prompts/get") else None


def _refusal_of_task_method(sent: Sent) -> int | None:
    if not sent.declares_tasks:
        return -32021
    if type(sent.params["taskId"]) is not str or len(sent.params["taskId"]) > 1024:
        return -32602
    if sent.method == "tasks/update" and type(sent.params["inputResponses"]) is not dict:
        return -32602
    return None


def _refusal_of_round(sent: Sent, core: Core) -> int | None:
    responses = sent.params.get("inputResponses", {})
    if type(responses) is not dict:
        return -32602
    if "requestState" not in sent.params:
        sent.expected = (responses, None)
        return None if all(type(answer) is dict for answer in responses.values()) else -32602
    text = sent.params["requestState"]
    state = core.world.sealed.get(text) if type(text) is str else None
    if state is None or state.owner != sent.owner or state.method != sent.method:
        return -32602
    if salient(state.params) != salient(sent.params) or core.now.wall_ms >= state.expires_ms or text in core.spent:
        return -32602
    given = {key: answer for key, answer in responses.items() if key in state.asked}
    if not all(fits(state.asked[key], answer) for key, answer in given.items()):
        return -32602
    if state.single_use:
        core.spent.add(text)
    sent.expected = ({**state.answers, **given}, state.state)
    return None
