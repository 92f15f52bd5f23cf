"""The witness over streamable HTTP, in the test's loop: it keeps the path and the headers of each greeting."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from tests.clients.witness import answered
from tests.upstreams.odd_http import Connection, Request


class RemoteWitness:
    """The listener; every path is the server's."""

    def __init__(self) -> None:
        self.url = ""
        self.greetings: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[RemoteWitness]:
        """Listen at a port of this machine."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        try:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(Connection(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            while True:
                await self._answer(await connection.request(), connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close()

    async def _answer(self, request: Request, to: Connection) -> None:
        if "/.well-known/" in request.path:  # no login is wanted here
            await to.respond(404)
        elif request.method != "POST":
            await to.respond(405)
        elif "id" not in request.message:
            await to.respond(202)
        else:
            if request.message["method"] == "initialize":
                self.greetings.append(request)
            body = json.dumps(answered(request.message)).encode()
            await to.respond(200, body, content_type="application/json")
