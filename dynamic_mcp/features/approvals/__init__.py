"""Asks a person before a request whose rule says so: in the client by a form, or in the queue."""
