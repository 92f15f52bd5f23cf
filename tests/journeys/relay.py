"""A network between a client and a server, whose connections break when somebody asks for `GET /cut`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

_PIECE_BYTES = 1 << 16
_CUT = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


class Relay:
    """Passes on what comes, both ways, until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection of the client."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(_PIECE_BYTES)
        if first.startswith(b"GET /cut "):
            self.cut()
            writer.write(_CUT)
        elif first:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
            server_writer.write(first)
            both = {writer, server_writer}
            self._writers |= both
            await asyncio.gather(_pass_on(reader, server_writer), _pass_on(server_reader, writer))
            self._writers -= both
        writer.close()

    def cut(self) -> None:
        """Break every connection, as if a cable was pulled out and in again."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        """Break every connection, and wait until they are gone."""
        self.cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_PIECE_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def relayed(origin: str) -> AsyncIterator[str]:
    """Hand out the origin at which the server at this one is found, too."""
    relay = Relay(urlsplit(origin).port or 80)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await relay.close()
