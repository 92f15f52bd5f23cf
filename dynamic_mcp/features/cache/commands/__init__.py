"""The command of the cache."""
