"""A built-in OAuth 2.1 authorization server for MCP clients. Users authenticate elsewhere, and grant access here."""
