"""The HTTP face: what is answered to which request, without any I/O, and two thin ways in: a server and an ASGI app."""
