"""The use cases of MCP in front of many groups; none knows a transport."""
