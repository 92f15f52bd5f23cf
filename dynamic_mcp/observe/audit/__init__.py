"""The audit log: a chain of JSON lines, one file for each day, that shows every change."""
