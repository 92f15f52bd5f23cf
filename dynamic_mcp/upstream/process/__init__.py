"""A server as a child process, and everything that it starts."""
