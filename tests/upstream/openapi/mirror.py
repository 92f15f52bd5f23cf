"""An HTTP service that keeps exactly what it receives, and a proxy that has its operations as tools."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from dynamic_mcp.config.read import read
from dynamic_mcp.oauth.logins import Logins
from dynamic_mcp.proxy.proxy import Proxy
from tests.fakes import Client, Json
from tests.program import BOUND_S


class Received(Struct, frozen=True):
    """A request as it came: its target and headers are those bytes, as Latin-1."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """Return the values of a header, each as often as it came."""
        return [value for each, value in self.headers if each.lower() == name]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[str]:
        _, _, query = self.target.partition("?")
        return query.split("&") if query else []


class Reply(Struct, frozen=True):
    """What the service answers."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    is_endless: bool = False


class Mirror:
    """The service, while it is entered. `replies` are by path, without the query; of any other path it is `{}`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.replies: dict[str, Reply] = {}
        self.left: asyncio.Future[bytes]
        """What comes on the connection of an endless reply: nothing, once the client has left."""
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self.left = asyncio.get_running_loop().create_future()
        self._listener = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await _read_request(reader)
                self.received.append(request)
                reply = self.replies.get(request.path, Reply())
                writer.write(_write(reply, request.method))
                await writer.drain()
                if reply.is_endless:
                    self.left.set_result(await reader.read(1))
        writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, target, _ = first.split(" ")
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Received(method, target, headers, await reader.readexactly(length))


def _write(reply: Reply, method: str) -> bytes:
    headers = [("content-length", str(len(reply.body) + reply.is_endless)), *reply.headers]
    if reply.content_type:
        headers.append(("content-type", reply.content_type))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    body = b"" if method == "HEAD" or reply.status in (204, 304) else reply.body
    return f"HTTP/1.1 {reply.status} Any\r\n{lines}\r\n".encode() + body


def document(*operations: Json, version: str = "3.1.0", **members: Any) -> Json:  # Any: JSON
    """Return a document with these operations, each with its `path` and, if it is not get, its `method`."""
    paths: dict[str, Json] = {}
    for number, each in enumerate(operations):
        written = {"operationId": f"op{number}", "responses": {}, **each}
        method, path = written.pop("method", "get"), written.pop("path", "/x")
        paths.setdefault(path, {})[method] = written
    return {"openapi": version, "info": {"title": "It", "version": "1"}, "paths": paths, **members}


@contextlib.asynccontextmanager
async def serving(
    folder: Path, tree: Json, url: str | None = None, *, environment: Mapping[str, str] | None = None, **entry: Json
) -> AsyncIterator[Client]:
    """Serve the operations of a document, the group `it`, to a client of the two tools."""
    (folder / "it.json").write_text(json.dumps(tree), encoding="utf-8")
    server = {"openapi": "./it.json", **({} if url is None else {"url": url}), **entry}
    file = folder / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"it": server}}), encoding="utf-8")
    logins = Logins(folder / "logins", lambda group: f"log in to {group}", None)
    proxy = Proxy(read(file, {"HOME": str(folder), **(environment or {})}), open_logins=lambda: logins)
    client = Client(proxy, bound_s=BOUND_S)
    try:
        await client.initialize()
        yield client
    finally:
        await proxy.close()
        await logins.close()
