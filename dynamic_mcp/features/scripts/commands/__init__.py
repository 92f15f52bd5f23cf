"""The `cache` command."""
