"""Commands of approvals."""
