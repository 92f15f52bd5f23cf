"""What the audit log says of requests and of events: one line for each."""
