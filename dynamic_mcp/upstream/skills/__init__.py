"""An MCP server made of folders of skills."""
