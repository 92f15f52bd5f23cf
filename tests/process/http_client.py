"""A client of a program that serves over HTTP, and ways to start such a program."""

from __future__ import annotations

import contextlib
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from dynamic_mcp.system import file_reader
from tests.own_process import OWN
from tests.program import BOUND_S, Json, Program, started

_MEDIA = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class HttpClient:
    """One session over streamable HTTP."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.url = url
        self._http = http
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}

    async def initialize(self, name: str = "test") -> Json:
        """Begin a session, as an AI tool of this name."""
        client = {"name": name, "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        answer = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self._session = {"mcp-session-id": answer.headers["mcp-session-id"]}
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return read_answer(answer)["result"]

    async def request(self, method: str, params: Json = None) -> Json:
        """Send a request, and return its answer."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params or {}}
        return read_answer(await self.post(message))

    async def call(self, group: str, name: str, args: Json = None) -> Json:
        """Call a tool, and return its result."""
        arguments = {"group": group, "name": name, "args": args or {}}
        answer = await self.request("tools/call", {"name": "call_dynamic_tool", "arguments": arguments})
        return answer["result"]

    async def post(self, message: Json) -> httpx2.Response:
        """Send a message."""
        return await self._http.post(self.url, json=message, headers={**_MEDIA, **self._session})

    async def has_received(self, group: str, marker: str) -> None:
        """Wait until a server was sent a line with this in it."""
        while marker not in json.dumps(await self.call(group, "record")):
            pass


def read_answer(response: httpx2.Response) -> Json:
    """Return the message that answers a request, which may be the last in a stream."""
    if response.headers["content-type"].startswith("application/json"):
        return response.json()
    lines = [line.removeprefix("data:") for line in response.text.splitlines() if line.startswith("data:")]
    return next(message for line in lines if line.strip() and "id" in (message := json.loads(line)))


def write_config(folder: Path, servers: Json, **settings: Json) -> Path:
    """Write a config, as an editor does, by a rename."""
    file, new = folder / "dynamic-mcp.json", folder / "new.json"
    new.write_text(json.dumps({"mcpServers": servers, "settings": settings}))
    file_reader.replace(new, file)
    return file


@contextlib.asynccontextmanager
async def serving_http(file: Path, *words: str) -> AsyncIterator[Program]:
    """Run `serve --http` with these words after it; its input is closed at once, and it gets a signal in the end."""
    command = (*OWN, "serve", str(file), "--http", *words)
    async with started(*command, terminate=True) as program:
        program.end_input()
        yield program


@contextlib.asynccontextmanager
async def connected(
    url: str, *, verify: ssl.SSLContext | bool = True, uds: str | None = None, name: str = "test"
) -> AsyncIterator[HttpClient]:
    """Connect to a server at a URL, in a session, as an AI tool of this name."""
    transport = httpx2.AsyncHTTPTransport(uds=uds, verify=verify)
    async with httpx2.AsyncClient(transport=transport, timeout=BOUND_S, trust_env=False) as http:
        client = HttpClient(url, http)
        await client.initialize(name)
        yield client
