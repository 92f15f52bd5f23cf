"""What commands have to do with approvals."""
