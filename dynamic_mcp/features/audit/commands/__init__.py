"""What commands have to do with the audit log."""
