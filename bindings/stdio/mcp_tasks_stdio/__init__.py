"""The stdio transport, without I/O."""
