"""Asks a user before a request whose rule says so: by a form in the client, or through the queue."""
