"""Records and their encodings, kept from one look at a task to the next.

A state is encoded once per stored revision, however many polls read it. An entry counts only while the row's
payload is the very same bytes, so a cache can never show what the store does not hold.
"""

from __future__ import annotations

from mcp_tasks_core.capabilities import META_SERVER_INFO
from mcp_tasks_core.identifiers import JSONObject, Revision, TaskId
from mcp_tasks_core.records import decode_record, row_of
from mcp_tasks_core.server.config import ServerConfig
from mcp_tasks_core.store import StoredTask
from mcp_tasks_core.tasks import TaskRecord, state_to_wire
from mcp_tasks_core.wire.json import JsonCodec


class TaskState:
    """One stored state of a task: its record, and what tasks/get says of it once somebody asks."""

    __slots__ = ("_body", "_members", "payload", "record")

    def __init__(self, payload: bytes, record: TaskRecord) -> None:
        self.payload = payload
        self.record = record
        self._body: bytes | None = None
        self._members: bytes | None = None

    def members(self, codec: JsonCodec) -> bytes:
        """The members of the ``DetailedTask``, encoded, without the braces around them."""
        if self._members is None:
            self._members = members_of(state_to_wire(self.record), codec)
        return self._members

    def body(self, codec: JsonCodec, end: bytes) -> bytes:
        """The result of tasks/get, encoded; ``end`` is what follows the task's own members."""
        if self._body is None:
            self._body = b'{"resultType":"complete",' + self.members(codec) + end
        return self._body


def members_of(wire: JSONObject, codec: JsonCodec) -> bytes:
    """The members of an object that has some, encoded, without the braces around them.

    Raises:
        JsonError: it holds what JSON cannot.
    """
    return codec.encode(wire).strip()[1:-1]


class TaskStates:
    """The states that were looked at last, up to ``cached_states_max``."""

    def __init__(self, config: ServerConfig, codec: JsonCodec) -> None:
        self._codec = codec
        self._limits = config.limits
        self._executor = config.executor if config.tasks else None
        meta = None if config.server_info is None else {META_SERVER_INFO: config.server_info}
        self._end = b"}" if meta is None else b',"_meta":' + codec.encode(meta) + b"}"
        self._kept: dict[TaskId, TaskState] = {}
        self._recent: dict[TaskId, tuple[int, StoredTask]] = {}

    def remember(self, row: StoredTask, now_ms: int) -> None:
        """A task whose work runs here was created, under an id that no other task ever had.

        Args:
            now_ms: monotonic, as are the other moments here.
        """
        if self._executor is not None and row.executor == self._executor:
            self._recent[row.task_id] = (now_ms, row)
            if len(self._recent) > self._limits.cached_states_max:
                del self._recent[next(iter(self._recent))]

    def note(self, task_id: TaskId, row: StoredTask | None, now_ms: int) -> None:
        """This is the row now: it was read or stored just now. ``None`` where there is none."""
        if task_id in self._recent:
            if row is None or row.executor is None or row.executor != self._executor:
                del self._recent[task_id]  # others will change it, or nobody
            else:
                self._recent[task_id] = (now_ms, row)

    def recent(self, task_id: TaskId, now_ms: int) -> StoredTask | None:
        """The row that a task whose work runs here most likely has still: a change may start from it, since the swap
        finds out. ``None`` where there is none, or none that is younger than a lease."""
        noted = self._recent.get(task_id)
        if noted is None or now_ms - noted[0] > self._limits.lease_ms:
            return None
        return noted[1]

    def of(self, row: StoredTask) -> TaskState:
        """The state in a row.

        Raises:
            UnreadableRecord: the row holds none that this program can read.
        """
        state = self._kept.get(row.task_id)
        if state is not None and state.payload == row.payload:
            return state
        # Decoded from the payload even where its writer is at hand: what is shown is what was stored.
        state = TaskState(row.payload, decode_record(row.payload))
        self._kept.pop(row.task_id, None)
        self._kept[row.task_id] = state
        if len(self._kept) > self._limits.cached_states_max:
            del self._kept[next(iter(self._kept))]
        return state

    def row(self, record: TaskRecord, revision: Revision) -> StoredTask:
        """The row that would hold this record at this revision.

        Raises:
            ValueError, TypeError: the record holds what JSON cannot.
        """
        return row_of(record, revision, self._limits)

    def forget(self, task_id: TaskId) -> None:
        self._kept.pop(task_id, None)
        self._recent.pop(task_id, None)

    def body(self, state: TaskState) -> bytes:
        return state.body(self._codec, self._end)

    def members(self, state: TaskState) -> bytes:
        """What every listener to the task gets, encoded once; see ``TaskState.members``."""
        return state.members(self._codec)
