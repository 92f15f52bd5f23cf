"""Serves the draft extension `io.modelcontextprotocol/groups`: our groups, and the tools of one, as typed lists."""
