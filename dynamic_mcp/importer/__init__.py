"""Convert the MCP settings of other tools, and put dynamic-mcp into them; nothing that is found is ever run."""
