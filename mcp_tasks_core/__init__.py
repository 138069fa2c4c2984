"""The MCP Tasks extension (io.modelcontextprotocol/tasks, revision 2026-07-28), without I/O."""
