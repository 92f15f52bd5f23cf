"""Logins to remote servers: discovered, done once in a browser, and renewed silently afterwards."""
