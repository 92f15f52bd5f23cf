"""Configured servers: what each offers, and the life of each instance."""
