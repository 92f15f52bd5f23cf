"""A web server on loopback for programs that ask one: it notes what is asked, and answers something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tests.program import BOUND_S

LARGE = 10_000_001


class Site:
    """A web server that notes the requests, with their bodies.

    By itself it answers with the path; `/to?URL` redirects, `/missing` is not there, `/large` has ten megabytes and
    one byte, and `/endless` does not end. `answer` returns another body for a request, or None.
    """

    def __init__(self, answer: Callable[[str], str | None] = lambda request: None) -> None:
        self.requests: list[str] = []
        self._answer = answer
        self._server: asyncio.Server

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def address(self) -> str:
        """The host and the port."""
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://{self.address}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(BOUND_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                body = await reader.readexactly(_length(head))
                self.requests.append(head + body.decode())
                await self._write(head.split()[1], writer, has_body=not head.startswith("HEAD"))
        writer.close()

    async def _write(self, path: str, writer: asyncio.StreamWriter, *, has_body: bool) -> None:
        status, more, body = "200 OK", "Content-Type: text/plain", f"this is {path}\n"
        if path.startswith("/to?"):
            status, more = "302 Found", f"Location: {path[4:]}"
        if path == "/missing":
            status = "404 Not Found"
        if path == "/large":
            body = "x" * LARGE
        if path == "/endless":
            await _flood(writer)
        if (own := self._answer(self.requests[-1])) is not None:
            body, more = own, f"Content-Type: {'application/json' if own.startswith('{') else 'text/xml'}"
        head = f"HTTP/1.1 {status}\r\n{more}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body * has_body).encode())
        await writer.drain()


async def _flood(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 1_000_000)
        await writer.drain()


def _length(head: str) -> int:
    lines = (line.partition(": ") for line in head.lower().splitlines())
    return next((int(value) for name, _, value in lines if name == "content-length"), 0)
