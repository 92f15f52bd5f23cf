"""The command `dynamic-mcp sandbox`."""
