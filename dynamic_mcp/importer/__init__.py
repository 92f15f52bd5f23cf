"""Import the MCP servers of other tools, and install dynamic-mcp into them. Nothing that is read is ever run."""
