"""MCP servers and clients with tasks on trio and asyncio."""
