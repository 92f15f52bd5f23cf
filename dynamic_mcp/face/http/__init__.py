"""The HTTP face: a core without I/O, our own HTTP/1.1 server, and an ASGI application."""
