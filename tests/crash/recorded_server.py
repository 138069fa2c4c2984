"""A server of which every write and every synchronization of its store's files and of its stdout is written down.

python -m tests.crash.recorded_server LIBRARY RECORD FOLDER SYNCHRONOUS

Runs with LIBRARY, made of ``tests/sqlite/file_faults.c``, in LD_PRELOAD. Stdout is a named pipe in FOLDER, so that one
list holds what happened in the order in which it happened.
"""

from __future__ import annotations

import ctypes
import os
import sys

from mcp_tasks_sqlite import SqliteTaskStore
from mcp_tasks_trio import run_stdio
from tests.crash.crash_app import APPLICATION


def main() -> int:
    library, record, folder, synchronous = sys.argv[1:]
    faults = ctypes.CDLL(library)
    store = SqliteTaskStore(
        os.path.join(folder, "tasks.db"), synchronous="NORMAL" if synchronous == "NORMAL" else "FULL"
    )
    faults.faults_record(os.fsencode(record))
    faults.faults_arm(os.fsencode(folder), ctypes.c_long(0), 0, 0)
    return run_stdio(APPLICATION, store=store)


if __name__ == "__main__":
    sys.exit(main())
