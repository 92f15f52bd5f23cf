"""Imports the MCP servers of other tools, and installs dynamic-mcp into them. Never runs anything that it reads."""
