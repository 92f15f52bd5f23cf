"""MCP on the wire: frames, lines, event streams, names and URI templates."""
