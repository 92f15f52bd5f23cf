"""Parses help texts: `--help` and manual pages of all common forms, without running anything."""
