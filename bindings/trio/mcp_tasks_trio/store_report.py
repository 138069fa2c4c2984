"""How the tasks of a store are shown to its operator."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from mcp_tasks_core.errors import LocalProtocolError
from mcp_tasks_core.identifiers import JSONObject
from mcp_tasks_core.records import UnreadableRecord, decode_record
from mcp_tasks_core.store import MemoryTaskStore, StoredTask, StoreError
from mcp_tasks_core.tasks import TaskRecord, timestamp
from mcp_tasks_sqlite import SealedLocalTaskStore, SealingKey, ViewedTask, read_key_file, sealing_key_id
from mcp_tasks_trio.display import printable, write_json
from mcp_tasks_trio.exit_codes import WrongUsage

_VALUE_CHARS: Final = 4_000
_NOTE_CHARS: Final = 200
_EXECUTOR_CHARS: Final = 8  # of 32: enough to tell one process from another
_COLUMNS: Final = ("TASK", "STATUS", "TOOL", "OWNER", "CHANGED", "DUE", "RUNS IN", "NOTE")
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"))


class Reader:
    """Reads the payloads of rows, sealed ones with the keys it has.

    ``unopened`` counts those that ``open_row`` was given no key for.
    """

    def __init__(self, keys: Sequence[SealingKey]) -> None:
        self._sealed = SealedLocalTaskStore(MemoryTaskStore(), keys) if keys else None
        self.unopened = 0

    @classmethod
    def of_key_file(cls, key_file: str | None) -> Reader:
        """A reader with the keys of a file, or without any.

        Raises:
            WrongUsage: the file holds none, or ``cryptography`` is not installed.
        """
        try:
            return cls([] if key_file is None else read_key_file(key_file))
        except LocalProtocolError as error:
            raise WrongUsage(str(error)) from None

    def open_row(self, row: StoredTask) -> StoredTask | None:
        """The row with a readable payload, ``None`` where it is sealed and no key was given.

        Raises:
            StoreError: the keys are not those that sealed it, or it was altered.
        """
        if sealing_key_id(row.payload) is None:
            return row
        if self._sealed is None:
            self.unopened += 1
            return None
        return self._sealed.open_row(row)

    def record(self, row: StoredTask) -> tuple[TaskRecord | None, str | None]:
        """The row's record, or ``None`` and, where no missing key explains it, what is wrong."""
        try:
            opened = self.open_row(row)
            return (None, None) if opened is None else (decode_record(opened.payload), None)
        except (StoreError, UnreadableRecord) as problem:
            return None, str(problem)


def write_list(
    tasks: Iterable[ViewedTask],
    leases: Mapping[str, int],
    reader: Reader,
    now_ms: int,
    *,
    as_json: bool,
    shown_max: int,
) -> int:
    """Write tasks to stdout; how many it were.

    Args:
        shown_max: tasks at the most, 0 for all.
    """
    described = (_describe(task, leases, reader) for task in (islice(tasks, shown_max) if shown_max else tasks))
    shown = 0
    if as_json:
        for entry in described:
            write_json(entry)
            shown += 1
        return shown
    lines = (_cells(entry, now_ms) for entry in described)
    return _write_table(lines) if sys.stdout.isatty() else _write_columns(lines)


def _describe(task: ViewedTask, leases: Mapping[str, int], reader: Reader) -> JSONObject:
    """What may be listed of a task; what was said in it stays out."""
    row = task.row
    record, problem = reader.record(row)
    entry: JSONObject = {
        "taskId": row.task_id,
        "status": row.status,
        "tenant": row.owner[0],
        "subject": row.owner[1],
        "revision": row.revision,
        "changedAtMs": task.changed_at_ms,
        "dueAtMs": row.due_at_ms,
        "executor": row.executor,
        "leaseUntilMs": None if row.executor is None else leases.get(row.executor),
        "sealedWith": sealing_key_id(row.payload),
    }
    if record is not None:
        entry |= {
            "tool": record.request.get("name"),
            "createdAtMs": record.created_at_ms,
            "lastUpdatedAtMs": record.last_updated_at_ms,
            "ttlMs": record.ttl_ms,
            "statusMessage": record.status_message,
            "outstanding": list(record.outstanding),
            "cancelRequestedAtMs": record.cancel_requested_at_ms,
            "attempts": record.attempts,
            "expired": record.expired,
        }
    if problem is not None:
        entry["problem"] = problem
    return entry


def _cells(entry: JSONObject, now_ms: int) -> tuple[str, ...]:
    tool = entry.get("tool")
    return tuple(
        printable(text)
        for text in (
            entry["taskId"],
            entry["status"],
            tool if isinstance(tool, str) else "-",
            f"{entry['tenant']}/{entry['subject']}",
            f"{_span(now_ms - entry['changedAtMs'])} ago",
            _due(entry["dueAtMs"], now_ms),
            _runs_in(entry, now_ms),
            _note(entry),
        )
    )


def _due(due_at_ms: int | None, now_ms: int) -> str:
    if due_at_ms is None:
        return "never"
    return f"in {_span(due_at_ms - now_ms)}" if due_at_ms > now_ms else f"since {_span(now_ms - due_at_ms)}"


def _runs_in(entry: JSONObject, now_ms: int) -> str:
    executor = entry["executor"]
    if executor is None:
        return "-"
    alive = (entry["leaseUntilMs"] or 0) > now_ms
    return f"{executor[:_EXECUTOR_CHARS]}{'' if alive else ' (dead)'}"


def _note(entry: JSONObject) -> str:
    notes = []
    if entry.get("problem"):
        notes.append(entry["problem"])
    elif "createdAtMs" not in entry:
        notes.append(f"sealed with {entry['sealedWith']}")
    if entry.get("expired"):
        notes.append("expired")
    if entry.get("outstanding"):
        notes.append(f"asks {', '.join(entry['outstanding'])}")
    if entry.get("statusMessage"):
        notes.append(entry["statusMessage"])
    text = "; ".join(notes)
    return text if len(text) <= _NOTE_CHARS else f"{text[:_NOTE_CHARS]}..."


def _span(milliseconds: int) -> str:
    """A duration in its largest unit: 90 s are 1m."""
    for unit_ms, name in _SPANS:
        if milliseconds >= unit_ms:
            return f"{milliseconds // unit_ms}{name}"
    return "0s"


def _write_columns(lines: Iterable[tuple[str, ...]]) -> int:
    shown = 0
    _write("\t".join(_COLUMNS))
    for cells in lines:
        _write("\t".join(cells))
        shown += 1
    return shown


def _write_table(lines: Iterable[tuple[str, ...]]) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, no_wrap=name == "STATUS", overflow="fold")
    for cells in lines:
        table.add_row(*map(Text, cells))
    Console(highlight=False).print(table)
    return table.row_count


# --- one task


def write_task(task: ViewedTask, leases: Mapping[str, int], reader: Reader, now_ms: int, *, as_json: bool) -> None:
    """Write everything about one task to stdout."""
    entry = _describe(task, leases, reader)
    record, _ = reader.record(task.row)
    said = {} if record is None else _said(record)
    if as_json:
        write_json({**entry, **said})
        return
    for name, text in (*_facts(entry, now_ms), *((name, _value(value)) for name, value in said.items())):
        _write(f"{name}: {text}")


def _said(record: TaskRecord) -> JSONObject:
    """What was asked, answered and returned."""
    return {
        "request": record.request,
        "capabilities": record.capabilities.raw,
        "inputs": {
            key: {"request": entry.request, "answer": entry.answer, "withdrawn": entry.withdrawn}
            for key, entry in record.inputs.items()
        },
        "result": record.result,
        "error": None if record.error is None else record.error.to_wire(),
    }


def _facts(entry: JSONObject, now_ms: int) -> Iterator[tuple[str, str]]:
    """What is listed of a task, for a person: moments as times, and under names that do not speak of units."""
    for name, value in entry.items():
        match name:
            case "tenant":
                yield "owner", printable(f"{value}/{entry['subject']}")
            case "subject":
                pass
            case "dueAtMs" if value is not None:
                yield "dueAt", f"{_moment(value)} ({_due(value, now_ms)})"
            case "leaseUntilMs" if value is not None:
                yield "leaseUntil", f"{_moment(value)}{' (over)' if value <= now_ms else ''}"
            case _ if name.endswith(("AtMs", "UntilMs")):
                age = "" if value is None else f"{_moment(value)} ({_span(now_ms - value)} ago)"
                yield name.removesuffix("Ms"), age or "-"
            case _:
                yield name, _value(value)
    if "createdAtMs" not in entry and "problem" not in entry:
        yield "payload", f"sealed with the key {printable(str(entry['sealedWith']))}; --key-file opens it"


def _moment(wall_ms: int) -> str:
    try:
        return timestamp(wall_ms)
    except (ValueError, OverflowError, OSError):
        return f"{wall_ms} ms"  # beyond the year 9999


def _value(value: Any) -> str:
    """A value for a person: strings as they are, everything else as JSON; no longer than fits a screen or two."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    shown = printable(text[:_VALUE_CHARS], keep_lines=not isinstance(value, str))
    rest = len(text) - _VALUE_CHARS
    return shown if rest <= 0 else f"{shown}\n[{rest} more characters; --json shows all]"


def _write(line: str) -> None:
    # The bytes do not depend on the locale.
    sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
