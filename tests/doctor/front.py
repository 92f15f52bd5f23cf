"""A service over HTTP as a client sees it through a reverse proxy, with the faults of that."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate

from tests.upstreams.odd_http import head_of

_META = "io.modelcontextprotocol/protocolVersion"


@dataclass(frozen=True)
class Faults:
    """What is wrong with what is in front; by default, nothing.

    `refuses` is the answer to the first message: a status, and what dynamic-mcp says, or empty for a page of others.
    A stream has these pieces, each after so many seconds, and then stays open unless it `ends`.
    """

    refuses: tuple[int, str] | None = None
    needs_token: bool = False
    drops: tuple[str, ...] = ()
    largest: int = 10_000_000
    pieces: tuple[tuple[float, bytes], ...] = ((0.0, b": alive\n\n"), *((0.2, b": alive\n\n"),) * 1000)
    ends: bool = False
    stream_status: int = 200
    stream_headers: Mapping[str, str] = field(default_factory=dict)
    delete_status: int = 200


class Front:
    """What a client of the service has sent: the headers of each request, by its method or message."""

    def __init__(self, faults: Faults) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._faults = faults

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                headers = {name: value for name, value in fields.items() if name not in self._faults.drops}
                body = await reader.readexactly(int(fields.get("content-length", "0")))
                await self._answer(head[0].split()[0], headers, body, writer)

    async def _answer(self, verb: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        faults = self._faults
        message = json.loads(body) if verb == "POST" else {}
        method = message.get("method", verb)
        self.requests.append((method, headers))
        if len(body) > faults.largest:
            self._page(writer, 413)
        elif faults.needs_token and "authorization" not in headers:
            self._error(writer, 401, "authentication required")
        elif method == "initialize" and faults.refuses is not None:
            status, reason = faults.refuses
            self._error(writer, status, reason) if reason else self._page(writer, status)
        elif method == "server/discover" and "mcp-method" not in headers:
            self._error(writer, 400, "missing header `Mcp-Method`")
        elif verb == "GET":
            await self._stream(writer)
        elif verb == "DELETE":
            self._page(writer, faults.delete_status)
        elif "id" in message:
            session = {} if "mcp-session-id" in faults.drops else {"mcp_session_id": "abc"}
            self._document(writer, 200, {"jsonrpc": "2.0", "id": 1, "result": {}}, **session)
        else:
            self._page(writer, 202)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        faults = self._faults
        fields = {"content_type": "text/event-stream", "connection": "close", **faults.stream_headers}
        writer.write(head_of(faults.stream_status, **fields))
        for pause_s, piece in faults.pieces:
            await writer.drain()
            await asyncio.sleep(pause_s)
            writer.write(piece)
        await writer.drain()
        if not faults.ends and faults.stream_status == 200:
            await asyncio.Event().wait()
        writer.close()

    def _error(self, writer: asyncio.StreamWriter, status: int, reason: str) -> None:
        self._document(writer, status, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": reason}})

    def _page(self, writer: asyncio.StreamWriter, status: int) -> None:
        self._write(writer, status, b"<h1>a page</h1>" if status != 202 else b"", content_type="text/html")

    def _document(self, writer: asyncio.StreamWriter, status: int, document: object, **fields: str) -> None:
        self._write(writer, status, json.dumps(document).encode(), content_type="application/json", **fields)

    def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes, **fields: str) -> None:
        fields = {**fields, "date": formatdate(usegmt=True), "content_length": str(len(body))}
        writer.write(head_of(status, **fields) + body)


@contextlib.asynccontextmanager
async def serving_front(faults: Faults | None = None) -> AsyncIterator[tuple[str, Front]]:
    """Serve at any port; yield the URL, and what is sent there."""
    front, tasks = Front(faults or Faults()), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await front.serve(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", front
    finally:
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
