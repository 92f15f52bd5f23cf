"""Limits the rate and the concurrency of tool calls."""
