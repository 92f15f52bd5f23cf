"""Finds out who a client of the HTTP face is."""
