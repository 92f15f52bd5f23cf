"""Finds out who HTTP clients are: by tokens of our own, signed tokens, headers of a reverse proxy, and logins."""
