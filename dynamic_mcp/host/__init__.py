"""Serves a config: to one client over stdio, or as a daemon to all windows."""
