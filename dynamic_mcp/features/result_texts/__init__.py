"""Cleans texts of results, and marks them as data."""
