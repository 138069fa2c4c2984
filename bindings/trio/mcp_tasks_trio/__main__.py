"""``python -m mcp_tasks_trio`` is ``mcp-tasks``."""

from __future__ import annotations

from mcp_tasks_trio.cli import main

if __name__ == "__main__":
    main()
