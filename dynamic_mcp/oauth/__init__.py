"""Logging in to remote servers: found out, done once in a browser, and refreshed silently afterwards."""
