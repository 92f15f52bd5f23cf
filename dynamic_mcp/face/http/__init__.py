"""The HTTP face: a core without I/O that decides what is answered, and two thin ways in: a server and an ASGI app."""
