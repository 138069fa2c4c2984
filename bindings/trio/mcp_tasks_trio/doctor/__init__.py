"""Judges any MCP server from outside, over HTTP or stdio: one verdict for each requirement that can be seen there."""
