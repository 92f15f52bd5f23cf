"""Visibility of a running program: its log, and its entry in the registry of proxies."""
