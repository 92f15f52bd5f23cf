"""A small OAuth 2.1 authorization server for MCP clients: people log in elsewhere, and grant access here."""
