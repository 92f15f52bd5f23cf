"""Reads and edits foreign files: their languages, the shape of a tool's servers, and the tool of a file."""
