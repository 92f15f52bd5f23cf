"""The commands of the audit log."""
